package actors

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

func TestFullQueueRefusesAtOnce(t *testing.T) {
	s := newSlow()
	rg := engine(t, map[string]PoolSettings{"a": {Size: 2, Queue: 2}}, one("a", s.run))
	var waiting []*phases.Request
	refused := 0
	for range 10 {
		r := rg.begin(t.Context())
		select {
		case <-r.Out.Done():
			refused++
			wantKind(t, r.Out.Err(), wire.QueueFull)
			if after := wire.FaultOf(r.Out.Err()).RetryAfter; after != "1" {
				t.Errorf("RetryAfter is %q, want 1", after)
			}
		default:
			waiting = append(waiting, r)
		}
	}
	if refused != 6 {
		t.Errorf("%d requests refused, want 6", refused)
	}
	rg.wantPool("a", 2, 2)
	take(t, s.began, "first task")
	take(t, s.began, "second task")
	close(s.let)
	for _, r := range waiting {
		if err := rg.outcome(r); err != nil {
			t.Error(err)
		}
	}
	if n := s.runs.Load(); n != 4 {
		t.Errorf("%d tasks ran, want 4", n)
	}
	if n := s.atOnce.Load(); n > 2 {
		t.Errorf("%d tasks ran at once, want 2", n)
	}
}

func TestQueueIsFirstInFirstOut(t *testing.T) {
	var ran record
	s := newSlow()
	rg := engine(t, map[string]PoolSettings{"a": {Size: 1, Queue: 20}}, &fake{name: "a", plan: func(r *phases.Request) (phases.Plan, error) {
		id := r.ID
		return phases.Plan{Tasks: []phases.Task{{Pool: "a", Run: func(ctx context.Context) (phases.Result, error) {
			ran.add(id)
			return s.run(ctx)
		}}}}, nil
	}})
	var all []*phases.Request
	var want []string
	for i := range 15 {
		r := &phases.Request{ID: strconv.Itoa(i), Out: phases.NewResponse()}
		if err := rg.Start(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		all, want = append(all, r), append(want, r.ID)
	}
	close(s.let)
	for _, r := range all {
		if err := rg.outcome(r); err != nil {
			t.Error(err)
		}
	}
	if got := ran.all(); !slices.Equal(got, want) {
		t.Errorf("ran in the order %v, want %v", got, want)
	}
}

func TestNoTaskWaitsWhileAWorkerIsIdle(t *testing.T) {
	s := newSlow()
	first := true
	rg := engine(t, map[string]PoolSettings{"a": {Size: 2, Queue: 0}}, &fake{name: "a", plan: func(*phases.Request) (phases.Plan, error) {
		run := work(nothing)
		if first {
			first, run = false, s.run
		}
		return phases.Plan{Tasks: []phases.Task{{Pool: "a", Run: run}}}, nil
	}})
	blocked := rg.begin(t.Context())
	take(t, s.began, "slow task")
	for range 50 {
		if err := rg.do(); err != nil {
			t.Fatal(err)
		}
	}
	close(s.let)
	if err := rg.outcome(blocked); err != nil {
		t.Error(err)
	}
}

func TestQueueTimeoutRefusesExactly(t *testing.T) {
	const timeout = 10 * time.Second
	for name, waits := range map[string]func(run work) *fake{
		"a task":         func(run work) *fake { return one("a", run) },
		"one place":      func(run work) *fake { return one("b", run, "a") },
		"several places": func(run work) *fake { return one("b", run, "c", "a") },
		"second of two tasks": func(run work) *fake {
			return &fake{name: "b", plan: plans(phases.Plan{Tasks: []phases.Task{{Pool: "b", Run: run}, {Pool: "a", Run: run}}})}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSlow()
				pools := map[string]PoolSettings{"a": {1, 1}, "b": {2, 2}, "c": {2, 2}}
				rg := setup{pools: pools, timeout: timeout}.engine(t, one("a", s.run))
				holder := rg.begin(t.Context())
				take(t, s.began, "holder")
				rg.Swap(phases.PipelineOf(waits(s.run)))
				began := time.Now()
				r := rg.begin(t.Context())
				wantKind(t, rg.outcome(r), wire.QueueFull)
				if after := wire.FaultOf(r.Out.Err()).RetryAfter; after != "1" {
					t.Errorf("RetryAfter is %q, want 1", after)
				}
				if waited := time.Since(began); waited != timeout {
					t.Errorf("waited for %v, want %v", waited, timeout)
				}
				rg.wantPool("a", 1, 0)
				rg.wantPool("c", 0, 0)
				close(s.let)
				if err := rg.outcome(holder); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestServedJustBeforeTheQueueTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		rg := setup{pools: map[string]PoolSettings{"a": {1, 1}}, timeout: time.Minute}.engine(t, one("a", s.run))
		first, second := rg.begin(t.Context()), rg.begin(t.Context())
		time.Sleep(time.Minute - 1)
		s.let <- struct{}{}
		time.Sleep(time.Hour) // a time-out that has been overtaken does nothing
		synctest.Wait()
		close(s.let)
		for _, r := range []*phases.Request{first, second} {
			if err := rg.outcome(r); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestCancelledWhileQueuedFreesItsPlaceInTheQueue(t *testing.T) {
	s := newSlow()
	rg := engine(t, map[string]PoolSettings{"a": {Size: 1, Queue: 1}}, one("a", s.run))
	running := rg.begin(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	queued := rg.begin(ctx)
	wantKind(t, rg.do(), wire.QueueFull)
	cancel()
	wantKind(t, rg.outcome(queued), wire.Canceled)
	next := rg.begin(t.Context())
	rg.wantPool("a", 1, 1)
	close(s.let)
	for _, r := range []*phases.Request{running, next} {
		if err := rg.outcome(r); err != nil {
			t.Error(err)
		}
	}
	if n := s.runs.Load(); n != 2 {
		t.Errorf("%d tasks ran, want 2", n)
	}
}

// A request that waits for places in several pools stands in all their queues.
// When it goes, those behind it are served at once if they can be.
func TestThoseBehindAWithdrawnTicketAreServed(t *testing.T) {
	s := newSlow()
	rg := engine(t, map[string]PoolSettings{"a": {1, 9}, "b": {1, 9}}, one("a", s.run))
	holder := rg.begin(t.Context())
	rg.Swap(phases.PipelineOf(one("b", s.run, "a", "b")))
	ctx, cancel := context.WithCancel(t.Context())
	both := rg.begin(ctx)
	rg.Swap(phases.PipelineOf(one("b", nothing)))
	behind := rg.begin(t.Context())
	rg.wantPool("b", 0, 2)
	cancel()
	wantKind(t, rg.outcome(both), wire.Canceled)
	if err := rg.outcome(behind); err != nil {
		t.Error(err)
	}
	close(s.let)
	if err := rg.outcome(holder); err != nil {
		t.Error(err)
	}
}

func TestOnlyTheFirstTaskIsRefusedByAFullQueue(t *testing.T) {
	t.Run("the rest waits with the supervisor", func(t *testing.T) {
		s := newSlow()
		rg := engine(t, map[string]PoolSettings{"a": {Size: 1, Queue: 1}},
			many("a", 7, 0, func(ctx context.Context, _ int) (phases.Result, error) { return s.run(ctx) }))
		r := rg.begin(t.Context())
		rg.wantPool("a", 1, 1)
		wantKind(t, rg.do(), wire.QueueFull)
		close(s.let)
		if err := rg.outcome(r); err != nil {
			t.Error(err)
		}
		if n := s.runs.Load(); n != 7 {
			t.Errorf("%d tasks ran, want 7", n)
		}
	})
	// It was refused when nothing of it happened to be at work at that moment.
	t.Run("also when none of its tasks is at work", func(t *testing.T) {
		s := newSlow()
		rg := engine(t, map[string]PoolSettings{"a": {1, 1}, "b": {1, 1}}, one("b", s.run))
		others := []*phases.Request{rg.begin(t.Context()), rg.begin(t.Context())}
		rg.Swap(phases.PipelineOf(&fake{name: "p", plan: plans(phases.Plan{MaxParallel: 1, Tasks: []phases.Task{
			{Pool: "a", Run: nothing}, {Pool: "b", Run: nothing}, {Pool: "b", Run: nothing}}})}))
		r := rg.begin(t.Context())
		eventually(t, "the second task waits", func() bool { return rg.pool("b").Queued == 2 })
		close(s.let)
		for _, r := range append(others, r) {
			if err := rg.outcome(r); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestUnknownPoolIsAnInternalError(t *testing.T) {
	rg := engine(t, roomyPools("a"))
	for name, p := range map[string]phases.Plan{
		"task":        {Tasks: []phases.Task{{Pool: "nowhere", Run: nothing}}},
		"second task": {Tasks: []phases.Task{{Pool: "a", Run: nothing}, {Pool: "nowhere", Run: nothing}}},
		"place":       {Places: []string{"a", "nowhere"}, Tasks: []phases.Task{{Pool: "a", Run: nothing}}},
	} {
		rg.Swap(phases.PipelineOf(&fake{name: "p", plan: plans(p)}))
		t.Run(name, func(t *testing.T) { wantKind(t, rg.do(), wire.Internal) })
	}
	if err := rg.Resize("nowhere", PoolSettings{1, 1}); err == nil {
		t.Error("a pool that is not there was resized")
	}
}
