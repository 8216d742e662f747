package phases

import (
	"context"
	"time"

	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

const stepScreen = "screen"

func init() { Register(stepScreen, NewScreen) }

// ScreenParams are the parameters of a screen step.
type ScreenParams struct {
	// Address of the screening service; required.
	Address string `toml:"address"`
	// Timeout of one call.
	Timeout time.Duration `toml:"timeout"`
}

// screen shows a request to a screening service, which refuses it by answering
// 4xx.
type screen struct{ upstream *gateway.Upstream }

// NewScreen builds a screen phase.
func NewScreen(deps Deps, params Params) (Phase, error) {
	p := ScreenParams{Timeout: 5 * time.Second} // the defaults
	if err := params.Decode(&p); err != nil {
		return nil, err
	}
	if p.Address == "" {
		return nil, params.Errorf("address", "required: the base URL of the screening service")
	}
	up, err := deps.NewUpstream(
		gateway.OriginSettings{Address: p.Address, MaxIdle: 16, IdleTimeout: time.Minute},
		gateway.UpstreamSettings{Name: stepScreen, Timeout: p.Timeout})
	if err != nil {
		return nil, params.Errorf("address", "%v", err)
	}
	return &screen{upstream: up}, nil
}

func (p *screen) Name() string { return stepScreen }

// Plan makes the one task. It takes from the request what the task needs: a task
// must not touch the request.
func (p *screen) Plan(r *Request) (Plan, error) {
	proto, src := r.Protocol, r.source()
	leg := gateway.Leg{Path: "/screen", Header: r.Header, ID: r.ID,
		Body: func(string) wire.Payload { return proto.RenderLeg(src) }}
	return Plan{Tasks: []Task{{Pool: PoolRender, Run: func(ctx context.Context) (Result, error) {
		verdict, _, err := p.upstream.Call(ctx, leg) // a 4xx is an error, and refuses the request
		return verdict, err
	}}}}, nil
}

// Join has nothing to keep.
func (p *screen) Join(*Request, []Result) (Verdict, error) { return Next, nil }
