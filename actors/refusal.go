package actors

import (
	"errors"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// errTooSlow is the cause of a fault, for the log.
var errTooSlow = errors.New("it would have waited past its deadline")

// tooSlow reports whether a newcomer would, by all that is known, still wait at
// its request's deadline. An answer that has begun has no deadline any more, and
// what insists is owed to work that was done already. The lock is held.
func (p *pool) tooSlow(t *ticket) bool {
	if t.owner == nil || t.insists {
		return false
	}
	r := t.owner.req
	if r.Deadline.IsZero() || r.Out.Begun() {
		return false
	}
	rate := p.rate()
	return rate > 0 && float64(p.queue.ahead(t)+1)/rate > r.Deadline.Sub(t.since).Seconds()
}

// rate returns how many places come back per second while none is idle, or 0 if
// that is not known yet. It is known once as many have come back as there are:
// tasks that began together end together, and until they do it looks as if none
// ever would. The lock is held.
func (p *pool) rate() float64 { return p.drain.rate(p.size) }

// retryAfter returns after how many seconds those that wait now, or one if none
// does, will have been served. The lock is held.
func (p *pool) retryAfter() string { return retryAfter(max(p.queue.len(), 1), p.rate()) }

// queueFull returns the fault that refuses a ticket. The lock is held.
func (p *pool) queueFull(format string, args ...any) *wire.Fault {
	return queueFull(p.retryAfter(), format, args...)
}

// full is the fault for which there is no room in the queue. The lock is held.
func (p *pool) full() *wire.Fault { return p.queueFull("the queue of %s is full", p.name) }

func queueFull(retryAfter, format string, args ...any) *wire.Fault {
	f := wire.Faultf(wire.QueueFull, format, args...)
	f.RetryAfter = retryAfter
	return f
}
