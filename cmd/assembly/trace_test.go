package assembly_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/cmd/assembly"
	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/trace/tracetest"
)

const (
	clientTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	clientSpan  = "00f067aa0ba902b7"
)

// tracedRig is a rig whose traces go to a receiver.
func tracedRig(t *testing.T, s setup) (*rig, *tracetest.Receiver) {
	to := tracetest.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", to.URL)
	return newRig(t, s), to
}

// spans ends the coordinator, which has to send what is left, and returns all.
func (r *rig) spans(to *tracetest.Receiver) []tracetest.Span {
	r.t.Helper()
	r.settled()
	r.stop()
	o := <-r.ended
	r.ended <- o
	if n := r.metric(r.t.(*testing.T), "llm_d_coordinator_spans_dropped_total"); n != 0 {
		r.t.Errorf("%v spans were dropped", n)
	}
	return to.Spans()
}

// named returns the spans of that name.
func named(all []tracetest.Span, name string) (found []*tracetest.Span) {
	for i := range all {
		if all[i].Name == name {
			found = append(found, &all[i])
		}
	}
	return found
}

// TestTraceNamesTheSlowPhase: encode is slow in the cluster, and the trace of the
// request says so. Its spans lie within each other and carry the ids that the
// workers saw, and nothing of what the request said.
func TestTraceNamesTheSlowPhase(t *testing.T) {
	const mark = "MARK-7f3a"
	r, to := tracedRig(t, setup{steps: wholeSteps})
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Encode, Delay: 5 * time.Second})
	body := fmt.Sprintf(`{"model":"demo-model","stream":true,"messages":[{"role":"user","content":[{"type":"text","text":%q},{"type":"image_url","image_url":{"url":%q}},{"type":"image_url","image_url":{"url":%q}}]}]}`,
		mark, dataURI(picture(1, 500)), dataURI(picture(2, 500)))
	if got := r.post(chatPath, body, "X-Request-Id", "id", "Authorization", mark); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	spans := r.spans(to)
	if text := fmt.Sprintf("%+v", spans); strings.Contains(text, mark) || strings.Contains(text, "iVBORw0KGgo") {
		t.Errorf("a span says what the request did: %s", text)
	}
	root := named(spans, "POST "+chatPath)[0]
	longest, last := root, root
	for i := range spans {
		s := &spans[i]
		if s.Trace != root.Trace || !root.Contains(s) {
			t.Errorf("%+v is not within %+v", s, root)
		}
		if s.Parent != root.ID {
			continue
		}
		if last != root && s.Began < last.Ended {
			t.Errorf("%s began before %s had ended", s.Name, last.Name)
		}
		if last = s; longest == root || s.Took() > longest.Took() {
			longest = s
		}
	}
	if longest.Name != "encode" || longest.Attributes["llm_d.coordinator.tasks"] != "2" {
		t.Errorf("the longest phase is %+v", longest)
	}
	if root.Parent != "" || root.Event("first byte") == nil || root.Attributes["llm_d.coordinator.path"] != "encode-prefill-decode" || root.Attributes["gen_ai.usage.input_tokens"] == "" {
		t.Errorf("%+v", root)
	}
	r.legsAreSpans(spans, "id", 5)
}

// legsAreSpans checks that all legs that the cluster saw of a request carried the
// id of a span, which is below the span of their phase.
func (r *rig) legsAreSpans(spans []tracetest.Span, id string, want int) {
	r.t.Helper()
	byID := map[string]*tracetest.Span{}
	for i := range spans {
		byID[spans[i].ID] = &spans[i]
	}
	legs := r.cluster.Legs(id)
	if len(legs) != want {
		r.t.Errorf("%d legs, want %d", len(legs), want)
	}
	for _, leg := range legs {
		parts := strings.Split(strings.Join(leg.Header["Traceparent"], ","), "-")
		if len(parts) != 4 || parts[3] != "01" {
			r.t.Errorf("%s carried %q", leg.Name, leg.Header["Traceparent"])
			continue
		}
		s := byID[parts[2]]
		if s == nil || s.Trace != parts[1] || s.Name != "leg "+leg.Name {
			r.t.Errorf("%s carried %q, which is %+v", leg.Name, leg.Header["Traceparent"], s)
			continue
		}
		if phase := byID[s.Parent]; phase == nil || phase.Name != leg.Name || !phase.Contains(s) {
			r.t.Errorf("%s is below %+v", s.Name, phase)
		}
	}
}

// TestTraceOfWhatIsSentAgain: another attempt is an event of the leg's one span,
// a rerun is more phases.
func TestTraceOfWhatIsSentAgain(t *testing.T) {
	r, to := tracedRig(t, setup{toml: quick, cluster: cluster.Options{Lease: byHand}})
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Prefill, Status: 503, Times: 1})
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Decode, Status: 500, Times: 1})
	if got := r.post(chatPath, chatBody("hi", false), "X-Request-Id", "id"); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	spans := r.spans(to)
	r.legsAreSpans(spans, "id", 6)
	legs := named(spans, "leg prefill")
	if len(legs) != 2 || len(named(spans, "prefill")) != 2 || len(named(spans, "leg decode")) != 2 {
		t.Fatalf("%+v", spans)
	}
	e := legs[0].Event("retry")
	if e == nil || e.Attributes["error.type"] != "503" || e.Attributes["llm_d.coordinator.request_id"] != "id-r1" || e.At < legs[0].Began || e.At > legs[0].Ended ||
		legs[0].Error || legs[1].Event("retry") != nil {
		t.Errorf("the leg that was sent again: %+v", legs[0])
	}
	if s := named(spans, "leg decode")[0]; !s.Error || s.Attributes["http.response.status_code"] != "500" {
		t.Errorf("the decode that failed: %+v", s)
	}
	if root := named(spans, "POST "+chatPath)[0]; root.Error || root.Attributes["llm_d.coordinator.reruns"] != "1" {
		t.Errorf("%+v", root)
	}
}

// TestTraceOfAWait: two requests, and a pool for one.
func TestTraceOfAWait(t *testing.T) {
	r, to := tracedRig(t, setup{toml: "[actors.pools]\nrender = { size = 1, queue = 2 }\n"})
	gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Render})
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { r.post(chatPath, chatBody("hi", false)) })
	}
	r.eventually("1 at work and 1 waiting", func() bool {
		s := poolOf(r, "render")
		return s.Busy == 1 && s.Queued == 1
	})
	gate.Release()
	both.Wait()
	spans := r.spans(to)
	waits := named(spans, "queue render")
	if len(waits) != 1 {
		t.Fatalf("%+v", spans)
	}
	for _, phase := range named(spans, "render") {
		if phase.ID == waits[0].Parent && phase.Contains(waits[0]) {
			return
		}
	}
	t.Errorf("it is in no phase: %+v", waits[0])
}

// TestTraceOfAClient: a client's trace goes on through us, as it has decided. What
// cannot be read is none.
func TestTraceOfAClient(t *testing.T) {
	const upper = "00-" + clientTrace + "-" + clientSpan + "-0X"
	for _, tt := range []struct {
		name, given string
		sampled     bool
		theirs      bool
	}{
		{"sampled", "00-" + clientTrace + "-" + clientSpan + "-01", true, true},
		{"not sampled", "00-" + clientTrace + "-" + clientSpan + "-00", false, true},
		{"malformed", upper, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, to := tracedRig(t, setup{})
			if got := r.post(chatPath, chatBody("hi", false), "X-Request-Id", "id", "Traceparent", tt.given, "Tracestate", "vendor=1,other=2"); got.status != 200 {
				t.Fatalf("%d %s", got.status, got.body)
			}
			spans := r.spans(to)
			if (len(spans) > 0) != tt.sampled {
				t.Errorf("%d spans", len(spans))
			}
			if tt.sampled {
				root := named(spans, "POST "+chatPath)[0]
				if (root.Trace == clientTrace) != tt.theirs || (root.Parent == clientSpan) != tt.theirs {
					t.Errorf("%+v", root)
				}
				r.legsAreSpans(spans, "id", 3)
			}
			state := []string(nil)
			if tt.theirs {
				state = []string{"vendor=1,other=2"}
			}
			seen := map[string]bool{tt.given: true}
			for _, leg := range r.cluster.Legs("id") {
				parent := leg.Header.Get("Traceparent")
				if seen[parent] || strings.HasPrefix(parent, "00-"+clientTrace) != tt.theirs || strings.HasSuffix(parent, "-01") != tt.sampled {
					t.Errorf("%s carried %q", leg.Name, parent)
				}
				seen[parent] = true
				if got := leg.Header["Tracestate"]; !slices.Equal(got, state) {
					t.Errorf("%s carried the state %q", leg.Name, got)
				}
			}
		})
	}
}

// TestTraceOfWhatIsPassedThrough: its path is told, but is no name of spans, for
// there may be any number of them.
func TestTraceOfWhatIsPassedThrough(t *testing.T) {
	to := tracetest.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", to.URL)
	r, _ := passRig(t, "")
	r.do("GET", "/v1/models/a%2Fb", "", "")
	<-r.finished
	spans := r.spans(to)
	if len(spans) != 3 || spans[0].Name != "GET passthrough" || spans[0].Attributes["url.path"] != "/v1/models/a/b" || spans[0].Attributes["http.route"] != "" ||
		spans[1].Name != "passthrough" || spans[2].Name != "leg decode" || spans[2].Attributes["http.request.method"] != "GET" || spans[2].Parent != spans[1].ID {
		t.Errorf("%+v", spans)
	}
}

// TestTracesOutliveAReload: new settings of the server trace as the old did.
func TestTracesOutliveAReload(t *testing.T) {
	r, to := tracedRig(t, setup{})
	text := *r.text.Load() + "\n[server]\nread_timeout = \"29s\"\n"
	r.text.Store(&text)
	if done, err := r.Reload(); err != nil || done.Unchanged() {
		t.Fatalf("%+v, %v", done, err)
	}
	r.post(chatPath, chatBody("hi", false))
	if spans := r.spans(to); len(spans) != 7 {
		t.Errorf("%+v", spans)
	}
}

// TestWithoutTracesHeadersStayAsTheyAre, and legs get none of their own.
func TestWithoutTracesHeadersStayAsTheyAre(t *testing.T) {
	r := newRig(t, setup{})
	for i, h := range []http.Header{
		{},
		{"Traceparent": {"00-" + clientTrace + "-" + clientSpan + "-01"}, "Tracestate": {"vendor=1"}},
		{"Traceparent": {"what ever"}, "Tracestate": {"odd"}},
	} {
		id := fmt.Sprintf("id-%d", i)
		pairs := []string{"X-Request-Id", id}
		for name, values := range h {
			pairs = append(pairs, name, values[0])
		}
		r.post(chatPath, chatBody("hi", false), pairs...)
		legs := r.cluster.Legs(id)
		if len(legs) != 3 {
			t.Errorf("%d legs", len(legs))
		}
		for _, leg := range legs {
			if !slices.Equal(leg.Header["Traceparent"], h["Traceparent"]) || !slices.Equal(leg.Header["Tracestate"], h["Tracestate"]) {
				t.Errorf("%s carried %v of %v", leg.Name, leg.Header, h)
			}
		}
	}
	r.settled()
}

// TestRequestsDoNotNeedTheReceiver: it is down, and what is lost is counted.
func TestRequestsDoNotNeedTheReceiver(t *testing.T) {
	to := tracetest.Start(t)
	to.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", to.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
	r := newRig(t, setup{})
	const n = 20
	for range n {
		if got := r.post(chatPath, chatBody("hi", false)); got.status != 200 {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	r.settled()
	r.eventually("all spans are lost and counted", func() bool {
		return r.metric(t, "llm_d_coordinator_spans_dropped_total") >= n*7 // the request, and 3 phases with a leg each
	})
	if got := strings.Count(r.logs.String(), "spans of traces were dropped"); got != 1 {
		t.Errorf("%d warnings", got)
	}
}

// TestTracesThatCannotBeExported are refused before anything is served.
func TestTracesThatCannotBeExported(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	cfg, err := conf.Parse("t.toml", []byte("[gateway]\naddress = \"http://127.0.0.1:1\"\n[pipeline]\n"+decodeStep), nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := assembly.New(cfg, assembly.Options{})
	if err == nil {
		c.Close()
	}
	if err == nil || !strings.HasPrefix(err.Error(), `OTEL_EXPORTER_OTLP_PROTOCOL is "grpc": only http/protobuf is spoken`) {
		t.Errorf("%v", err)
	}
}
