package server

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// Metrics are the figures of the listener.
type Metrics struct {
	requests  *prometheus.CounterVec
	errors    *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	paths     *prometheus.CounterVec
	overhead  *prometheus.HistogramVec
	ttft      prometheus.Histogram
	chunks    prometheus.Histogram
	sizeIn    prometheus.Histogram
	sizeOut   prometheus.Histogram
	tokensIn  prometheus.Histogram
	tokensOut prometheus.Counter
	media     *prometheus.HistogramVec
	withMedia prometheus.Counter
	running   prometheus.Gauge
	models    modelNames
}

var (
	durationBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}
	overheadBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1}
	chunkBuckets    = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30}
	sizeBuckets     = prometheus.ExponentialBuckets(256, 4, 10) // to 64 MB
	countBuckets    = []float64{1, 2, 4, 8, 16, 32, 64}
	tokenBuckets    = prometheus.ExponentialBuckets(16, 4, 9) // to 1 M
)

// NewMetrics registers the metrics with reg; nil registers nowhere.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	const ns = "llm_d_coordinator"
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return f.NewHistogram(prometheus.HistogramOpts{Namespace: ns, Name: name, Help: help, Buckets: buckets})
	}
	histograms := func(name, help string, buckets []float64, label string) *prometheus.HistogramVec {
		return f.NewHistogramVec(prometheus.HistogramOpts{Namespace: ns, Name: name, Help: help, Buckets: buckets}, []string{label})
	}
	return &Metrics{
		requests: counter("request_total", "Requests on the pipeline's routes, by model.", "model_name"),
		errors:   counter("request_error_total", "Requests that the coordinator itself ended with an error, by model and code of the error object.", "model_name", "error_code"),
		duration: histograms("request_duration_seconds", "Time from a request's headers to the end of its answer.", durationBuckets, "model_name"),
		paths:    counter("execution_path_total", "Requests that reached a decode worker, by model and the way they took there.", "model_name", "path"),
		overhead: histograms("orchestration_overhead_seconds", "Time of a request in which it waited neither for its body, nor for queues, nor for the answers of others.", overheadBuckets, "path"),
		ttft:     histogram("time_to_first_token_seconds", "Time from a request's headers to the first byte of its answer's body, of streamed requests.", durationBuckets),
		chunks:   histogram("inter_chunk_seconds", "Time between two pieces of a streamed answer, as they came from the worker.", chunkBuckets),
		sizeIn:   histogram("request_size_bytes", "Size of a request's body.", sizeBuckets),
		sizeOut:  histogram("response_size_bytes", "Size of an answer's body.", sizeBuckets),
		tokensIn: histogram("request_input_tokens", "Token ids of a prompt, of requests whose prompt was rendered or came as ids.", tokenBuckets),
		media:    histograms("media_items", "Media of one type (image, audio, video) of a request, of requests that have some.", countBuckets, "media_type"),
		withMedia: f.NewCounter(prometheus.CounterOpts{Namespace: ns, Name: "request_media_total",
			Help: "Requests that have media, of one type or several."}),
		tokensOut: f.NewCounter(prometheus.CounterOpts{Namespace: ns, Name: "output_tokens_total",
			Help: "Tokens of answers, as far as workers say in usage how many they are."}),
		running: f.NewGauge(prometheus.GaugeOpts{Namespace: ns, Name: "request_running", Help: "Requests that are being served now."}),
	}
}

func (m *Metrics) observe(rec *Record) {
	model, trace := m.models.label(rec.Model, rec.Status), rec.Journal.TraceID()
	m.requests.WithLabelValues(model).Inc()
	observe(m.duration.WithLabelValues(model), rec.Total, trace)
	if rec.Code != "" {
		m.errors.WithLabelValues(model, wire.FaultOf(rec.Cause).Counted()).Inc()
	}
	if rec.Path != "" {
		m.paths.WithLabelValues(model, rec.Path).Inc()
		m.overhead.WithLabelValues(rec.Path).Observe(rec.Overhead.Seconds())
	}
	if rec.Stream && rec.FirstByte > 0 {
		observe(m.ttft, rec.FirstByte, trace)
	}
	m.sizeIn.Observe(float64(rec.BytesIn))
	m.sizeOut.Observe(float64(rec.Bytes))
	if rec.TokensIn > 0 {
		m.tokensIn.Observe(float64(rec.TokensIn))
	}
	for k, n := range [wire.Modalities]int{wire.Image: rec.Images, wire.Audio: rec.Audios, wire.Video: rec.Videos} {
		if n > 0 {
			m.media.WithLabelValues(wire.Modality(k).String()).Observe(float64(n))
		}
	}
	if rec.Images+rec.Audios+rec.Videos > 0 {
		m.withMedia.Inc()
	}
	m.tokensOut.Add(float64(rec.TokensOut))
}

// observe adds a duration to a histogram, with the trace it was seen in, if any,
// as its exemplar.
func observe(to prometheus.Observer, d time.Duration, trace string) {
	if with, ok := to.(prometheus.ExemplarObserver); ok && trace != "" {
		with.ObserveWithExemplar(d.Seconds(), prometheus.Labels{"trace_id": trace})
		return
	}
	to.Observe(d.Seconds())
}
