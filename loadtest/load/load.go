// Package load loads a coordinator, or anything else that serves its routes,
// and measures what clients see.
//
// [Run] makes requests in a closed loop (so many clients, each of which sends its
// next request when the last has ended) or in an open loop (requests begin on a
// schedule, whatever the server does). [Hold] opens streams and keeps them open.
// Both can watch a process of this machine meanwhile (see [Target.PID]).
//
// It shares the machine with what it measures, so it is frugal: bodies are put
// together from parts that all requests share, and clients reuse their buffers.
// It is not a check of answers: what a good request gets is counted, timed and
// thrown away.
package load

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// Kind is the route that requests are for.
type Kind string

// The kinds of requests.
const (
	Chat        Kind = "chat"        // POST /v1/chat/completions
	Completions Kind = "completions" // POST /v1/completions
	Generate    Kind = "generate"    // POST /inference/v1/generate, with token ids for a prompt
)

var paths = map[Kind]string{
	Chat:        "/v1/chat/completions",
	Completions: "/v1/completions",
	Generate:    "/inference/v1/generate",
}

// Request says what is sent. No two requests have the same content: prompts begin
// with, and images have, digits that nothing else has, so that no cache that goes
// by content answers. Sizes are those in the body, that is, of images in base64.
type Request struct {
	// Kind is the route. Default Chat.
	Kind Kind `json:"kind"`
	// Model is asked for. Default "demo-model", the simulated cluster's.
	Model string `json:"model"`
	// Stream asks for server-sent events.
	Stream bool `json:"stream"`
	// MaxTokens is asked for. Default 64.
	MaxTokens int `json:"max_tokens"`
	// PromptBytes is the size of the prompt, not less than its unique beginning
	// (at most 80 bytes). It consists of words of one letter: a tokenizer that goes
	// by words, as the simulated cluster's, makes 512 tokens of a KB. Of a
	// generate request it is the size of the ids, 5 bytes each. Default 1024.
	PromptBytes int `json:"prompt_bytes"`
	// Images are inlined, each of ImageBytes (of base64, a multiple of 4, at
	// least 32). For Chat only. Default: none.
	Images     int `json:"images"`
	ImageBytes int `json:"image_bytes"`
}

// Target says where requests go.
type Target struct {
	// URL is where the server is, without a path: http://127.0.0.1:8080.
	URL string `json:"url"`
	// PID is a process of this machine whose CPU time and memory are measured; 0
	// is none.
	PID int `json:"pid,omitempty"`
	// Header is added to each request. It is not in reports, for it may hold
	// credentials.
	Header http.Header `json:"-"`
	// Transport makes the calls; nil is a pool of HTTP/1.1 connections of the
	// run's own. It must close request bodies, as http.RoundTripper says.
	Transport http.RoundTripper `json:"-"`
}

// Options say how a run goes. Either Clients or Rate, and both bounds, Count and
// Duration, have to be given.
type Options struct {
	Target
	Request Request `json:"request"`
	// Mix, if set, is what is sent instead of Request: several kinds of requests.
	Mix []Share `json:"mix,omitempty"`
	// Clients is how many there are in a closed loop.
	Clients int `json:"clients,omitempty"`
	// Rate is how many requests begin each second in an open loop, evenly. Times
	// count from when a request should have begun, so that a server cannot hide
	// that it is slow behind a generator that waits for it.
	Rate float64 `json:"rate,omitempty"`
	// MaxInFlight is how many requests of an open loop may be under way; those that
	// should begin while there are so many are missed. Default 1000.
	MaxInFlight int `json:"max_in_flight,omitempty"`
	// Count is how many requests begin at most, missed ones included.
	Count int64 `json:"count"`
	// Duration is how long requests begin. (Of an open loop: those whose time is
	// within it.)
	Duration time.Duration `json:"duration_ns"`
	// Grace is how long requests that have begun may go on after Duration; then
	// they are cut. 0 cuts them at once.
	Grace time.Duration `json:"grace_ns"`
	// Timeout is how long one request may take; 0 is no limit but the run's end.
	Timeout time.Duration `json:"timeout_ns"`
	// Progress, unless nil, is told each second how far the run is. It is called
	// by one goroutine, never after Run has returned.
	Progress func(Progress) `json:"-"`
}

// Progress is how far a run is.
type Progress struct {
	Elapsed time.Duration
	Counts  Counts
	// PerSecond is how many requests ended well in the last second.
	PerSecond float64
	// InFlight is how many requests are under way.
	InFlight int64
}

func (r Request) withDefaults() Request {
	if r.Kind == "" {
		r.Kind = Chat
	}
	if r.Model == "" {
		r.Model = "demo-model"
	}
	if r.MaxTokens == 0 {
		r.MaxTokens = 64
	}
	if r.PromptBytes == 0 {
		r.PromptBytes = 1024
	}
	return r
}

func (r Request) validate() error {
	switch {
	case paths[r.Kind] == "":
		return fmt.Errorf("load: unknown kind of request %q", r.Kind)
	case r.MaxTokens < 0 || r.PromptBytes < 0 || r.Images < 0 || r.ImageBytes < 0:
		return errors.New("load: a size of the request is negative")
	case r.Images > 0 && r.Kind != Chat:
		return errors.New("load: only chat requests have images")
	case r.Images > 0 && (r.ImageBytes < minImage || r.ImageBytes%4 != 0):
		return fmt.Errorf("load: an image takes a multiple of 4 bytes of base64, at least %d", minImage)
	}
	return nil
}

func (t Target) validate() error {
	if u, err := url.Parse(t.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Path != "" {
		return fmt.Errorf("load: want a URL such as http://127.0.0.1:8080, got %q", t.URL)
	}
	return nil
}

func (o Options) validate() error {
	if err := o.Target.validate(); err != nil {
		return err
	}
	switch {
	case o.Count <= 0 || o.Duration <= 0:
		return errors.New("load: a run needs both bounds, in count and in time")
	case o.Clients < 0 || o.Rate < 0 || (o.Clients > 0) == (o.Rate > 0):
		return errors.New("load: want either clients (closed loop) or a rate (open loop)")
	case o.MaxInFlight < 0 || o.Grace < 0 || o.Timeout < 0:
		return errors.New("load: a bound is negative")
	}
	if err := validateMix(o.Mix); err != nil {
		return err
	}
	return o.Request.validate()
}

// transport returns the target's transport, and what ends it. It keeps as many
// connections as there may be requests.
func (t Target) transport(connections int) (http.RoundTripper, func()) {
	if t.Transport != nil {
		return t.Transport, func() {}
	}
	own := &http.Transport{DisableCompression: true, MaxIdleConns: connections, MaxIdleConnsPerHost: connections}
	return own, own.CloseIdleConnections
}

// Run makes requests until one of the bounds is met, and reports. It returns when
// nothing of the run is left. If ctx ends, so does the run, with all that is
// under way: the report is of what there was, and no error. The only errors are
// options that make no sense, and a process that cannot be watched.
func Run(ctx context.Context, o Options) (*Report, error) {
	o.Request = o.Request.withDefaults()
	if o.Rate > 0 && o.MaxInFlight == 0 {
		o.MaxInFlight = 1000
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	before, err := o.sample()
	if err != nil {
		return nil, err
	}
	transport, closeIdle := o.Target.transport(max(o.Clients, o.MaxInFlight))
	defer closeIdle()
	began := time.Now()
	r := &run{options: o, recorder: newRecorder(began), shares: newShares(o), transport: transport, began: began}
	limited, cancel := context.WithDeadline(ctx, r.began.Add(o.Duration+o.Grace))
	defer cancel()
	stop := r.watch()
	if o.Clients > 0 {
		r.closed(limited)
	} else {
		r.open(limited)
	}
	took := time.Since(r.began)
	stop()
	after, err := o.sample()
	if err != nil {
		return nil, err
	}
	return r.report(took, before, after), nil
}
