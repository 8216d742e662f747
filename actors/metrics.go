package actors

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

const namespace = "llm_d_coordinator"

// Metrics are the figures of an engine.
type Metrics struct {
	stepDuration       *prometheus.HistogramVec
	stepErrors         *prometheus.CounterVec
	stepRunning        *prometheus.GaugeVec
	poolWait           *prometheus.HistogramVec
	shed               *prometheus.CounterVec
	dropped            *prometheus.CounterVec
	disconnects        *prometheus.CounterVec
	expired            *prometheus.CounterVec
	stuck              *prometheus.CounterVec
	workerRestarts     prometheus.Counter
	supervisorRestarts prometheus.Counter
	batchPrompts       prometheus.Histogram
	reg                prometheus.Registerer
}

var (
	stepBuckets  = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}
	waitBuckets  = []float64{.0001, .001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	batchBuckets = prometheus.ExponentialBuckets(2, 2, 10) // to 1,024
)

// NewMetrics registers the metrics with reg; nil registers nowhere.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, label string) *prometheus.HistogramVec {
		return f.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, []string{label})
	}
	restarts := counter("actor_restarts_total", "Actors that panicked: workers are restarted, a supervisor's request fails.", "kind")
	return &Metrics{
		stepDuration:       histogram("step_duration_seconds", "Time a request spent in a step, queueing included.", stepBuckets, "step"),
		stepErrors:         counter("step_errors_total", "Steps that failed, by the code that the client was or would have been shown.", "step", "error_code"),
		stepRunning:        f.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: "step_running", Help: "Requests that are in a step now."}, []string{"step"}),
		poolWait:           histogram("pool_wait_seconds", "Time a task or a place waited in a pool's queue.", waitBuckets, "pool"),
		shed:               counter("shed_total", "Requests refused to protect those that are served, by reason.", "reason"),
		dropped:            counter("tasks_dropped_total", "Tasks that outlive their request and were dropped because their pool's queue was full or slow.", "pool"),
		disconnects:        counter("disconnect_total", "Clients that left before their answer was complete, by phase.", "phase"),
		expired:            counter("deadline_exceeded_total", "Requests that ended because their answer had not begun by their deadline, by phase.", "phase"),
		stuck:              counter("watchdog_total", "Requests cancelled by the watchdog because nothing happened in them any more, which is a bug, by phase.", "phase"),
		workerRestarts:     restarts.WithLabelValues("worker"),
		supervisorRestarts: restarts.WithLabelValues("supervisor"),
		batchPrompts: f.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: "batch_prompts",
			Help: "Prompts of a completions request that has several, of those that were let in.", Buckets: batchBuckets}),
		reg: reg,
	}
}

// watch registers the gauges of the pools, which are read when they are asked
// for.
func (m *Metrics) watch(ps *pools) {
	if m.reg != nil {
		m.reg.MustRegister(poolCollector{ps})
	}
}

type poolCollector struct{ pools *pools }

var (
	poolSize   = prometheus.NewDesc(namespace+"_pool_size", "Tasks that may be at work in a pool at a time.", []string{"pool"}, nil)
	poolBusy   = prometheus.NewDesc(namespace+"_pool_busy", "Places of a pool at work or set aside for a request.", []string{"pool"}, nil)
	poolQueued = prometheus.NewDesc(namespace+"_pool_queue_depth", "Tasks and requests that wait for a place in a pool.", []string{"pool"}, nil)
)

// Describe implements prometheus.Collector.
func (poolCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- poolSize
	ch <- poolBusy
	ch <- poolQueued
}

// Collect implements prometheus.Collector.
func (c poolCollector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.pools.status() {
		for desc, v := range map[*prometheus.Desc]int{poolSize: s.Size, poolBusy: s.Busy, poolQueued: s.Queued} {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(v), s.Name)
		}
	}
}
