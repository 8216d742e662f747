package phases

import (
	"context"
	"net/http"
	"time"

	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

const stepConditional = "conditional-decode"

func init() { Register(stepConditional, NewConditional) }

// ConditionalParams are the parameters of a conditional-decode step.
type ConditionalParams struct {
	// Timeout of the probe; 0 is decode's: a hit that is not streamed sends its
	// headers only at the end.
	Timeout time.Duration `toml:"timeout"`
}

// conditional asks a decode worker whether it has the prompt cached. If so it
// answers the request; if not the pipeline goes on, and the client sees nothing
// of it.
type conditional struct {
	decode  *gateway.Upstream
	timeout time.Duration
	hold    bool // as decode does
	// whole: what follows serves every request with both legs, so that none is
	// spared the probe. names is the header by which a miss is to name a prefill
	// worker; "" is none.
	whole   bool
	names   string
	metrics *Metrics
}

// NewConditional builds a conditional-decode phase.
func NewConditional(deps Deps, params Params) (Phase, error) {
	var p ConditionalParams
	if err := params.Decode(&p); err != nil {
		return nil, err
	}
	if p.Timeout < 0 {
		return nil, params.Errorf("timeout", "must not be negative (0s is decode's)")
	}
	return &conditional{decode: deps.Decode, timeout: p.Timeout, metrics: deps.Metrics}, nil
}

func (p *conditional) Name() string { return stepConditional }

// Pool is the one that operators see beside the phase.
func (p *conditional) Pool() string { return PoolDecode }

// Patience returns how long the probe may take by its own time-out.
func (p *conditional) Patience() time.Duration { return p.timeout }

// probe is what became of a probe.
type probe string

const (
	served   probe = "served"
	deferred probe = "deferred" // not cached
	rejected probe = "rejected" // an answer that is no hit, and the client's
	failed   probe = "error"
)

// missed is the result of a probe that is deferred: the headers of its answer.
type missed http.Header

// Plan probes under decode's place and permit, which the request keeps after a
// miss. Its failures say nothing of decode, and so are its answers no successes among
// decode's: but one that is the client's shows a half-open breaker that decode works.
func (p *conditional) Plan(r *Request) (Plan, error) {
	if r.LocalKV != "" && !p.whole {
		r.bypass(p.metrics)
		return Plan{}, nil
	}
	proto, src, way := r.Protocol, r.source(), r.wayOut()
	leg := gateway.Leg{Path: proto.Path, Query: r.Query, Header: r.Header, ID: r.ID, Prefer: "if-available", Timeout: p.timeout,
		Body:   func(string) wire.Payload { return proto.ProbeLeg(src) },
		Resend: gateway.ResendNever, Unjudged: true, Journal: r.Journal}
	var permit *gateway.Permit
	return Plan{
		Places: []string{PoolDecode},
		Placed: func() error {
			err := r.takeDecodePermit(p.decode)
			permit = r.decodePermit
			return err
		},
		Tasks: []Task{{Pool: PoolDecode, Run: func(ctx context.Context) (result Result, err error) {
			permit.Sent() // the answer may take long, and keeps nobody out
			defer permit.Back()
			answer, _, err := p.decode.Open(ctx, leg)
			if err != nil {
				if ctx.Err() != nil {
					return nil, err
				}
				return failed, nil
			}
			defer closeNow(answer, &result)
			switch {
			case answer.Status == http.StatusPreconditionFailed:
				answer.Discard()
				return missed(answer.Header), nil
			case answer.Status >= 500:
				answer.Discard()
				return failed, nil
			}
			as, held := rejected, []byte(nil)
			if answer.Status < 300 {
				as = served
				if held, err = p.holdBack(answer, proto); err != nil {
					if ctx.Err() != nil {
						return nil, err
					}
					return failed, nil
				}
			}
			if result, err = p.relay(ctx, way, answer, held, as); err == nil && result != failed {
				permit.SucceedTrial() // decode is not asked for anything else
			}
			return result, err
		}}},
	}, nil
}

// relay passes a probe's answer on. One that breaks before anything of it has gone
// out is none.
func (p *conditional) relay(ctx context.Context, way wayOut, answer *gateway.Answer, held []byte, as probe) (Result, error) {
	result, err := way.relay(ctx, answer, held, as)
	if isUnsent(ctx, err) {
		return failed, nil
	}
	return result, err
}

// holdBack holds a hit as decode would: a worker that fails before it says
// anything has served nothing.
func (p *conditional) holdBack(answer *gateway.Answer, proto *wire.Protocol) ([]byte, error) {
	if !p.hold {
		return nil, nil
	}
	return holdBack(answer, proto)
}

func (p *conditional) Join(r *Request, results []Result) (Verdict, error) {
	result, answered := results[0].(probe)
	if !answered {
		result = deferred
		r.nameWorker(p.names, http.Header(results[0].(missed)))
	}
	p.metrics.probes.WithLabelValues(string(result)).Inc()
	switch result {
	case served, rejected:
		return Done, nil
	case failed:
		r.note("the conditional decode failed")
	}
	return Next, nil
}
