// Package tracetest is a receiver of traces for tests: it speaks OTLP with protobuf
// and HTTP on loopback, and keeps what it gets.
package tracetest

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is one that was received. Ids are in hex.
type Span struct {
	Trace, ID, Parent string
	Name              string
	Kind              otlp.Span_SpanKind
	Began, Ended      uint64 // Unix nanoseconds
	Attributes        map[string]string
	Events            []Event
	// Failed is the text of an error status; Error says that there is one.
	Failed string
	Error  bool
	// Resource holds the attributes of its sender.
	Resource map[string]string
}

// Event of a span.
type Event struct {
	Name       string
	At         uint64
	Attributes map[string]string
}

// Took is how long the span lasts.
func (s *Span) Took() time.Duration { return time.Duration(s.Ended - s.Began) }

// Contains reports whether another span lies within this one.
func (s *Span) Contains(o *Span) bool { return s.Began <= o.Began && o.Ended <= s.Ended }

// Event returns the first event of that name, or nil.
func (s *Span) Event(name string) *Event {
	for i := range s.Events {
		if s.Events[i].Name == name {
			return &s.Events[i]
		}
	}
	return nil
}

// Receiver takes spans. It may be used by many goroutines.
type Receiver struct {
	*httptest.Server
	t testing.TB

	mu     sync.Mutex
	header http.Header // of the last export
	spans  []Span
	more   chan struct{} // closed when something came
	answer func(http.ResponseWriter, *http.Request) bool
}

// Start starts a receiver that lives as long as the test.
func Start(t testing.TB) *Receiver {
	r := &Receiver{t: t, more: make(chan struct{})}
	r.Server = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.Close)
	return r
}

// AnswerBy has calls answered otherwise, as long as f returns true.
func (r *Receiver) AnswerBy(f func(http.ResponseWriter, *http.Request) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

func (r *Receiver) serve(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	answer := r.answer
	r.mu.Unlock()
	body, err := io.ReadAll(req.Body)
	if answer != nil && answer(w, req) {
		return
	}
	if err == nil && (req.URL.Path != "/v1/traces" || req.Header.Get("Content-Type") != "application/x-protobuf") {
		err = fmt.Errorf("%s, %q", req.URL.Path, req.Header["Content-Type"])
	}
	var sent collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &sent)
	}
	if err != nil {
		r.t.Errorf("no export of traces: %v", err)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.take(req.Header, &sent)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (r *Receiver) take(h http.Header, sent *collector.ExportTraceServiceRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.header = h
	for _, from := range sent.ResourceSpans {
		resource := values(from.Resource.GetAttributes())
		for _, in := range from.ScopeSpans {
			for _, s := range in.Spans {
				r.spans = append(r.spans, spanOf(s, resource))
			}
		}
	}
	close(r.more)
	r.more = make(chan struct{})
}

func spanOf(s *otlp.Span, resource map[string]string) Span {
	made := Span{Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId),
		Name: s.Name, Kind: s.Kind, Began: s.StartTimeUnixNano, Ended: s.EndTimeUnixNano, Attributes: values(s.Attributes), Resource: resource,
		Failed: s.Status.GetMessage(), Error: s.Status.GetCode() == otlp.Status_STATUS_CODE_ERROR}
	for _, e := range s.Events {
		made.Events = append(made.Events, Event{e.Name, e.TimeUnixNano, values(e.Attributes)})
	}
	return made
}

// values are attributes as text.
func values(all []*common.KeyValue) map[string]string {
	texts := map[string]string{}
	for _, a := range all {
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			texts[a.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			texts[a.Key] = fmt.Sprint(v.IntValue)
		case *common.AnyValue_BoolValue:
			texts[a.Key] = fmt.Sprint(v.BoolValue)
		default:
			texts[a.Key] = a.Value.String()
		}
	}
	return texts
}

// Header returns the headers of the last export.
func (r *Receiver) Header() http.Header {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.header
}

// Spans returns all that have come, by the time at which they began.
func (r *Receiver) Spans() []Span {
	all, _ := r.spansAnd()
	return all
}

func (r *Receiver) spansAnd() ([]Span, chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Clone(r.spans)
	slices.SortStableFunc(all, func(a, b Span) int { return cmp.Compare(a.Began, b.Began) })
	return all, r.more
}

// Await waits until at least so many spans have come, and returns all.
func (r *Receiver) Await(n int) []Span {
	r.t.Helper()
	patience := time.NewTimer(time.Minute)
	defer patience.Stop()
	for {
		all, more := r.spansAnd()
		if len(all) >= n {
			return all
		}
		select {
		case <-more:
		case <-patience.C:
			r.t.Fatalf("%d spans have come, want %d: %+v", len(all), n, all)
		}
	}
}
