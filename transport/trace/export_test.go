package trace

import (
	"bytes"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/llm-coordinator/coordinator/transport/journal"
	"github.com/llm-coordinator/coordinator/transport/server"
	"github.com/llm-coordinator/coordinator/transport/trace/tracetest"
)

// start makes an exporter of the environment of the test.
func start(t *testing.T, log *slog.Logger, endpoint string, vars ...string) *Exporter {
	t.Helper()
	t.Setenv(envEndpoint, endpoint)
	for i := 0; i+1 < len(vars); i += 2 {
		t.Setenv(vars[i], vars[i+1])
	}
	x, err := New(os.LookupEnv, "1.2.3", log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close)
	return x
}

// record is that of a request: encode fails once and is sent again, and prefill
// waits in a queue.
func record() server.Record {
	began := time.Now()
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	j := &journal.Journal{Trace: journal.Trace{ID: journal.NewTraceID(), Span: journal.NewSpanID(), Flags: 1, Ours: true}}
	j.BeginStep("encode", at(1))
	first := j.Begin("encode", "id", at(2))
	first.Answered(503, at(3))
	first.Failed("503")
	first.End(at(4))
	second := first.Again("id-r1", at(5))
	second.Answered(200, at(8))
	second.End(at(10))
	j.EndStep(1, "", at(11))
	j.BeginStep("prefill", at(11))
	j.Waited("prefill", at(12), at(15))
	download := j.Begin("media", "", at(15))
	download.End(at(16))
	open := j.Begin("prefill", "id", at(16))
	open.Failed("timeout")
	j.Note("chat format")
	j.EndStep(1, "upstream_timeout", at(20))
	j.SetTokensIn(7)
	r := server.Record{Running: server.Running{ID: "id", Serial: "s-1", Tenant: "t", Protocol: "chat", Model: "m", Method: "POST", URLPath: "/v1/chat/completions",
		Received: began, Journal: j}, Status: 504, Code: "upstream_timeout", FirstByte: 18 * time.Millisecond, Total: 21 * time.Millisecond, Path: "decode-only", Reruns: 1,
		Entry: j.Close()}
	return r
}

func names(spans []tracetest.Span) (all []string) {
	for _, s := range spans {
		all = append(all, s.Name)
	}
	return all
}

func TestSpansOfARequest(t *testing.T) {
	to := tracetest.Start(t)
	x := start(t, nil, to.URL, "OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b", "OTEL_RESOURCE_ATTRIBUTES", "pod=p7")
	rec := record()
	x.Finished(rec)
	x.Close()
	spans := to.Spans()
	want := []string{"POST /v1/chat/completions", "encode", "leg encode", "prefill", "queue prefill", "download", "leg prefill"}
	if got := names(spans); !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	root, encode, leg, prefill := &spans[0], &spans[1], &spans[2], &spans[3]
	for i := range spans {
		s := &spans[i]
		parent := map[string]string{"encode": root.ID, "prefill": root.ID, "leg encode": encode.ID}[s.Name]
		if parent == "" && i > 0 {
			parent = prefill.ID
		}
		if s.Trace != rec.Journal.Trace.String() || s.Parent != parent || s.Resource["service.name"] != defaultService || s.Resource["pod"] != "p7" ||
			s.Resource["service.version"] != "1.2.3" || !root.Contains(s) {
			t.Errorf("%+v", s)
		}
	}
	if root.Kind != otlp.Span_SPAN_KIND_SERVER || leg.Kind != otlp.Span_SPAN_KIND_CLIENT || encode.Kind != otlp.Span_SPAN_KIND_INTERNAL {
		t.Errorf("kinds %v, %v, %v", root.Kind, leg.Kind, encode.Kind)
	}
	if root.ID != idOf(rec.Journal.Trace.Span) || leg.ID != idOf(rec.Calls[0].Span) {
		t.Errorf("ids %s, %s", root.ID, leg.ID)
	}
	if !root.Error || root.Failed != "upstream_timeout" || !prefill.Error || encode.Error || leg.Error || root.Took() != 21*time.Millisecond {
		t.Errorf("%+v\n%+v\n%+v", root, encode, leg)
	}
	for key, value := range map[string]string{"http.request.method": "POST", "url.path": "/v1/chat/completions", "http.response.status_code": "504", "error.type": "upstream_timeout",
		"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": "7", "llm_d.coordinator.request_id": "id",
		"llm_d.coordinator.tenant": "t", "llm_d.coordinator.path": "decode-only", "llm_d.coordinator.reruns": "1", "llm_d.coordinator.internal_id": "s-1"} {
		if root.Attributes[key] != value {
			t.Errorf("%s is %q, want %q", key, root.Attributes[key], value)
		}
	}
	if e := root.Event("first byte"); e == nil || time.Duration(e.At-root.Began) != 18*time.Millisecond || root.Event("chat format") == nil {
		t.Errorf("events of the request: %+v", root.Events)
	}
	if e := leg.Event("retry"); e == nil || e.Attributes["error.type"] != "503" || e.Attributes["llm_d.coordinator.request_id"] != "id-r1" ||
		leg.Attributes["http.request.resend_count"] != "1" || leg.Took() != 8*time.Millisecond || len(leg.Events) != 2 {
		t.Errorf("%+v", leg)
	}
	if last := &spans[len(spans)-1]; last.Ended != root.Ended || last.Failed != "timeout" {
		t.Errorf("a leg without an end: %+v", last)
	}
	if h := to.Header(); h.Get("X-Key") != "a b" {
		t.Errorf("headers %v", h)
	}
	if n := x.Dropped(); n != 0 {
		t.Errorf("%d were dropped", n)
	}
}

func idOf(id journal.SpanID) string {
	t := journal.Trace{}
	return strings.Split(t.Traceparent(id), "-")[2]
}

// TestWhatIsNoFailure: a client's mistake, and a client that left.
func TestWhatIsNoFailure(t *testing.T) {
	to := tracetest.Start(t)
	x := start(t, nil, to.URL, "OTEL_SERVICE_NAME", "mine")
	for _, tt := range []struct {
		status int
		code   string
		gone   bool
		failed string
		shown  string // status
	}{
		{200, "", false, "", "200"},
		{400, "invalid_json", false, "", "400"},
		{404, "", false, "", "404"},
		{499, canceled, true, "", ""},
		{200, canceled, true, "", "200"},
		{200, "upstream_failed", false, "upstream_failed", "200"},
		{503, "upstream_unavailable", false, "upstream_unavailable", "503"},
		{500, "", false, "500", "500"},
	} {
		rec := record()
		rec.Entry, rec.Status, rec.Code, rec.Gone = journal.Entry{}, tt.status, tt.code, tt.gone
		before := len(to.Spans())
		x.Finished(rec)
		if err := x.provider.ForceFlush(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := to.Await(before + 1)[before]
		if s.Failed != tt.failed || s.Error != (tt.failed != "") || s.Attributes["http.response.status_code"] != tt.shown || s.Resource["service.name"] != "mine" {
			t.Errorf("%+v: %+v", tt, s)
		}
	}
}

func TestUnsampledLeavesNothing(t *testing.T) {
	to := tracetest.Start(t)
	x := start(t, nil, to.URL)
	unsampled, foreign, none := record(), record(), record()
	unsampled.Journal.Trace.Flags = 0
	foreign.Journal.Trace.Ours = false
	none.Journal = nil
	if n := testing.AllocsPerRun(100, func() { x.Finished(unsampled) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	x.Finished(foreign)
	x.Finished(none)
	x.Close()
	if spans := to.Spans(); len(spans) > 0 {
		t.Errorf("%+v", spans)
	}
}

// lines is a log.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) warnings() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), "spans of traces were dropped")
}

// TestDropsAreCounted, each span once, and warned of once a minute.
func TestDropsAreCounted(t *testing.T) {
	const requests, spans = 10, 7
	t.Run("nobody is there", func(t *testing.T) {
		to := tracetest.Start(t)
		to.Close()
		log := &lines{}
		x := start(t, slog.New(slog.NewTextHandler(log, nil)), to.URL, envDelay, "1")
		for range requests {
			x.Finished(record())
		}
		x.Close()
		if n := x.Dropped(); n != requests*spans || log.warnings() != 1 {
			t.Errorf("%d were dropped, %d warnings", n, log.warnings())
		}
	})
	t.Run("it refuses", func(t *testing.T) {
		to := tracetest.Start(t)
		to.AnswerBy(func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusUnauthorized); return true })
		x := start(t, nil, to.URL)
		x.Finished(record())
		x.Close()
		if n := x.Dropped(); n != spans {
			t.Errorf("%d were dropped", n)
		}
	})
	t.Run("the queue is full", func(t *testing.T) {
		to := tracetest.Start(t)
		held, release := make(chan struct{}, 100), make(chan struct{})
		to.AnswerBy(func(http.ResponseWriter, *http.Request) bool { held <- struct{}{}; <-release; return false })
		log := &lines{}
		x := start(t, slog.New(slog.NewTextHandler(log, nil)), to.URL, envQueue, "20", envBatch, "7", envDelay, "1")
		x.Finished(record())
		<-held
		for range requests - 1 {
			x.Finished(record())
		}
		if n := x.Dropped(); n != requests*spans-20 || log.warnings() != 1 {
			t.Errorf("%d were dropped, %d warnings", n, log.warnings())
		}
		close(release)
		x.Close()
		if got := int64(len(to.Spans())); got+x.Dropped() != requests*spans {
			t.Errorf("%d came, %d were dropped", got, x.Dropped())
		}
	})
	t.Run("it never answers", func(t *testing.T) {
		to := tracetest.Start(t)
		to.AnswerBy(func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true })
		x := start(t, nil, to.URL)
		x.Finished(record())
		x.Close() // must not wait for the receiver's answer
		if n := x.Dropped(); n != spans {
			t.Errorf("%d were dropped", n)
		}
	})
}

func TestManyAtOnce(t *testing.T) {
	to := tracetest.Start(t)
	x := start(t, nil, to.URL)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 10 {
				x.Finished(record())
			}
		})
	}
	all.Wait()
	x.Close()
	if n := len(to.Spans()); n != 80*7 || x.Dropped() != 0 {
		t.Errorf("%d spans, %d dropped", n, x.Dropped())
	}
}

func BenchmarkFinished(b *testing.B) {
	b.Setenv(envEndpoint, "http://127.0.0.1:1")
	x, err := New(os.LookupEnv, "", nil)
	if err != nil {
		b.Fatal(err)
	}
	defer x.Close()
	rec := record()
	b.ReportAllocs()
	for b.Loop() {
		x.Finished(rec)
	}
}
