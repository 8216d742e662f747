package actors

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// leaves is a phase without work that leaves tasks behind.
func leaves(runs ...work) *fake {
	return &fake{name: "leaves", release: func(*phases.Request) (tasks []phases.Task) {
		for _, run := range runs {
			tasks = append(tasks, phases.Task{Pool: "release", Run: run})
		}
		return tasks
	}}
}

func TestReleasedTasksOutliveTheirRequest(t *testing.T) {
	fails := one("a", func(context.Context) (phases.Result, error) { return nil, errTest })
	s := newSlow()
	for name, tc := range map[string]struct {
		then phases.Phase
		want func(error) bool
	}{
		"success": {one("a", nothing), func(err error) bool { return err == nil }},
		"error":   {fails, func(err error) bool { return err == errTest }},
		"cancel":  {one("a", s.run), func(err error) bool { return wire.FaultOf(err).Kind == wire.Canceled }},
		"panic":   {one("a", panics), func(err error) bool { return wire.FaultOf(err).Kind == wire.Internal }},
	} {
		t.Run(name, func(t *testing.T) {
			left := newSlow()
			var asked int
			p := leaves(left.run)
			release := p.release
			p.release = func(r *phases.Request) []phases.Task { asked++; return release(r) }
			rg := engine(t, map[string]PoolSettings{"a": {1, 1}, "release": {1, 1}}, p, tc.then)
			ctx, cancel := context.WithCancel(t.Context())
			r := rg.begin(ctx)
			if name == "cancel" {
				take(t, s.began, "the task")
				cancel()
			}
			if err := rg.outcome(r); !tc.want(err) {
				t.Errorf("outcome is %v", err)
			}
			cancel()
			take(t, left.began, "the task that is left")
			if st := rg.Status(); st.Inflight != 0 || st.Detached != 1 {
				t.Errorf("%d in flight, %d detached; want 0, 1", st.Inflight, st.Detached)
			}
			rg.wantPool("release", 1, 0)
			rg.wantPool("a", 0, 0)
			left.let <- struct{}{} // it was not cancelled: it still listens
			eventually(t, "it is gone", rg.idle)
			if asked != 1 {
				t.Errorf("Release was called %d times", asked)
			}
		})
	}
}

func TestReleasedTasksAreDroppedWhenTheirQueueIsFull(t *testing.T) {
	reg := prometheus.NewRegistry()
	left := newSlow()
	rg := setup{pools: map[string]PoolSettings{"release": {1, 1}}, metrics: NewMetrics(reg)}.
		engine(t, leaves(left.run, left.run, left.run, left.run))
	if err := rg.do(); err != nil {
		t.Error(err)
	}
	if n := rg.Status().Detached; n != 2 {
		t.Errorf("%d detached, want 2", n)
	}
	if n := counter(t, reg, "llm_d_coordinator_tasks_dropped_total", "pool", "release"); n != 2 {
		t.Errorf("%v counted as dropped, want 2", n)
	}
	close(left.let)
}

func TestReleasedTasksAreDroppedWhenTheyWaitTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		left := newSlow()
		rg := setup{pools: map[string]PoolSettings{"release": {1, 1}}, metrics: NewMetrics(reg), timeout: time.Minute}.
			engine(t, leaves(left.run, left.run))
		if err := rg.do(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := rg.Status().Detached; n != 1 {
			t.Errorf("%d detached, want 1", n)
		}
		rg.wantPool("release", 1, 0)
		if n := counter(t, reg, "llm_d_coordinator_tasks_dropped_total", "pool", "release"); n != 1 {
			t.Errorf("%v counted as dropped, want 1", n)
		}
		close(left.let)
		synctest.Wait()
		if n := left.runs.Load(); n != 1 {
			t.Errorf("%d ran, want 1", n)
		}
	})
}

func TestReleasedTasksThatGoWrong(t *testing.T) {
	ran := make(chan struct{}, 9)
	rg := engine(t, map[string]PoolSettings{"release": {1, 9}}, leaves(panics, panics, nil,
		func(context.Context) (phases.Result, error) { return nil, errors.New("it failed") },
		func(context.Context) (phases.Result, error) { ran <- struct{}{}; return nil, nil }))
	if err := rg.do(); err != nil {
		t.Error(err)
	}
	take(t, ran, "the one that is well")
	nowhere := &fake{name: "p", release: func(*phases.Request) []phases.Task {
		return []phases.Task{{Pool: "nowhere", Run: nothing}}
	}}
	rg.Swap(phases.PipelineOf(nowhere))
	if err := rg.do(); err != nil {
		t.Error(err)
	}
}

func TestCloseWaitsForReleasedTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := newSlow()
		rg := engine(t, map[string]PoolSettings{"release": {1, 2}}, leaves(left.run))
		for range 2 {
			if err := rg.do(); err != nil {
				t.Error(err)
			}
		}
		closed := make(chan int, 1)
		go func() { closed <- rg.Close(context.Background()) }()
		synctest.Wait()
		if len(closed) != 0 {
			t.Error("Close did not wait")
		}
		close(left.let)
		if n := take(t, closed, "Close"); n != 0 {
			t.Errorf("%d requests cut", n)
		}
		if n := left.runs.Load(); n != 2 {
			t.Errorf("%d ran, want 2", n)
		}
	})
}

func TestCloseCancelsReleasedTasksInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := newSlow()
		rg := engine(t, map[string]PoolSettings{"release": {1, 2}}, leaves(left.run))
		for range 2 {
			if err := rg.do(); err != nil {
				t.Error(err)
			}
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if n := rg.Close(ctx); n != 0 {
			t.Errorf("%d requests cut", n)
		}
		if waited := time.Since(began); waited != time.Second+lastReleases {
			t.Errorf("Close took %v", waited)
		}
		if n := left.runs.Load(); n != 1 {
			t.Errorf("%d ran, want 1", n)
		}
	})
}

// A request that Close cuts may leave KV behind as any other: its release is
// still sent.
func TestReleasedTasksOfACutRequestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck, left := newSlow(), newSlow()
		close(left.let)
		p := leaves(left.run)
		p.plan = plans(phases.Plan{Tasks: []phases.Task{{Pool: "p", Run: stuck.run}}})
		rg := engine(t, map[string]PoolSettings{"p": {1, 1}, "release": {1, 1}}, p)
		r := rg.begin(t.Context())
		take(t, stuck.began, "the task")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if n := rg.Close(ctx); n != 1 {
			t.Errorf("%d requests cut, want 1", n)
		}
		wantKind(t, rg.outcome(r), wire.ShuttingDown)
		if n := left.runs.Load(); n != 1 {
			t.Errorf("%d releases ran, want 1", n)
		}
	})
}
