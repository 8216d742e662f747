package phases

import (
	"context"
	"net/http"

	"github.com/llm-coordinator/coordinator/connectors/ec"
	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

const stepEncode = "encode"

func init() { Register(stepEncode, NewEncode) }

// EncodeParams are the parameters of an encode step.
type EncodeParams struct {
	// MaxParallel is how many images of one request are encoded at a time.
	MaxParallel int `toml:"max_parallel"`
	// ECConnector and UseOpenAIFormat, if set, are used instead of the pipeline's.
	ECConnector     string `toml:"ec_connector"`
	UseOpenAIFormat bool   `toml:"use_openai_format"`
	// BootstrapFrom and BootstrapHeader say how the prefill worker is chosen that
	// encode pushes to, as prefill's do; ConsumerPort is where it takes embeddings.
	// For ec-mooncake.
	BootstrapFrom   string `toml:"bootstrap_from"`
	BootstrapHeader string `toml:"bootstrap_header"`
	ConsumerPort    int    `toml:"consumer_port"`
}

// encode has encode workers compute the embedding of each distinct image of a
// chat request, in parallel, and keep it for prefill.
type encode struct {
	upstream *gateway.Upstream
	ec       ec.Connector
	pusher   *pusher // of ec-mooncake, or nil
	openAI   bool
	probed   bool // as prefill's
	whole    bool // as conditional's
	names    string
	parallel int
	forward  forwarding
	hosts    *advertised
	metrics  *Metrics
}

// NewEncode builds an encode phase.
func NewEncode(deps Deps, params Params) (Phase, error) {
	p := EncodeParams{MaxParallel: 8, ECConnector: deps.ECConnector, UseOpenAIFormat: deps.UseOpenAIFormat}
	if err := params.Decode(&p); err != nil {
		return nil, err
	}
	if p.MaxParallel < 1 {
		return nil, params.Errorf("max_parallel", "must be at least 1")
	}
	connector, err := ec.New(p.ECConnector)
	if err != nil {
		return nil, params.Errorf("ec_connector", "%v", err)
	}
	pusher, err := newPusher(deps, params, p, connector)
	if err != nil {
		return nil, err
	}
	return &encode{upstream: deps.Encode, ec: connector, pusher: pusher, openAI: p.UseOpenAIFormat, parallel: p.MaxParallel, forward: deps.ForwardHeaders,
		hosts: newAdvertised(deps.Log, deps.Metrics), metrics: deps.Metrics}, nil
}

func (p *encode) Name() string { return stepEncode }

// Pool is the one that operators see beside the phase.
func (p *encode) Pool() string { return PoolEncode }

// String describes the phase for operators.
func (p *encode) String() string {
	text := "ec connector " + p.ec.Name() + ", " + formatName(p.openAI)
	if p.pusher != nil {
		text += ", " + p.pusher.boot.String()
	}
	return text
}

func formatName(openAI bool) string {
	if openAI {
		return "OpenAI format"
	}
	return "tokens in"
}

// Admit refuses a request with images at the door while no encode may be sent.
func (p *encode) Admit(r *Request) error {
	if p.probed || r.Prompt.Media.Len() == 0 || p.spared(r) {
		return nil
	}
	return p.upstream.Ready()
}

// spared reports whether no prefill will use the embeddings.
func (p *encode) spared(r *Request) bool { return r.LocalKV != "" && !p.whole }

// Plan makes one task for each distinct image. For completions there are none,
// and for generate prefill encodes inline.
func (p *encode) Plan(r *Request) (Plan, error) {
	src := r.source()
	if src.Media.Len() == 0 || p.spared(r) {
		return Plan{}, nil
	}
	r.unhear(stepEncode)
	format := r.format(p.openAI, src, p.metrics)
	proto := r.Protocol
	if p.pusher != nil {
		return p.planPushes(r, src, format), nil
	}
	plan := Plan{MaxParallel: p.parallel}
	seen, trials := map[string]bool{}, &gateway.Trials{}
	for i, image := range src.Tokens.Features.Items {
		if seen[string(image.Hash)] {
			continue
		}
		seen[string(image.Hash)] = true
		leg := gateway.Leg{Path: proto.LegPath(format), Header: r.Header, ID: r.ID, Check: wire.CheckAnswer, Trials: trials, Deadline: r.Deadline, Journal: r.Journal,
			Body: func(string) wire.Payload { return proto.EncodeLeg(src, format, i) }}
		plan.Tasks = append(plan.Tasks, Task{Pool: PoolEncode, Run: func(ctx context.Context) (Result, error) { return p.run(ctx, leg, image.Hash) }})
	}
	if len(plan.Tasks) > 0 {
		p.metrics.encodes.Observe(float64(len(plan.Tasks)))
	}
	return plan, nil
}

// format is the shape of a request's encode and prefill legs.
func (r *Request) format(openAI bool, src wire.Source, m *Metrics) wire.Format {
	f, asked := r.Protocol.Format(openAI, src)
	if !asked && !r.fellBack {
		r.fellBack = true
		m.formatFallback.Inc()
		r.note("chat format: render gave no tensors")
	}
	return f
}

// run encodes one image and returns its descriptors.
func (p *encode) run(ctx context.Context, leg gateway.Leg, hash []byte) (Result, error) {
	answer, sent, err := p.upstream.Call(ctx, leg)
	if err != nil {
		return nil, err
	}
	params, ok := wire.Descriptors(answer)
	name, _ := wire.Unquote(hash)
	own := wire.Lookup(params, name)
	p.hosts.look(own, p.ec.HostField(), stepEncode, "set VLLM_EC_SIDE_CHANNEL_HOST there")
	return descriptors{header: sent.Header, params: params, odd: !ok, missing: p.ec.Described() && wire.IsNull(own)}, nil
}

// descriptors are those in one answer. missing: that of its own image is not
// among them. odd: what was there in their place is no object, and was ignored.
type descriptors struct {
	header       http.Header // of the answer
	params       []byte
	missing, odd bool
}

func (p *encode) Join(r *Request, results []Result) (Verdict, error) {
	if p.pusher != nil {
		return Next, p.joinPushes(r, results)
	}
	answers := make([][]byte, 0, len(results))
	var said []http.Header
	for _, result := range results {
		d := result.(descriptors)
		r.nameWorker(p.names, d.header)
		if d.missing {
			p.metrics.ecMissing.Inc()
			r.note("encode gave no descriptor")
		}
		if d.odd {
			r.note("encode gave descriptors that are no object")
		}
		if h := p.forward.said(d.header); h != nil {
			said = append(said, h)
		}
		answers = append(answers, d.params)
	}
	p.forward.hear(r, stepEncode, said...)
	merged, err := wire.MergeDescriptors(answers)
	if err != nil {
		return Next, wire.Faultf(wire.UpstreamFailed, "the answers of encode cannot be used").Because(err)
	}
	r.Encoded = Encoded{Descriptors: merged}
	return Next, nil
}
