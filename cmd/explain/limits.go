package explain

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// limits lists the bounds that apply to the request, as the operator has set
// them.
func (o *observed) limits(r *Report) []Limit {
	l := &list{}
	o.requestLimits(l)
	pools := map[string]bool{}
	for _, p := range r.Phases {
		if p.Runs {
			o.stepLimits(l, p.Name)
			o.poolLimits(l, pools, p.Name)
		}
	}
	ups := map[string]bool{}
	for _, leg := range r.Legs {
		if leg.Name == "passthrough" {
			o.poolLimits(l, pools, leg.Name)
		}
		if !ups[leg.Upstream] {
			ups[leg.Upstream] = true
			o.upstreamLimits(l, leg.Upstream)
		}
	}
	return l.all
}

type list struct{ all []Limit }

func (l *list) add(of, key, value, note string) {
	l.all = append(l.all, Limit{Of: of, Key: key, Value: value, Note: note})
}

// headerTimeout is how a client asks for less time.
const headerTimeout = "x-llm-d-request-timeout-seconds"

func (o *observed) requestLimits(l *list) {
	c := o.real
	l.add("request", "server.max_request_body_size", fmt.Sprintf("%d MB", c.Server.MaxRequestBodySize), fmt.Sprintf("this body: %d bytes", len(o.Body)))
	l.add("request", "server.read_timeout", c.Server.ReadTimeout.String(), "for headers and body to arrive")
	note := "to the first byte of the answer"
	if asked := o.Request.Header.Get(headerTimeout); asked != "" {
		note += "; the client asks for " + short(asked) + " s, which counts if it is less"
	}
	l.add("request", "pipeline.request_timeout", orNone(c.Pipeline.RequestTimeout, "no limit"), note)
	l.add("request", "actors.queue_timeout", c.Actors.QueueTimeout.String(), "in the queue of a pool, each time")
	o.inflightLimits(l)
	if o.protocol == wire.Completions {
		l.add("request", "pipeline.max_batch_size", fmt.Sprint(c.Pipeline.MaxBatchSize), fmt.Sprintf("this body: %s", plural(max(1, o.prompts), "prompt")))
	}
	l.add("request", "server.write_timeout", c.Server.WriteTimeout.String(), "for each write of the answer")
	l.add("request", "gateway.stream_idle_timeout", orNone(c.Gateway.StreamIdleTimeout, "no limit"), "between two chunks of a stream")
}

func (o *observed) inflightLimits(l *list) {
	c := o.real
	inflight := ""
	if c.Actors.MaxInflightRequests == 0 {
		inflight = "0 in the configuration: size and queue of the pool decode"
	}
	switch {
	case o.protocol == nil: // what is passed through is not counted
	case len(o.queue.submitted) > 0:
		l.add("request", "actors.max_waiting_requests", count(c.Actors.MaxWaitingRequests), "")
	default:
		l.add("request", "actors.max_inflight_requests", fmt.Sprint(c.Actors.Inflight()), inflight)
	}
	l.add("request", "actors.max_inflight_size", fmt.Sprintf("%d MB", c.Actors.MaxInflightSize), "of all requests together")
}

func orNone(d time.Duration, none string) string {
	if d <= 0 {
		return none
	}
	return d.String()
}

func count(n int) string {
	if n == 0 {
		return "no limit"
	}
	return fmt.Sprint(n)
}

// stepLimits lists the bounds in a step's own parameters.
func (o *observed) stepLimits(l *list, kind string) {
	switch kind {
	case stepAsync:
		l.add(kind, "wait_cap_seconds", count(int(o.async.WaitCapSeconds)), "that a client is kept waiting")
	case stepMedia:
		m := o.media
		l.add(kind, "max_multimodal_entries", count(m.MaxMultimodalEntries), fmt.Sprintf("this request: %d", o.prompt.Media.Len()))
		o.sizeLimits(l)
		if o.byURL > 0 {
			l.add(kind, "download_timeout", m.DownloadTimeout.String(), "of one medium, redirects included")
			l.add(kind, "max_concurrent_downloads", fmt.Sprint(m.MaxConcurrentDownloads), fmt.Sprintf("this request: %d to download", len(o.pictures)))
			l.add(kind, "allowed_domains", cmp.Or(strings.Join(m.AllowedDomains, ", "), "any"), "not checked here")
		}
	case stepRender:
		l.add(kind, "max_total_tokens", count(o.render.MaxTotalTokens), "")
		l.add(kind, "max_total_placeholder_tokens", count(o.render.MaxTotalPlaceholderTokens), "")
		l.add(kind, "max_answer_size", fmt.Sprintf("%d MB", o.render.MaxAnswerSize), "")
	case stepConditional:
		l.add(kind, "timeout", orNone(o.conditional, "decode's: "+o.real.Gateway.TimeoutOf(stepDecode).String()), "never sent again")
	case stepPrefill:
		l.add(kind, "pipeline.kv_lease", o.real.Pipeline.KVLease.String(), "from prefill's answer to decode's dispatch, if the KV is handed over")
	}
}

// sizeLimits lists how large media may be, of the modalities that the request has.
func (o *observed) sizeLimits(l *list) {
	m := o.media
	key, size := "max_download_size", m.MaxDownloadSize
	if m.MaxImageDownloadSize > 0 {
		key, size = "max_image_download_size", m.MaxImageDownloadSize
	}
	for modality, limit := range [wire.Modalities]struct {
		key  string
		size int
		of   string
	}{
		wire.Image: {key, size, "of one image, inlined ones too"},
		wire.Audio: {"max_audio_download_size", m.MaxAudioDownloadSize, "of one audio file, inlined ones too"},
		wire.Video: {"max_video_download_size", m.MaxVideoDownloadSize, "of one video, inlined ones too"},
	} {
		if o.prompt.Media.Count(wire.Modality(modality)) > 0 {
			l.add(stepMedia, limit.key, fmt.Sprintf("%d MB", limit.size), limit.of)
		}
	}
}

// poolLimits lists the pool that a phase works in, once.
func (o *observed) poolLimits(l *list, seen map[string]bool, kind string) {
	for _, s := range o.stages {
		if s.Step == kind && s.Pool != "" && !seen[s.Pool] {
			seen[s.Pool] = true
			l.add("pool "+s.Pool, "actors.pools."+s.Pool, fmt.Sprintf("%d at work, %d waiting", s.AtWork, s.Waiting), "")
		}
	}
}

// upstreamLimits lists time-out, retries and breaker of a profile.
func (o *observed) upstreamLimits(l *list, name string) {
	g := o.real.Gateway
	of, timeout, key := "upstream "+name, g.TimeoutOf(name), "gateway.profiles."+name+".timeout"
	if name == stepRender {
		timeout, key = o.render.Timeout, "timeout (of the render step)"
	}
	l.add(of, key, timeout.String(), "")
	r := g.RetryOf(name)
	note := fmt.Sprintf("after connection errors, time-outs, 502, 503, 504; waits of up to %v, doubled up to %v", r.BaseDelay, r.MaxDelay)
	switch {
	case r.MaxAttempts == 1:
		note = "it is never sent again"
	case o.protocol == nil:
		note = "only if it went out on a kept connection that turned out to be dead"
	case name == stepDecode || name == stepPrefill && o.pair:
		note = "only if no worker can have begun it; " + fmt.Sprintf("waits of up to %v, doubled up to %v", r.BaseDelay, r.MaxDelay)
		if o.count(stepPrefill) > 0 {
			note += "; after another failure the request starts again, once"
		}
	}
	l.add(of, "gateway.profiles."+name+".retry.max_attempts", fmt.Sprint(r.MaxAttempts), note)
	l.add(of, "gateway.profiles."+name+".breaker", breaker(g.BreakerOf(name)), "")
}

func breaker(b conf.Breaker) string {
	if !b.Enabled {
		return "disabled"
	}
	return fmt.Sprintf("opens after %d failures in a row, or %g of at least %d within %v; for %v, then %d trials",
		b.ConsecutiveFailures, b.FailureRatio, b.MinRequests, b.Interval, b.OpenTimeout, b.HalfOpenRequests)
}
