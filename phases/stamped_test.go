package phases

import (
	"github.com/llm-coordinator/coordinator/connectors/kv"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

func init() {
	kv.Register("kv-stamped", func() (kv.Connector, error) {
		nixl, err := kv.New("kv-nixl")
		return stamped{nixl}, err
	})
}

// stamped is kv-nixl for workers that want to know which fleet a prefill is
// from. What it does not say itself is as with kv-nixl.
type stamped struct{ kv.Connector }

func (stamped) Name() string { return "kv-stamped" }

func (s stamped) Begin(p kv.Peer) kv.Exchange { return stamping{s.Connector.Begin(p)} }

type stamping struct{ kv.Exchange }

func (stamping) Prefill() wire.Transfers {
	return wire.Transfers{KV: wire.Raw(`{"do_remote_decode":true,"do_remote_prefill":false,"x_fleet":"blue"}`)}
}
