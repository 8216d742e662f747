package phases

import (
	"context"
	"errors"
	"net/http"

	"github.com/llm-coordinator/coordinator/transport/broker"
	"github.com/llm-coordinator/coordinator/transport/journal"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// stepCalls is the name of the phase of calls about queued requests.
const stepCalls = "queued-requests"

// Waits returns what tells, by its headers, whether a request may wait longer than
// others, by terms of its own: nil if none can.
func (p *Pipeline) Waits() func(http.Header) bool {
	a := p.asyncBroker()
	if a == nil {
		return nil
	}
	return func(h http.Header) bool {
		mode := a.wants(h)
		return mode != "" && mode != modePassthrough
	}
}

// BrokerStatus returns the state of the broker of the pipeline's async-broker
// step, if it has one.
func (p *Pipeline) BrokerStatus() (broker.Status, bool) {
	if a := p.asyncBroker(); a != nil {
		return a.broker.Status(), true
	}
	return broker.Status{}, false
}

// asyncBroker returns the step, or nil.
func (p *Pipeline) asyncBroker() *asyncBroker {
	if len(p.phases) == 0 {
		return nil
	}
	a, _ := p.phases[0].(*asyncBroker)
	return a
}

// QueuedCalls returns the pipeline of calls about requests that were queued: it is
// no step of the configuration. Without an async-broker step it knows no route.
func (p *Pipeline) QueuedCalls() *Pipeline {
	a := p.asyncBroker()
	if a == nil {
		return PipelineOf(&calls{})
	}
	return PipelineOf(&calls{broker: a.broker, tenant: a.tenant, metrics: a.metrics})
}

// calls fetches the results of queued requests, or deletes them.
type calls struct {
	broker  Broker // nil: there are no queued requests
	tenant  string // the header
	metrics *Metrics
}

func (p *calls) Name() string { return stepCalls }

// Pool is the one that operators see beside the phase.
func (p *calls) Pool() string { return PoolBroker }

// Admit refuses calls about requests that cannot be.
func (p *calls) Admit(r *Request) error {
	r.async = nil
	if p.broker == nil {
		return wire.Faultf(wire.NotFound, "no such route")
	}
	tenant, f := tenantIn(r.Header, p.tenant)
	if f == nil && !wire.ValidRequestID(r.Queued.ID) {
		f = wire.Invalid(codeInvalid, "request id must be 1-128 alphanumeric or dash characters")
	}
	if f != nil {
		p.metrics.async.WithLabelValues(modeOf(r), "rejected").Inc()
		return f
	}
	r.async, r.Tenant = &async{mode: modeOf(r), key: broker.Key{Tenant: tenant, ID: r.Queued.ID}}, tenant
	return nil
}

// modeOf is how a call is counted.
func modeOf(r *Request) string {
	if r.Queued.Method == http.MethodDelete {
		return "delete"
	}
	return "get"
}

// lookedUp is the result of a lookup, deleted that of a deletion, noted that of
// what follows a delivery.
type (
	lookedUp struct {
		state  broker.State
		result *broker.Result
	}
	deleted struct{}
	noted   struct{}
)

// Plan makes the task of the stage that the call is in.
func (p *calls) Plan(r *Request) (Plan, error) {
	a, b, j := r.async, p.broker, r.Journal
	run := func(f func(ctx context.Context) (Result, error)) (Plan, error) {
		return Plan{Tasks: []Task{{Pool: PoolBroker, Run: f}}}, nil
	}
	switch {
	case r.Queued.Method == http.MethodDelete:
		return run(func(ctx context.Context) (Result, error) { return deleted{}, callOff(ctx, b, a.key, j) })
	case a.stage == submitting:
		return run(func(ctx context.Context) (Result, error) { return lookUp(ctx, b, a.key, j) })
	case a.stage == answering:
		return planAnswer(r, a.result)
	}
	return run(func(ctx context.Context) (Result, error) {
		if err := asking(j, func() error { return b.Fetched(context.WithoutCancel(ctx), a.key) }); err != nil {
			j.Note("how long the result is kept could not be set")
		}
		return noted{}, nil
	})
}

func lookUp(ctx context.Context, b Broker, key broker.Key, j *journal.Journal) (Result, error) {
	var found lookedUp
	err := asking(j, func() (err error) {
		found.state, found.result, err = b.Lookup(ctx, key)
		return err
	})
	if err != nil {
		return nil, brokerFailed(ctx, "LOOKUP_FAILED", "failed to look up request", err)
	}
	return found, nil
}

// callOff cancels a request and deletes its result.
func callOff(ctx context.Context, b Broker, key broker.Key, j *journal.Journal) error {
	if err := asking(j, func() error { _, err := b.Cancel(ctx, key); return err }); err != nil {
		j.Note("the queued request could not be called off")
	}
	if err := asking(j, func() error { return b.Delete(ctx, key) }); err != nil {
		return brokerFailed(ctx, "DELETE_FAILED", "failed to delete request", err)
	}
	return nil
}

func brokerFailed(ctx context.Context, code, message string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	f := wire.Faultf(wire.BrokerFailed, "%s", message).Because(err)
	f.Code = code
	return f
}

// Join goes on with what a stage found out.
func (p *calls) Join(r *Request, results []Result) (Verdict, error) {
	a := r.async
	switch found := results[0].(type) {
	case deleted:
		a.outcome = "deleted"
		return Done, r.Out.Send(context.Background(), Item{Head: &Head{Status: http.StatusNoContent, Header: http.Header{}}})
	case written:
		a.stage = clearing
		return againCalls, nil
	case noted:
		a.cleared = true
		return Done, nil
	case lookedUp:
		switch found.state {
		case broker.Ready:
			a.answer(found.result)
			return againCalls, nil
		case broker.Pending:
			return a.pending(r)
		}
		a.outcome = "unknown"
		return Verdict{}, wire.Faultf(wire.RequestGone, "request id is unknown, expired, or already deleted")
	}
	return Verdict{}, errors.New("a result of no stage")
}

var againCalls = Verdict{Again: stepCalls}

// Recover lets an answer stand that was delivered, though the pool has no room for
// what follows it.
func (p *calls) Recover(r *Request, err error) (Verdict, error) {
	if r.async.written.Load() && wire.FaultOf(err).Kind == wire.QueueFull {
		r.note("how long the result is kept could not be set")
		return Done, nil
	}
	return Verdict{}, err
}

// Release counts the call, and notes a delivery if that is still to be done.
func (p *calls) Release(r *Request) []Task {
	a := r.async
	if a == nil {
		return nil
	}
	if a.outcome == "" {
		a.outcome = "failed"
	}
	p.metrics.async.WithLabelValues(a.mode, a.outcome).Inc()
	if !a.written.Load() || a.cleared {
		return nil
	}
	b, key := p.broker, a.key
	return []Task{{Pool: PoolBroker, Run: func(ctx context.Context) (Result, error) {
		ctx, cancel := context.WithTimeout(ctx, afterwards)
		defer cancel()
		return nil, b.Fetched(ctx, key)
	}}}
}
