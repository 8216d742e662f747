package actors

import (
	"context"
	"errors"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// batch supervises a request of several prompts: it begins a supervisor for each
// part, as a child of its own actor, and ends when all of them are gone. The parts
// are admitted together or none is; each counts as one request, and waits for its
// places by itself, so that a batch gets through pools that are smaller than it is.
// The first part to fail cancels the others, and is what the request fails with.
type batch struct {
	engine *Engine
	line   *pipeline
	req    *phases.Request
	parts  []*supervisor
	left   int // actors of parts that are not gone; the batch's actor alone
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   func() // lets go of what is held of the answers

	first   sync.Once // to fail
	phase   string    // in which that part was
	failure error     // and its outcome
}

// beginBatch is the first message to a batch's actor: which it is.
type beginBatch struct{ batch *batch }

// IgnoreDeadLetterLogging is for completeness, as begin's is.
func (*beginBatch) IgnoreDeadLetterLogging() {}

// batchShell is the actor of a batch, from its first message on.
type batchShell struct{ batch *batch }

// Receive handles a message.
func (sh *batchShell) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *beginBatch:
		sh.batch = m.batch
		sh.batch.begin(c)
	case *actor.Terminated:
		if sh.batch.left--; sh.batch.left == 0 {
			c.Stop(c.Self())
		}
	case *actor.Stopped:
		sh.batch.engine.batchEnded(sh.batch)
	}
}

// supervisedBatch is how the actor of a batch is spawned, supervisedPart that of each
// of its parts: one that crashes is not run again.
var (
	supervisedBatch = actor.PropsFromProducer(func() actor.Actor { return &batchShell{} }, actor.WithGuardian(stopOnFailure), actor.WithSupervisor(stopOnFailure), actor.WithDispatcher(inline))
	supervisedPart  = actor.PropsFromProducer(func() actor.Actor { return &shell{} }, actor.WithDispatcher(inline))
)

// startBatch starts a request of several prompts, or refuses it as a whole.
func (l *Line) startBatch(ctx context.Context, line *pipeline, r *phases.Request) error {
	e := l.engine
	b := &batch{engine: e, line: line, req: r}
	parts, done := r.Split()
	b.done = done
	b.ctx, b.cancel = context.WithCancelCause(ctx)
	r.Out.StopBy(b.cancel)
	for _, part := range parts {
		s := &supervisor{engine: e, req: part, line: line, batch: b, counted: l.counted, unhook: func() bool { return true }, outcome: errCrashed}
		s.ctx, s.cancel = context.WithCancelCause(b.ctx)
		b.parts = append(b.parts, s)
	}
	b.left = len(b.parts)
	err := b.ask()
	if err == nil {
		err = e.admitAll(b)
	}
	if err != nil {
		b.cancel(err)
		done()
		return err
	}
	e.metrics.batchPrompts.Observe(float64(len(b.parts)))
	r.LetGo() // what came in is the parts' now
	e.root.Send(e.root.Spawn(supervisedBatch), &beginBatch{b})
	return nil
}

// ask has the phases refuse the parts at the door. They do not stand aside: the
// batch as a whole would have.
func (b *batch) ask() error {
	for _, s := range b.parts {
		if err := b.engine.ask(b.line, s.req); err != nil {
			return err
		}
		if s.req.Aside {
			return wire.Faultf(wire.Internal, "internal error").Because(errors.New("a part of a batch stands aside, which itself does not"))
		}
	}
	return nil
}

// begin begins the parts.
func (b *batch) begin(c actor.Context) {
	for _, s := range b.parts {
		c.Send(c.Spawn(supervisedPart), &begin{s})
	}
}

// failed notes that a part fails, and cancels the others if it is the first.
func (b *batch) failed(s *supervisor, err error) {
	b.first.Do(func() { b.phase, b.failure = s.last, err })
	b.cancel(wire.FaultOf(err))
}

// admitAll counts the parts of a batch in, or refuses them all.
func (e *Engine) admitAll(b *batch) error {
	e.mu.Lock()
	all, err := e.countInAll(b)
	e.mu.Unlock()
	for _, v := range all {
		e.pools.deliver(v)
	}
	return err
}

// countInAll counts the parts in, or none. A batch has others make room for it only if
// its tenant is within its share with all of it; if too few can, those that have are
// refused all the same. The lock is held.
func (e *Engine) countInAll(b *batch) (all []verdicts, err error) {
	n, limit := len(b.parts), int(e.maxInflight.Load())
	if s := b.parts[0]; s.counted && limit > 0 && e.counted+n > limit && !e.closing && !s.line.tenure.over && !e.within(s.req.Tenant, n, limit) {
		e.metrics.shed.WithLabelValues("max_inflight").Inc()
		return nil, e.full(n)
	}
	for i, s := range b.parts {
		v, err := e.countIn(s)
		all = append(all, v)
		if err != nil {
			for _, counted := range b.parts[:i] {
				e.forget(counted)
			}
			return all, err
		}
	}
	e.batches++
	return all, nil
}

// within reports whether a tenant has no more than its share of a limit with n more
// requests. The lock is held.
func (e *Engine) within(tenant string, n, limit int) bool {
	tenant = known(e.tenants, tenant)
	tenants := len(e.tenants)
	if e.tenants[tenant] == 0 {
		tenants++
	}
	return e.tenants[tenant]+n <= share(limit, tenants)
}

// batchEnded is a batch's last word, when all of its parts have said theirs. If none
// has failed the answer is whole, and its client may have left with it.
func (e *Engine) batchEnded(b *batch) {
	b.cancel(nil)
	b.done()
	e.countOutcome(b.failure, b.phase)
	for _, s := range b.parts {
		b.req.Reruns += s.req.Reruns
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.batches--
	e.announce()
	b.req.Out.Finish(b.failure) // under the lock, as in ended
}
