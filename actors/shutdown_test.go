package actors

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

func TestCloseRefusesNewAndWaitsForRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		rg := engine(t, map[string]PoolSettings{"a": {1, 1}}, one("a", s.run))
		running, queued := rg.begin(t.Context()), rg.begin(t.Context())
		closed := make(chan int, 2)
		for range 2 { // by two at once
			go func() { closed <- rg.Close(context.Background()) }()
		}
		synctest.Wait()
		r := &phases.Request{Out: phases.NewResponse()}
		err := rg.Start(t.Context(), r)
		wantKind(t, err, wire.ShuttingDown)
		if after := wire.FaultOf(err).RetryAfter; after != "1" {
			t.Errorf("RetryAfter is %q, want 1", after)
		}
		if len(closed) != 0 {
			t.Error("Close did not wait")
		}
		close(s.let)
		for range 2 {
			if n := take(t, closed, "Close"); n != 0 {
				t.Errorf("%d requests cut", n)
			}
		}
		for _, r := range []*phases.Request{running, queued} {
			if err := rg.outcome(r); err != nil {
				t.Error(err)
			}
		}
		if n := rg.Close(t.Context()); n != 0 {
			t.Errorf("closed again, %d requests cut", n)
		}
		wantKind(t, rg.Start(t.Context(), r), wire.ShuttingDown)
	})
}

func TestCloseCutsWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := newSlow(), newWakers()
		rg := engine(t, map[string]PoolSettings{"a": {1, 9}, "b": {1, 9}}, one("a", s.run))
		var all []*phases.Request
		all = append(all, rg.begin(t.Context()), rg.begin(t.Context())) // at work, queued
		rg.Swap(phases.PipelineOf(w))
		all = append(all, rg.begin(t.Context()))
		// The first to be cut may free the place that this one waits for.
		waits := func(ctx context.Context) (phases.Result, error) { <-ctx.Done(); return nil, context.Cause(ctx) }
		rg.Swap(phases.PipelineOf(one("b", waits, "b", "a")))
		all = append(all, rg.begin(t.Context()))
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if n := rg.Close(ctx); n != len(all) {
			t.Errorf("%d requests cut, want %d", n, len(all))
		}
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("Close took %v", waited)
		}
		for _, r := range all {
			select {
			case <-r.Out.Done():
				wantKind(t, r.Out.Err(), wire.ShuttingDown)
			default:
				t.Error("Close returned before a request's end")
			}
		}
	})
}

func TestCloseWaitsForATaskThatDoesNotListen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		rg := engine(t, roomyPools("a"), one("a", s.stubborn))
		r := rg.begin(t.Context())
		take(t, s.began, "the task")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		closed := make(chan int, 1)
		go func() { closed <- rg.Close(ctx) }()
		synctest.Wait()
		if len(closed) != 0 {
			t.Error("Close returned with a task at work")
		}
		close(s.let)
		if n := take(t, closed, "Close"); n != 1 {
			t.Errorf("%d requests cut, want 1", n)
		}
		wantKind(t, rg.outcome(r), wire.ShuttingDown)
	})
}

// Every Start that was not refused has an outcome by the time Close returns.
func TestStartAndCloseAtOnce(t *testing.T) {
	for range 30 {
		rg := engine(t, map[string]PoolSettings{"a": {2, 1000}, "b": {2, 1000}}, one("a", nothing, "b"), one("b", nothing))
		var wg sync.WaitGroup
		var refused atomic.Int32
		var mu sync.Mutex
		var all []*phases.Request
		for range 8 {
			wg.Go(func() {
				for range 20 {
					r := &phases.Request{Out: phases.NewResponse()}
					if err := rg.Start(context.Background(), r); err != nil {
						wantKind(t, err, wire.ShuttingDown)
						refused.Add(1)
						return
					}
					mu.Lock()
					all = append(all, r)
					mu.Unlock()
				}
			})
		}
		for range 2 {
			wg.Go(func() { rg.Close(context.Background()) })
		}
		wg.Wait()
		for _, r := range all {
			select {
			case <-r.Out.Done():
				if err := r.Out.Err(); err != nil {
					t.Error(err)
				}
			default:
				t.Error("no outcome after Close")
			}
		}
	}
}

// A resize that met Close waited for workers that nobody would start.
func TestResizeAndClose(t *testing.T) {
	for range 30 {
		rg := engine(t, roomyPools("a"), one("a", nothing))
		done := make(chan struct{}, 4)
		for i := range 3 {
			go func() {
				for size := range 20 {
					_ = rg.Resize("a", PoolSettings{Size: size + i + 1, Queue: 1})
				}
				done <- struct{}{}
			}()
		}
		go func() { rg.Close(context.Background()); done <- struct{}{} }()
		for range 4 {
			take(t, done, "resize or close")
		}
		if err := rg.Resize("a", PoolSettings{Size: 99, Queue: 9}); err == nil {
			t.Error("a closed engine was resized")
		}
	}
}
