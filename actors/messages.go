package actors

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/llm-coordinator/coordinator/phases"
)

// Messages are pointers to the structs of this file, immutable once sent. None
// of them, nor what it carries, is ever logged: those that may reach an actor
// that has stopped say so by IgnoreDeadLetterLogging.

// job tells a worker to run one task.
type job struct {
	ctx   context.Context
	run   func(context.Context) (phases.Result, error)
	place *place     // the worker that runs it
	reply *actor.PID // the supervisor; nil: nobody waits
	// ended and drop are called instead of a reply if nobody waits: when the
	// task is done, or when it is not going to be run.
	ended, drop    func()
	phase, request string // for logs
	// ticket asks for the job's place, unless its request holds one.
	ticket ticket
	// home is the reply, made with the job. Until it is sent it belongs to the
	// worker.
	home home
}

// begin is the first message to a supervisor's actor: which it is.
type begin struct{ supervisor *supervisor }

// IgnoreDeadLetterLogging is for completeness: an actor that has just been spawned
// takes it.
func (*begin) IgnoreDeadLetterLogging() {}

// home tells a supervisor that a task has come home: every task that was
// handed out is answered by exactly one.
type home struct {
	run     int    // which run of a phase the task belongs to
	index   int    // of the task in its plan
	place   *place // that the request holds and the task has run in, or nil
	awaited bool   // no worker has run it
	began   time.Time
	result  phases.Result
	err     error
}

// IgnoreDeadLetterLogging keeps tasks that wake late out of the logs.
func (*home) IgnoreDeadLetterLogging() {}

// relaying tells a supervisor that a task of a run goes on without its worker: all
// that it needs of the request it has.
type relaying struct{ run int }

// IgnoreDeadLetterLogging is for a request that ends at the same moment.
func (*relaying) IgnoreDeadLetterLogging() {}

// granted tells a supervisor that the places of its ticket are its request's.
type granted struct{ ticket *ticket }

// IgnoreDeadLetterLogging is for a supervisor that has crashed.
func (*granted) IgnoreDeadLetterLogging() {}

// refused tells a supervisor that a ticket of it that waited is void: it waited
// too long, or was displaced.
type refused struct {
	ticket *ticket
	fault  error
	reason string // by which it is counted
}

// IgnoreDeadLetterLogging is for a supervisor that has crashed.
func (*refused) IgnoreDeadLetterLogging() {}

// canceled tells a supervisor that the context of its request has ended.
type canceled struct{}

// IgnoreDeadLetterLogging is for a request that ends at the same moment.
func (*canceled) IgnoreDeadLetterLogging() {}

// grow tells the parent of a pool's workers to start more of them.
type grow struct {
	by   int
	done chan<- struct{}
}

// ticket asks for places: for one to hand a job to at once, or for several to
// hold. It is made by a supervisor and belongs to the pools until it is granted,
// void, or withdrawn.
type ticket struct {
	pools  []*pool
	job    *job        // handed to the place as soon as there is one, or nil
	owner  *supervisor // told of the outcome; nil: nobody is
	tenant string
	// insists: it is queued though a queue is full. patient: its request waits
	// with it instead, until another of its tasks comes home.
	insists, patient bool
	// holder: its request holds a place.
	holder bool
	since  time.Time
	timer  *time.Timer

	// Guarded by the pools' lock until the ticket is granted.
	waiting bool
	queued  bool   // it has waited
	number  uint64 // in the order in which tickets were queued
	places  []*place

	// Most tickets are for one place: they need no slices of their own.
	onePool  [1]*pool
	onePlace [1]*place
}

// wakeOnce makes the wake function of an awaited task. The supervisor is told
// from a goroutine of its own: it must not run beneath the locks of who wakes
// it.
func wakeOnce(root *actor.RootContext, to *actor.PID, run, index int) func(phases.Result, error) {
	var woken atomic.Bool
	return func(result phases.Result, err error) {
		if woken.CompareAndSwap(false, true) {
			go root.Send(to, &home{run: run, index: index, awaited: true, result: result, err: err})
		}
	}
}
