package actors

import "github.com/llm-coordinator/coordinator/phases"

// detach hands out a task that nobody waits for, of a phase of a pipeline.
func (e *Engine) detach(line *pipeline, task phases.Task, phase, request string) {
	p := e.pools.all[task.Pool]
	if p == nil {
		e.log.Error("a task that outlives its request names no pool", "phase", phase, "pool", task.Pool)
		if task.Over != nil {
			task.Over()
		}
		return
	}
	e.mu.Lock()
	e.detached++
	line.tenure.enter()
	e.mu.Unlock()
	done := func() {
		if task.Over != nil {
			task.Over()
		}
		e.mu.Lock()
		e.detached--
		line.tenure.leave()
		e.announce()
		e.mu.Unlock()
	}
	drop := func() {
		e.metrics.dropped.WithLabelValues(task.Pool).Inc()
		e.log.Warn("a task that outlives its request was dropped: its queue is full or slow",
			"request_id", request, "phase", phase, "pool", task.Pool)
		done()
	}
	j := &job{ctx: e.detachedCtx, run: task.Run, phase: phase, request: request, ended: done, drop: drop}
	t := &j.ticket
	t.job, t.onePool[0] = j, p
	t.pools = t.onePool[:]
	if _, err := e.pools.take(t); err != nil {
		drop()
	}
}
