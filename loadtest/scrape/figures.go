package scrape

import "cmp"

// Figures are what a coordinator did between two readings. The names of its fields
// in JSON are stable: fields may be added, none is renamed or gets another meaning.
type Figures struct {
	// Seconds is the time between the readings; 0: since the coordinator started.
	Seconds float64 `json:"seconds"`
	// Restarted: the coordinator was started anew in between. The figures are those
	// since then.
	Restarted bool `json:"restarted,omitempty"`
	Mix       Mix  `json:"mix"`
	// Request is the time from a request's headers to the end of its answer,
	// FirstByte to the first byte of a streamed one.
	Request   Timing `json:"request"`
	FirstByte Timing `json:"first_byte"`
	// Steps are the times of requests in a step, queueing included. Requests that
	// had nothing to do there are not among them.
	Steps map[string]Timing `json:"steps"`
	// Upstreams are the times of legs: to the headers of the answer, or to its end
	// if it is read whole, as those of render, encode and prefill are.
	Upstreams map[string]Timing `json:"upstreams"`
	// Waits are the times in a pool's queue.
	Waits map[string]Timing `json:"pool_waits"`
	// Downloads are the times of downloads of images, by what came of them.
	Downloads map[string]Timing `json:"media_downloads"`
	// Overhead is the coordinator's own part of a request, by its path.
	Overhead map[string]Timing `json:"orchestration_overhead"`
	// Sizes are those of the pools at the end.
	Sizes map[string]float64 `json:"pool_sizes"`
	// Errors are the requests that the coordinator ended, by code, Shed those that
	// it refused to protect others, by reason.
	Errors map[string]float64 `json:"errors"`
	Shed   map[string]float64 `json:"shed"`
	// Retries are legs sent again, by phase.
	Retries map[string]float64 `json:"retries"`
	// Probes are conditional decodes, by what came of them.
	Probes map[string]float64 `json:"conditional_decodes"`
	// Series is what was read each second, or nil.
	Series *Series `json:"series,omitempty"`
}

// Mix says what the requests were.
type Mix struct {
	Requests float64 `json:"requests"`
	// Prompts are those whose length is known, PromptTokens their token ids.
	Prompts      float64 `json:"prompts"`
	PromptTokens float64 `json:"prompt_tokens"`
	// OutputTokens are those that workers said they wrote; 0 if none said so.
	OutputTokens float64 `json:"output_tokens"`
	// WithImages are the requests that have Images, which are media of all types:
	// audio and video too. A coordinator that does not say how many they are counts
	// one with several types once for each.
	WithImages float64 `json:"with_images"`
	Images     float64 `json:"images"`
	// Encodes are distinct ones that encode workers got.
	Encodes float64 `json:"encodes"`
	// Bodies are the requests that were read, BodyBytes what they held.
	Bodies    float64 `json:"bodies"`
	BodyBytes float64 `json:"body_bytes"`
}

// Timing is of a histogram. The percentiles are as good as its buckets are narrow.
type Timing struct {
	Count float64 `json:"count"`
	Sum   float64 `json:"sum_seconds"`
	Mean  float64 `json:"mean_seconds"`
	P50   float64 `json:"p50_seconds"`
	P99   float64 `json:"p99_seconds"`
}

// Between returns what happened between two readings. A first one of nil is the
// coordinator's start.
func Between(first, last *Snapshot) *Figures {
	d := difference{first, last}
	f := &Figures{}
	if first != nil {
		f.Seconds = last.At.Sub(first.At).Seconds()
		if f.Restarted = started(first) != started(last); f.Restarted {
			d.first = nil
		}
	}
	f.Mix = d.mix()
	f.Request, f.FirstByte = d.timing("request_duration_seconds"), d.timing("time_to_first_token_seconds")
	f.Steps, f.Upstreams = d.timings("step_duration_seconds", "step"), d.timings("upstream_request_duration_seconds", "upstream")
	f.Waits, f.Downloads = d.timings("pool_wait_seconds", "pool"), d.timings("media_download_duration_seconds", "result")
	f.Overhead = d.timings("orchestration_overhead_seconds", "path")
	f.Sizes = last.Values("pool_size", "pool")
	f.Errors, f.Shed = d.counts("request_error_total", "error_code"), d.counts("shed_total", "reason")
	f.Retries, f.Probes = d.counts("retries_total", "phase"), d.counts("conditional_decode_probes_total", "result")
	return f
}

// started returns when the process of a page was, as far as it says so.
func started(s *Snapshot) float64 {
	for _, m := range s.families["process_start_time_seconds"].GetMetric() {
		return number(m)
	}
	return 0
}

// difference is what counters have grown by.
type difference struct{ first, last *Snapshot }

func (d difference) mix() Mix {
	tokens, images := d.histogram("request_input_tokens"), d.histogram("media_items")
	bodies, encodes := d.histogram("request_size_bytes"), d.histogram("encode_subrequests")
	withMedia := d.counts("request_media_total", "")[""]
	return Mix{
		Requests: d.counts("request_total", "")[""],
		Prompts:  tokens.count, PromptTokens: tokens.sum, OutputTokens: d.counts("output_tokens_total", "")[""],
		WithImages: cmp.Or(withMedia, images.count), Images: images.sum, Encodes: encodes.sum,
		Bodies: bodies.count, BodyBytes: bodies.sum,
	}
}

// counts returns by how much a counter has grown, by a label; not what has not.
func (d difference) counts(name, label string) map[string]float64 {
	grown, before := d.last.Values(name, label), d.first.Values(name, label)
	for key := range grown {
		if grown[key] -= before[key]; grown[key] <= 0 {
			delete(grown, key)
		}
	}
	return grown
}

func (d difference) histograms(name, label string) map[string]*histogram {
	grown, before := d.last.histograms(name, label), d.first.histograms(name, label)
	for key, h := range grown {
		if b := before[key]; b != nil {
			h.add(b, -1)
		}
		if h.count <= 0 {
			delete(grown, key)
		}
	}
	return grown
}

// histogram returns one whose labels do not matter.
func (d difference) histogram(name string) *histogram {
	if h := d.histograms(name, "")[""]; h != nil {
		return h
	}
	return &histogram{}
}

func (d difference) timing(name string) Timing { return d.histogram(name).timing() }

func (d difference) timings(name, label string) map[string]Timing {
	all := map[string]Timing{}
	for key, h := range d.histograms(name, label) {
		all[key] = h.timing()
	}
	return all
}

func (h *histogram) timing() Timing {
	if h.count <= 0 {
		return Timing{}
	}
	return Timing{Count: h.count, Sum: h.sum, Mean: h.sum / h.count, P50: h.percentile(.5), P99: h.percentile(.99)}
}

// percentile returns the time that so great a part of all do not exceed, on the
// straight line through its bucket. Above the highest bound it is that bound.
func (h *histogram) percentile(part float64) float64 {
	rank, seen, from := part*h.count, 0.0, 0.0
	for i, to := range h.bounds {
		n := h.counts[i]
		if n > 0 && seen+n >= rank {
			return from + (to-from)*min(1, (rank-seen)/n)
		}
		seen += n
		from = to
	}
	return from
}
