package phases

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/llm-coordinator/coordinator/transport/broker"
	"github.com/llm-coordinator/coordinator/transport/journal"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

const stepAsync = "async-broker"

func init() { Register(stepAsync, NewAsyncBroker) }

// Broker is the Redis side of an llm-d-async broker; see package broker, whose
// Broker it is. Its methods may be called by many goroutines; all but Watch and
// Status block, under their context and a time-out of their own.
type Broker interface {
	// Lookup says what is known of a request, and its result if it is ready.
	Lookup(ctx context.Context, k broker.Key) (broker.State, *broker.Result, error)
	// Submit puts a request into a queue.
	Submit(ctx context.Context, s broker.Submission) error
	// Cancel calls off a request that is queued, and reports whether it was.
	Cancel(ctx context.Context, k broker.Key) (bool, error)
	// Revive takes a Cancel back.
	Revive(ctx context.Context, k broker.Key) error
	// Delete deletes a result.
	Delete(ctx context.Context, k broker.Key) error
	// Fetched notes that a result was fetched: it is not kept for long any more.
	Fetched(ctx context.Context, k broker.Key) error
	// TakeQuota takes a slot of a tenant's quota. One that is not nil must be
	// released, whether there is an error or not.
	TakeQuota(ctx context.Context, tenant string) (reserved bool, slot *broker.Slot, err error)
	// ReleaseQuota gives a slot back.
	ReleaseQuota(ctx context.Context, slot *broker.Slot) error
	// Owe has a slot given back when that is possible. It does not block.
	Owe(slot *broker.Slot)
	// Watch has wake called, once, when a request has a result. After stop has
	// returned it is not called any more.
	Watch(k broker.Key, wake func(*broker.Result)) (stop func())
	// Watched reports whether anybody of this process waits for a request.
	Watched(k broker.Key) bool
	// Status is for operators.
	Status() broker.Status
}

// The modes that a client can ask for.
const (
	modePassthrough = "passthrough"
	modeEnqueue     = "enqueue"
	modeWait        = "wait"
)

// codeInvalid is what the broker's clients know a bad request by.
const codeInvalid = "INVALID_REQUEST"

// Deprecated names of the headers that passthrough sets: the endpoint picker still
// reads them.
const (
	aliasObjective = "X-Gateway-Inference-Objective"
	aliasFairness  = "X-Gateway-Inference-Fairness-Id"
)

// asyncBroker is for requests that may wait. One that says so by a header is not
// sent to a worker: it is put into the queue of an llm-d-async broker, which sends
// it when there is room. Its client comes for the result later (enqueue) or is
// kept waiting for it (wait). One that may not wait (passthrough) goes on, and its
// headers say whether it is within its tenant's quota. Without the header the
// phase does nothing.
//
// A request that waits holds no worker and none of what came in; it is woken by
// the broker, or when its time is over. After each of its stages the phase is run
// again for the next one.
type asyncBroker struct {
	broker  Broker
	metrics *Metrics
	log     *slog.Logger

	mode, tenant, timeout string // headers, in canonical form
	objective, fairness   string
	forward               []string // in canonical form, beside how they are spelled
	spelled               []string
	routes                []AsyncRoute
	fallback              AsyncRoute // queue and tier of those that no route names
	objectives            map[string]AsyncObjective
	limits                map[string]int64
	attribute             string
	enqueueTime, waitTime timeout
	waitCap               time.Duration
}

// NewAsyncBroker builds an async-broker phase.
func NewAsyncBroker(deps Deps, params Params) (Phase, error) {
	p := DefaultAsyncBrokerParams()
	if err := params.Decode(&p); err != nil {
		return nil, err
	}
	if err := p.check(params); err != nil {
		return nil, err
	}
	b, err := deps.NewBroker(p.settings())
	if err != nil {
		return nil, params.Errorf("redis_url", "%v", err)
	}
	canonical := http.CanonicalHeaderKey
	made := &asyncBroker{broker: b, metrics: deps.Metrics, log: deps.Log,
		mode: canonical(p.ModeHeader), tenant: canonical(p.TenantHeader), timeout: canonical(p.TimeoutHeader),
		objective: canonical(p.ObjectiveHeader), fairness: canonical(p.FairnessHeader), spelled: p.ForwardHeaders,
		routes: p.Routes, fallback: AsyncRoute{Queue: p.DefaultQueue, Tier: p.DefaultTier}, objectives: p.Objectives,
		limits: p.Quota.Limits, attribute: p.Quota.Attribute, waitCap: time.Duration(p.WaitCapSeconds) * time.Second}
	made.enqueueTime, made.waitTime = p.timeouts()
	for _, name := range p.ForwardHeaders {
		made.forward = append(made.forward, canonical(name))
	}
	if made.log == nil {
		made.log = slog.New(slog.DiscardHandler)
	}
	return made, nil
}

func (p *asyncBroker) Name() string { return stepAsync }

// Pool is the one that operators see beside the phase.
func (p *asyncBroker) Pool() string { return PoolBroker }

// String describes the phase for operators.
func (p *asyncBroker) String() string {
	s := p.broker.Status()
	return fmt.Sprintf("queue %s at %s, results by %s", p.fallback.Queue, s.Address, s.Wakeup)
}

// async is how one request stands with the phase.
type async struct {
	mode string
	key  broker.Key
	// good is for how long the request is good, from now on.
	good time.Duration
	hold *hold
	// outcome is by what it is counted; "" is not known yet.
	outcome string
	// result is what the client gets. written: it has it, which its writer says;
	// cleared: and what had to follow was done.
	result  *broker.Result
	written atomic.Bool
	cleared bool
	slot    *broker.Slot // passthrough: of the quota, to be released
	stage   stage        // what is planned next
}

// stage is a run of the phase.
type stage uint8

const (
	submitting stage = iota // or, of passthrough, taking the quota
	holding
	lookingOnceMore
	answering
	clearing
)

// wants returns the mode that a client asks for, or "".
func (p *asyncBroker) wants(h http.Header) string { return strings.ToLower(first(h[p.mode])) }

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// Admit reads what the client asks for.
func (p *asyncBroker) Admit(r *Request) error {
	r.async = nil
	mode := p.wants(r.Header)
	if mode == "" || !r.Protocol.MayWait() {
		return nil
	}
	tenant, f := p.check(r, mode)
	if f != nil {
		if mode != modePassthrough && mode != modeEnqueue && mode != modeWait {
			mode = "unknown"
		}
		p.metrics.async.WithLabelValues(mode, "rejected").Inc()
		return f
	}
	a := &async{mode: mode, key: broker.Key{Tenant: tenant, ID: r.ID}}
	switch asked := p.askedFor(r.Header); mode {
	case modeEnqueue:
		a.good = p.enqueueTime.of(asked)
	case modeWait:
		a.good = p.waitTime.of(asked)
	}
	r.async, r.Aside, r.Tenant = a, mode != modePassthrough, tenant
	return nil
}

// check refuses what no mode takes, and returns the tenant.
func (p *asyncBroker) check(r *Request, mode string) (string, *wire.Fault) {
	switch {
	case mode != modePassthrough && mode != modeEnqueue && mode != modeWait:
		return "", wire.Invalid(codeInvalid, "unknown %s value", strings.ToLower(p.mode))
	case r.Stream && mode != modePassthrough:
		return "", wire.Invalid(codeInvalid, "stream is only supported in passthrough mode")
	case r.Model == "":
		return "", wire.Invalid(codeInvalid, "model is required")
	}
	return tenantIn(r.Header, p.tenant)
}

// tenantIn returns the tenant that a header names. A colon parts it from the id in
// the keys of Redis.
func tenantIn(h http.Header, header string) (string, *wire.Fault) {
	tenant := first(h[header])
	if tenant == "" {
		tenant = "default"
	}
	if strings.Contains(tenant, ":") {
		return "", wire.Invalid(codeInvalid, `%s must not contain ":"`, strings.ToLower(header))
	}
	if !utf8.ValidString(tenant) { // the broker, which reads JSON, would take it for another
		return "", wire.Invalid(codeInvalid, "%s must be UTF-8", strings.ToLower(header))
	}
	return tenant, nil
}

// askedFor returns how many seconds a client asks for, 0 for none: whatever is no
// positive integer is passed over.
func (p *asyncBroker) askedFor(h http.Header) int64 {
	n, err := strconv.ParseInt(first(h[p.timeout]), 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) { // else it is the most there is
		return 0
	}
	return max(n, 0)
}

// route returns queue and tier of a request.
func (p *asyncBroker) route(model, tenant string) AsyncRoute {
	for _, to := range p.routes {
		if (to.Model == "" || to.Model == model) && (to.Tenant == "" || to.Tenant == tenant) {
			if to.Queue == "" {
				to.Queue = p.fallback.Queue
			}
			if to.Tier == "" {
				to.Tier = p.fallback.Tier
			}
			return to
		}
	}
	return p.fallback
}

// Plan makes the task of the stage that the request is in.
func (p *asyncBroker) Plan(r *Request) (Plan, error) {
	a := r.async
	switch {
	case a == nil:
		return Plan{}, nil
	case a.mode == modePassthrough:
		return p.planQuota(r), nil
	case a.stage == submitting:
		return p.planSubmission(r), nil
	case a.stage == holding:
		return a.hold.plan(r.Journal), nil
	case a.stage == lookingOnceMore:
		return p.planLookup(r), nil
	case a.stage == answering:
		return planAnswer(r, a.result)
	}
	return p.planClearing(r), nil
}

// Join goes on with what a stage found out.
func (p *asyncBroker) Join(r *Request, results []Result) (Verdict, error) {
	a := r.async
	switch found := results[0].(type) {
	case quota:
		p.pass(r, found)
		return Next, nil
	case submission:
		return p.submitted(r, found)
	case *broker.Result: // while it was held, or once more
		a.leave(r, p.metrics)
		return a.answer(found), nil
	case timeIsUp:
		a.leave(r, p.metrics)
		return p.timeIsUp(r)
	case written:
		a.stage = clearing
		return nextStage, nil
	}
	a.cleared = true
	return Done, nil
}

// nextStage runs the phase for its next stage.
var nextStage = Verdict{Again: stepAsync}

// Recover goes on where the pool has no room for a command of which the request
// does not depend.
func (p *asyncBroker) Recover(r *Request, err error) (Verdict, error) {
	a := r.async
	switch {
	case errors.Is(err, errTooLate): // Redis was too slow
		return Verdict{}, p.tooLate(a)
	case wire.FaultOf(err).Kind != wire.QueueFull:
		return Verdict{}, err
	case a.mode == modePassthrough:
		p.pass(r, quota{reserved: true, err: err})
		return Next, nil
	case a.stage == lookingOnceMore:
		return Verdict{}, p.tooLate(a)
	case a.stage == clearing:
		r.note("the result could not be deleted from its mailbox")
		return Done, nil
	}
	return Verdict{}, err
}

// asking runs a command of Redis, and notes it as a call.
func asking(j *journal.Journal, command func() error) error {
	call := j.Begin("redis", "", time.Now())
	err := command()
	if err != nil {
		call.Failed("redis")
	}
	call.End(time.Now())
	return err
}

// afterwards is how long a command may take that outlives its request.
const afterwards = 5 * time.Second

// Release gives back a slot of the quota, calls off the queued request whose
// client has left, and deletes what was delivered, if that is still to be done.
func (p *asyncBroker) Release(r *Request) (tasks []Task) {
	a := r.async
	if a == nil {
		return nil
	}
	left := a.leftBehind(r)
	a.leave(r, p.metrics)
	if a.outcome == "" {
		if a.outcome = "failed"; left {
			a.outcome = "gone"
		}
	}
	p.metrics.async.WithLabelValues(a.mode, a.outcome).Inc()
	later := func(what string, command func(context.Context) error) {
		id, log := r.ID, p.log
		tasks = append(tasks, Task{Pool: PoolBroker, Run: func(ctx context.Context) (Result, error) {
			ctx, cancel := context.WithTimeout(ctx, afterwards)
			defer cancel()
			err := command(ctx)
			if err != nil {
				log.Warn("a command of Redis that outlives its request failed", "request_id", id, "command", what, "error", err)
			}
			return nil, err
		}})
	}
	b, key := p.broker, a.key
	if slot := a.slot; slot != nil {
		told := false
		later("release quota", func(ctx context.Context) error { told = true; return b.ReleaseQuota(ctx, slot) })
		tasks[len(tasks)-1].Over = func() {
			if !told { // the pool had no room for it
				b.Owe(slot)
			}
		}
	}
	if left && a.hold.attempted {
		later("cancel", func(ctx context.Context) error {
			if b.Watched(key) { // another client waits for it, or this one again
				return nil
			}
			_, err := b.Cancel(ctx, key)
			return err
		})
	}
	if a.written.Load() && !a.cleared {
		later("delete", func(ctx context.Context) error { return b.Delete(ctx, key) })
	}
	return tasks
}

// leftBehind reports whether the client of a request that waits has left before
// there was an answer. Who is told to come back, by a fault of ours, has not left.
func (a *async) leftBehind(r *Request) bool {
	if a.mode != modeWait || a.hold == nil || a.hold.ctx == nil || a.outcome != "" {
		return false
	}
	cause := context.Cause(a.hold.ctx)
	return errors.Is(cause, context.Canceled) || cause != nil && wire.FaultOf(cause).Kind == wire.Canceled
}
