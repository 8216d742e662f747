package phases

import (
	"errors"
	"net/http"
	"time"

	"github.com/llm-coordinator/coordinator/connectors/ec"
	"github.com/llm-coordinator/coordinator/connectors/kv"
	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

const stepPrefill = "prefill"

func init() { Register(stepPrefill, NewPrefill) }

// PrefillParams are the parameters of a prefill step.
type PrefillParams struct {
	// KVConnector, if set, is used instead of the pipeline's.
	KVConnector string `toml:"kv_connector"`
	// ECConnector and UseOpenAIFormat, if set, are used instead of the pipeline's.
	ECConnector     string `toml:"ec_connector"`
	UseOpenAIFormat bool   `toml:"use_openai_format"`
	// ReleaseOnAbort has KV that no decode will fetch fetched by a leg whose answer
	// is thrown away, instead of leaving it pinned until its lease ends.
	ReleaseOnAbort bool `toml:"release_on_abort"`
	// StripPixels reduces rendered tensors to what a worker needs that fetches the
	// embedding, where render gives no metadata that says the same.
	StripPixels bool `toml:"strip_pixels"`
	// BootstrapFrom says how the prefill worker is found, for connectors that have to
	// tell decode: reserve, header:<name> or static:<host>[,…]. BootstrapHeader is the
	// header of the gateway's answer to reserve.
	BootstrapFrom   string `toml:"bootstrap_from"`
	BootstrapHeader string `toml:"bootstrap_header"`
	// Fleet is how the model is split on the workers, for kv-moriio.
	Fleet FleetParams `toml:"fleet"`
}

// prefill has a prefill worker compute the prompt's KV and keep it for decode.
//
// A decode place is taken before the leg is sent, so that no finished prefill
// waits in decode's queue with its KV pinned in GPU memory; with the place goes
// the permit of decode's breaker.
type prefill struct {
	upstream, decode *gateway.Upstream
	kv               kv.Connector
	ec               ec.Connector
	boot             *bootstrap // nil: the connector needs none
	engines          Engines
	openAI           bool
	release          bool
	strip            bool
	lease            time.Duration
	// probed: a conditional decode comes first, and may make this needless.
	probed bool
	// cached: decode's answer is to say how much prefill had cached.
	cached  bool
	forward forwarding
	hosts   *advertised
	metrics *Metrics
}

// NewPrefill builds a prefill phase.
func NewPrefill(deps Deps, params Params) (Phase, error) {
	p := PrefillParams{KVConnector: deps.KVConnector, ECConnector: deps.ECConnector, UseOpenAIFormat: deps.UseOpenAIFormat, ReleaseOnAbort: true, Fleet: oneRank}
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
	embeddings, err := ec.New(p.ECConnector)
	if err != nil {
		return nil, params.Errorf("ec_connector", "%v", err)
	}
	if connector, err = p.Fleet.sized(params, connector); err != nil {
		return nil, err
	}
	boot, err := newBootstrap(deps, params, p.BootstrapFrom, p.BootstrapHeader, connector)
	if err != nil {
		return nil, err
	}
	return &prefill{upstream: deps.Prefill, decode: deps.Decode, kv: connector, ec: embeddings, boot: boot, engines: deps.Engines, openAI: p.UseOpenAIFormat, release: p.ReleaseOnAbort, strip: p.StripPixels, lease: deps.KVLease, forward: deps.ForwardHeaders,
		hosts: newAdvertised(deps.Log, deps.Metrics), metrics: deps.Metrics}, nil
}

func (p *prefill) Name() string { return stepPrefill }

// Pool is the one that operators see beside the phase.
func (p *prefill) Pool() string { return PoolPrefill }

// bootstraps returns where the step finds its prefill workers, nil if it need not.
func (p *prefill) bootstraps() *bootstrap { return p.boot }

// String describes the phase for operators.
func (p *prefill) String() string {
	text := "kv connector " + p.kv.Name() + ", " + formatName(p.openAI)
	if p.strip {
		text += ", pixels stripped"
	}
	if p.boot != nil {
		text += ", " + p.boot.String()
	}
	return text
}

// Admit refuses a request at the door while no prefill may be sent.
func (p *prefill) Admit(r *Request) error {
	if p.probed || r.LocalKV != "" {
		return nil
	}
	return p.upstream.Ready()
}

func (p *prefill) Plan(r *Request) (Plan, error) {
	if r.LocalKV != "" {
		r.bypass(p.metrics)
		return Plan{}, nil
	}
	r.unhear(stepPrefill)
	proto, src := r.Protocol, r.source()
	format := r.format(p.openAI, src, p.metrics)
	embeddings := p.ec.Prefill(r.Encoded.Descriptors)
	_, pushes := p.ec.(ec.Pusher)
	run := &prefilling{prefill: p, src: &src, pixels: p.pixels(r, format, embeddings), named: r.namedWorker(), pushed: pushes && embeddings != nil && r.worker != nil, anew: r.Reruns > 0, rerun: r.Reruns == 0}
	run.leg = gateway.Leg{Path: proto.LegPath(format), Header: r.Header, ID: r.ID, Attempt: r.Prefilled.Attempts, Check: wire.CheckAnswer, Trials: r.trials(), Deadline: r.Deadline, Journal: r.Journal,
		Body: func(id string) wire.Payload {
			told := run.begin()
			told.EC = embeddings
			return proto.PrefillLeg(src, format, id, told)
		}}
	run.asking = func(id string) wire.Payload { return proto.ReserveLeg(src, format, id, wire.Transfers{EC: embeddings}) }
	return Plan{
		Places: []string{PoolDecode},
		Placed: func() error { return r.takeDecodePermit(p.decode) },
		Tasks:  []Task{{Pool: PoolPrefill, Run: run.run}},
	}, nil
}

// prefillAnswer is what a prefill worker has answered.
type prefillAnswer struct {
	Prefilled
	said http.Header
}

func (p *prefill) Join(r *Request, results []Result) (Verdict, error) {
	answer := results[0].(prefillAnswer)
	p.forward.hear(r, stepPrefill, answer.said)
	found := answer.Prefilled
	r.Prefilled = found
	r.Decoded.reached = nil
	if (p.kv.Pins() || p.boot != nil) && found.Handoff == nil {
		p.metrics.handoffMissing.Inc()
		r.note("prefill gave no hand-off")
	}
	return Next, nil
}

// Recover starts the request again from encode, once, if the worker that had its
// embeddings has failed.
func (p *prefill) Recover(r *Request, err error) (Verdict, error) {
	a := (*fromEncode)(nil)
	if !errors.As(err, &a) {
		return Verdict{}, err
	}
	r.Reruns++
	r.Prefilled.Attempts += a.attempts
	p.metrics.reruns.WithLabelValues(a.reason).Inc()
	r.note("run again from " + a.from + ": " + a.reason)
	return Verdict{Again: a.from}, nil
}

// takeDecodePermit takes the permit to send decode unless the request has it.
func (r *Request) takeDecodePermit(decode *gateway.Upstream) (err error) {
	if r.decodePermit == nil {
		r.decodePermit, err = decode.Permit(r.trials())
	}
	return err
}
