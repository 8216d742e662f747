package phases

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are the figures that phases keep.
type Metrics struct {
	handoffMissing prometheus.Counter
	handoffExpired prometheus.Counter
	handoffSeconds prometheus.Histogram
	reruns         *prometheus.CounterVec
	prefillIgnored *prometheus.CounterVec
	released       *prometheus.CounterVec
	bypassed       *prometheus.CounterVec
	probes         *prometheus.CounterVec
	encodes        prometheus.Histogram
	ecMissing      prometheus.Counter
	formatFallback prometheus.Counter
	pixels         *prometheus.CounterVec
	pixelsResent   *prometheus.CounterVec
	cachedTokens   *prometheus.CounterVec
	downloads      *prometheus.HistogramVec
	mediaCache     *prometheus.CounterVec
	loopbackHosts  *prometheus.CounterVec
	// responsesPassed is by wire.NeedsState and the server's reasons.
	responsesPassed *prometheus.CounterVec
	async           *prometheus.CounterVec
	asyncQuota      *prometheus.CounterVec
	asyncWaiting    prometheus.Gauge
	asyncWait       prometheus.Histogram
}

// NewMetrics registers the metrics with reg; nil registers nowhere.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	const ns = "llm_d_coordinator"
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Namespace: ns, Name: name, Help: help})
	}
	counters := func(name, help, label string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: name, Help: help}, []string{label})
	}
	return &Metrics{
		handoffMissing: counter("kv_handoff_missing_total", "Prefills whose answer held no usable transfer params: decode computed the prompt again."),
		handoffExpired: counter("kv_handoff_expired_total", "Hand-offs that were not sent to decode because their lease was over."),
		handoffSeconds: f.NewHistogram(prometheus.HistogramOpts{Namespace: ns, Name: "kv_handoff_seconds",
			Help:    "Time from prefill's answer to the dispatch of decode, while the KV is pinned.",
			Buckets: []float64{.0001, .001, .01, .1, .5, 1, 5, 10, 20, 30, 60}}),
		reruns:         counters("reruns_total", "Requests started again because decode, or a prefill that goes with it, failed before the first byte of the answer, by reason.", "reason"),
		prefillIgnored: counters("prefill_ignored_total", "Prefills beside a decode (step prefill-decode) that had not ended well when decode's answer had, by result: failed, or cut because they took too long. The request did not fail.", "result"),
		released:       counters("kv_release_total", "Decode legs sent only so that a prefill worker lets go of KV that nobody will read, by result.", "result"),
		bypassed:       counters("remote_kv_bypassed_total", "Requests that cannot use KV of another worker and were served by decode alone, by reason.", "reason"),
		probes:         counters("conditional_decode_probes_total", "Conditional decodes, by result: served, deferred (not cached), rejected (another answer, passed on), error.", "result"),
		encodes: f.NewHistogram(prometheus.HistogramOpts{Namespace: ns, Name: "encode_subrequests",
			Help:    "Encode legs of a request that has some, one for each distinct image, audio file or video.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64}}),
		ecMissing:      counter("ec_handoff_missing_total", "Encode answers without a descriptor of their medium, though the connector needs one: prefill encodes it itself."),
		formatFallback: counter("format_fallback_total", "Requests whose encode and prefill had the chat format although token ids were asked for, because render gave no tensor for an image, audio file or video."),
		pixels: f.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: "prefill_pixels_total",
			Help: "Rendered items of prefills that were told where to fetch embeddings, by what was sent of them: metadata, stripped (the tensor without pixels), full; and the reason for full."}, []string{"sent", "reason"}),
		pixelsResent: counters("prefill_pixels_resent_total", "Prefills without pixels that failed, by result of the one with them: ok, failed, refused (not sent: no retry was left).", "result"),
		cachedTokens: counters("cached_tokens_total", "Answers that were to say how much of the prompt prefill had cached, by result: "+
			"rewritten, no_usage (there is none in it), encoded (it cannot be read), no_prefill (prefill did not say), unsupported (the answer is to a batch, or of the Responses API).", "result"),
		downloads: f.NewHistogramVec(prometheus.HistogramOpts{Namespace: ns, Name: "media_download_duration_seconds",
			Help:    "Time that the download of a medium took, by its modality and result: ok, or the code of the error.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}}, []string{"result", "media_type"}),
		loopbackHosts:   counters("worker_loopback_host_total", "Answers of workers that name localhost as the host to fetch their KV or embedding from, by profile.", "profile"),
		responsesPassed: counters("responses_passed_through_total", "Requests on /v1/responses that were passed through though the pipeline serves this route, by reason.", "reason"),
		async: f.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: "async_requests_total",
			Help: "Requests by the mode that they asked async-broker for, and calls about them (get, delete), by outcome."}, []string{"mode", "outcome"}),
		asyncQuota:   counters("async_quota_total", "Passthrough requests by what became of their place in their tenant's quota: reserved, overflow, failed_open (Redis could not be asked).", "outcome"),
		asyncWaiting: f.NewGauge(prometheus.GaugeOpts{Namespace: ns, Name: "async_waiting", Help: "Requests whose clients are kept waiting for a result from the queue now."}),
		asyncWait: f.NewHistogram(prometheus.HistogramOpts{Namespace: ns, Name: "async_wait_seconds", Help: "Time that clients were kept waiting for a result from the queue.",
			Buckets: []float64{.01, .05, .1, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}}),
		mediaCache: f.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: "media_cache_total",
			Help: "URLs of media that requests named, by modality, and by how their medium was come by: hit, shared, miss, expired."}, []string{"result", "media_type"}),
	}
}
