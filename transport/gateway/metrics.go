package gateway

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are the figures of all upstreams of a process.
type Metrics struct {
	requests           *prometheus.CounterVec
	duration           *prometheus.HistogramVec
	retries            *prometheus.CounterVec
	retriesRefused     *prometheus.CounterVec
	streamBroken       *prometheus.CounterVec
	breakerTransitions *prometheus.CounterVec
	breakerRejected    *prometheus.CounterVec
	breakers           *breakerStates
}

const namespace = "llm_d_coordinator"

// legBuckets span a render of a millisecond to a long answer that is not
// streamed.
var legBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

// NewMetrics registers the metrics with reg; nil registers nowhere.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	breakers := &breakerStates{}
	if reg != nil {
		reg.MustRegister(breakers)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	}
	return &Metrics{
		requests: counter("upstream_request_total", "Legs sent, attempts counted singly.", "upstream"),
		duration: f.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "upstream_request_duration_seconds", Buckets: legBuckets,
			Help: "Time from sending a leg to its response headers, of legs whose answer is read whole to its end.",
		}, []string{"upstream"}),
		retries:            counter("retries_total", "Legs sent again, by phase and reason.", "phase", "reason"),
		retriesRefused:     counter("retries_refused_total", "Legs not sent again because the retry budget was used up, by phase.", "phase"),
		streamBroken:       counter("stream_broken_total", "Answers that broke off after some of them had gone to a client, by cause.", "cause"),
		breakerTransitions: counter("breaker_transitions_total", "Changes of a circuit breaker's state.", "profile", "from", "to"),
		breakers:           breakers,
		breakerRejected:    counter("breaker_rejected_total", "Requests and attempts refused by a circuit breaker.", "profile"),
	}
}

// Show has the metrics tell the states of these upstreams' breakers, and of no
// others any more.
func (m *Metrics) Show(upstreams ...*Upstream) { m.breakers.shown.Store(&upstreams) }

// breakerStates are read when they are asked for.
type breakerStates struct {
	shown atomic.Pointer[[]*Upstream]

	mu      sync.Mutex
	guarded []*breaker // of the guards that are open, the oldest first
}

func (s *breakerStates) guard(b *breaker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guarded = append(s.guarded, b)
}

func (s *breakerStates) unguard(b *breaker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guarded = slices.DeleteFunc(s.guarded, func(other *breaker) bool { return other == b })
}

// guards returns the newest breaker of each name.
func (s *breakerStates) guards() map[string]*breaker {
	s.mu.Lock()
	defer s.mu.Unlock()
	newest := map[string]*breaker{}
	for _, b := range s.guarded {
		newest[b.profile] = b
	}
	return newest
}

var breakerState = prometheus.NewDesc(namespace+"_breaker_state",
	"State of a profile's circuit breaker: 0 closed, 1 half open, 2 open.", []string{"profile"}, nil)

// Describe implements prometheus.Collector.
func (*breakerStates) Describe(ch chan<- *prometheus.Desc) { ch <- breakerState }

// Collect implements prometheus.Collector.
func (s *breakerStates) Collect(ch chan<- prometheus.Metric) {
	for name, b := range s.guards() {
		ch <- stateOf(name, b)
	}
	shown := s.shown.Load()
	if shown == nil {
		return
	}
	told := map[string]bool{}
	for _, u := range *shown {
		if b := u.breaker; b != nil && !told[u.Name] {
			told[u.Name] = true
			ch <- stateOf(u.Name, b)
		}
	}
}

func stateOf(name string, b *breaker) prometheus.Metric {
	return prometheus.MustNewConstMetric(breakerState, prometheus.GaugeValue, float64(b.cb.State()), name)
}
