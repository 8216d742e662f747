package broker

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/llm-coordinator/coordinator/transport/gateway"
)

// Metrics are the figures of a process' brokers.
type Metrics struct {
	upstreams *gateway.Metrics
	errors    *prometheus.CounterVec
	wakeups   *prometheus.CounterVec
	watched   prometheus.Gauge
	owed      prometheus.Gauge
}

const namespace = "llm_d_coordinator"

// upstream is what Redis is called among the upstreams.
const upstream = "redis"

// NewMetrics registers the metrics with reg; nil registers nowhere. Commands and
// the breaker are counted among the upstreams', of which nil has its own.
func NewMetrics(reg prometheus.Registerer, upstreams *gateway.Metrics) *Metrics {
	if upstreams == nil {
		upstreams = gateway.NewMetrics(nil)
	}
	f := promauto.With(reg)
	return &Metrics{
		upstreams: upstreams,
		errors: f.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "redis_errors_total", Help: "Commands that failed, or were not sent, by command and kind.",
		}, []string{"command", "kind"}),
		wakeups: f.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "redis_wakeups_total", Help: "Results that were waited for, by how they were found.",
		}, []string{"by"}),
		watched: f.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "redis_watched_mailboxes", Help: "Mailboxes that are waited for now.",
		}),
		owed: f.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "async_quota_owed", Help: "Slots of requests that have ended while Redis did not answer: it is told when it does.",
		}),
	}
}
