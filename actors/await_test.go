package actors

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// wakers is a phase whose task is woken by the test.
type wakers struct {
	*fake
	wakes chan func(phases.Result, error)
}

func newWakers() wakers {
	w := wakers{wakes: make(chan func(phases.Result, error), 1000)}
	w.fake = &fake{name: "waits", plan: plans(phases.Plan{Tasks: []phases.Task{{
		Await: func(_ context.Context, wake func(phases.Result, error)) { w.wakes <- wake },
	}}})}
	return w
}

func TestWaitingHoldsNoWorker(t *testing.T) {
	const n = 100
	w := newWakers()
	rg := engine(t, map[string]PoolSettings{"a": {1, n}}, w, one("a", nothing))
	var all []*phases.Request
	for range n {
		all = append(all, rg.begin(t.Context()))
	}
	rg.wantPool("a", 0, 0)
	if got := rg.Status().Inflight; got != n {
		t.Errorf("%d in flight, want %d", got, n)
	}
	line := rg.main.pipeline.Load().Pipeline
	rg.Swap(phases.PipelineOf(one("a", nothing)))
	if err := rg.do(); err != nil { // the worker is free
		t.Error(err)
	}
	rg.Swap(line)
	for range n {
		wake := take(t, w.wakes, "a wake")
		go wake(nil, nil)
	}
	for _, r := range all {
		if err := rg.outcome(r); err != nil {
			t.Error(err)
		}
	}
}

func TestTheFirstWakeCounts(t *testing.T) {
	t.Run("twice", func(t *testing.T) {
		w := newWakers()
		joins := make(chan phases.Result, 9)
		w.join = func(_ *phases.Request, results []phases.Result) (phases.Verdict, error) {
			joins <- results[0]
			return phases.Next, nil
		}
		rg := engine(t, roomyPools("a"), w, one("a", nothing))
		r := rg.begin(t.Context())
		wake := take(t, w.wakes, "wake")
		wake(1, nil)
		wake(2, errTest)
		if err := rg.outcome(r); err != nil {
			t.Error(err)
		}
		wake(3, errTest)
		if got := <-joins; got != 1 || len(joins) != 0 {
			t.Errorf("joined %v and %d more", got, len(joins))
		}
	})
	t.Run("at once by many", func(t *testing.T) {
		w := newWakers()
		joins := make(chan phases.Result, 99)
		w.join = func(_ *phases.Request, results []phases.Result) (phases.Verdict, error) {
			joins <- results[0]
			return phases.Next, nil
		}
		rg := engine(t, nil, w)
		for range 50 {
			r := rg.begin(t.Context())
			wake := take(t, w.wakes, "wake")
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() { wake(i, nil) })
			}
			wg.Wait()
			if err := rg.outcome(r); err != nil {
				t.Error(err)
			}
		}
		if n := len(joins); n != 50 {
			t.Errorf("joined %d times, want 50", n)
		}
	})
	t.Run("from within Await", func(t *testing.T) {
		p := &fake{name: "a", plan: plans(phases.Plan{Tasks: []phases.Task{
			{Await: func(_ context.Context, wake func(phases.Result, error)) { wake(nil, nil); wake(nil, nil) }},
			{Await: func(_ context.Context, wake func(phases.Result, error)) { wake(nil, nil) }},
		}})}
		rg := engine(t, nil, p)
		if err := rg.do(); err != nil {
			t.Error(err)
		}
	})
}

func TestAwaitCountsForMaxParallel(t *testing.T) {
	wakes := make(chan func(phases.Result, error), 9)
	task := phases.Task{Await: func(_ context.Context, wake func(phases.Result, error)) { wakes <- wake }}
	rg := engine(t, nil, &fake{name: "a", plan: plans(phases.Plan{MaxParallel: 2, Tasks: []phases.Task{task, task, task}})})
	r := rg.begin(t.Context())
	first, second := take(t, wakes, "wake"), take(t, wakes, "wake")
	if len(wakes) != 0 {
		t.Error("three at once")
	}
	first(nil, nil)
	third := take(t, wakes, "the third")
	third(nil, nil)
	second(nil, nil)
	if err := rg.outcome(r); err != nil {
		t.Error(err)
	}
}

func TestALateWakeIsHarmless(t *testing.T) {
	w := newWakers()
	rg := engine(t, roomyPools("a"), w, one("a", nothing))
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		r := rg.begin(ctx)
		wake := take(t, w.wakes, "wake")
		cancel()
		wantKind(t, rg.outcome(r), wire.Canceled)
		wake("late", nil)
	}
	for range 200 { // they meet
		ctx, cancel := context.WithCancel(t.Context())
		r := rg.begin(ctx)
		wake := take(t, w.wakes, "wake")
		go cancel()
		go wake(nil, nil)
		if err := rg.outcome(r); err != nil {
			wantKind(t, err, wire.Canceled)
		}
	}
}

func TestAFailureEndsTheWaitOfItsSiblings(t *testing.T) {
	wakes := make(chan func(phases.Result, error), 1)
	waits := phases.Task{Await: func(ctx context.Context, wake func(phases.Result, error)) { wakes <- wake }}
	fails := phases.Task{Pool: "a", Run: func(context.Context) (phases.Result, error) { return nil, errTest }}
	rg := engine(t, roomyPools("a"), &fake{name: "a", plan: plans(phases.Plan{Tasks: []phases.Task{waits, fails}})})
	if err := rg.do(); err != errTest {
		t.Errorf("outcome is %v", err)
	}
	take(t, wakes, "wake")(nil, nil)
}

// Who wakes may hold a lock that the phase takes, too: the supervisor went on
// beneath that lock, on the same goroutine, for ever.
func TestWakeUnderALockOfThePhase(t *testing.T) {
	var mu sync.Mutex
	w := newWakers()
	w.join = func(*phases.Request, []phases.Result) (phases.Verdict, error) {
		mu.Lock()
		defer mu.Unlock()
		return phases.Next, nil
	}
	rg := engine(t, nil, w)
	r := rg.begin(t.Context())
	wake := take(t, w.wakes, "wake")
	woken := make(chan struct{})
	go func() {
		mu.Lock()
		defer mu.Unlock()
		wake(nil, nil)
		close(woken)
	}()
	take(t, woken, "the return of wake")
	if err := rg.outcome(r); err != nil {
		t.Error(err)
	}
}

func TestCancelEndsAWaitingRequestThoughManyWait(t *testing.T) {
	w := newWakers()
	rg := engine(t, nil, w)
	for _, n := range []int{1, 30} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var all []*phases.Request
			for range n {
				all = append(all, rg.begin(ctx))
			}
			cancel()
			for _, r := range all {
				wantKind(t, rg.outcome(r), wire.Canceled)
			}
		})
	}
}
