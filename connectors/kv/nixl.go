package kv

import "github.com/llm-coordinator/coordinator/transport/wire"

func init() { Register("kv-nixl", func() (Connector, error) { return nixl{}, nil }) }

// nixl is vLLM's NixlConnector: decode pulls the KV from the prefill worker
// over RDMA. The worker keeps it under a lease until it was read once.
type nixl struct{}

func (nixl) Name() string          { return "kv-nixl" }
func (nixl) Needs() Needs          { return Needs{} }
func (n nixl) Begin(Peer) Exchange { return n }
func (nixl) Pins() bool            { return true }

// HostField is what VLLM_NIXL_SIDE_CHANNEL_HOST says, localhost by default.
func (nixl) HostField() string { return "remote_host" }

var nixlPrefill = wire.Raw(`{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`)

func (nixl) Prefill() wire.Transfers { return wire.Transfers{KV: nixlPrefill} }

// nixlNeeds are the fields without which a decode worker is told to pull from
// nowhere, and fails.
var nixlNeeds = []string{"remote_engine_id", "remote_host", "remote_port"}

func (nixl) Decode(given []byte) wire.Transfers {
	params := complete(given, nixlNeeds)
	if params == nil {
		return wire.Transfers{}
	}
	e := params.Edit()
	e.SetRaw("do_remote_decode", "false")
	e.SetRaw("do_remote_prefill", "true")
	return wire.Transfers{KV: e.Text()}
}

// complete reads what a prefill worker answered; nil unless it is an object with
// all these fields and none of them null.
func complete(given []byte, fields []string) *wire.Body {
	if given == nil {
		return nil
	}
	params, err := wire.ParseBody(given)
	if err != nil {
		return nil
	}
	for _, name := range fields {
		if wire.IsNull(params.Get(name)) {
			return nil
		}
	}
	return params
}
