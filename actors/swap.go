package actors

import (
	"errors"

	"github.com/llm-coordinator/coordinator/phases"
)

// tenure is for how long a pipeline is used. It is guarded by the engine's lock:
// that is taken anyway when a request comes and when it has ended.
type tenure struct {
	users  int           // requests that go through it, and tasks that outlive theirs
	over   bool          // another has taken its place
	unused chan struct{} // closed when it is over and there are no users
}

func (t *tenure) enter() { t.users++ }

func (t *tenure) leave() {
	t.users--
	t.settle()
}

func (t *tenure) end() {
	t.over = true
	t.settle()
}

func (t *tenure) settle() {
	if t.over && t.users == 0 {
		close(t.unused)
	}
}

// errSwapped is for a request that has found a pipeline just before another took
// its place: whoever waits for its end has not seen the request yet.
var errSwapped = errors.New("another pipeline has taken the place of this one")

// Swap puts another pipeline in the place of the current one. Requests in
// flight go on with the one they began with: unused is closed when neither they
// nor their tasks that outlive them are left.
func (e *Engine) Swap(p *phases.Pipeline) (unused <-chan struct{}) { return e.main.Swap(p) }

// Swap is [Engine.Swap] for this line.
func (l *Line) Swap(p *phases.Pipeline) (unused <-chan struct{}) {
	e := l.engine
	fresh := e.metrics.pipeline(p)
	e.mu.Lock()
	defer e.mu.Unlock()
	old := l.pipeline.Swap(fresh)
	old.tenure.end()
	return old.tenure.unused
}

// Apply changes the bounds of the engine while it runs. Pools that the settings do
// not name stay as they are. Who waits in a queue already waits as long as it was
// told; a request in flight is never stuck sooner than when it came.
func (e *Engine) Apply(s Settings) error {
	e.sizing.Lock()
	defer e.sizing.Unlock()
	for name, bounds := range s.Pools {
		if err := e.resize(name, bounds); err != nil {
			return err
		}
	}
	e.pools.setTimeout(s.QueueTimeout)
	e.maxInflight.Store(int64(s.MaxInflight))
	e.maxAside.Store(int64(s.MaxAside))
	e.watch(s.Watchdog)
	return nil
}

// Resize changes the bounds of a pool. Tasks at work are not touched: what is
// too many goes when its task is done. It fails if there is no such pool or the
// engine is closed.
func (e *Engine) Resize(pool string, s PoolSettings) error {
	e.sizing.Lock()
	defer e.sizing.Unlock()
	return e.resize(pool, s)
}

// resize is Resize. The caller holds sizing.
func (e *Engine) resize(pool string, s PoolSettings) error {
	if e.stopped {
		return ErrShuttingDown
	}
	started, err := e.pools.resize(pool, s)
	if err == nil {
		<-started
	}
	return err
}
