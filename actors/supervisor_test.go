package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// told is a phase that records what is asked of it.
func told(name string, rec *record, tasks ...phases.Task) *fake {
	return &fake{name: name,
		plan: func(*phases.Request) (phases.Plan, error) {
			rec.add("plan " + name)
			return phases.Plan{Tasks: tasks}, nil
		},
		join: func(*phases.Request, []phases.Result) (phases.Verdict, error) {
			rec.add("join " + name)
			return phases.Next, nil
		}}
}

func TestPhasesRunInOrder(t *testing.T) {
	var rec record
	task := func(pool string) phases.Task {
		return phases.Task{Pool: pool, Run: func(context.Context) (phases.Result, error) {
			rec.add("run " + pool)
			return nil, nil
		}}
	}
	done := told("c", &rec, task("c"))
	done.join = func(*phases.Request, []phases.Result) (phases.Verdict, error) { return phases.Done, nil }
	for _, tc := range []struct {
		name string
		line []phases.Phase
		want []string
	}{
		{"no phase", nil, nil},
		{"all", []phases.Phase{told("a", &rec, task("a")), told("b", &rec, task("b"))},
			[]string{"plan a", "run a", "join a", "plan b", "run b", "join b"}},
		{"plans without tasks are skipped", []phases.Phase{told("x", &rec), told("a", &rec, task("a")), told("y", &rec)},
			[]string{"plan x", "plan a", "run a", "join a", "plan y"}},
		{"done ends early", []phases.Phase{told("a", &rec, task("a")), done, told("b", &rec, task("b"))},
			[]string{"plan a", "run a", "join a", "plan c", "run c"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rec = record{}
			rg := engine(t, roomyPools("a", "b", "c"), tc.line...)
			if err := rg.do(); err != nil {
				t.Error(err)
			}
			if got := rec.all(); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestResultsAreJoinedInTaskOrder(t *testing.T) {
	const n = 5
	var let [n]chan struct{}
	for i := range let {
		let[i] = make(chan struct{})
	}
	p := many("a", n, 0, func(_ context.Context, i int) (phases.Result, error) {
		<-let[i]
		if i > 0 {
			close(let[i-1]) // the last ends first
		}
		return i, nil
	})
	var got []phases.Result
	p.join = func(_ *phases.Request, results []phases.Result) (phases.Verdict, error) {
		got = results
		return phases.Next, nil
	}
	rg := engine(t, roomyPools("a"), p)
	close(let[n-1])
	if err := rg.do(); err != nil {
		t.Error(err)
	}
	if !slices.Equal(got, []phases.Result{0, 1, 2, 3, 4}) {
		t.Errorf("joined %v", got)
	}
}

func TestMaxParallelIsExact(t *testing.T) {
	const n = 6
	for _, tc := range []struct{ limit, want int }{{1, 1}, {2, 2}, {5, 5}, {6, 6}, {9, 6}, {0, 6}, {-1, 6}} {
		t.Run(fmt.Sprint(tc.limit), func(t *testing.T) {
			s := newSlow()
			rg := engine(t, roomyPools("a"),
				many("a", n, tc.limit, func(ctx context.Context, _ int) (phases.Result, error) { return s.run(ctx) }))
			r := rg.begin(t.Context())
			rg.wantPool("a", tc.want, 0)
			for range tc.want {
				take(t, s.began, "a task of the first ones")
			}
			for range n - tc.want {
				s.let <- struct{}{}
				take(t, s.began, "the next task")
				rg.wantPool("a", tc.want, 0)
			}
			close(s.let)
			if err := rg.outcome(r); err != nil {
				t.Error(err)
			}
			if got := int(s.atOnce.Load()); got > tc.want {
				t.Errorf("%d tasks at once", got)
			}
			if got := s.runs.Load(); got != n {
				t.Errorf("%d tasks ran", got)
			}
		})
	}
}

// MaxParallel bounds what is queued, too.
func TestMaxParallelBoundsWhatIsQueued(t *testing.T) {
	s := newSlow()
	rg := engine(t, map[string]PoolSettings{"a": {Size: 1, Queue: 9}},
		many("a", 6, 3, func(ctx context.Context, _ int) (phases.Result, error) { return s.run(ctx) }))
	r := rg.begin(t.Context())
	rg.wantPool("a", 1, 2)
	close(s.let)
	if err := rg.outcome(r); err != nil {
		t.Error(err)
	}
}

func TestErrorsFailTheRequest(t *testing.T) {
	fault := wire.Faultf(wire.UpstreamFailed, "it broke")
	for name, p := range map[string]*fake{
		"Plan": {name: "a", plan: func(*phases.Request) (phases.Plan, error) { return phases.Plan{}, fault }},
		"task": one("a", func(context.Context) (phases.Result, error) { return nil, fault }),
		"Join": {name: "a", plan: one("a", nothing).plan, join: func(*phases.Request, []phases.Result) (phases.Verdict, error) {
			return phases.Done, fault
		}},
		"Placed": {name: "a", plan: plans(phases.Plan{Tasks: []phases.Task{{Pool: "a", Run: nothing}}, Places: []string{"a"},
			Placed: func() error { return fault }})},
		"Recover": {name: "a", plan: one("a", func(context.Context) (phases.Result, error) { return nil, errTest }).plan,
			recovers: func(*phases.Request, error) (phases.Verdict, error) { return phases.Next, fault }},
		"awaited task": {name: "a", plan: plans(phases.Plan{Tasks: []phases.Task{{
			Await: func(_ context.Context, wake func(phases.Result, error)) { wake(nil, fault) }}}})},
	} {
		t.Run(name, func(t *testing.T) {
			ran := false
			rg := engine(t, roomyPools("a", "z"), p, one("z", func(context.Context) (phases.Result, error) {
				ran = true
				return nil, nil
			}))
			if err := rg.do(); !errors.Is(err, fault) {
				t.Errorf("outcome is %v, want %v", err, fault)
			}
			if ran {
				t.Error("the next phase was run")
			}
		})
	}
}

func TestRecoverIsAskedOnceAllTasksAreHome(t *testing.T) {
	s := newSlow()
	asked := make(chan error, 9)
	p := many("a", 3, 0, func(ctx context.Context, i int) (phases.Result, error) {
		if i == 1 {
			<-s.began
			<-s.began
			<-s.let
			return nil, errTest
		}
		s.began <- struct{}{}
		<-ctx.Done() // the failure cancels its siblings
		s.now.Add(1)
		return nil, ctx.Err()
	})
	p.recovers = func(_ *phases.Request, err error) (phases.Verdict, error) {
		if s.now.Load() != 2 {
			t.Errorf("asked when %d of 2 siblings were home", s.now.Load())
		}
		asked <- err
		return phases.Next, nil
	}
	p.join = func(*phases.Request, []phases.Result) (phases.Verdict, error) {
		t.Error("a phase that failed was joined")
		return phases.Next, nil
	}
	after := newSlow()
	close(after.let)
	rg := engine(t, roomyPools("a", "b"), p, one("b", after.run))
	r := rg.begin(t.Context())
	close(s.let)
	if err := rg.outcome(r); err != nil {
		t.Error(err)
	}
	if len(asked) != 1 || !errors.Is(<-asked, errTest) {
		t.Error("Recover was not asked once, with the first error")
	}
	if after.runs.Load() != 1 {
		t.Error("the request did not go on")
	}
}

func TestRecoverVerdicts(t *testing.T) {
	for name, tc := range map[string]struct {
		verdict phases.Verdict
		ran     int32
	}{"next": {phases.Next, 1}, "done": {phases.Done, 0}} {
		t.Run(name, func(t *testing.T) {
			p := one("a", func(context.Context) (phases.Result, error) { return nil, errTest })
			p.recovers = func(*phases.Request, error) (phases.Verdict, error) { return tc.verdict, nil }
			after := newSlow()
			close(after.let)
			rg := engine(t, roomyPools("a", "b"), p, one("b", after.run))
			if err := rg.do(); err != nil {
				t.Error(err)
			}
			if n := after.runs.Load(); n != tc.ran {
				t.Errorf("the next phase ran %d times", n)
			}
		})
	}
}

func TestRecoverIsNotAskedAfterACancel(t *testing.T) {
	s := newSlow()
	p := one("a", s.run)
	p.recovers = func(*phases.Request, error) (phases.Verdict, error) {
		t.Error("asked")
		return phases.Next, nil
	}
	rg := engine(t, roomyPools("a"), p)
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		r := rg.begin(ctx)
		take(t, s.began, "the task")
		cancel()
		wantKind(t, rg.outcome(r), wire.Canceled)
	}
}

func TestFirstFailureCancelsAndWithdrawsItsSiblings(t *testing.T) {
	s := newSlow()
	causes := make(chan error, 9)
	p := many("a", 6, 0, func(ctx context.Context, i int) (phases.Result, error) {
		s.runs.Add(1)
		if i == 0 {
			<-s.let
			return nil, errTest
		}
		s.began <- struct{}{}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil, errors.New("a later error")
	})
	rg := engine(t, map[string]PoolSettings{"a": {Size: 2, Queue: 2}}, p)
	r := rg.begin(t.Context())
	rg.wantPool("a", 2, 2)
	take(t, s.began, "the sibling")
	close(s.let)
	if err := rg.outcome(r); !errors.Is(err, errTest) {
		t.Errorf("outcome is %v, want the first error", err)
	}
	if cause := take(t, causes, "the sibling's end"); !errors.Is(cause, errTest) {
		t.Errorf("the sibling was cancelled because of %v", cause)
	}
	// Of those that were queued the first may have got the worker of the failing
	// task, but its context had ended: nothing of it ran.
	if n := s.runs.Load(); n > 3 {
		t.Errorf("%d tasks ran", n)
	}
}

func TestTaskWithoutRunFailsItsRequestOnly(t *testing.T) {
	rg := engine(t, roomyPools("a"), one("a", nil))
	wantKind(t, rg.do(), wire.Internal)
	rg.Swap(phases.PipelineOf(one("a", nothing)))
	if err := rg.do(); err != nil {
		t.Error(err)
	}
}

func TestMaxInflightIsExact(t *testing.T) {
	const limit, n = 7, 50
	s := newSlow()
	rg := setup{pools: map[string]PoolSettings{"a": {Size: n, Queue: n}}, inflight: limit}.engine(t, one("a", s.run))
	started, refused := make(chan *phases.Request, n), make(chan error, n)
	for range n {
		go func() {
			r := &phases.Request{Out: phases.NewResponse()}
			if err := rg.Start(context.Background(), r); err != nil {
				refused <- err
			} else {
				started <- r
			}
		}()
	}
	for range n - limit {
		err := take(t, refused, "a refusal")
		wantKind(t, err, wire.QueueFull)
		if after := wire.FaultOf(err).RetryAfter; after != "1" {
			t.Errorf("RetryAfter is %q, want 1", after)
		}
	}
	for range limit {
		r := take(t, started, "a request")
		s.let <- struct{}{}
		_ = r
	}
	eventually(t, "they end", rg.idle)
	close(s.let)
	if err := rg.do(); err != nil {
		t.Error(err)
	}
}
