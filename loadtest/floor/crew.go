package main

import (
	"context"
	"time"

	"github.com/llm-coordinator/coordinator/actors"
	"github.com/llm-coordinator/coordinator/phases"
)

// crew has each leg made as a coordinator's actors make it: by a worker of a pool,
// under a supervisor of the request. Nothing else of a coordinator is there: the
// phases know no more than the floor does. What a relay with a crew costs above
// one without is what the actors cost where their work is real.
type crew struct{ engine *actors.Engine }

// roomFor is how many requests have a place in each pool, and how many can wait.
const roomFor = 256

func newCrew() *crew {
	pools := map[string]actors.PoolSettings{}
	var line []phases.Phase
	for _, st := range []*stage{
		{name: "media"}, // media and encode apply to no request of the floor
		{name: "render", leg: (*exchange).render},
		{name: "encode"},
		{name: "prefill", leg: (*exchange).prefill, places: []string{"decode"}},
		{name: "decode", leg: (*exchange).decode},
	} {
		pools[st.name] = actors.PoolSettings{Size: roomFor, Queue: roomFor}
		line = append(line, st)
	}
	return &crew{actors.NewEngine(actors.Settings{QueueTimeout: time.Minute, Pools: pools}, phases.PipelineOf(line...), nil, nil)}
}

func (c *crew) close() { c.engine.Close(context.Background()) }

// run returns when the request has ended.
func (c *crew) run(ctx context.Context, x *exchange) error {
	r := &phases.Request{Out: phases.NewSmallResponse()}
	if err := c.engine.Start(context.WithValue(ctx, exchangeKey{}, x), r); err != nil {
		return err
	}
	<-r.Out.Done()
	return r.Out.Err()
}

type exchangeKey struct{}

// stage is a phase that makes one leg of an exchange.
type stage struct {
	name   string
	leg    func(*exchange, context.Context) error // nil: it never applies
	places []string
}

// Name implements phases.Phase.
func (s *stage) Name() string { return s.name }

// Plan implements phases.Phase.
func (s *stage) Plan(*phases.Request) (phases.Plan, error) {
	if s.leg == nil {
		return phases.Plan{}, nil
	}
	return phases.Plan{Places: s.places, Tasks: []phases.Task{{Pool: s.name, Run: func(ctx context.Context) (phases.Result, error) {
		return nil, s.leg(ctx.Value(exchangeKey{}).(*exchange), ctx)
	}}}}, nil
}

// Join implements phases.Phase.
func (s *stage) Join(*phases.Request, []phases.Result) (phases.Verdict, error) {
	return phases.Next, nil
}
