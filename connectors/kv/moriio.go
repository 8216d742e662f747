package kv

import (
	"crypto/rand"
	"strconv"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

func init() {
	Register("kv-moriio", func() (Connector, error) { return moriio{Sizes{1, 1, 1}}, nil })
}

// moriio is vLLM's MoRIIOConnector in READ mode: decode reads the KV from the
// prefill worker that its answer names. Both are told how the other is split. The
// worker keeps the KV for its one reader, for an hour if that does not come.
type moriio struct{ sizes Sizes }

func (moriio) Name() string            { return "kv-moriio" }
func (moriio) Needs() Needs            { return Needs{} }
func (m moriio) For(s Sizes) Connector { return moriio{s} }
func (m moriio) Begin(Peer) Exchange   { return moriioExchange{m.sizes, "xfer-" + rand.Text()} }
func (moriio) Pins() bool              { return true }
func (moriio) HostField() string       { return "remote_host" }

type moriioExchange struct {
	sizes Sizes
	id    string
}

// Prefill names the id, without which the worker fails, and decode's sizes.
func (x moriioExchange) Prefill() wire.Transfers {
	return wire.Transfers{KV: wire.Raw(`{"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":"` + x.id +
		`","remote_dp_size":` + strconv.Itoa(x.sizes.DecodeDP) + `,"remote_tp_size":` + strconv.Itoa(x.sizes.DecodeTP) + `}`)}
}

// moriioNeeds are the fields of prefill's answer that decode cannot do without.
var moriioNeeds = []string{"remote_engine_id", "remote_host", "remote_handshake_port", "remote_notify_port", "remote_block_ids", "transfer_id"}

// Decode hands on what prefill answered, and what it did not say of the worker: how
// its model is split. Which of several DP ranks has the KV only the worker knows:
// if it says that there are several and not which, there is no hand-off.
func (x moriioExchange) Decode(given []byte) wire.Transfers {
	params := complete(given, moriioNeeds)
	if params == nil {
		return wire.Transfers{}
	}
	if ranks := params.Get("remote_dp_size"); !wire.IsNull(ranks) && string(ranks) != "1" && wire.IsNull(params.Get("remote_dp_rank")) {
		return wire.Transfers{}
	}
	e := params.Edit()
	e.SetRaw("do_remote_decode", "false")
	e.SetRaw("do_remote_prefill", "true")
	for _, size := range []struct {
		name string
		n    int
	}{{"remote_dp_size", 1}, {"remote_tp_size", x.sizes.PrefillTP}, {"remote_dp_rank", 0}} {
		if wire.IsNull(params.Get(size.name)) {
			e.SetRaw(size.name, strconv.Itoa(size.n))
		}
	}
	return wire.Transfers{KV: e.Text()}
}
