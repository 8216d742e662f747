package kv

import "github.com/llm-coordinator/coordinator/transport/wire"

func init() { Register("kv-lmcache", func() (Connector, error) { return lmcache{}, nil }) }

// lmcache is vLLM's LMCacheConnectorV1 and LMCacheMPConnector over storage that
// both workers share: decode looks the KV up by the prompt's tokens. Nothing goes
// over the wire, nothing is pinned, and prefill answers with nothing to hand on.
type lmcache struct{}

func (lmcache) Name() string                 { return "kv-lmcache" }
func (lmcache) Needs() Needs                 { return Needs{} }
func (l lmcache) Begin(Peer) Exchange        { return l }
func (lmcache) Pins() bool                   { return false }
func (lmcache) HostField() string            { return "" }
func (lmcache) Prefill() wire.Transfers      { return wire.Transfers{} }
func (lmcache) Decode([]byte) wire.Transfers { return wire.Transfers{} }
