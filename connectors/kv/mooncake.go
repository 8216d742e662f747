package kv

import (
	"crypto/rand"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

func init() { Register("kv-mooncake", func() (Connector, error) { return mooncake{}, nil }) }

// mooncake is vLLM's MooncakeConnector: prefill sends the KV to the decode worker
// that asks for it by an id, which we mint for both. The prefill worker answers
// with nothing to hand on; its decode worker has to be told where it is and what
// its engine is called. The worker keeps the KV for its one reader, for
// VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT (480 s) if that does not come.
type mooncake struct{}

// mooncakePort is VLLM_MOONCAKE_BOOTSTRAP_PORT by default.
const mooncakePort = 8998

func (mooncake) Name() string { return "kv-mooncake" }

func (mooncake) Needs() Needs {
	return Needs{Order: AnyOrder, Peer: true, Engine: true, Port: Port{Default: mooncakePort, Env: "VLLM_MOONCAKE_BOOTSTRAP_PORT"}}
}

func (mooncake) Begin(p Peer) Exchange {
	return mooncakeExchange{from: p, id: "xfer-" + rand.Text()}
}

func (mooncake) Pins() bool { return true }

// HostField is empty: we name the host.
func (mooncake) HostField() string { return "" }

type mooncakeExchange struct {
	from Peer
	id   string
}

func (x mooncakeExchange) At(p Peer) Exchange {
	x.from = p
	return x
}

func (x mooncakeExchange) Prefill() wire.Transfers {
	return wire.Transfers{KV: wire.Raw(`{"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":"` + x.id + `"}`)}
}

// Decode needs nothing of prefill's answer. Without an engine there is no
// hand-off: a decode worker would wait for it until a time-out of minutes.
func (x mooncakeExchange) Decode([]byte) wire.Transfers {
	if x.from.Host == "" || x.from.Engine == "" {
		return wire.Transfers{}
	}
	return wire.Transfers{KV: wire.Raw(`{"do_remote_decode":false,"do_remote_prefill":true,"transfer_id":"` + x.id +
		`","remote_engine_id":` + quoted(x.from.Engine) + `,"remote_bootstrap_addr":` + quoted("http://"+x.from.address()) + `}`)}
}
