package kv

import "github.com/llm-coordinator/coordinator/transport/wire"

func init() {
	Register("kv-shared-storage", func() (Connector, error) { return sharedStorage{}, nil })
}

// sharedStorage is for connectors that write KV to a place both workers see
// and find it there by the prompt: no descriptor goes over the wire, nothing is
// pinned, and it can be read any number of times.
type sharedStorage struct{}

func (sharedStorage) Name() string          { return "kv-shared-storage" }
func (sharedStorage) Needs() Needs          { return Needs{} }
func (s sharedStorage) Begin(Peer) Exchange { return s }
func (sharedStorage) Pins() bool            { return false }

// HostField is empty: whoever sees the storage finds the KV.
func (sharedStorage) HostField() string { return "" }

var (
	storagePrefill = wire.Transfers{KV: wire.Raw(`{"do_remote_decode":true,"do_remote_prefill":false}`)}
	storageDecode  = wire.Transfers{KV: wire.Raw(`{"do_remote_decode":false,"do_remote_prefill":true}`)}
)

func (sharedStorage) Prefill() wire.Transfers      { return storagePrefill }
func (sharedStorage) Decode([]byte) wire.Transfers { return storageDecode }
