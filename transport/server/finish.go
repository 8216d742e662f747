package server

import (
	"context"
	"log/slog"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/llm-coordinator/coordinator/phases"
)

// Record is what is known of a request that has ended. It holds nothing of its
// content.
type Record struct {
	ID, Protocol, Model string
	Stream              bool
	// Status that the client saw, or 499 if it left before it saw one.
	Status int
	// Code of the error object, or "".
	Code string
	// Cause of the error for the log, or nil.
	Cause error
	// Bytes of the answer's body.
	Bytes int64
	// FirstByte and Total are times since the request came; FirstByte is 0 if
	// there was none.
	FirstByte, Total time.Duration
	// Steps are the phases that had work to do.
	Steps []phases.StepTrace
	// Notes name each way that the request took and that was not asked for.
	Notes []string
	// Reruns counts how often the request was started again from prefill.
	Reruns int
}

// finish counts and logs a request that has ended.
func (s *Server) finish(a *answering) {
	now := time.Now()
	rec := Record{ID: a.req.ID, Protocol: a.req.Protocol.Name, Model: recorded(a.req.Model), Stream: a.req.Stream, Status: a.status,
		Bytes: a.bytes, Total: now.Sub(a.req.Received), Steps: a.req.Trace.Steps, Notes: a.req.Trace.Notes, Reruns: a.req.Decoded.Reruns}
	if !a.first.IsZero() {
		rec.FirstByte = a.first.Sub(a.req.Received)
	}
	if a.fault != nil {
		rec.Code, rec.Cause = a.fault.ErrorCode(), a.fault
	}
	s.metrics.observe(&rec)
	s.logRecord(&rec)
	if s.Finished != nil {
		s.Finished(rec)
	}
}

// maxModelName is the longest name of a model that is recorded as it is.
const maxModelName = 256

// recorded returns the name by which a model is recorded. Clients choose names:
// they may be megabytes, or no UTF-8 ("\ud800"), which no label can be.
func recorded(model string) string {
	if len(model) > maxModelName || !utf8.ValidString(model) {
		return "other"
	}
	return model
}

func (s *Server) logRecord(rec *Record) {
	level := slog.LevelInfo
	if rec.Status >= 500 {
		level = slog.LevelWarn
	}
	ctx := context.Background()
	if !s.log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("request_id", rec.ID), slog.String("protocol", rec.Protocol), slog.String("model", rec.Model),
		slog.Bool("stream", rec.Stream), slog.Int("status", rec.Status), slog.Int64("bytes", rec.Bytes),
		slog.Duration("first_byte", rec.FirstByte), slog.Duration("total", rec.Total),
	}
	if rec.Code != "" {
		attrs = append(attrs, slog.String("code", rec.Code), slog.String("error", rec.Cause.Error()))
	}
	if len(rec.Notes) > 0 {
		attrs = append(attrs, slog.Any("notes", rec.Notes))
	}
	if rec.Reruns > 0 {
		attrs = append(attrs, slog.Int("reruns", rec.Reruns))
	}
	for _, st := range rec.Steps {
		attrs = append(attrs, slog.Duration(st.Phase, st.Ended.Sub(st.Began)))
	}
	s.log.LogAttrs(ctx, level, "request", attrs...)
}

// Metrics are the figures of the listener.
type Metrics struct {
	requests *prometheus.CounterVec
	errors   *prometheus.CounterVec
	duration *prometheus.HistogramVec
	ttft     prometheus.Histogram
	running  prometheus.Gauge
	models   modelNames
}

// NewMetrics registers the metrics with reg; nil registers nowhere.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	const ns = "llm_d_coordinator"
	f := promauto.With(reg)
	buckets := []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}
	return &Metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: "request_total",
			Help: "Requests on the pipeline's routes, by model."}, []string{"model_name"}),
		errors: f.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: "request_error_total",
			Help: "Requests that the coordinator itself ended with an error, by model and code of the error object."}, []string{"model_name", "error_code"}),
		duration: f.NewHistogramVec(prometheus.HistogramOpts{Namespace: ns, Name: "request_duration_seconds", Buckets: buckets,
			Help: "Time from a request's headers to the end of its answer."}, []string{"model_name"}),
		ttft: f.NewHistogram(prometheus.HistogramOpts{Namespace: ns, Name: "time_to_first_token_seconds", Buckets: buckets,
			Help: "Time from a request's headers to the first byte of its answer's body, of streamed requests."}),
		running: f.NewGauge(prometheus.GaugeOpts{Namespace: ns, Name: "request_running",
			Help: "Requests that are being served now."}),
	}
}

func (m *Metrics) observe(rec *Record) {
	model := m.models.label(rec.Model, rec.Status)
	m.requests.WithLabelValues(model).Inc()
	m.duration.WithLabelValues(model).Observe(rec.Total.Seconds())
	if rec.Code != "" {
		m.errors.WithLabelValues(model, rec.Code).Inc()
	}
	if rec.Stream && rec.FirstByte > 0 {
		m.ttft.Observe(rec.FirstByte.Seconds())
	}
}

// modelNames bounds the values of the label model_name: clients choose them. A
// name takes one of the places only after it was answered with a 2xx.
type modelNames struct {
	mu    sync.RWMutex
	known map[string]bool
}

const maxModelNames = 1000

func (m *modelNames) label(name string, status int) string {
	if name == "" {
		return "unknown"
	}
	m.mu.RLock()
	known, full := m.known[name], len(m.known) >= maxModelNames
	m.mu.RUnlock()
	if known {
		return name
	}
	if full || status/100 != 2 {
		return "other"
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.known) >= maxModelNames && !m.known[name] {
		return "other"
	}
	if m.known == nil {
		m.known = make(map[string]bool)
	}
	m.known[name] = true
	return name
}
