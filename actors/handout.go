package actors

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// prepare makes ready for the tasks of the current phase, and takes the places
// that must be held before the first of them is sent.
func (s *supervisor) prepare() {
	s.results = make([]phases.Result, len(s.plan.Tasks))
	s.step, s.stop = s.ctx, nil
	if len(s.plan.Tasks) > 1 {
		s.step, s.stop = context.WithCancelCause(s.ctx)
	}
	t, err := s.ticketForPlaces()
	if err != nil {
		s.fail(err)
		return
	}
	if t == nil {
		s.placed()
		return
	}
	s.open++
	now, err := s.engine.pools.take(t)
	switch {
	case err != nil:
		s.open--
		s.refuse(err)
	case now:
		s.granted(t)
	default:
		s.waiting = append(s.waiting, t)
	}
}

// ticketForPlaces returns a ticket for the places that the plan needs and the
// request does not hold, or nil if there are none.
func (s *supervisor) ticketForPlaces() (*ticket, error) {
	var t *ticket
	for _, name := range s.plan.Places {
		p := s.engine.pools.all[name]
		if p == nil {
			return nil, noSuchPool(name)
		}
		if slices.ContainsFunc(s.places, func(pl *place) bool { return pl.pool == p }) || t != nil && slices.Contains(t.pools, p) {
			continue
		}
		if t == nil {
			t = &ticket{owner: s, tenant: s.tenant, holder: len(s.places) > 0}
			t.pools = t.onePool[:0]
		}
		t.pools = append(t.pools, p)
	}
	return t, nil
}

// granted takes over the places of a ticket.
func (s *supervisor) granted(t *ticket) {
	s.open--
	s.places = append(s.places, t.places...)
	s.forget(t)
	if s.settled { // it was granted while the request ended
		s.end(s.outcome)
		return
	}
	s.placed()
}

// placed hands out the first tasks.
func (s *supervisor) placed() {
	if s.plan.Placed != nil {
		if err := s.plan.Placed(); err != nil {
			s.refuse(err)
			return
		}
	}
	s.handOut()
}

// handOut hands out tasks, as many as may be at work at a time. Only the first
// may be refused by a full or slow queue: the rest waits here until one comes
// home, and if none is out to come home, in the queue all the same. One that is
// queued may be displaced, whichever it is, unless it had to be.
func (s *supervisor) handOut() {
	limit := s.plan.MaxParallel
	for s.next < len(s.plan.Tasks) && (limit <= 0 || s.open < limit) {
		err := s.dispatch(s.next)
		if err != nil {
			if s.open == 0 || wire.FaultOf(err).Kind != wire.QueueFull {
				s.refuse(err)
			}
			return
		}
		s.next++
		s.open++
	}
}

// dispatch hands out one task: to what wakes it, to a place that the request
// holds, or to its pool.
func (s *supervisor) dispatch(index int) error {
	task := &s.plan.Tasks[index]
	if task.Await != nil {
		s.engine.pools.handedOut(s)
		s.pulse.expect(task.Until)
		task.Await(s.step, wakeOnce(s.engine.root, s.self, s.run, index))
		s.awaited++ // not before: if Await panics, the task is not out
		return nil
	}
	j := &job{ctx: s.step, run: task.Run, reply: s.self, phase: s.phaseName(), request: s.req.ID}
	j.home.run, j.home.index = s.run, index
	for _, pl := range s.places {
		if pl.pool.name == task.Pool && !pl.busy {
			s.use(pl, j)
			return nil
		}
	}
	p := s.engine.pools.all[task.Pool]
	if p == nil {
		return noSuchPool(task.Pool)
	}
	t := &j.ticket
	t.job, t.owner, t.tenant, t.onePool[0] = j, s, s.tenant, p
	t.pools = t.onePool[:]
	t.insists, t.patient, t.holder = index > 0 && s.open == 0, index > 0, len(s.places) > 0
	now, err := s.engine.pools.take(t)
	if err == nil && !now {
		s.waiting = append(s.waiting, t)
	}
	return err
}

// use hands a job to a place that the request holds.
func (s *supervisor) use(pl *place, j *job) {
	pl.busy, j.place, j.home.place = true, pl, pl
	s.engine.root.Send(pl.pid, j)
}

// reuse has a place that has become free run the next task of the request that
// is queued for one like it: there may be no other for it.
func (s *supervisor) reuse(pl *place) {
	for _, t := range s.waiting {
		if t.pools[0] == pl.pool && s.engine.pools.withdraw(t) {
			s.forget(t)
			s.use(pl, t.job)
			return
		}
	}
}

// passOn gives a place back that the plan needs no longer, unless a task is at work
// in it.
func (s *supervisor) passOn(pl *place) {
	if !pl.busy && slices.Contains(s.plan.Passing, pl.pool.name) {
		s.places = slices.DeleteFunc(s.places, func(held *place) bool { return held == pl })
		s.engine.pools.free(pl)
	}
}

// refused handles a ticket that is void: its task, or the phase's place, is
// refused.
func (s *supervisor) refused(m *refused) {
	t := m.ticket
	s.forget(t)
	s.req.Journal.Waited(t.pools[0].name, t.since, time.Now())
	if t.job == nil {
		s.open--
		s.fail(m.fault)
		return
	}
	t.job.home.err = m.fault
	s.collect(&t.job.home)
}

func (s *supervisor) forget(t *ticket) {
	if i := slices.Index(s.waiting, t); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
}

// withdraw takes back what still waits, in queues or for a wake-up: those tasks
// are home.
func (s *supervisor) withdraw() {
	for _, t := range s.waiting {
		if s.engine.pools.withdraw(t) {
			s.open--
			s.req.Journal.Waited(t.pools[0].name, t.since, time.Now())
		}
	}
	s.waiting = nil
	s.open, s.awaited = s.open-s.awaited, 0
}

// refuse fails the request before its tasks are sent, unless its phase knows what
// to do then: because a queue is full or too slow, say, or a breaker open.
func (s *supervisor) refuse(err error) {
	shed := s.engine.metrics.shed
	switch kind := wire.FaultOf(err).Kind; {
	case errors.Is(err, errTooSlow):
		shed.WithLabelValues("deadline").Inc()
	case kind == wire.QueueFull:
		shed.WithLabelValues("queue_full").Inc()
	case kind == wire.Unavailable:
		shed.WithLabelValues("breaker_open").Inc()
	}
	if _, ok := s.phase().(phases.Recoverer); ok && s.open == 0 {
		s.failed = err
		s.joinStep()
		return
	}
	s.fail(err)
}
