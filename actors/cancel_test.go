package actors

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

func TestCancelInEachState(t *testing.T) {
	never := func(context.Context, func(phases.Result, error)) {}
	for _, tc := range []struct {
		name string
		// begin returns a request under ctx in the state in question, and what to
		// do after the check.
		begin func(t *testing.T, rg *rig, ctx context.Context, cancel func()) (r *phases.Request, after func())
	}{
		{name: "before start", begin: func(t *testing.T, rg *rig, ctx context.Context, cancel func()) (*phases.Request, func()) {
			s := newSlow()
			rg.Swap(phases.PipelineOf(one("a", s.run), one("b", s.run)))
			cancel()
			return rg.begin(ctx), func() {
				if n := s.runs.Load(); n != 0 {
					t.Errorf("%d tasks ran", n)
				}
			}
		}},
		{name: "queued for a place", begin: func(t *testing.T, rg *rig, ctx context.Context, cancel func()) (*phases.Request, func()) {
			s, prefill := newSlow(), newSlow()
			rg.Swap(phases.PipelineOf(one("a", s.run)))
			holder := rg.begin(t.Context())
			rg.Swap(phases.PipelineOf(one("b", prefill.run, "a", "b")))
			r := rg.begin(ctx)
			rg.wantPool("a", 1, 1)
			return r, func() {
				rg.wantPool("a", 1, 0)
				close(s.let)
				if err := rg.outcome(holder); err != nil {
					t.Error(err)
				}
				if n := prefill.runs.Load(); n != 0 {
					t.Errorf("%d tasks ran", n)
				}
			}
		}},
		{name: "queued for a task", begin: func(t *testing.T, rg *rig, ctx context.Context, cancel func()) (*phases.Request, func()) {
			s := newSlow()
			rg.Swap(phases.PipelineOf(one("a", s.run)))
			holder := rg.begin(t.Context())
			take(t, s.began, "holder")
			r := rg.begin(ctx)
			rg.wantPool("a", 1, 1)
			return r, func() {
				rg.wantPool("a", 1, 0)
				close(s.let)
				if err := rg.outcome(holder); err != nil {
					t.Error(err)
				}
				if n := s.runs.Load(); n != 1 {
					t.Errorf("%d tasks ran, want that of the holder", n)
				}
			}
		}},
		{name: "running", begin: func(t *testing.T, rg *rig, ctx context.Context, cancel func()) (*phases.Request, func()) {
			s := newSlow()
			rg.Swap(phases.PipelineOf(one("a", s.run), one("b", s.run)))
			r := rg.begin(ctx)
			take(t, s.began, "the task")
			return r, func() {
				if n := s.runs.Load(); n != 1 {
					t.Errorf("%d tasks ran, want 1", n)
				}
			}
		}},
		{name: "running many", begin: func(t *testing.T, rg *rig, ctx context.Context, cancel func()) (*phases.Request, func()) {
			s := newSlow()
			rg.Swap(phases.PipelineOf(many("a", 5, 0, func(ctx context.Context, _ int) (phases.Result, error) { return s.run(ctx) })))
			r := rg.begin(ctx)
			take(t, s.began, "the task")
			return r, func() {}
		}},
		{name: "awaiting", begin: func(t *testing.T, rg *rig, ctx context.Context, cancel func()) (*phases.Request, func()) {
			rg.Swap(phases.PipelineOf(&fake{name: "a", plan: plans(phases.Plan{Tasks: []phases.Task{{Await: never}, {Await: never}}})}))
			return rg.begin(ctx), func() {}
		}},
		{name: "awaiting and running", begin: func(t *testing.T, rg *rig, ctx context.Context, cancel func()) (*phases.Request, func()) {
			s := newSlow()
			rg.Swap(phases.PipelineOf(&fake{name: "a", plan: plans(phases.Plan{Tasks: []phases.Task{
				{Await: never}, {Pool: "a", Run: s.run}, {Pool: "a", Run: s.run}}})}))
			r := rg.begin(ctx)
			take(t, s.began, "the task")
			return r, func() {}
		}},
		{name: "between", begin: func(t *testing.T, rg *rig, ctx context.Context, cancel func()) (*phases.Request, func()) {
			s := newSlow()
			p := one("a", nothing)
			p.join = func(*phases.Request, []phases.Result) (phases.Verdict, error) {
				cancel()
				return phases.Next, nil
			}
			rg.Swap(phases.PipelineOf(p, one("b", s.run)))
			return rg.begin(ctx), func() {
				if n := s.runs.Load(); n != 0 {
					t.Errorf("%d tasks ran", n)
				}
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rg := engine(t, map[string]PoolSettings{"a": {1, 1}, "b": {1, 1}})
			for range 20 { // the news and the task race each other home
				ctx, cancel := context.WithCancel(t.Context())
				r, after := tc.begin(t, rg, ctx, cancel)
				cancel()
				wantKind(t, rg.outcome(r), wire.Canceled)
				after()
				rg.allBack()
			}
		})
	}
}

func TestACancelledRequestEndsWhenItsTaskHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		rg := engine(t, roomyPools("a"), one("a", s.stubborn))
		ctx, cancel := context.WithCancel(t.Context())
		r := rg.begin(ctx)
		take(t, s.began, "the task")
		cancel()
		synctest.Wait()
		select {
		case <-r.Out.Done():
			t.Error("the request ended with its task still at work")
		default:
		}
		if n := rg.Status().Inflight; n != 1 {
			t.Errorf("%d requests in flight, want 1", n)
		}
		close(s.let)
		wantKind(t, rg.outcome(r), wire.Canceled)
	})
}

// The reason for which the context ended is the outcome, if it is one that a
// client may be shown.
func TestACauseThatIsAFaultIsTheOutcome(t *testing.T) {
	s := newSlow()
	rg := engine(t, roomyPools("a"), one("a", s.run))
	for range 20 {
		ctx, cancel := context.WithCancelCause(t.Context())
		r := rg.begin(ctx)
		take(t, s.began, "the task")
		cancel(wire.Faultf(wire.UpstreamTimeout, "it took too long"))
		wantKind(t, rg.outcome(r), wire.UpstreamTimeout)
	}
}

func TestTheContextOfATaskEndsWithItsRequest(t *testing.T) {
	var kept context.Context
	rg := engine(t, roomyPools("a"), one("a", func(ctx context.Context) (phases.Result, error) {
		kept = ctx
		return nil, nil
	}))
	if err := rg.do(); err != nil {
		t.Error(err)
	}
	if kept.Err() == nil {
		t.Error("the context lives on")
	}
}
