package phases

import (
	"context"
	"sync"
	"time"

	"github.com/llm-coordinator/coordinator/transport/broker"
	"github.com/llm-coordinator/coordinator/transport/budget"
	"github.com/llm-coordinator/coordinator/transport/journal"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// hold is the waiting of one request for its result. The task that submits the
// request writes it first; once that is home it belongs to the supervisor, but
// for what mu guards.
type hold struct {
	until time.Time // when it ends
	// capped: that is before the request's own deadline. attempted: there may be
	// something in the queue.
	capped, attempted bool
	ctx               context.Context // the request's
	stop              func()          // the watch, nil: there is none
	// began is when the client was made to wait; zero: it is not.
	began time.Time

	mu    sync.Mutex
	found *broker.Result
	wake  func(Result, error) // nil: nobody waits yet
	timer *time.Timer
}

// timeIsUp is the result of a hold that has ended without one.
type timeIsUp struct{}

// came takes in a result. The broker calls it.
func (h *hold) came(result *broker.Result) {
	h.mu.Lock()
	h.found = result
	wake := h.wake
	h.mu.Unlock()
	if wake != nil {
		wake(result, nil)
	}
}

// result returns what has come, or nil.
func (h *hold) result() *broker.Result {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.found
}

// plan waits for a result, or for the end of the hold.
func (h *hold) plan(j *journal.Journal) Plan {
	return Plan{Tasks: []Task{{Until: h.until, Await: func(_ context.Context, wake func(Result, error)) {
		j.Trim()
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.found != nil {
			wake(h.found, nil)
			return
		}
		h.wake = wake
		h.timer = time.AfterFunc(time.Until(h.until), func() { wake(timeIsUp{}, nil) })
	}}}}
}

// end ends the hold: the broker does not wake it any more. It may be called more
// than once.
func (h *hold) end() {
	if h.stop != nil {
		h.stop()
		h.stop = nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.timer != nil {
		h.timer.Stop()
	}
}

// wait begins to hold a request. What it has brought is let go.
func (a *async) wait(r *Request, m *Metrics) Verdict {
	a.stage, a.hold.began = holding, time.Now()
	m.asyncWaiting.Inc()
	return nextStage
}

// leave ends the hold of a request, if it is held.
func (a *async) leave(r *Request, m *Metrics) {
	h := a.hold
	if h == nil {
		return
	}
	h.end()
	if h.began.IsZero() {
		return
	}
	now := time.Now()
	m.asyncWaiting.Dec()
	m.asyncWait.Observe(now.Sub(h.began).Seconds())
	r.Journal.Waited(PoolBroker, h.began, now)
	h.began = time.Time{}
}

// submission is what became of a request that was to be queued.
type submission struct {
	// ready is its result, if it had one already.
	ready *broker.Result
}

// submitter puts one request into the queue, or finds it there.
type submitter struct {
	broker  Broker
	journal *journal.Journal
	memory  *budget.Account
	named   bool // by its client, so that it may be known
	waits   bool
	hold    *hold
	broker.Submission
}

// planSubmission looks for the request, and submits it unless it is known.
func (p *asyncBroker) planSubmission(r *Request) Plan {
	a, now := r.async, time.Now()
	h := &hold{until: now.Add(a.good)}
	if p.waitCap > 0 && p.waitCap < a.good {
		h.until, h.capped = now.Add(p.waitCap), true
	}
	a.hold = h
	s := &submitter{broker: p.broker, journal: r.Journal, memory: r.Memory, named: r.NamedByClient, waits: a.mode == modeWait, hold: h,
		Submission: broker.Submission{Key: a.key, Queue: p.route(r.Model, a.key.Tenant).Queue, Endpoint: r.Protocol.Path,
			Payload: r.Body.Edit().Payload(), Metadata: map[string]string{p.attribute: a.key.Tenant}, Created: now, Deadline: now.Add(a.good)}}
	if parent := first(r.Header["Traceparent"]); parent != "" {
		s.Metadata["traceparent"] = parent
	}
	for i, name := range p.forward {
		if value := first(r.Header[name]); value != "" {
			if s.Headers == nil {
				s.Headers = map[string]string{}
			}
			s.Headers[p.spelled[i]] = value
		}
	}
	return Plan{Tasks: []Task{{Pool: PoolBroker, Run: s.run}}}
}

// run is the task: all its commands are one call.
func (s *submitter) run(ctx context.Context) (result Result, err error) {
	s.hold.ctx = ctx
	ctx, cancel := context.WithDeadlineCause(ctx, s.Deadline, errTooLate) // a slow Redis does not make it later
	defer cancel()
	err = asking(s.journal, func() error {
		result, err = s.put(ctx)
		return err
	})
	return result, err
}

// put is the table of what to do with a request whose id is known.
func (s *submitter) put(ctx context.Context) (Result, error) {
	if !s.named {
		return submission{}, s.submit(ctx)
	}
	state, result, err := s.broker.Lookup(ctx, s.Key)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		s.journal.Note("the request could not be looked up in the queue: submitted, though it may be there")
	case state == broker.Ready && calledOff(result):
		if err := s.broker.Delete(ctx, s.Key); err != nil {
			return nil, enqueueFailed(ctx, err)
		}
	case state == broker.Ready:
		return submission{ready: result}, nil
	case state == broker.Pending:
		return s.reattach(ctx)
	}
	return submission{}, s.submit(ctx)
}

// watch begins to watch for the result, if the client waits for it: before what
// could bring one about, so that none is missed.
func (s *submitter) watch() {
	s.hold.attempted = true
	if s.waits {
		s.hold.stop = s.broker.Watch(s.Key, s.hold.came)
	}
}

// reattach goes on with the request that is queued under the id. If its client had
// left, that was its end: it is undone, if it is not too late for that.
func (s *submitter) reattach(ctx context.Context) (Result, error) {
	s.watch()
	if err := s.broker.Revive(ctx, s.Key); err != nil {
		s.journal.Note("whether the queued request was called off could not be found out")
	}
	if !s.waits {
		return submission{}, nil
	}
	state, result, err := s.broker.Lookup(ctx, s.Key)
	switch {
	case err == nil && state == broker.Ready:
		return submission{ready: result}, nil
	case err == nil && state == broker.Unknown && s.hold.result() == nil: // another has fetched the result, before we watched
		return submission{}, s.enqueue(ctx)
	}
	return submission{}, nil
}

// submit watches for the result of a request, and puts it into the queue.
func (s *submitter) submit(ctx context.Context) error {
	s.watch()
	return s.enqueue(ctx)
}

// enqueue puts the request into the queue. For as long as that takes its body is
// held a second time, in what is written to Redis.
func (s *submitter) enqueue(ctx context.Context) error {
	size := s.Payload.Size()
	if err := s.memory.Charge(size); err != nil {
		return err
	}
	defer s.memory.Refund(size)
	if err := s.broker.Submit(ctx, s.Submission); err != nil {
		return enqueueFailed(ctx, err)
	}
	return nil
}

func enqueueFailed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return wire.Faultf(wire.BrokerDown, "failed to enqueue request").Because(err)
}

// submitted answers a request that is in the queue now, or holds it.
func (p *asyncBroker) submitted(r *Request, s submission) (Verdict, error) {
	a := r.async
	r.LetGo()
	r.Header, r.Query = nil, ""
	switch {
	case a.mode == modeEnqueue:
		return a.pending(r)
	case s.ready != nil:
		a.leave(r, p.metrics)
		return a.answer(s.ready), nil
	}
	return a.wait(r, p.metrics), nil
}

// timeIsUp answers a request whose hold is over: it stays queued, or its own time
// is up too.
func (p *asyncBroker) timeIsUp(r *Request) (Verdict, error) {
	a := r.async
	switch {
	case a.stage == lookingOnceMore:
		return Verdict{}, p.tooLate(a)
	case a.hold.capped:
		return a.pending(r)
	}
	a.stage = lookingOnceMore
	return nextStage, nil
}

// tooLate is the fault of a request that has no result by its deadline.
func (p *asyncBroker) tooLate(a *async) error {
	a.outcome = "deadline"
	return errTooLate
}

var errTooLate = wire.Faultf(wire.QueuedTooLate, "request deadline exceeded before a result was produced")

// lastLook is how long the lookup at the very end may take.
const lastLook = time.Second

// planLookup looks once more, at the deadline.
func (p *asyncBroker) planLookup(r *Request) Plan {
	b, j, key := p.broker, r.Journal, r.async.key
	return Plan{Tasks: []Task{{Pool: PoolBroker, Run: func(ctx context.Context) (Result, error) {
		ctx, cancel := context.WithTimeout(ctx, lastLook)
		defer cancel()
		var state broker.State
		var result *broker.Result
		err := asking(j, func() (err error) {
			state, result, err = b.Lookup(ctx, key)
			return err
		})
		if err == nil && state == broker.Ready {
			return result, nil
		}
		return timeIsUp{}, nil
	}}}}
}

// planClearing deletes the mailbox of a result that was delivered.
func (p *asyncBroker) planClearing(r *Request) Plan {
	b, j, key := p.broker, r.Journal, r.async.key
	return Plan{Tasks: []Task{{Pool: PoolBroker, Run: func(ctx context.Context) (Result, error) {
		if err := asking(j, func() error { return b.Delete(context.WithoutCancel(ctx), key) }); err != nil {
			j.Note("the result could not be deleted from its mailbox")
		}
		return nil, nil
	}}}}
}
