package gateway

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are the figures of all upstreams of a process.
type Metrics struct {
	reg                promauto.Factory
	requests           *prometheus.CounterVec
	duration           *prometheus.HistogramVec
	retries            *prometheus.CounterVec
	retriesRefused     *prometheus.CounterVec
	streamBroken       *prometheus.CounterVec
	breakerTransitions *prometheus.CounterVec
	breakerRejected    *prometheus.CounterVec
}

const namespace = "llm_d_coordinator"

// legBuckets span a render of a millisecond to a long answer that is not
// streamed.
var legBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

// NewMetrics registers the metrics with reg; nil registers nowhere.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	}
	return &Metrics{
		reg:      f,
		requests: counter("upstream_request_total", "Legs sent, attempts counted singly.", "upstream"),
		duration: f.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "upstream_request_duration_seconds", Buckets: legBuckets,
			Help: "Time from sending a leg to its response headers, of legs whose answer is read whole to its end.",
		}, []string{"upstream"}),
		retries:            counter("retries_total", "Legs sent again, by phase and reason.", "phase", "reason"),
		retriesRefused:     counter("retries_refused_total", "Legs not sent again because the retry budget was used up, by phase.", "phase"),
		streamBroken:       counter("stream_broken_total", "Answers that broke off after they began, by cause.", "cause"),
		breakerTransitions: counter("breaker_transitions_total", "Changes of a circuit breaker's state.", "profile", "from", "to"),
		breakerRejected:    counter("breaker_rejected_total", "Requests and attempts refused by a circuit breaker.", "profile"),
	}
}

func (m *Metrics) watchBreaker(profile string, state func() float64) {
	m.reg.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "breaker_state", ConstLabels: prometheus.Labels{"profile": profile},
		Help: "State of a profile's circuit breaker: 0 closed, 1 half open, 2 open.",
	}, state)
}
