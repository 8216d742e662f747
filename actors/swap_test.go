package actors

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

func TestARequestKeepsThePipelineItBeganWith(t *testing.T) {
	first, old, fresh := newSlow(), newSlow(), newSlow()
	close(old.let)
	close(fresh.let)
	rg := engine(t, roomyPools("a", "b"), one("a", first.run), one("b", old.run))
	r := rg.begin(t.Context())
	take(t, first.began, "the first phase")
	rg.Swap(phases.PipelineOf(one("b", fresh.run)))
	if err := rg.do(); err != nil {
		t.Error(err)
	}
	if o, f := old.runs.Load(), fresh.runs.Load(); o != 0 || f != 1 {
		t.Errorf("the new request ran the old phase %d times, the new one %d times", o, f)
	}
	close(first.let)
	if err := rg.outcome(r); err != nil {
		t.Error(err)
	}
	if o, f := old.runs.Load(), fresh.runs.Load(); o != 1 || f != 1 {
		t.Errorf("the old request ran the old phase %d times, the new one %d times", o, f-1)
	}
}

// unused reports whether a pipeline is known to be unused.
func unused(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// TestAPipelineIsUsedUntilItsLastRequestAndWhatThatLeavesBehind have ended.
func TestAPipelineIsUsedUntilItsLastRequestAndWhatThatLeavesBehind(t *testing.T) {
	s, left, other := newSlow(), newSlow(), newSlow()
	rg := engine(t, roomyPools("a", "release"), one("a", s.run), leaves(left.run))
	r := rg.begin(t.Context())
	take(t, s.began, "the task")
	first := rg.Swap(phases.PipelineOf(one("a", other.run)))
	later := rg.begin(t.Context())
	take(t, other.began, "the later task")
	if unused(first) {
		t.Error("unused though its request runs")
	}
	close(s.let)
	if err := rg.outcome(r); err != nil {
		t.Error(err)
	}
	take(t, left.began, "what it leaves behind")
	if unused(first) {
		t.Error("unused though something of its request runs")
	}
	second := rg.Swap(phases.PipelineOf())
	close(left.let)
	take(t, first, "the end of the first")
	if unused(second) {
		t.Error("the second is unused though its request runs")
	}
	close(other.let)
	if err := rg.outcome(later); err != nil {
		t.Error(err)
	}
	take(t, second, "the end of the second")
	if third := rg.Swap(phases.PipelineOf()); !unused(third) {
		t.Error("one that nobody has used is not unused at once")
	}
}

// TestLinesAreSwappedByThemselves: requests of one do not hold up another.
func TestLinesAreSwappedByThemselves(t *testing.T) {
	s := newSlow()
	rg := engine(t, roomyPools("a"), one("a", s.run))
	line := rg.Line(phases.PipelineOf())
	r := rg.begin(t.Context())
	take(t, s.began, "the task")
	if !unused(line.Swap(phases.PipelineOf())) {
		t.Error("the line is used")
	}
	close(s.let)
	if err := rg.outcome(r); err != nil {
		t.Error(err)
	}
}

// TestNoRequestRunsOnAPipelineThatIsUnused, however closely it comes to the swap:
// what it is made of is closed then.
func TestNoRequestRunsOnAPipelineThatIsUnused(t *testing.T) {
	closed := func() (*phases.Pipeline, func()) {
		var gone atomic.Bool
		return phases.PipelineOf(one("a", func(context.Context) (phases.Result, error) {
			if gone.Load() {
				t.Error("a task runs on what is closed")
			}
			return nil, nil
		})), func() { gone.Store(true) }
	}
	p, end := closed()
	rg := engine(t, map[string]PoolSettings{"a": {8, 1000}}, p.Phases()...)
	stop := make(chan struct{})
	var asking, ending sync.WaitGroup
	for range 8 {
		asking.Go(func() {
			for !unused(stop) {
				if err := rg.do(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 300 {
		next, endNext := closed()
		done, endThis := rg.Swap(next), end
		ending.Go(func() { <-done; endThis() })
		end = endNext
	}
	close(stop)
	asking.Wait()
	ending.Wait()
	rg.allBack()
}

// TestApplyChangesAllBounds of an engine that runs.
func TestApplyChangesAllBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		rg := setup{pools: map[string]PoolSettings{"a": {1, 1}}, timeout: time.Hour, inflight: 2, watchdog: 3 * time.Hour}.engine(t, one("a", s.run))
		holder, waiter := rg.begin(t.Context()), rg.begin(t.Context())
		wantKind(t, rg.Start(t.Context(), &phases.Request{Out: phases.NewResponse()}), wire.QueueFull)
		err := rg.Apply(Settings{QueueTimeout: time.Second, MaxInflight: 4, Watchdog: time.Minute, Pools: map[string]PoolSettings{"a": {2, 2}}})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		rg.wantPool("a", 2, 0)
		began := time.Now()
		third, fourth := rg.begin(t.Context()), rg.begin(t.Context())
		wantKind(t, rg.Start(t.Context(), &phases.Request{Out: phases.NewResponse()}), wire.QueueFull)
		for _, r := range []*phases.Request{third, fourth} {
			wantKind(t, rg.outcome(r), wire.QueueFull)
		}
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("waited for %v", waited)
		}
		time.Sleep(2 * time.Hour) // stuck by now, but not when they came
		close(s.let)
		rg.wantWell(holder)
		rg.wantWell(waiter)
		if err := rg.Apply(Settings{QueueTimeout: time.Second, Pools: map[string]PoolSettings{"b": {1, 1}}}); err == nil {
			t.Error("there is no pool b")
		}
		rg.Close(t.Context())
		if err := rg.Apply(Settings{QueueTimeout: time.Second, Pools: map[string]PoolSettings{"a": {1, 1}}}); !errors.Is(err, ErrShuttingDown) {
			t.Errorf("closed: %v", err)
		}
	})
}

// TestTheWatchdogThatIsAppliedFeelsWhoComesThen, and none feels who came without.
func TestTheWatchdogThatIsAppliedFeelsWhoComesThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		rg := setup{pools: roomyPools("a")}.engine(t, one("a", s.run))
		before := rg.begin(t.Context())
		if err := rg.Apply(Settings{QueueTimeout: time.Hour, Watchdog: watched}); err != nil {
			t.Fatal(err)
		}
		r := rg.begin(t.Context())
		wantKind(t, rg.outcome(r), wire.Internal)
		if err := rg.Apply(Settings{QueueTimeout: time.Hour}); err != nil {
			t.Fatal(err)
		}
		after := rg.begin(t.Context())
		time.Sleep(20 * watched)
		close(s.let)
		rg.wantWell(before)
		rg.wantWell(after)
	})
}
