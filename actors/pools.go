package actors

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// PoolSettings are the bounds of one pool.
type PoolSettings struct {
	// Size is how many tasks may be at work at a time, and how many workers
	// there are.
	Size int
	// Queue is how many tasks may wait; beyond that they are refused.
	Queue int
}

// pools are the pools of an engine. They share one lock, so that places in
// several of them can be taken together or not at all: whoever waits holds no
// half of what another waits for.
//
// All methods may be called by any goroutine and none blocks. None sends a
// message while it holds the lock: what it decides under the lock is delivered
// afterwards.
type pools struct {
	root    *actor.RootContext
	timeout time.Duration // that a ticket may wait
	metrics *Metrics

	all map[string]*pool // does not change

	mu sync.Mutex
}

// pool is the places of one kind of work. Its fields are guarded by the pools'
// lock, but for the first three, which do not change.
type pool struct {
	name   string
	parent *actor.PID // of its workers
	wait   prometheus.Observer

	size, limit int
	workers     int      // alive, of which some may be one too many after a resize
	idle        []*place // the last one used is the first one used again
	waiting     queue
}

// place is a worker's place in its pool. It is idle, or belongs to a ticket or
// to the request that was granted it.
type place struct {
	pool *pool
	pid  *actor.PID
	// held: a request has set the place aside, and gives it back itself. It is
	// written by whoever the place belongs to.
	held bool
	// busy: a task of that request is at work in it. Its supervisor's own.
	busy bool
}

// take grants a ticket at once, or queues it, or refuses it because a queue is
// full (a fault of kind QueueFull). It reports whether the ticket was granted;
// then its job has been handed out, or its places are its owner's. The owner of
// a queued ticket is told later.
func (ps *pools) take(t *ticket) (bool, error) {
	t.since = time.Now()
	ps.mu.Lock()
	if slices.ContainsFunc(t.pools, func(p *pool) bool { return p.waiting.blocks(t) }) || !t.claim() {
		defer ps.mu.Unlock()
		return false, ps.enqueue(t)
	}
	ps.mu.Unlock()
	ps.hand(t)
	return true, nil
}

// enqueue queues a ticket. The lock is held.
func (ps *pools) enqueue(t *ticket) error {
	for _, p := range t.pools {
		if !t.insists && p.waiting.len() >= p.limit {
			return queueFull("the queue of %s is full", p.name)
		}
	}
	t.waiting = true
	for _, p := range t.pools {
		p.waiting.push(t)
	}
	t.timer = time.AfterFunc(ps.timeout, func() { ps.expire(t) })
	return nil
}

func queueFull(format string, args ...any) error {
	f := wire.Faultf(wire.QueueFull, format, args...)
	f.RetryAfter = "1"
	return f
}

// claim takes the ticket's places out of their pools' idle ones, all or none.
// The lock is held.
func (t *ticket) claim() bool {
	for _, p := range t.pools {
		if len(p.idle) == 0 {
			return false
		}
	}
	t.places = t.onePlace[:0]
	for _, p := range t.pools {
		last := len(p.idle) - 1
		pl := p.idle[last]
		p.idle[last], p.idle = nil, p.idle[:last]
		pl.held = t.job == nil
		t.places = append(t.places, pl)
	}
	return true
}

// hand hands the job of a granted ticket to its worker. The lock is not held.
func (ps *pools) hand(t *ticket) {
	waited := time.Since(t.since)
	for _, pl := range t.places {
		pl.pool.wait.Observe(waited.Seconds())
	}
	if t.job != nil {
		t.job.place = t.places[0]
		ps.root.Send(t.job.place.pid, t.job)
	}
}

// free returns a place to its pool. The next ticket that waits for it is
// served.
func (ps *pools) free(pl *place) {
	ps.mu.Lock()
	p := pl.pool
	pl.held, pl.busy = false, false
	if p.workers > p.size {
		p.workers--
		ps.mu.Unlock()
		ps.root.Stop(pl.pid)
		return
	}
	p.idle = append(p.idle, pl)
	served := ps.serve(p)
	ps.mu.Unlock()
	ps.deliver(served)
}

// serve grants what the pool's idle places allow, in order. A ticket for
// several pools is granted when it is first in all their queues; those behind
// it wait with it, so that it cannot starve. The lock is held.
func (ps *pools) serve(p *pool) (served []*ticket) {
	for {
		t := p.waiting.head()
		if t == nil || slices.ContainsFunc(t.pools, func(o *pool) bool { return o.waiting.head() != t }) || !t.claim() {
			return served
		}
		ps.drop(t)
		served = append(served, t)
		for _, other := range t.pools {
			if other != p { // t may have been what held up its queue
				served = append(served, ps.serve(other)...)
			}
		}
	}
}

// drop takes a ticket out of the queues. The lock is held.
func (ps *pools) drop(t *ticket) {
	t.waiting = false
	t.timer.Stop()
	for _, p := range t.pools {
		p.waiting.remove(t)
	}
}

// deliver hands out jobs and tells owners. The lock is not held.
//
// An owner is told from a goroutine of its own: supervisors run on the
// goroutine that sends to them, and one that ends at once and frees its place
// would have the next one run on top of it, as deep as the queue is long.
func (ps *pools) deliver(served []*ticket) {
	for _, t := range served {
		ps.hand(t)
		if t.job == nil {
			go ps.root.Send(t.owner, &granted{t})
		}
	}
}

// withdraw takes a ticket out of its queues. It reports false if the ticket did
// not wait any more.
func (ps *pools) withdraw(t *ticket) bool {
	ps.mu.Lock()
	if !t.waiting {
		ps.mu.Unlock()
		return false
	}
	ps.drop(t)
	var served []*ticket
	for _, p := range t.pools {
		served = append(served, ps.serve(p)...)
	}
	ps.mu.Unlock()
	ps.deliver(served)
	return true
}

// expire refuses a ticket that has waited for too long.
func (ps *pools) expire(t *ticket) {
	if !ps.withdraw(t) {
		return
	}
	if t.owner == nil {
		t.job.drop()
		return
	}
	ps.metrics.shed.WithLabelValues("queue_timeout").Inc()
	ps.root.Send(t.owner, &expired{t})
}

// resize changes the bounds of a pool. Idle places that are too many go at
// once, busy ones when their task is done; missing ones are started. done is
// closed when they are there.
func (ps *pools) resize(name string, s PoolSettings) (done <-chan struct{}, err error) {
	p := ps.all[name]
	if p == nil {
		return nil, noSuchPool(name)
	}
	ps.mu.Lock()
	p.size, p.limit = s.Size, s.Queue
	var surplus []*place
	for p.workers > p.size && len(p.idle) > 0 {
		last := len(p.idle) - 1
		surplus = append(surplus, p.idle[last])
		p.idle = p.idle[:last]
		p.workers--
	}
	missing := max(0, p.size-p.workers)
	p.workers += missing
	ps.mu.Unlock()
	for _, pl := range surplus {
		ps.root.Stop(pl.pid)
	}
	started := make(chan struct{})
	ps.root.Send(p.parent, &grow{by: missing, done: started})
	return started, nil
}

func noSuchPool(name string) error {
	return wire.Faultf(wire.Internal, "internal error").Because(fmt.Errorf("there is no pool named %q", name))
}

// PoolStatus is the state of a pool at one moment.
type PoolStatus struct {
	Name string `json:"name"`
	// Size is how many tasks may be at work, Busy how many places are at work
	// or set aside, Queued how many tickets wait, Queue how many may.
	Size   int `json:"size"`
	Busy   int `json:"busy"`
	Queued int `json:"queued"`
	Queue  int `json:"queue"`
}

// status returns the state of all pools, sorted by name.
func (ps *pools) status() []PoolStatus {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	out := make([]PoolStatus, 0, len(ps.all))
	for _, p := range ps.all {
		out = append(out, PoolStatus{Name: p.name, Size: p.size, Busy: p.workers - len(p.idle), Queued: p.waiting.len(), Queue: p.limit})
	}
	slices.SortFunc(out, func(a, b PoolStatus) int { return strings.Compare(a.Name, b.Name) })
	return out
}
