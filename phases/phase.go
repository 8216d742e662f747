// Package phases holds the stages that a request goes through, one per file,
// the contract they keep, and everything that is known of one request.
//
// A phase is stateless. It says what work a request needs, in tasks, and folds
// their results into the request. How tasks are queued, run in parallel,
// cancelled and supervised is the business of package actors, which knows no
// phase by name; this package knows no actor.
package phases

import (
	"context"
	"time"
)

// Phase is one stage of the pipeline: stateless, and safe for use by many
// requests at once. Its methods are called for one request by one goroutine at
// a time and must not block.
type Phase interface {
	// Name is the type of the phase's step in the configuration.
	Name() string
	// Plan returns the work that this request needs. A plan without tasks
	// means that the phase does not apply.
	Plan(r *Request) (Plan, error)
	// Join folds the results, in the order of the plan's tasks, into the
	// request. It is called once all tasks have succeeded.
	Join(r *Request, results []Result) (Verdict, error)
}

// Recoverer is a phase that can go on after one of its tasks has failed, or was
// refused by a queue that is full or slow. It is asked once all of the plan's
// tasks have come home. Without it, or if it returns an error, the request fails.
type Recoverer interface {
	Recover(r *Request, err error) (Verdict, error)
}

// Admitter is a phase that can tell at the door, before anything is done for a
// request, that it will surely fail: an error refuses it. Nothing may be taken
// that would have to be given back. It may say that the request stands aside (see
// Request.Aside): then the phases after it are not asked. It may be asked again,
// of another pipeline.
type Admitter interface {
	Admit(r *Request) error
}

// Releaser is a phase that may leave something behind with an upstream. It is
// asked once when the request has ended, however it did, and all its tasks are
// home. The tasks it returns outlive the request: they run in their own pool
// under their own context, and nobody waits for their results. If that pool's
// queue is full they are dropped and counted.
type Releaser interface {
	Release(r *Request) []Task
}

// Pooled is a phase that does its work in one pool: operators see it beside the
// phase.
type Pooled interface {
	Pool() string
}

// Plan is the work that a phase has for a request.
type Plan struct {
	Tasks []Task
	// MaxParallel is how many of the tasks may be queued or run at a time;
	// 0 is all of them.
	MaxParallel int
	// Places names the pools in which the request must hold a place (a worker
	// set aside for it) before the first task is sent. All are taken together
	// or none is. Those that the request holds already are not taken again.
	// They are kept until the request ends. A pipeline whose requests need
	// several should take them in one plan: two requests that each hold what
	// the other waits for wait until the queue's time-out.
	Places []string
	// Passing names those of Places that go back as soon as a task that ran there
	// has come home, if none has failed.
	Passing []string
	// Placed, if set, is called once the places are held, before any task is
	// sent; an error fails the request.
	Placed func() error
}

// Task is one unit of work.
type Task struct {
	// Pool names the pool whose worker runs the task. If the request holds a
	// free place there, that worker runs it.
	Pool string
	// Run does the work. It may block, under its context, and must not touch
	// the Request: what it needs it has been given.
	Run func(ctx context.Context) (Result, error)
	// Await is for work that happens elsewhere: it is called instead of Run, by
	// the supervisor, and must not block. It arranges that wake is called, once
	// or more, from any goroutine; the first call counts. No worker is held
	// meanwhile. When ctx ends, wake need not be called any more.
	Await func(ctx context.Context, wake func(Result, error))
	// Until, if set, is when wake is called at the latest: for so long it is no
	// sign of trouble that nothing happens in the request.
	Until time.Time
	// Over, if set, is called once when a task that outlives its request has been
	// run, or was dropped. Others are joined instead.
	Over func()
}

// Result is what a task found out, for the Join of its own phase.
type Result any

// Later is the Result of a task that goes on without its worker: elsewhere, or as
// something that is only waited for. It is called once, by the worker, and may
// block like the task itself. It arranges that done is called exactly once, from
// any goroutine that holds no lock; the task ends then, and the worker's place is
// taken until then. It has all that it needs: the request lets go of the rest.
type Later func(done func(Result, error))

// Verdict says how the pipeline goes on.
type Verdict struct {
	// Done ends the pipeline here: the client has its answer.
	Done bool
	// Again, if set, runs the pipeline again from the earlier phase of that
	// name. What the phases before it found out is kept, and so are places.
	Again string
}

// The verdicts that most phases give.
var (
	Next = Verdict{}
	Done = Verdict{Done: true}
)

// Names of pools: of the work that is done there.
const (
	PoolMedia   = "media"
	PoolRender  = "render"
	PoolEncode  = "encode"
	PoolPrefill = "prefill"
	PoolDecode  = "decode"
	// PoolBroker runs the commands of requests that wait, or ask for their quota.
	PoolBroker = "broker"
	// PoolPassthrough runs what does not run through the pipeline.
	PoolPassthrough = "passthrough"
	// PoolRelease runs what outlives its request.
	PoolRelease = "release"
)
