package phases

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are the figures that phases keep.
type Metrics struct {
	handoffMissing prometheus.Counter
	reruns         *prometheus.CounterVec
	released       *prometheus.CounterVec
}

// NewMetrics registers the metrics with reg; nil registers nowhere.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	const ns = "llm_d_coordinator"
	return &Metrics{
		handoffMissing: f.NewCounter(prometheus.CounterOpts{Namespace: ns, Name: "kv_handoff_missing_total",
			Help: "Prefills whose answer held no usable transfer params: decode computed the prompt again."}),
		reruns: f.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: "reruns_total",
			Help: "Requests started again from prefill because decode failed before its first byte, by reason."}, []string{"reason"}),
		released: f.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: "kv_release_total",
			Help: "Decode legs sent only so that a prefill worker lets go of KV that nobody will read, by result."}, []string{"result"}),
	}
}
