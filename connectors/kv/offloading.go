package kv

import (
	"crypto/rand"
	"strconv"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

func init() { Register("kv-offloading", func() (Connector, error) { return offloading{}, nil }) }

// offloading is vLLM's OffloadingConnector with its P2P tier: prefill leaves the KV
// in its CPU cache under an id that we mint, and decode pulls it from there. The
// cache holds what it can: nothing is pinned in GPU memory, and a decode worker
// that does not find its KV computes the prompt.
type offloading struct{}

// offloadingPort is VLLM_P2P_SIDE_CHANNEL_PORT by default.
const offloadingPort = 5710

func (offloading) Name() string { return "kv-offloading" }

func (offloading) Needs() Needs {
	return Needs{Order: AnyOrder, Peer: true, Port: Port{Default: offloadingPort, Env: "VLLM_P2P_SIDE_CHANNEL_PORT"}}
}

func (offloading) Begin(p Peer) Exchange {
	return offloadingExchange{from: p, id: "kv-" + rand.Text()}
}

func (offloading) Pins() bool { return false }

// HostField is empty: we name the host.
func (offloading) HostField() string { return "" }

type offloadingExchange struct {
	from Peer
	id   string
}

func (x offloadingExchange) At(p Peer) Exchange {
	x.from = p
	return x
}

func (x offloadingExchange) Prefill() wire.Transfers {
	return wire.Transfers{KV: wire.Raw(`{"remote_decoder":{"kv_request_id":"` + x.id + `"}}`)}
}

// Decode needs nothing of prefill's answer.
func (x offloadingExchange) Decode([]byte) wire.Transfers {
	if x.from.Host == "" {
		return wire.Transfers{}
	}
	return wire.Transfers{KV: wire.Raw(`{"remote_prefiller":{"kv_request_id":"` + x.id + `","remote_host":` + quoted(x.from.Host) +
		`,"remote_port":` + strconv.Itoa(x.from.Port) + `}}`)}
}
