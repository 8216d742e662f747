package phases

import (
	"context"
	"net/http"

	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// passthrough is the one phase of routes that do not run through the pipeline:
// a decode worker answers them by itself.
type passthrough struct {
	decode  *gateway.Upstream
	metrics *Metrics
}

// NewPassthrough builds the pipeline of the routes that are passed through. It
// is no step of the configuration.
func NewPassthrough(deps Deps) *Pipeline { return PipelineOf(&passthrough{deps.Decode, deps.Metrics}) }

func (p *passthrough) Name() string { return PoolPassthrough }

// Admit refuses a request at the door while no decode may be sent.
func (p *passthrough) Admit(*Request) error { return p.decode.Ready() }

func (p *passthrough) Plan(r *Request) (Plan, error) {
	in, way := r.Passed, r.wayOut()
	if in.Instead != "" {
		p.metrics.responsesPassed.WithLabelValues(in.Instead).Inc()
		r.note("passed through: " + in.Instead)
	}
	leg := gateway.Leg{Method: in.Method, Path: in.Path, RawPath: in.RawPath, Query: r.Query, ContentType: in.ContentType,
		Header: r.Header, ID: r.ID, Deadline: r.Deadline, Resend: gateway.ResendDead, Journal: r.Journal, Body: func(string) wire.Payload { return in.Body }}
	if in.Method == http.MethodGet || in.Method == http.MethodHead {
		leg.Resend = gateway.ResendAny
	}
	if in.ContentType == "" {
		leg.ContentType = gateway.NoContentType
	}
	return Plan{Tasks: []Task{{Pool: PoolPassthrough, Run: func(ctx context.Context) (result Result, err error) {
		answer, _, err := p.decode.Open(ctx, leg)
		if err != nil {
			return nil, err
		}
		defer closeNow(answer, &result)
		return way.relay(ctx, answer, nil, nil)
	}}}}, nil
}

func (p *passthrough) Join(*Request, []Result) (Verdict, error) { return Done, nil }
