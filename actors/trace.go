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
	tenure tenure
}

// stepMetrics are the figures of one phase.
type stepMetrics struct {
	running  prometheus.Gauge
	duration prometheus.Observer
}

func (m *Metrics) pipeline(p *phases.Pipeline) *pipeline {
	line := &pipeline{Pipeline: p, phases: p.Phases(), tenure: tenure{unused: make(chan struct{})}}
	for _, ph := range line.phases {
		line.steps = append(line.steps, stepMetrics{
			running:  m.stepRunning.WithLabelValues(ph.Name()),
			duration: m.stepDuration.WithLabelValues(ph.Name()),
		})
	}
	return line
}

// beginStep starts a run of the current phase.
func (s *supervisor) beginStep() {
	s.run++
	s.plan, s.failed, s.next, s.results = phases.Plan{}, nil, 0, nil
	s.succeeded, s.out, s.relays = 0, false, false
	s.beat()
	clear(s.waiting) // their tasks hold what the request may have let go
	s.waiting = s.waiting[:0]
	s.last, s.stepBegan = s.phaseName(), time.Now()
	s.req.Journal.BeginStep(s.last, s.stepBegan)
	s.line.steps[s.at].running.Inc()
	s.stepOpen = true
}

// skipStep notes that the current phase does not apply.
func (s *supervisor) skipStep() {
	s.stepOpen = false
	s.line.steps[s.at].running.Dec()
	s.req.Journal.SkipStep()
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
	ended, code := time.Now(), ""
	m := s.line.steps[s.at]
	m.running.Dec()
	m.duration.Observe(ended.Sub(s.stepBegan).Seconds())
	if err != nil {
		fault := wire.FaultOf(err)
		code = fault.ErrorCode()
		s.engine.metrics.stepErrors.WithLabelValues(s.last, fault.Counted()).Inc()
	}
	s.req.Journal.EndStep(len(s.plan.Tasks), code, ended)
}
