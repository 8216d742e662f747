package monitor

import (
	"time"

	"github.com/llm-coordinator/coordinator/transport/journal"
	"github.com/llm-coordinator/coordinator/transport/server"
)

// View is a request as operators see it: when what happened, in milliseconds since
// it came, and nothing of what it says.
type View struct {
	Serial    string    `json:"serial"`
	RequestID string    `json:"request_id"`
	TraceID   string    `json:"trace_id,omitempty"`
	Tenant    string    `json:"tenant,omitempty"`
	Protocol  string    `json:"protocol"`
	Model     string    `json:"model"`
	Stream    bool      `json:"stream"`
	Path      string    `json:"path,omitempty"`
	Received  time.Time `json:"received"`
	// Outcome is running, ok, rejected (4xx), refused (429, 503), failed (other
	// 5xx, or an answer that broke off) or gone (the client left).
	Outcome string `json:"outcome"`
	Status  int    `json:"status,omitempty"`
	Code    string `json:"code,omitempty"`
	Error   string `json:"error,omitempty"`
	// Phase that the request is in, or ended in.
	Phase     string   `json:"phase,omitempty"`
	Total     float64  `json:"total_ms"`
	FirstByte float64  `json:"first_byte_ms,omitempty"`
	Overhead  float64  `json:"overhead_ms,omitempty"`
	BytesIn   int64    `json:"bytes_in"`
	Bytes     int64    `json:"bytes"`
	Images    int      `json:"images,omitempty"`
	Audios    int      `json:"audios,omitempty"`
	Videos    int      `json:"videos,omitempty"`
	TokensIn  int      `json:"tokens_in,omitempty"`
	TokensOut int      `json:"tokens_out,omitempty"`
	Reruns    int      `json:"reruns,omitempty"`
	Notes     []string `json:"notes,omitempty"`
	// Bars are the parts of the timeline, in order.
	Bars []Bar `json:"bars"`
	// Steps, Calls and Waits are only in the view of one request.
	Steps []Step `json:"steps,omitempty"`
	Calls []Call `json:"calls,omitempty"`
	Waits []Wait `json:"waits,omitempty"`
}

// Bar is a part of a timeline.
type Bar struct {
	// Kind is queue, media, render, encode, prefill, handoff, decode (to the first
	// byte), stream, or the name of another upstream.
	Kind  string  `json:"kind"`
	Label string  `json:"label"`
	From  float64 `json:"from_ms"`
	Until float64 `json:"until_ms"`
}

// Step is one run of a phase.
type Step struct {
	Phase    string  `json:"phase"`
	Began    float64 `json:"began_ms"`
	Ended    float64 `json:"ended_ms"`
	Queued   float64 `json:"queued_ms"`
	Ran      float64 `json:"ran_ms"`
	Tasks    int     `json:"tasks"`
	Attempts int     `json:"attempts"`
	Code     string  `json:"code,omitempty"`
	Open     bool    `json:"open,omitempty"` // it has not ended
}

// Call is one attempt of a leg, or a download.
type Call struct {
	Upstream string  `json:"upstream"`
	ID       string  `json:"id,omitempty"`
	Phase    string  `json:"phase,omitempty"`
	Began    float64 `json:"began_ms"`
	Answered float64 `json:"answered_ms,omitempty"`
	Ended    float64 `json:"ended_ms"`
	Status   int     `json:"status,omitempty"`
	Reason   string  `json:"reason,omitempty"`
	Open     bool    `json:"open,omitempty"`
}

// Wait is a time in a queue.
type Wait struct {
	Pool  string  `json:"pool"`
	From  float64 `json:"from_ms"`
	Until float64 `json:"until_ms"`
}

// Status is the state of the coordinator at one moment.
type Status struct {
	Version  string  `json:"version"`
	Uptime   float64 `json:"uptime_seconds"`
	Ready    bool    `json:"ready"`
	Reason   string  `json:"reason,omitempty"` // why it is not
	Draining bool    `json:"draining"`
	// Inflight are requests, Detached what outlives its request.
	Inflight int `json:"inflight"`
	Detached int `json:"detached"`
	// Queue is that of an async-broker step; nil: there is none.
	Queue *Queue `json:"queue,omitempty"`
	// Running are the requests that have been read and not answered to the end. They
	// are more than Inflight: also those that are being refused.
	Running int `json:"running"`
	// NotShown are those of them that are not shown one by one.
	NotShown int    `json:"running_not_shown"`
	Totals   Totals `json:"totals"`
	// Pipeline are the phases in order.
	Pipeline []Phase   `json:"pipeline"`
	Pools    []Pool    `json:"pools"`
	Breakers []Breaker `json:"breakers"`
	// Chart are the last 15 minutes, oldest first.
	Chart []Point `json:"chart"`
}

// Totals are how many requests have ended since the start, by outcome.
type Totals struct {
	Finished uint64 `json:"finished"`
	OK       uint64 `json:"ok"`
	Rejected uint64 `json:"rejected"`
	Refused  uint64 `json:"refused"`
	Failed   uint64 `json:"failed"`
	Gone     uint64 `json:"gone"`
}

func (t *Totals) add(outcome string) {
	t.Finished++
	switch outcome {
	case OK:
		t.OK++
	case Rejected:
		t.Rejected++
	case Refused:
		t.Refused++
	case Failed:
		t.Failed++
	case Gone:
		t.Gone++
	}
}

// Phase is a phase of the pipeline. Times and errors are those of the last minute.
type Phase struct {
	Name        string  `json:"name"`
	Description string  `json:"description,omitempty"`
	Running     int     `json:"running"` // requests in it
	Pool        string  `json:"pool"`
	Busy        int     `json:"busy"` // places of its pool at work or set aside
	Queued      int     `json:"queued"`
	Capacity    int     `json:"capacity"`
	P50         float64 `json:"p50_ms"`
	P99         float64 `json:"p99_ms"`
	Errors      float64 `json:"errors_per_second"`
}

// Pool is the state of a pool.
type Pool struct {
	Name   string `json:"name"`
	Size   int    `json:"size"`
	Busy   int    `json:"busy"`
	Queued int    `json:"queued"`
	Queue  int    `json:"queue"` // that may wait
}

// Queue is the state of the queue that requests wait in, as far as it is known
// here.
type Queue struct {
	// Redis is where it is; Reachable: it has answered the last command.
	Redis     string `json:"redis"`
	Reachable bool   `json:"reachable"`
	// Breaker is the state of its circuit breaker.
	Breaker string `json:"breaker"`
	// Wakeup is how results are come by: notify or poll.
	Wakeup string `json:"wakeup"`
	// Waiting are requests that are neither in flight nor in a pool, of MostWaiting
	// at most; Watched are the mailboxes that results are waited for in.
	Waiting     int `json:"waiting"`
	MostWaiting int `json:"most_waiting"`
	Watched     int `json:"watched"`
}

// Breaker is the state of a profile's circuit breaker.
type Breaker struct {
	Profile string `json:"profile"`
	// State is closed, half-open, open or disabled.
	State string `json:"state"`
	// HalfOpenIn is after how many seconds an open one lets a request try.
	HalfOpenIn float64 `json:"half_open_in_seconds,omitempty"`
}

// Point is ten seconds of the chart.
type Point struct {
	At       time.Time `json:"at"`
	Requests float64   `json:"requests_per_second"`
	Shed     float64   `json:"shed_per_second"`
	P50      float64   `json:"first_token_p50_ms"`
	P99      float64   `json:"first_token_p99_ms"`
}

// The outcomes of requests.
const (
	Running  = "running"
	OK       = "ok"
	Rejected = "rejected"
	Refused  = "refused"
	Failed   = "failed"
	Gone     = "gone"
)

// outcome says in a word how a request ended.
func outcome(rec *server.Record) string {
	switch {
	case rec.Gone:
		return Gone
	case rec.Status == 429 || rec.Status == 503:
		return Refused
	case rec.Status >= 500 || rec.Status < 400 && rec.Code != "":
		return Failed
	case rec.Status >= 400:
		return Rejected
	}
	return OK
}

// viewOf is the view of a request: as it stands now if it is running, and rec is
// its record if it has ended.
func viewOf(r *server.Running, rec *server.Record, e *journal.Entry, now time.Time, whole bool) View {
	v := View{Serial: r.Serial, RequestID: r.ID, TraceID: r.Journal.TraceID(), Tenant: r.Tenant, Protocol: r.Protocol, Model: r.Model,
		Stream: r.Stream, Received: r.Received, Outcome: Running, Phase: e.Phase, Path: e.Path(), BytesIn: r.BytesIn, Images: r.Images, Audios: r.Audios, Videos: r.Videos,
		TokensIn: e.TokensIn, TokensOut: e.TokensOut, Notes: e.Notes}
	end := now
	if rec != nil {
		end = r.Received.Add(rec.Total)
		v.Outcome, v.Status, v.Code, v.Path = outcome(rec), rec.Status, rec.Code, rec.Path
		v.FirstByte, v.Overhead, v.Bytes, v.Reruns = ms(rec.FirstByte), ms(rec.Overhead), rec.Bytes, rec.Reruns
		if rec.Cause != nil {
			v.Error = rec.Cause.Error()
		}
	}
	t := timeline{r.Received, end}
	v.Total = t.at(end)
	v.Bars = t.bars(e, v.FirstByte)
	if whole {
		v.Steps, v.Calls, v.Waits = t.steps(e), t.calls(e), t.waits(e)
	}
	return v
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
