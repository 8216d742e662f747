package actors

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// pipeline is a pipeline of phases with the metrics of each looked up.
type pipeline struct {
	*phases.Pipeline
	phases []phases.Phase
	steps  []stepMetrics
}

// stepMetrics are the figures of one phase.
type stepMetrics struct {
	running  prometheus.Gauge
	duration prometheus.Observer
}

func (m *Metrics) pipeline(p *phases.Pipeline) *pipeline {
	line := &pipeline{Pipeline: p, phases: p.Phases()}
	for _, ph := range line.phases {
		line.steps = append(line.steps, stepMetrics{
			running:  m.stepRunning.WithLabelValues(ph.Name()),
			duration: m.stepDuration.WithLabelValues(ph.Name()),
		})
	}
	return line
}

// step is a StepTrace as its supervisor writes it.
type step phases.StepTrace

// trace returns the trace of the current step.
func (s *supervisor) trace() *step {
	steps := s.req.Trace.Steps
	return (*step)(&steps[len(steps)-1])
}

// ran notes when the first task of the step was begun by a worker.
func (t *step) ran(m *home) {
	if !m.began.IsZero() && (t.Sent.IsZero() || m.began.Before(t.Sent)) {
		t.Sent = m.began
	}
}

// beginStep starts a run of the current phase.
func (s *supervisor) beginStep() {
	s.run++
	s.plan, s.failed, s.next, s.results = phases.Plan{}, nil, 0, nil
	s.succeeded, s.out = 0, false
	s.beat()
	s.waiting = s.waiting[:0]
	s.req.Trace.Phase = s.phaseName()
	if s.req.Trace.Steps == nil {
		s.req.Trace.Steps = make([]phases.StepTrace, 0, len(s.line.phases)+1)
	}
	s.req.Trace.Steps = append(s.req.Trace.Steps, phases.StepTrace{Phase: s.phaseName(), Began: time.Now()})
	s.line.steps[s.at].running.Inc()
	s.stepOpen = true
}

// skipStep notes that the current phase does not apply.
func (s *supervisor) skipStep() {
	s.stepOpen = false
	s.line.steps[s.at].running.Dec()
	s.req.Trace.Steps = s.req.Trace.Steps[:len(s.req.Trace.Steps)-1]
}

// finishStep ends the run of the current phase, once, well or with an error.
func (s *supervisor) finishStep(err error) {
	if !s.stepOpen {
		return
	}
	s.stepOpen = false
	if s.stop != nil {
		s.stop(nil)
		s.stop = nil
	}
	t := s.trace()
	t.Ended, t.Tasks, t.Err = time.Now(), len(s.plan.Tasks), err
	m := s.line.steps[s.at]
	m.running.Dec()
	m.duration.Observe(t.Ended.Sub(t.Began).Seconds())
	if err != nil {
		s.engine.metrics.stepErrors.WithLabelValues(t.Phase, wire.FaultOf(err).ErrorCode()).Inc()
	}
}
