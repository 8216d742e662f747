package actors

import (
	"errors"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// admit counts a request in, or refuses it.
func (e *Engine) admit(s *supervisor) error {
	e.mu.Lock()
	v, err := e.countIn(s)
	e.mu.Unlock()
	e.pools.deliver(v)
	return err
}

// countIn counts a request in, in the place of another if it must. The lock is
// held.
func (e *Engine) countIn(s *supervisor) (v verdicts, err error) {
	if e.closing {
		e.metrics.shed.WithLabelValues("shutting_down").Inc()
		return v, ErrShuttingDown
	}
	if s.line.tenure.over {
		return v, errSwapped
	}
	s.tenant = s.req.Tenant
	if s.aside {
		if limit := int(e.maxAside.Load()); limit > 0 && e.aside >= limit {
			e.metrics.shed.WithLabelValues("max_waiting").Inc()
			return v, queueFull(retryAfter(1, 0), "too many requests wait")
		}
		e.aside++
	}
	if s.counted {
		s.tenant = known(e.tenants, s.tenant)
		limit := int(e.maxInflight.Load())
		if limit > 0 && e.counted >= limit {
			var room bool
			if v, room = e.displace(s.tenant, limit); !room {
				e.metrics.shed.WithLabelValues("max_inflight").Inc()
				return v, e.full(1)
			}
		}
		if e.counted++; e.counted == limit {
			e.drain.start()
		}
		e.tenants[s.tenant]++
	}
	e.live[s] = struct{}{}
	s.line.tenure.enter()
	s.patience = e.patience
	return v, nil
}

// displace has a request that waits make room for a newcomer of a tenant, if the
// newcomer has a right to that, and reports whether there was one. It does not
// count from now on, though it takes a moment to end. The lock is held.
func (e *Engine) displace(tenant string, limit int) (verdicts, bool) {
	tenants := len(e.tenants)
	if e.tenants[tenant] == 0 {
		tenants++
	}
	fair := share(limit, tenants)
	if e.tenants[tenant] >= fair {
		return verdicts{}, false
	}
	weight := func(s *supervisor) int {
		if !s.counted {
			return 0
		}
		return e.tenants[s.tenant]
	}
	gone, v := e.pools.displace(weight, fair, e.full(1).Because(errDisplaced))
	if gone == nil {
		return v, false
	}
	e.countOut(gone)
	return v, true
}

// countOut takes a request out of the count. The lock is held.
func (e *Engine) countOut(s *supervisor) {
	s.counted = false
	e.counted--
	if e.tenants[s.tenant]--; e.tenants[s.tenant] == 0 {
		delete(e.tenants, s.tenant)
	}
}

// full is the fault for which there is no room for n more requests. Its Retry-After
// is after how many seconds as many of those in flight will have ended. The lock is
// held.
func (e *Engine) full(n int) *wire.Fault {
	return queueFull(retryAfter(n, e.drain.rate(1)), "too many requests in flight")
}

// forget takes a request that has ended, or is not begun, out of those that are
// there. The lock is held.
func (e *Engine) forget(s *supervisor) {
	delete(e.live, s)
	s.line.tenure.leave()
	if s.aside {
		e.aside--
	}
	if s.counted {
		e.countOut(s)
		e.drain.stop()
	}
}

// admission stands for the phase of a request that has not reached one.
const admission = "admission"

// countOutcome counts how a request ended that failed in a phase, in metrics.
func (e *Engine) countOutcome(outcome error, phase string) {
	if outcome != nil && wire.FaultOf(outcome).Kind == wire.Canceled {
		e.metrics.disconnects.WithLabelValues(phase).Inc()
	}
	if errors.Is(outcome, phases.ErrExpired) {
		e.metrics.expired.WithLabelValues(phase).Inc()
	}
}

// ended is a supervisor's last word: its actor is gone, and whoever waits for
// the request's outcome gets it.
func (e *Engine) ended(s *supervisor) {
	if !s.ending { // it crashed: at least let go of what can be
		s.disarm()
		s.cancel(errCrashed)
		s.req.Close()
		for _, pl := range s.places {
			if !pl.busy {
				e.pools.free(pl)
			}
		}
	}
	if s.batch == nil {
		e.countOutcome(s.outcome, s.last)
	} else if s.outcome != nil {
		s.batch.failed(s, s.outcome)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.counted {
		e.drain.count()
	}
	e.forget(s)
	e.announce()
	if s.batch == nil {
		s.req.Out.Finish(s.outcome) // under the lock, for Close returns when all have their outcome
	}
}
