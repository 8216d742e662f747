package actors

import (
	"slices"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/prometheus/client_golang/prometheus"
)

// pools are the pools of an engine. They share one lock, so that places in
// several of them can be taken together or not at all: whoever waits holds no
// half of what another waits for.
//
// All methods may be called by any goroutine and none blocks. None sends a
// message while it holds the lock: what it decides under the lock is delivered
// afterwards.
type pools struct {
	root    *actor.RootContext
	metrics *Metrics

	all map[string]*pool // does not change

	mu      sync.Mutex
	timeout time.Duration // that a ticket may wait
	number  uint64        // of the last ticket that was queued
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
	queue       queue
	drain       drain // of its places, while none is idle
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
// full or too slow for the request's deadline (a fault of kind QueueFull). It
// reports whether the ticket was granted; then its job has been handed out, or
// its places are its owner's. The owner of a queued ticket is told later.
func (ps *pools) take(t *ticket) (bool, error) {
	t.since = time.Now()
	ps.mu.Lock()
	if slices.ContainsFunc(t.pools, func(p *pool) bool { return p.queue.blocks(t) }) || !t.claim() {
		v, err := ps.enqueue(t)
		ps.mu.Unlock()
		ps.deliver(v)
		return false, err
	}
	ps.mu.Unlock()
	ps.hand(t)
	return true, nil
}

// enqueue queues a ticket or refuses it. The lock is held.
func (ps *pools) enqueue(t *ticket) (v verdicts, err error) {
	for _, p := range t.pools {
		if t.tenant = known(p.queue.lanes, t.tenant); p.tooSlow(t) {
			return v, p.queueFull("it would wait too long for a place in %s", p.name).Because(errTooSlow)
		}
	}
	yield, err := ps.room(t)
	if err != nil {
		return v, err
	}
	for _, y := range yield {
		y.leave((*queue).remove)
		v.void = append(v.void, &refused{y, y.pools[0].full().Because(errDisplaced), "displaced"})
	}
	ps.number++
	t.number, t.waiting, t.queued = ps.number, true, true
	for _, p := range t.pools {
		p.queue.push(t)
	}
	t.timer = time.AfterFunc(ps.timeout, func() { ps.expire(t) })
	for _, y := range yield { // those behind it may be served
		v.served = append(v.served, ps.serveAll(y.pools)...)
	}
	return v, nil
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
		if last == 0 {
			p.drain.start()
		}
	}
	if t.owner != nil {
		t.owner.out = true
	}
	return true
}

// hand hands the job of a granted ticket to its worker. The lock is not held.
func (ps *pools) hand(t *ticket) {
	now := time.Now()
	for _, pl := range t.places {
		pl.pool.wait.Observe(now.Sub(t.since).Seconds())
		if t.queued && t.owner != nil {
			t.owner.req.Journal.Waited(pl.pool.name, t.since, now)
		}
	}
	if t.job != nil {
		t.job.place = t.places[0]
		ps.root.Send(t.job.place.pid, t.job)
	}
}

// free returns a place to its pool. The next ticket that waits for it is
// served.
func (ps *pools) free(pl *place) { ps.put(pl, true) }

// add gives a place of a new worker to its pool, as free does.
func (ps *pools) add(pl *place) { ps.put(pl, false) }

func (ps *pools) put(pl *place, again bool) {
	ps.mu.Lock()
	p := pl.pool
	pl.held, pl.busy = false, false
	if p.workers > p.size {
		p.workers--
		ps.mu.Unlock()
		ps.root.Stop(pl.pid)
		return
	}
	if again {
		p.drain.count()
	}
	p.idle = append(p.idle, pl)
	served := ps.serve(p)
	if len(p.idle) > 0 {
		p.drain.stop()
	}
	ps.mu.Unlock()
	ps.deliver(verdicts{served: served})
}

// serve grants what the pool's idle places allow, in order. A ticket for
// several pools is granted when it is first in all their queues; those behind
// it wait with it, so that it cannot starve. The lock is held.
func (ps *pools) serve(p *pool) (served []*ticket) {
	for {
		t := p.queue.head()
		if t == nil || slices.ContainsFunc(t.pools, func(o *pool) bool { return o.queue.head() != t }) || !t.claim() {
			return served
		}
		t.leave((*queue).serve)
		served = append(served, t)
		for _, other := range t.pools {
			if other != p { // t may have been what held up its queue
				served = append(served, ps.serve(other)...)
			}
		}
	}
}

// serveAll serves whom it can in several pools. The lock is held.
func (ps *pools) serveAll(pools []*pool) (served []*ticket) {
	for _, p := range pools {
		served = append(served, ps.serve(p)...)
	}
	return served
}

// leave takes a ticket out of its queues: by serve if it is granted, else by
// remove. The lock is held.
func (t *ticket) leave(by func(*queue, *ticket)) {
	t.waiting = false
	t.timer.Stop()
	for _, p := range t.pools {
		by(&p.queue, t)
	}
}

// void takes a ticket that waits out of its queues, and serves those behind it.
// The lock is held.
func (ps *pools) void(t *ticket) (served []*ticket) {
	t.leave((*queue).remove)
	return ps.serveAll(t.pools)
}

// verdicts is what was decided under the lock, to be delivered without it.
type verdicts struct {
	served []*ticket
	void   []*refused
}

// deliver hands out jobs and tells owners. The lock is not held.
//
// An owner is told from a goroutine of its own: supervisors run on the
// goroutine that sends to them, and one that ends at once and frees its place
// would have the next one run on top of it, as deep as the queue is long.
func (ps *pools) deliver(v verdicts) {
	for _, t := range v.served {
		ps.hand(t)
		if t.job == nil {
			go ps.root.Send(t.owner.self, &granted{t})
		}
	}
	for _, m := range v.void {
		if m.ticket.owner == nil {
			m.ticket.job.drop()
		} else {
			ps.metrics.shed.WithLabelValues(m.reason).Inc()
			go ps.root.Send(m.ticket.owner.self, m)
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
	served := ps.void(t)
	ps.mu.Unlock()
	ps.deliver(verdicts{served: served})
	return true
}

// expire refuses a ticket that has waited for too long.
func (ps *pools) expire(t *ticket) {
	ps.mu.Lock()
	if !t.waiting {
		ps.mu.Unlock()
		return
	}
	v := verdicts{served: ps.void(t)}
	p := t.pools[0]
	v.void = []*refused{{t, p.queueFull("waited too long for a place in %s", p.name), "queue_timeout"}}
	ps.mu.Unlock()
	ps.deliver(v)
}
