package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// supervisor drives one request through its phases. It is an actor that never
// blocks: it asks a phase for its tasks, hands them to the pools, collects what
// comes home, lets the phase join it, and goes on with the next phase. It alone
// changes the Request.
//
// Whatever happens, it ends only when every task it has handed out is home:
// then nothing of the request is left in any pool.
type supervisor struct {
	engine *Engine
	req    *phases.Request
	line   *pipeline // the one that the request began with
	// counted: the request is one of those that MaxInflight bounds.
	counted bool
	ctx     context.Context
	cancel  context.CancelCauseFunc
	unhook  func() bool
	self    *actor.PID

	// Of the run of the current phase.
	at      int // its index
	run     int // its number, so that what wakes late is told from what is waited for
	plan    phases.Plan
	step    context.Context // of its tasks
	stop    context.CancelCauseFunc
	results []phases.Result
	failed  error // the first error of a task
	next    int   // the task that is handed out next
	// succeeded counts the tasks that came home without an error.
	succeeded int
	open      int // tasks that are not home, and a ticket for places
	awaited   int // those of them that no worker runs
	waiting   []*ticket
	// stepOpen: the run is not in the trace as ended yet.
	stepOpen bool

	reruns  int
	places  []*place // held by the request
	settled bool     // the outcome is known
	ending  bool     // and nothing is open any more
	outcome error
}

// maxReruns ends a request whose phases would start it again for ever.
const maxReruns = 8

var errCrashed = wire.Faultf(wire.Internal, "internal error").Because(errors.New("the request's supervisor crashed"))

// Receive handles a message. A panic in it is a bug, of a phase most likely: it
// fails the request in good order, once, and runs nothing again.
func (s *supervisor) Receive(c actor.Context) {
	defer func() {
		if cause := recover(); cause != nil {
			s.engine.metrics.supervisorRestarts.Inc()
			logPanic(s.engine.log, "a request's supervisor panicked", s.req.ID, s.phaseName(), cause)
			s.fail(errCrashed)
		}
	}()
	switch m := c.Message().(type) {
	case *actor.Started:
		s.self = c.Self()
		s.unhook = context.AfterFunc(s.ctx, func() { s.engine.root.Send(s.self, &canceled{}) })
		s.advance()
	case *home:
		s.collect(m)
	case *granted:
		s.granted(m.ticket)
	case *expired:
		s.expired(m.ticket)
	case *canceled:
		s.fail(causeOf(s.ctx))
	case *actor.Stopped:
		s.engine.ended(s)
	}
}

// causeOf says why a request's context ended: as the engine was told, or
// because the client left.
func causeOf(ctx context.Context) error {
	cause := context.Cause(ctx)
	if f := (*wire.Fault)(nil); errors.As(cause, &f) {
		return f
	}
	return wire.Faultf(wire.Canceled, "the client left").Because(cause)
}

func (s *supervisor) phase() phases.Phase { return s.line.phases[s.at] }

func (s *supervisor) phaseName() string {
	if s.at < len(s.line.phases) {
		return s.phase().Name()
	}
	return ""
}

// advance plans phases, from the current one on, until one has work to do.
func (s *supervisor) advance() {
	for ; s.at < len(s.line.phases); s.at++ {
		s.beginStep()
		plan, err := s.phase().Plan(s.req)
		if err != nil {
			s.fail(err)
			return
		}
		if len(plan.Tasks) > 0 {
			s.plan = plan
			s.prepare()
			return
		}
		s.skipStep()
	}
	s.end(nil)
}

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
			t = &ticket{owner: s.self, holder: len(s.places) > 0}
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
// may be refused by a full queue: the rest waits here until one comes home, and
// if none is out to come home, in the queue all the same.
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
	t.job, t.owner, t.onePool[0] = j, s.self, p
	t.pools = t.onePool[:]
	t.insists, t.holder = index > 0 && s.open == 0, len(s.places) > 0
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

// collect takes in a task that has come home.
func (s *supervisor) collect(m *home) {
	if m.run != s.run || m.awaited && (s.settled || s.failed != nil) {
		return // an awaited task that nobody waits for any more
	}
	if m.awaited {
		s.awaited--
	}
	s.open--
	s.trace().ran(m)
	s.results[m.index] = m.result
	if m.err != nil && s.failed == nil && !s.settled {
		s.failed = m.err
		s.withdraw()
		if s.stop != nil {
			s.stop(m.err)
		}
	}
	if m.place != nil {
		m.place.busy = false
		if s.failed == nil && !s.settled {
			s.reuse(m.place)
		}
	}
	if m.err == nil {
		s.succeeded++
	}
	switch {
	case s.settled:
		s.joinLate()
		s.end(s.outcome)
	case s.failed == nil && s.next < len(s.plan.Tasks):
		s.handOut()
	case s.open == 0:
		s.joinStep()
	}
}

// joinStep lets the phase fold its results into the request, or recover, once
// all its tasks are home, and follows its verdict.
func (s *supervisor) joinStep() {
	phase := s.phase()
	var verdict phases.Verdict
	err := s.failed
	if err == nil {
		verdict, err = phase.Join(s.req, s.results)
	} else if r, ok := phase.(phases.Recoverer); ok && s.ctx.Err() == nil {
		verdict, err = r.Recover(s.req, err)
	}
	next := s.at + 1
	if err == nil && verdict.Again != "" {
		next, err = s.earlier(verdict.Again)
	}
	if err != nil {
		s.fail(err)
		return
	}
	s.finishStep(nil)
	if verdict.Done && verdict.Again == "" {
		s.end(nil)
		return
	}
	s.at = next
	s.advance()
}

// joinLate lets a phase see results that came home when the request was settled
// already: it may have to let go of what they tell of.
func (s *supervisor) joinLate() {
	if s.open > 0 || s.failed != nil || s.succeeded < len(s.results) || s.ending {
		return
	}
	s.succeeded = 0
	if _, err := s.phase().Join(s.req, s.results); err != nil {
		s.engine.log.Debug("results that came late could not be joined", "request_id", s.req.ID, "phase", s.phaseName(), "error", err)
	}
}

// earlier finds the phase to run again from.
func (s *supervisor) earlier(name string) (int, error) {
	to := slices.IndexFunc(s.line.phases[:s.at+1], func(p phases.Phase) bool { return p.Name() == name })
	if s.reruns++; to < 0 || s.reruns > maxReruns {
		return 0, wire.Faultf(wire.Internal, "internal error").Because(fmt.Errorf("cannot run again from %q (run %d)", name, s.reruns))
	}
	return to, nil
}

// expired handles a ticket that waited too long: its task, or the phase's
// place, is refused.
func (s *supervisor) expired(t *ticket) {
	s.forget(t)
	err := queueFull("waited too long for a place in %s", t.pools[0].name)
	if t.job == nil {
		s.open--
		s.fail(err)
		return
	}
	t.job.home.err = err
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
		}
	}
	s.waiting = nil
	s.open, s.awaited = s.open-s.awaited, 0
}

// refuse fails the request before its tasks are sent: because a queue is full,
// say, or a breaker open.
func (s *supervisor) refuse(err error) {
	switch wire.FaultOf(err).Kind {
	case wire.QueueFull:
		s.engine.metrics.shed.WithLabelValues("queue_full").Inc()
	case wire.Unavailable:
		s.engine.metrics.shed.WithLabelValues("breaker_open").Inc()
	}
	s.fail(err)
}

// fail settles the outcome, cancels everything of the request, and ends it once
// all its tasks are home. If the request's context has ended, that is the
// outcome, whatever a task that was home before the news made of it.
func (s *supervisor) fail(err error) {
	if !s.settled {
		if s.ctx.Err() != nil {
			err = causeOf(s.ctx)
		}
		s.settled, s.outcome = true, err
		s.cancel(err)
		s.withdraw()
	}
	s.end(s.outcome)
}

// end gives back what the request holds and stops, unless something is still
// open: then the last to come home ends it.
func (s *supervisor) end(outcome error) {
	s.settled, s.outcome = true, outcome
	if s.open > 0 || s.ending {
		return
	}
	s.ending = true
	s.finishStep(outcome)
	s.unhook()
	s.cancel(nil)
	s.engine.root.Stop(s.self)
	for _, pl := range s.places {
		s.engine.pools.free(pl)
	}
	s.places = nil
	s.release()
	s.req.Close()
}

// release hands out what the phases leave to be done after the request.
func (s *supervisor) release() {
	for _, p := range s.line.phases {
		if r, ok := p.(phases.Releaser); ok {
			for _, task := range s.askRelease(p.Name(), r) {
				s.engine.detach(task, p.Name(), s.req.ID)
			}
		}
	}
}

// askRelease asks one phase. If it panics the outcome stands, for the client
// has it already, and the other phases are asked.
func (s *supervisor) askRelease(phase string, r phases.Releaser) (tasks []phases.Task) {
	defer func() {
		if cause := recover(); cause != nil {
			s.engine.metrics.supervisorRestarts.Inc()
			logPanic(s.engine.log, "a phase panicked when its request had ended", s.req.ID, phase, cause)
		}
	}()
	return r.Release(s.req)
}
