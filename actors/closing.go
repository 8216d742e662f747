package actors

import (
	"context"
	"time"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// ErrShuttingDown refuses requests that come, and ends those that are left,
// when the engine is closed.
var ErrShuttingDown = func() *wire.Fault {
	f := wire.Faultf(wire.ShuttingDown, "the coordinator is shutting down")
	f.RetryAfter = "1"
	return f
}()

// announce wakes whoever waits for the engine to become idle. The lock is held.
func (e *Engine) announce() {
	if e.closing {
		close(e.changed)
		e.changed = make(chan struct{})
	}
}

// lastReleases is how long tasks that outlive their request may take when it was
// cut: releasing KV takes a moment, and pins GPU memory if it is not done.
const lastReleases = time.Second

// Close refuses new requests, waits for those in flight until ctx ends, then
// cancels them and waits until they are gone, and stops the pools. It returns
// how many requests were cut. It may be called more than once.
func (e *Engine) Close(ctx context.Context) (cut int) {
	e.mu.Lock()
	e.closing = true
	e.mu.Unlock()
	if !e.wait(ctx) {
		cut = e.cut()
		last, cancel := context.WithTimeout(context.Background(), lastReleases)
		e.wait(last)
		cancel()
		e.cancelDetached()
		e.wait(context.Background())
	}
	e.sizing.Lock()
	defer e.sizing.Unlock()
	if e.stopped {
		return cut
	}
	e.stopped = true
	e.cancelDetached()
	e.watchdog.close()
	for _, p := range e.pools.all {
		e.root.StopFuture(p.parent).Wait()
	}
	e.system.Shutdown()
	return cut
}

// wait waits until nothing is in flight. It reports false if ctx ended first.
func (e *Engine) wait(ctx context.Context) bool {
	for {
		e.mu.Lock()
		idle, changed := len(e.live) == 0 && e.batches == 0 && e.detached == 0, e.changed
		e.mu.Unlock()
		if idle {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// cut cancels all that is in flight and returns how many requests that were.
func (e *Engine) cut() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	for s := range e.live {
		s.cancel(ErrShuttingDown)
	}
	return len(e.live)
}
