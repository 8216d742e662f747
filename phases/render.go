package phases

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

const stepRender = "render"

func init() { Register(stepRender, NewRender) }

// RenderParams are the parameters of a render step.
type RenderParams struct {
	// Address of the render service; required.
	Address string `toml:"address"`
	// Timeout of one call, to the end of its answer.
	Timeout time.Duration `toml:"timeout"`
	// MaxIdleConnsPerHost and IdleConnTimeout are of its pool of connections.
	MaxIdleConnsPerHost int           `toml:"max_idle_conns_per_host"`
	IdleConnTimeout     time.Duration `toml:"idle_conn_timeout"`
	// MaxAnswerSize is the largest answer that is read, in MB of 2^20 bytes.
	MaxAnswerSize int `toml:"max_answer_size"`
	// MaxTotalTokens refuses longer prompts; 0 is no limit.
	MaxTotalTokens int `toml:"max_total_tokens"`
	// MaxTotalPlaceholderTokens refuses prompts in which more token ids stand
	// for images; 0 is no limit.
	MaxTotalPlaceholderTokens int `toml:"max_total_placeholder_tokens"`
	// Responses is "auto" or "off": whether requests of the Responses API, if they
	// are passed through otherwise, are rendered where the service can do that.
	Responses string `toml:"responses"`
	// ResponsesRecheck is how long after it was found that the service cannot it is
	// asked again.
	ResponsesRecheck time.Duration `toml:"responses_recheck"`
	// TLS is for an https address, Headers are added to each call, as in
	// gateway.OriginSettings.
	TLS     RenderTLS         `toml:"tls"`
	Headers map[string]string `toml:"headers"`
}

// RenderTLS is a gateway.TLS.
type RenderTLS struct {
	CAFile     string `toml:"ca_file"`
	CertFile   string `toml:"cert_file"`
	KeyFile    string `toml:"key_file"`
	ServerName string `toml:"server_name"`
}

// render turns the prompt into token ids, once for all later legs: it asks the
// render service, or takes the ids that the client sent as its prompt.
type render struct {
	upstream        *gateway.Upstream
	maxTokens       int
	maxPlaceholders int
	// tensors: a later step sends the rendered tensors, which are dropped
	// otherwise.
	tensors bool
	forward forwarding
	// offer is whether the service renders the Responses API; nil: it is not asked.
	offer   *Offer
	metrics *Metrics
}

// NewRender builds a render phase.
func NewRender(deps Deps, params Params) (Phase, error) {
	p := RenderParams{Timeout: 30 * time.Second, MaxIdleConnsPerHost: 100, IdleConnTimeout: 90 * time.Second, MaxAnswerSize: 256,
		Responses: responsesAuto, ResponsesRecheck: 5 * time.Minute}
	if err := params.Decode(&p); err != nil {
		return nil, err
	}
	switch {
	case p.Address == "":
		return nil, params.Errorf("address", "required: the base URL of the render service")
	case p.Timeout <= 0:
		return nil, params.Errorf("timeout", "must be more than 0s")
	case p.MaxIdleConnsPerHost < 1:
		return nil, params.Errorf("max_idle_conns_per_host", "must be at least 1")
	case p.MaxAnswerSize < 1:
		return nil, params.Errorf("max_answer_size", "must be at least 1 (MB)")
	case p.MaxTotalTokens < 0:
		return nil, params.Errorf("max_total_tokens", "must not be negative (0 is no limit)")
	case p.MaxTotalPlaceholderTokens < 0:
		return nil, params.Errorf("max_total_placeholder_tokens", "must not be negative (0 is no limit)")
	case p.Responses != responsesAuto && p.Responses != responsesOff:
		return nil, params.Errorf("responses", "must be %q or %q", responsesAuto, responsesOff)
	case p.ResponsesRecheck <= 0:
		return nil, params.Errorf("responses_recheck", "must be more than 0s")
	}
	up, err := deps.NewUpstream(
		gateway.OriginSettings{Address: p.Address, MaxIdle: p.MaxIdleConnsPerHost, IdleTimeout: p.IdleConnTimeout,
			TLS: gateway.TLS(p.TLS), Headers: p.Headers},
		gateway.UpstreamSettings{Name: stepRender, Timeout: p.Timeout, MaxAnswer: p.MaxAnswerSize << 20})
	if bad := (*gateway.SettingError)(nil); errors.As(err, &bad) {
		return nil, params.Errorf(bad.Key, "%v", bad.Err)
	}
	if err != nil {
		return nil, err
	}
	made := &render{upstream: up, maxTokens: p.MaxTotalTokens, maxPlaceholders: p.MaxTotalPlaceholderTokens, forward: deps.ForwardHeaders, metrics: deps.Metrics}
	if p.Responses == responsesAuto {
		made.offer = &Offer{recheck: p.ResponsesRecheck, log: deps.Log, made: time.Now()}
	}
	return made, nil
}

func (p *render) Name() string { return stepRender }

// Pool is the one that operators see beside the phase.
func (p *render) Pool() string { return PoolRender }

// String describes the phase for operators.
func (p *render) String() string {
	if p.maxTokens > 0 {
		return fmt.Sprintf("at %s, at most %d tokens", p.upstream.Address(), p.maxTokens)
	}
	return "at " + p.upstream.Address()
}

// Admit refuses a request at the door that would have to be rendered while the
// render service is not to be called.
func (p *render) Admit(r *Request) error {
	if r.Prompt.Given.Known() || p.mayDoWithout(r) {
		return nil
	}
	return p.upstream.Ready()
}

func (p *render) Plan(r *Request) (Plan, error) {
	if given := r.Prompt.Given; given.Known() {
		r.Rendered.Tokens = given
		r.Journal.SetTokensIn(given.Count)
		return Plan{}, p.limit(given)
	}
	proto, src := r.Protocol, r.source()
	header, memory, journal, cut := r.Header, r.Memory, r.Journal, 0
	id, deadline, trials := r.ID, r.Deadline, r.trials()
	if !p.tensors && src.Media.Len() > 0 {
		cut = wire.MaxHash + 1 // the tensors are dropped as they arrive
	}
	return Plan{Tasks: []Task{{Pool: PoolRender, Run: func(ctx context.Context) (Result, error) {
		var tokens wire.Tokens
		answer, sent, err := p.upstream.Call(ctx, gateway.Leg{Path: proto.RenderPath, Header: header, ID: id, Memory: memory, Trials: trials, Deadline: deadline, Journal: journal,
			Body:    func(string) wire.Payload { return proto.RenderLeg(src) },
			Scratch: !p.tensors, Cut: cut, // what is kept without tensors is a copy
			Check: func(answer []byte) (err error) {
				tokens, err = proto.ParseRender(answer, src.Media, p.tensors)
				return err
			}})
		if err != nil {
			return nil, err
		}
		if answer != nil && tokens.Features.Kwargs == nil {
			memory.Refund(int64(cap(answer))) // nothing of it is kept
		}
		return rendered{tokens, p.forward.said(sent.Header)}, nil
	}}}}, nil
}

// rendered is what the render service has answered.
type rendered struct {
	tokens wire.Tokens
	said   http.Header
}

func (p *render) Join(r *Request, results []Result) (Verdict, error) {
	if r.Protocol == wire.Responses && p.offer != nil { // nil: it was switched off while the request came in
		p.offer.found(true)
	}
	found := results[0].(rendered)
	p.forward.hear(r, stepRender, found.said)
	r.Rendered.Tokens = found.tokens
	r.Journal.SetTokensIn(r.Rendered.Tokens.Count)
	return Next, p.limit(r.Rendered.Tokens)
}

func (p *render) limit(t wire.Tokens) error {
	if p.maxTokens > 0 && t.Count > p.maxTokens {
		return wire.Faultf(wire.LimitExceeded, "the prompt has %d tokens, more than the limit of %d", t.Count, p.maxTokens)
	}
	if n := t.Features.PlaceholderTokens(); p.maxPlaceholders > 0 && n > p.maxPlaceholders {
		return wire.Faultf(wire.LimitExceeded, "the prompt has %d tokens that stand for images, more than the limit of %d", n, p.maxPlaceholders)
	}
	return nil
}
