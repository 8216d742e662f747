package phases

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/llm-coordinator/coordinator/connectors/kv"
	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

const stepDecode = "decode"

func init() { Register(stepDecode, NewDecode) }

// DecodeParams are the parameters of a decode step.
type DecodeParams struct {
	// KVConnector, if set, is used instead of the pipeline's.
	KVConnector string `toml:"kv_connector"`
	// HoldFirstEvent holds a streamed answer back until its first event with
	// content: a worker that fails before that can then be made good for.
	HoldFirstEvent bool `toml:"hold_first_event"`
	// PromptTokenIDs has the transfer params of a chat without media carry the
	// prompt's token ids, so that a worker that reads them there does not tokenize.
	PromptTokenIDs bool `toml:"prompt_token_ids"`
	// CachedTokensFromPrefill has the usage of an answer say how many tokens of the
	// prompt were cached as prefill did: decode counts fetched KV as cached.
	CachedTokensFromPrefill bool `toml:"cached_tokens_from_prefill"`
}

// decode sends the client's request to a decode worker, with the hand-off if
// there is one, and streams the answer to the client as it comes.
//
// A hand-off may be usable only once: who reads it again may get another
// prompt's KV, and an answer that looks fine. So a leg is sent again with the
// same hand-off only if it provably reached no worker. After any other failure
// before the first byte the request starts again, once, from prefill.
type decode struct {
	own      string // name of the step that it is, or is part of
	upstream *gateway.Upstream
	kv       kv.Connector
	hold     bool
	pushes   bool // encode pushes embeddings, which can be read once
	ids      bool // prompt_token_ids
	cached   bool // cached_tokens_from_prefill
	lease    time.Duration
	metrics  *Metrics
}

// NewDecode builds a decode phase.
func NewDecode(deps Deps, params Params) (Phase, error) {
	p := DecodeParams{KVConnector: deps.KVConnector, HoldFirstEvent: true}
	if err := params.Decode(&p); err != nil {
		return nil, err
	}
	connector, err := kv.New(p.KVConnector)
	if err != nil {
		return nil, params.Errorf("kv_connector", "%v", err)
	}
	if err := noSequence(params, connector); err != nil {
		return nil, err
	}
	return &decode{own: stepDecode, upstream: deps.Decode, kv: connector, hold: p.HoldFirstEvent, ids: p.PromptTokenIDs, cached: p.CachedTokensFromPrefill, lease: deps.KVLease, metrics: deps.Metrics}, nil
}

func (p *decode) Name() string { return stepDecode }

// Pool is the one that operators see beside the phase.
func (p *decode) Pool() string { return PoolDecode }

// String describes the phase for operators.
func (p *decode) String() string {
	s := "kv connector " + p.kv.Name()
	if !p.hold {
		s += ", first event not held"
	}
	if p.ids {
		s += ", prompt_token_ids"
	}
	if p.cached {
		s += ", cached tokens from prefill"
	}
	return s
}

// Admit refuses a request at the door while no decode may be sent.
func (p *decode) Admit(*Request) error { return p.upstream.Ready() }

// handoffState tells whether a worker may have a hand-off, and how many legs a run
// has sent. Tasks write it, the supervisor reads it when they are home.
type handoffState struct {
	reached           atomic.Bool
	decodes, prefills atomic.Int32 // prefills: beside decode
	// kept is a prefill beside decode that has answered, if its worker keeps the KV.
	kept atomic.Pointer[Prefilled]
}

func (h *handoffState) get() bool { return h != nil && h.reached.Load() }

func (h *handoffState) prefilled() *Prefilled {
	if h == nil {
		return nil
	}
	return h.kept.Load()
}

func (p *decode) Plan(r *Request) (Plan, error) {
	proto, src := r.Protocol, r.source()
	var handoff wire.Transfers
	if r.Prefilled.Handoff != nil {
		if handoff = *r.Prefilled.Handoff; p.ids {
			handoff = proto.WithPromptIDs(src, handoff)
		}
	}
	run := &decoding{decode: p, proto: proto, way: r.wayOut(), state: &handoffState{}, rerun: p.own,
		spent: r.Reruns > 0, deadline: r.Deadline}
	run.way.cached = p.cachedTokens(r)
	if r.Prefilled.Ran {
		run.rerun = stepPrefill
		if p.pushes && r.Encoded.Descriptors != nil {
			run.rerun = stepEncode
		}
		run.once = r.Prefilled.Handoff != nil && p.kv.Pins()
		run.handedOff = r.Prefilled.At
	}
	run.leg = gateway.Leg{Path: proto.Path, Query: r.Query, Header: r.Header, ID: r.ID, Attempt: r.Decoded.Attempts,
		Body:   func(string) wire.Payload { return proto.DecodeLeg(src, handoff) },
		Permit: r.decodePermit, Trials: r.trials(), Resend: gateway.ResendUnreached, Deadline: r.Deadline, Fresh: run.fresh, Hold: p.hold, Journal: r.Journal}
	r.Decoded.reached = run.state
	return Plan{Tasks: []Task{{Pool: PoolDecode, Run: run.run}}}, nil
}

// decoding is one run of decode.
type decoding struct {
	*decode
	proto *wire.Protocol
	way   wayOut
	leg   gateway.Leg
	state *handoffState
	// once: the hand-off can be read once. handedOff is when prefill gave it.
	once      bool
	handedOff time.Time
	// rerun names the step that the request may start again from; spent: it did.
	rerun    string
	spent    bool
	deadline time.Time
	// beside is the prefill that runs at the same time, nil if none does.
	beside *fate
}

// leaseMargin is how much of a lease has to be left for decode to fetch the KV.
const leaseMargin = 10 // a tenth

// fresh refuses to send a hand-off whose lease is over: the worker has given its
// memory to another prompt by then.
func (d *decoding) fresh() error {
	if d.once && d.lease > 0 && time.Since(d.handedOff) > d.lease-d.lease/leaseMargin {
		return errStale
	}
	return nil
}

// errStale is the fault of a request whose KV was kept for too long.
var errStale = wire.Faultf(wire.UpstreamTimeout, "the prompt's KV was not fetched within pipeline.kv_lease")

// again ends a run of decode: the request starts again from a step.
type again struct {
	from, reason string
	cause        error
}

func (a *again) Error() string { return "run again from " + a.from + ": " + a.cause.Error() }
func (a *again) Unwrap() error { return a.cause }

// run sends the leg and relays its answer.
func (d *decoding) run(ctx context.Context) (result Result, err error) {
	if d.once {
		d.metrics.handoffSeconds.Observe(time.Since(d.handedOff).Seconds())
	}
	answer, sent, err := d.upstream.Open(ctx, d.leg)
	d.state.reached.Store(sent.Reached)
	d.state.decodes.Store(int32(sent.Attempts))
	if err != nil {
		return nil, d.failed(ctx, sent, err)
	}
	defer closeNow(answer, &result)
	var held []byte
	if reason := worthRerun(answer.Status); reason != "" {
		if (sent.Reached || reason == "500") && d.mayRerun(ctx, reason, answer.Header.Get(wire.HeaderRetryAfter)) {
			answer.Discard()
			return nil, &again{d.from(reason), reason, statusFault(answer.Status)}
		}
	} else if d.hold {
		if held, err = holdBack(answer, d.proto); err != nil {
			return nil, d.failedInside(ctx, err)
		}
	}
	if err := d.beside.answered(answer.Status); err != nil {
		return nil, err
	}
	result, err = d.way.relay(ctx, answer, held, Decoded{Status: answer.Status, Attempts: sent.Attempts})
	if isUnsent(ctx, err) {
		return nil, d.broken(ctx, answer, err)
	}
	return result, err
}

// worthRerun returns the reason to run again after an answer that is a failure,
// or "": a worker that could not load the KV answers 500.
func worthRerun(status int) string {
	switch status {
	case http.StatusInternalServerError:
		return "500"
	case http.StatusBadGateway:
		return "502"
	case http.StatusServiceUnavailable:
		return "503"
	case http.StatusGatewayTimeout:
		return "504"
	}
	return ""
}

func statusFault(status int) error {
	return wire.Faultf(wire.UpstreamFailed, "decode answered %d", status)
}

// mayRerun reports whether the request may start again, and waits for its time.
func (d *decoding) mayRerun(ctx context.Context, reason, after string) bool {
	return !d.spent && d.beside.giveUp() && d.upstream.Retry(ctx, 1, reason, after, d.deadline)
}

// failed says what becomes of a leg that got no answer.
func (d *decoding) failed(ctx context.Context, sent gateway.Sent, err error) error {
	if errors.Is(err, errStale) {
		d.metrics.handoffExpired.Inc()
		if d.mayRerun(ctx, "kv_lease", "") {
			return &again{d.rerun, "kv_lease", err}
		}
		return err
	}
	reason := sent.Reason()
	if reason == "" || !sent.Reached || !d.mayRerun(ctx, reason, "") {
		return err // where it reached nobody it has been sent again often enough
	}
	return &again{d.from(reason), reason, err}
}

// from returns the step to start again from. A hand-off that can be read more
// than once is as good as it was, unless it may be the reason.
func (d *decoding) from(reason string) string {
	if d.beside == nil && !d.once && reason != "500" {
		return d.own
	}
	return d.rerun
}

// reasonFirstEvent is why a request runs again whose stream failed while it was held.
const reasonFirstEvent = "first_event"

// failedInside says what becomes of a stream that failed while it was held.
func (d *decoding) failedInside(ctx context.Context, err error) error {
	if ctx.Err() != nil || !d.mayRerun(ctx, reasonFirstEvent, "") {
		return err
	}
	return &again{d.rerun, reasonFirstEvent, err}
}

// broken says what becomes of any other answer that broke before some of it was
// passed on.
func (d *decoding) broken(ctx context.Context, answer *gateway.Answer, err error) error {
	reason := answer.Reason()
	if reason == "" || answer.Status/100 != 2 || !d.mayRerun(ctx, reason, "") {
		return err
	}
	return &again{d.from(reason), reason, err}
}

func (p *decode) Join(r *Request, results []Result) (Verdict, error) {
	found := results[0].(Decoded)
	r.Decoded.Status = found.Status
	r.Decoded.Attempts += found.Attempts
	return Done, nil
}

// Recover starts the request again, once.
func (p *decode) Recover(r *Request, err error) (Verdict, error) {
	a := (*again)(nil)
	if !errors.As(err, &a) {
		return Verdict{}, err
	}
	r.Reruns++
	r.Decoded.Attempts += int(r.Decoded.reached.decodes.Load())
	r.decodePermit.GiveBack() // if decode was not sent
	r.decodePermit = nil
	p.metrics.reruns.WithLabelValues(a.reason).Inc()
	r.note("run again from " + a.from + ": " + a.reason)
	if a.from == p.own {
		return Verdict{Again: p.own}, r.takeDecodePermit(p.upstream)
	}
	return Verdict{Again: a.from}, nil
}
