package assembly_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/llm-coordinator/coordinator/actors"
	"github.com/llm-coordinator/coordinator/phases"
)

// touchy is a phase that panics for requests whose id says where.
type touchy struct{ plans atomic.Int64 }

var touched = &touchy{}

func init() {
	phases.Register("touchy", func(_ phases.Deps, p phases.Params) (phases.Phase, error) {
		return touched, p.Decode(&struct{}{})
	})
}

func (*touchy) Name() string { return "touchy" }

func (p *touchy) Plan(r *phases.Request) (phases.Plan, error) {
	p.plans.Add(1)
	id := strings.TrimSuffix(r.ID, "-p1") // one prompt of a batch
	if id == "panic-in-plan" {
		panic(secret)
	}
	return phases.Plan{Tasks: []phases.Task{{Pool: phases.PoolRender, Run: func(context.Context) (phases.Result, error) {
		if id == "panic-in-worker" {
			panic(secret)
		}
		return nil, nil
	}}}}, nil
}

func (*touchy) Join(*phases.Request, []phases.Result) (phases.Verdict, error) {
	return phases.Next, nil
}

// TestPanicsStayWithTheirRequest: a phase that panics in a worker, or in the
// supervisor, is a 500 for that request, runs nothing twice, and costs no pool
// its size.
func TestPanicsStayWithTheirRequest(t *testing.T) {
	r := newRig(t, setup{steps: "[[pipeline.steps]]\ntype = \"touchy\"\n" + fullSteps,
		toml: "[actors.pools]\nrender = { size = 2, queue = 0 }\n"})
	for _, where := range []string{"panic-in-worker", "panic-in-plan"} {
		for range 10 {
			before := touched.plans.Load()
			got := r.post(chatPath, chatBody("hi", false), "X-Request-Id", where)
			o := readError(t, got.body)
			if got.status != http.StatusInternalServerError || o.Error.Code != "internal" || o.Error.Type != "internal_error" || strings.Contains(got.body, secret) {
				t.Errorf("got %d %s", got.status, got.body)
			}
			if n := touched.plans.Load() - before; n != 1 {
				t.Errorf("%s: planned %d times", where, n)
			}
		}
		if got := r.post(chatPath, chatBody("hi", false)); got.status != http.StatusOK {
			t.Errorf("after %s: %d %s", where, got.status, got.body)
		}
		if s := poolOf(r, "render"); s.Size != 2 || s.Busy != 0 {
			t.Errorf("after %s: %+v", where, s)
		}
		if !strings.Contains(r.logs.String(), where) {
			t.Errorf("%s is not in the log", where)
		}
	}
	r.settled()
}

func poolOf(r *rig, name string) actors.PoolStatus {
	for _, p := range r.Engine.Status().Pools {
		if p.Name == name {
			return p
		}
	}
	return actors.PoolStatus{}
}
