package phases

import (
	"errors"
	"net/http"

	"github.com/llm-coordinator/coordinator/connectors/ec"
	"github.com/llm-coordinator/coordinator/connectors/kv"
	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// stepPrefillDecode sends both legs together.
const stepPrefillDecode = "prefill-decode"

func init() { Register(stepPrefillDecode, NewPrefillDecode) }

// PrefillDecodeParams are the parameters of a prefill-decode step.
type PrefillDecodeParams struct {
	// KVConnector and ECConnector, if set, are used instead of the pipeline's.
	KVConnector string `toml:"kv_connector"`
	ECConnector string `toml:"ec_connector"`
	// BootstrapFrom says where the address of the prefill worker comes from, and
	// BootstrapHeader which header says it, if it is asked for.
	BootstrapFrom   string `toml:"bootstrap_from"`
	BootstrapHeader string `toml:"bootstrap_header"`
	// ReleaseOnAbort is as prefill's, HoldFirstEvent as decode's.
	ReleaseOnAbort bool `toml:"release_on_abort"`
	HoldFirstEvent bool `toml:"hold_first_event"`
}

// prefillDecode sends prefill's leg and decode's at the same time, for workers of
// which neither answers without the other, and streams decode's answer to the
// client as the step decode does. The two share one fate: see pair.
//
// Both places are taken together or not at all, and prefill's goes back as soon as
// prefill has answered. So pools cannot be exhausted in a circle, whatever their
// size. Who has prefill's place has decode's too, and waits for no place: its legs
// come to an end, and the places are free. Who has only decode's, from a
// conditional decode, or because it is run again, waits for prefill's alone, ahead
// of all who have none (see actors.queue): ahead of it are only others like it, and
// who has the place waits for nobody. Who has none holds up nobody.
type prefillDecode struct {
	decode  *decode
	prefill *gateway.Upstream
	kv      kv.Connector
	needs   kv.Needs
	ec      ec.Connector
	boot    *bootstrap // nil: the connector needs no address
	engines Engines
	release bool
	probed  bool // as prefill's
	metrics *Metrics
}

// NewPrefillDecode builds a prefill-decode phase.
func NewPrefillDecode(deps Deps, params Params) (Phase, error) {
	p := PrefillDecodeParams{KVConnector: deps.KVConnector, ECConnector: deps.ECConnector, ReleaseOnAbort: true, HoldFirstEvent: true}
	if err := params.Decode(&p); err != nil {
		return nil, err
	}
	connector, err := kv.New(p.KVConnector)
	if err != nil {
		return nil, params.Errorf("kv_connector", "%v", err)
	}
	needs := connector.Needs()
	if needs.Order == kv.Sequential {
		return nil, params.Errorf("kv_connector", "%s has decode sent once prefill has answered: use the steps %q and %q instead of %q, or another connector",
			p.KVConnector, stepPrefill, stepDecode, stepPrefillDecode)
	}
	embeddings, err := ec.New(p.ECConnector)
	if err != nil {
		return nil, params.Errorf("ec_connector", "%v", err)
	}
	boot, err := newBootstrap(deps, params, p.BootstrapFrom, p.BootstrapHeader, connector)
	if err != nil {
		return nil, err
	}
	for _, result := range []besideDecode{ignoredFailure, ignoredCut} {
		deps.Metrics.prefillIgnored.WithLabelValues(string(result)) // so that it is there before the first
	}
	answer := &decode{own: stepPrefillDecode, upstream: deps.Decode, kv: connector, hold: p.HoldFirstEvent, lease: deps.KVLease, metrics: deps.Metrics}
	return &prefillDecode{decode: answer, prefill: deps.Prefill, kv: connector, needs: needs, ec: embeddings, boot: boot, engines: deps.Engines, release: p.ReleaseOnAbort, metrics: deps.Metrics}, nil
}

func (p *prefillDecode) Name() string { return stepPrefillDecode }

// Pool is the one that operators see beside the phase.
func (p *prefillDecode) Pool() string { return PoolDecode }

// String describes the phase for operators.
func (p *prefillDecode) String() string {
	if p.boot == nil {
		return p.decode.String()
	}
	return p.decode.String() + ", " + p.boot.String()
}

// bootstraps returns where the step finds its prefill workers, nil if it need not.
func (p *prefillDecode) bootstraps() *bootstrap { return p.boot }

// errNoGenerate is the fault of token ids for workers that want text.
var errNoGenerate = wire.Invalid("unsupported_route", "the workers behind this model have no %s: send a chat or completions request", wire.GeneratePath)

// errNoResponses is the fault of a request that came for a pipeline of other steps.
var errNoResponses = wire.Invalid("unsupported_route", "the pipeline was changed while the request came in: send it again")

// Admit refuses a request at the door that these workers have no route for, and
// every request while one of its legs may not be sent.
func (p *prefillDecode) Admit(r *Request) error {
	if p.needs.NoGenerate && r.Protocol == wire.Generate {
		return errNoGenerate
	}
	if r.Protocol == wire.Responses { // it came in before a reload
		return errNoResponses
	}
	if err := p.decode.Admit(r); err != nil || p.probed || p.alone(r) {
		return err
	}
	return p.prefill.Ready()
}

// alone reports whether decode serves a request alone. Workers that want both legs
// whole cannot: a decode worker of theirs refuses what names no exchange, and
// prefill, which gets the request as it is, hands over all that it needs.
func (p *prefillDecode) alone(r *Request) bool { return r.LocalKV != "" && !p.needs.Whole }

func (p *prefillDecode) Plan(r *Request) (Plan, error) {
	if p.alone(r) {
		r.bypass(p.metrics)
		return p.decode.Plan(r)
	}
	x := p.begin(r)
	r.Decoded.reached = x.decoding.state
	return Plan{
		Places:  []string{PoolDecode, PoolPrefill},
		Passing: []string{PoolPrefill},
		Placed: func() error {
			err := r.takeDecodePermit(p.decode.upstream)
			x.decoding.leg.Permit = r.decodePermit
			return err
		},
		Tasks: []Task{{Pool: PoolPrefill, Run: x.runPrefill}, {Pool: PoolDecode, Run: x.runDecode}},
	}, nil
}

// begin makes an attempt at both legs.
func (p *prefillDecode) begin(r *Request) *pair {
	proto, src, embeddings := r.Protocol, r.source(), p.ec.Prefill(r.Encoded.Descriptors)
	format, _ := proto.Format(true, src)
	x := &pair{prefillDecode: p, fate: &fate{}, told: make(chan struct{}), worker: r.namedWorker(), pushed: p.decode.pushes && embeddings != nil, rerun: stepPrefillDecode}
	if x.pushed {
		x.rerun = stepEncode
	}
	x.prefillLeg = gateway.Leg{Path: proto.LegPath(format), Header: r.Header, ID: r.ID, Attempt: r.Prefilled.Attempts, Check: wire.CheckAnswer,
		Trials: r.trials(), Resend: gateway.ResendUnreached, Scratch: true, Deadline: r.Deadline, Journal: r.Journal}
	if p.needs.Whole { // it streams if the client's body makes a worker stream, in whatever words
		x.prefillLeg.Check = wire.CheckEvents
	}
	x.prefillBody = func(id string, told wire.Transfers) wire.Payload {
		told.EC = embeddings
		if p.needs.Whole {
			return proto.WholeLeg(src, told)
		}
		return proto.PrefillLeg(src, format, id, told)
	}
	x.asking = func(id string) wire.Payload {
		if p.needs.Whole {
			return x.prefillBody(id, wire.Transfers{})
		}
		return proto.ReserveLeg(src, format, id, wire.Transfers{EC: embeddings})
	}
	decodeBody := func(string) wire.Payload {
		if p.needs.Whole {
			return proto.WholeLeg(src, x.handoff)
		}
		return proto.DecodeLeg(src, x.handoff)
	}
	x.decoding = &decoding{decode: p.decode, proto: proto, way: r.wayOut(), state: &handoffState{}, rerun: x.rerun,
		spent: r.Reruns > 0, deadline: r.Deadline, beside: x.fate}
	x.decoding.leg = gateway.Leg{Path: proto.Path, Query: r.Query, Header: r.Header, ID: r.ID, Attempt: r.Decoded.Attempts, Body: decodeBody,
		Trials: r.trials(), Resend: gateway.ResendUnreached, Deadline: r.Deadline, Hold: p.decode.hold, Journal: r.Journal}
	return x
}

func (p *prefillDecode) Join(r *Request, results []Result) (Verdict, error) {
	if beside, ok := results[0].(besideDecode); ok {
		r.Prefilled = Prefilled{Ran: true, Attempts: r.Prefilled.Attempts + int(r.Decoded.reached.prefills.Load())}
		if beside != "" {
			p.metrics.prefillIgnored.WithLabelValues(string(beside)).Inc()
			r.note("decode has answered, prefill has not: " + string(beside))
		}
	}
	return p.decode.Join(r, results[len(results)-1:])
}

// Recover starts the request again, once, with another exchange, unless the client
// has something of an answer already.
func (p *prefillDecode) Recover(r *Request, err error) (Verdict, error) {
	a := (*again)(nil)
	if !errors.As(err, &a) {
		return Verdict{}, err
	}
	if r.wayOut().begun() { // decode has, while prefill failed
		return Verdict{}, a.cause
	}
	r.Prefilled.Attempts += int(r.Decoded.reached.prefills.Load())
	return p.decode.Recover(r, err)
}

// rerunReason names why an exchange is worth another one after prefill has failed,
// or is "": as decode's legs, and a stream that was 200 and an error inside.
func rerunReason(sent *gateway.Sent) string {
	switch reason := sent.Reason(); {
	case reason != "" && !sent.Reached:
		return "" // it has been sent again often enough
	case reason != "":
		return reason
	case sent.Status == http.StatusOK:
		return reasonFirstEvent
	}
	return worthRerun(sent.Status)
}
