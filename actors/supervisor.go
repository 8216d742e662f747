package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

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
	batch  *batch    // that the request is a part of, or nil
	// counted: the request is one of those that MaxInflight bounds. Guarded by the
	// engine's lock.
	counted  bool
	aside    bool // it is one of those that MaxAside bounds
	settled  bool // the outcome is known
	ending   bool // and nothing is open any more
	reruns   uint8
	outcome  error
	tenant   string // by which the request is told from others
	ctx      context.Context
	cancel   context.CancelCauseFunc
	unhook   func() bool
	deadline *time.Timer // nil if the request has none
	self     *actor.PID
	pulse    pulse
	patience time.Duration // of the watchdog when the request came

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
	relays    bool // a task goes on without its worker
	// out: something of the run was handed out. Guarded by the pools' lock while a
	// ticket waits.
	out bool
	// stepOpen: the run is not in the journal as ended yet.
	stepOpen  bool
	stepBegan time.Time
	last      string // the phase that was planned last

	places []*place // held by the request
}

// shell is the actor of a supervisor, from its first message on.
type shell struct{ supervisor *supervisor }

// Receive handles a message.
func (sh *shell) Receive(c actor.Context) {
	if m, ok := c.Message().(*begin); ok {
		sh.supervisor = m.supervisor
	}
	if sh.supervisor != nil {
		sh.supervisor.Receive(c)
	}
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
	s.beat()
	switch m := c.Message().(type) {
	case *begin:
		s.self = c.Self()
		s.arm()
		s.unhook = context.AfterFunc(s.ctx, func() { s.engine.root.Send(s.self, &canceled{}) })
		s.advance()
	case *home:
		s.collect(m)
	case *relaying:
		s.relaying(m)
	case *granted:
		s.granted(m.ticket)
	case *refused:
		s.refused(m)
	case *canceled:
		s.fail(causeOf(s.ctx))
	case *actor.Stopped:
		s.engine.ended(s)
	}
}

// arm sets the timer of the request's deadline: unless its answer has begun by
// then, the request is cancelled.
func (s *supervisor) arm() {
	if s.req.Deadline.IsZero() {
		return
	}
	s.deadline = time.AfterFunc(time.Until(s.req.Deadline), func() {
		if s.req.Out.Expire() {
			s.cancel(phases.ErrExpired)
		}
	})
}

// disarm takes back what would end the request from outside.
func (s *supervisor) disarm() {
	s.unhook()
	if s.deadline != nil {
		s.deadline.Stop()
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

// collect takes in a task that has come home.
func (s *supervisor) collect(m *home) {
	if m.run != s.run || m.awaited && (s.settled || s.failed != nil) {
		return // an awaited task that nobody waits for any more
	}
	if m.awaited {
		s.awaited--
	}
	s.open--
	s.req.Journal.Sent(m.began)
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
			s.passOn(m.place)
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
	default:
		s.letGo()
	}
}

// relaying notes that a task goes on without its worker.
func (s *supervisor) relaying(m *relaying) {
	if m.run == s.run {
		s.relays = true
		s.letGo()
	}
}

// letGo lets go of what the request holds for tasks, once the one that goes on is
// the last.
func (s *supervisor) letGo() {
	if !s.relays || s.settled || s.failed != nil || s.open > 1 || s.next < len(s.plan.Tasks) {
		return
	}
	s.plan = phases.Plan{Tasks: make([]phases.Task, len(s.plan.Tasks))}
	s.req.LetGo()
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
		if s.batch != nil {
			s.batch.failed(s, err)
		}
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
	s.disarm()
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
				s.engine.detach(s.line, task, p.Name(), s.req.ID)
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
