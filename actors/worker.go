package actors

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// worker runs one task at a time and blocks while it does. It has no state: its
// place outlives it, and whoever supervision puts there after a panic goes on.
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
		w.log.Error("a task panicked", "request_id", j.request, "phase", j.phase,
			"panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
		w.end(j, nil, wire.Faultf(wire.Internal, "internal error").Because(fmt.Errorf("%s panicked", j.phase)))
		panic(cause)
	}()
	result, err := any(nil), context.Cause(j.ctx) // cancelled while it waited: it costs nothing
	if err == nil {
		j.home.began = time.Now()
		result, err = j.run(j.ctx)
	}
	returned = true
	w.end(j, result, err)
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
		cr.pools.free(&place{pool: cr.pool, pid: c.Spawn(props)})
	}
	close(m.done)
}
