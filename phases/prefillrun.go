package phases

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/llm-coordinator/coordinator/connectors/kv"
	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// FleetParams say how the model is split on the workers, for connectors that have to
// tell each side how the other is: kv-moriio.
type FleetParams struct {
	PrefillTP int `toml:"prefill_tp_size"`
	DecodeTP  int `toml:"decode_tp_size"`
	DecodeDP  int `toml:"decode_dp_size"`
}

var oneRank = FleetParams{PrefillTP: 1, DecodeTP: 1, DecodeDP: 1}

// sized gives a connector the sizes that it needs; one that needs none must not have
// been given any.
func (f FleetParams) sized(params Params, c kv.Connector) (kv.Connector, error) {
	for _, s := range [...]struct {
		key string
		n   int
	}{{"fleet.prefill_tp_size", f.PrefillTP}, {"fleet.decode_tp_size", f.DecodeTP}, {"fleet.decode_dp_size", f.DecodeDP}} {
		if s.n < 1 {
			return nil, params.Errorf(s.key, "must be at least 1")
		}
		if _, ok := c.(kv.Sized); !ok && s.n != 1 {
			return nil, params.Errorf(s.key, "%s does not need it: remove it", c.Name())
		}
	}
	if s, ok := c.(kv.Sized); ok {
		return s.For(kv.Sizes{PrefillTP: f.PrefillTP, DecodeTP: f.DecodeTP, DecodeDP: f.DecodeDP}), nil
	}
	return c, nil
}

// Engines knows what the engines of prefill workers are called.
type Engines interface {
	// Engine returns the id of the engine whose bootstrap server is at an address,
	// host:port, asked anew or as it was known seconds ago. It blocks while it asks.
	// The error is a fault.
	Engine(ctx context.Context, address string, anew bool) (string, error)
}

// prefilling is one run of prefill.
type prefilling struct {
	*prefill
	leg    gateway.Leg
	src    *wire.Source // that its body is made of
	pixels *pixels      // nil: all are sent
	// asking is the body by which a worker is asked for: the leg's, as far as it is
	// known then and an endpoint picker needs it.
	asking func(id string) wire.Payload
	// named is the worker that the request has been given to before, as an answer or
	// encode has called it; "" is none.
	named string
	// pushed: that worker has been sent the embeddings of the request's images. They
	// can be read once, and no other has them.
	pushed bool
	// anew: the request has failed before; what was known of engines may be why.
	anew bool
	// rerun: it may start again from encode.
	rerun bool
	// asked is the attempt of asking for a worker.
	asked int

	at       kv.Peer     // of this attempt; zero while it is not known
	exchange kv.Exchange // likewise
	said     http.Header // of the answer, if it has what is forwarded
}

// begin begins an exchange for an attempt.
func (x *prefilling) begin() wire.Transfers {
	x.exchange = x.kv.Begin(x.at)
	return x.exchange.Prefill()
}

// run sends the leg to one worker after another until one answers. Where the gateway
// alone chooses the worker it does so for each attempt by itself.
func (x *prefilling) run(ctx context.Context) (Result, error) {
	if x.boot == nil && !x.pushed {
		found, _, err := x.send(ctx)
		if err != nil {
			return nil, err
		}
		return prefillAnswer{found, x.said}, nil
	}
	x.leg.Resend = gateway.ResendNever // to the same worker
	before := x.leg.Attempt
	if x.pushed {
		x.leg.Resend = gateway.ResendUnreached
	}
	for tries := 1; ; tries++ {
		x.asked = before + tries - 1
		found, fail := x.try(ctx)
		if fail == nil {
			return prefillAnswer{found, x.said}, nil
		}
		if fail.reason == "" || x.pushed && !x.rerun || !x.upstream.Retry(ctx, tries, fail.reason, fail.after, x.leg.Deadline) {
			return nil, fail.err
		}
		if x.pushed {
			return nil, &fromEncode{&again{stepEncode, fail.reason, fail.err}, x.leg.Attempt - before}
		}
		x.anew = true
	}
}

// fromEncode ends a run of prefill after so many attempts: the request starts again.
type fromEncode struct {
	*again
	attempts int
}

// lost is why an attempt failed; reason is what another could do better at, or "".
type lost struct {
	err           error
	reason, after string
}

// lostEngine is that what the worker's engine is called is not known.
const lostEngine = "engine"

// try finds a worker and sends it the leg.
func (x *prefilling) try(ctx context.Context) (Prefilled, *lost) {
	if err := x.find(ctx); err != nil {
		return Prefilled{}, &lost{err: err}
	}
	if x.at.Host != "" {
		if err := x.identify(ctx); err != nil {
			return Prefilled{}, &lost{err: err, reason: lostEngine}
		}
	}
	found, sent, err := x.send(ctx)
	if err != nil {
		return found, &lost{err, sent.Reason(), sent.Header.Get(wire.HeaderRetryAfter)}
	}
	return found, nil
}

// find finds the worker, if it can be known before the leg is sent.
func (x *prefilling) find(ctx context.Context) error {
	var at endpoint
	var err error
	switch {
	case x.pushed:
		at, err = x.boot.given(x.named)
	case x.boot.watches() != "" && x.named == "":
		x.at, x.leg.Pin = kv.Peer{}, "" // its answer will say
		return nil
	default:
		ask := x.leg
		ask.Body, ask.Attempt = x.asking, x.asked
		at, err = x.boot.find(ctx, x.named, ask)
	}
	if err != nil {
		return err
	}
	x.at, x.leg.Pin = at.peer, at.pin
	return nil
}

// identify finds out what the worker's engine is called, if that is needed.
func (x *prefilling) identify(ctx context.Context) (err error) {
	x.at, err = identified(ctx, x.engines, x.at, x.kv.Needs(), x.anew)
	return err
}

// identified is a worker with the id of its engine, if that is needed.
func identified(ctx context.Context, known Engines, at kv.Peer, needs kv.Needs, anew bool) (_ kv.Peer, err error) {
	if needs.Engine {
		at.Engine, err = known.Engine(ctx, net.JoinHostPort(at.Host, strconv.Itoa(at.Port)), anew)
	}
	return at, err
}

// send sends the leg and makes the hand-off of its answer.
func (x *prefilling) send(ctx context.Context) (Prefilled, gateway.Sent, error) {
	answer, sent, err := x.pixels.call(ctx, x.upstream, x.leg, x.src)
	x.leg.Attempt += sent.Attempts
	if err != nil {
		return Prefilled{}, sent, err
	}
	transfer := wire.Transfer(answer)
	x.hosts.look(transfer, x.kv.HostField(), stepPrefill, "set VLLM_NIXL_SIDE_CHANNEL_HOST there")
	found := Prefilled{Ran: true, At: time.Now(), Attempts: x.leg.Attempt}
	x.said = x.forward.said(sent.Header)
	if x.cached {
		found.setCachedTokens(answer)
	}
	x.place(ctx, sent)
	if told := x.exchange.Decode(transfer); told.HandOff() {
		found.Handoff = &told
	}
	return found, sent, nil
}

// place tells the exchange which worker has answered, if that was not known before.
// If it cannot be told, there is no hand-off.
func (x *prefilling) place(ctx context.Context, sent gateway.Sent) {
	exchange, ok := x.exchange.(kv.Placed)
	if !ok || x.boot == nil || x.at.Host != "" {
		return
	}
	at, ok := x.boot.read(sent.Header)
	if !ok {
		x.leg.Journal.Note("prefill's answer does not name the worker")
		return
	}
	x.at = at.peer
	if err := x.identify(ctx); err != nil {
		x.leg.Journal.Note("the engine of the prefill worker is not known")
		return
	}
	x.exchange = exchange.At(x.at)
}
