package actors

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// worker runs one task at a time and blocks while it does, unless the task goes
// on without it. It has no state: its place outlives it, and whoever supervision
// puts there after a panic goes on.
type worker struct {
	pools   *pools
	log     *slog.Logger
	metrics *Metrics
}

func (w *worker) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *job:
		w.run(m)
	case *actor.Restarting:
		w.metrics.workerRestarts.Inc()
	}
}

// run runs a task and sends it home. The place is free before the supervisor
// hears of it, so that a request never ends before its places are back. A panic
// of the task is the task's failure, and goes on to supervision.
func (w *worker) run(j *job) {
	returned := false
	defer func() {
		if returned {
			return
		}
		cause := recover()
		logPanic(w.log, "a task panicked", j.request, j.phase, cause)
		w.end(j, nil, panicked(j.phase))
		panic(cause)
	}()
	result, err := any(nil), context.Cause(j.ctx) // cancelled while it waited: it costs nothing
	if err == nil {
		j.home.began = time.Now()
		result, err = j.run(j.ctx)
	}
	returned = true
	if later, ok := result.(phases.Later); ok && err == nil {
		j.run = nil // and what it was made of
		if j.reply != nil {
			w.pools.root.Send(j.reply, &relaying{run: j.home.run})
		}
		later(func(result phases.Result, err error) { w.end(j, result, err) })
		return
	}
	w.end(j, result, err)
}

// panicked is the fault of a request of which a phase has panicked.
func panicked(phase string) *wire.Fault {
	return wire.Faultf(wire.Internal, "internal error").Because(fmt.Errorf("%s panicked", phase))
}

// logPanic logs a panic with its stack. What was panicked with may hold what a
// client sent: only the runtime's own errors are logged by their text, others
// by their type.
func logPanic(log *slog.Logger, what, request, phase string, cause any) {
	text := fmt.Sprintf("a value of type %T", cause)
	if err, ok := cause.(runtime.Error); ok {
		text = err.Error()
	}
	log.Error(what, "request_id", request, "phase", phase, "panic", text, "stack", string(debug.Stack()))
}

func (w *worker) end(j *job, result any, err error) {
	if !j.place.held {
		w.pools.free(j.place)
	}
	if j.reply == nil {
		j.ended()
		return
	}
	j.home.result, j.home.err = result, err
	w.pools.root.Send(j.reply, &j.home)
}

// crew is the parent of a pool's workers: it starts them, and restarts those
// that panic, however often they do.
type crew struct {
	pool    *pool
	pools   *pools
	log     *slog.Logger
	metrics *Metrics
}

// alwaysRestart is the strategy of crews: a pool never shrinks.
var alwaysRestart = actor.RestartingSupervisorStrategy()

func (cr *crew) Receive(c actor.Context) {
	m, ok := c.Message().(*grow)
	if !ok {
		return
	}
	props := actor.PropsFromProducer(func() actor.Actor {
		return &worker{pools: cr.pools, log: cr.log, metrics: cr.metrics}
	}, actor.WithDispatcher(roomy{}))
	for range m.by {
		cr.pools.add(&place{pool: cr.pool, pid: c.Spawn(props)})
	}
	close(m.done)
}
