package assembly_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/metricstest"
)

// TestAnswerThatBreaksBeforeAnyOfItHasGoneOut is a failure before the first byte:
// the request starts again, once, and if that breaks too the client gets an error and
// no part of an answer.
func TestAnswerThatBreaksBeforeAnyOfItHasGoneOut(t *testing.T) {
	var (
		first = []string{"render:id", "prefill:id", "decode:id"}
		again = append(slices.Clone(first), "prefill:id-r1", "decode:id-r1")
		same  = append(slices.Clone(first), "decode:id-r1")
	)
	broken := func(times int) cluster.Fault { return cluster.Fault{BreakAfter: new(0), Times: times} }
	for _, tt := range []struct {
		name   string
		fault  cluster.Fault
		kv     string
		toml   string
		legs   []string
		status int
		reruns bool
	}{
		{"once", broken(1), "", quick, again, http.StatusOK, true},
		{"once, with KV that is read more than once", broken(1), cluster.KVSharedStorage, quick, same, http.StatusOK, true},
		{"each time", broken(0), "", quick, again, http.StatusBadGateway, true},
		{"retries switched off", broken(0), "", "[gateway.retry]\nmax_attempts = 1\n", first, http.StatusBadGateway, false},
		{"a worker's refusal", cluster.Fault{Status: 422, BreakAfter: new(0)}, "", quick, first, http.StatusBadGateway, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, setup{toml: tt.toml, kv: tt.kv, cluster: cluster.Options{Lease: byHand}})
			tt.fault.Leg = cluster.Decode
			r.cluster.AddFault(tt.fault)
			got := r.post(chatPath, chatBody("hi there", false), "X-Request-Id", "id")
			if legs := r.legIDs("id"); !slices.Equal(legs, tt.legs) {
				t.Errorf("legs %v, want %v", legs, tt.legs)
			}
			switch {
			case got.status != tt.status || got.err != nil:
				t.Errorf("got %d %v %s", got.status, got.err, got.body)
			case tt.status == http.StatusOK:
				if !strings.Contains(got.body, cluster.Reply("hi there")) {
					t.Errorf("got %s", got.body)
				}
			default:
				if o := readError(t, got.body); o.Error.Code != "upstream_failed" {
					t.Errorf("got %s", got.body)
				}
			}
			if tt.reruns {
				if n := r.metric(t, "llm_d_coordinator_reruns_total", "reason=broken"); n != 1 {
					t.Errorf("counted %v reruns", n)
				}
			}
			if n, ok := metricstest.Sum(t, r.Registry, "llm_d_coordinator_stream_broken_total"); ok {
				t.Errorf("counted %v broken streams", n)
			}
			if st := r.cluster.State(); st.ReusedHandoffs != 0 {
				t.Errorf("a hand-off was used twice: %+v", st)
			}
			r.settled()
		})
	}
}

// TestAnswerToOnePromptThatBreaks is asked for again, as all of the batch waits for it.
func TestAnswerToOnePromptThatBreaks(t *testing.T) {
	r := newRig(t, setup{pipeline: batching, toml: quick, cluster: cluster.Options{Lease: byHand}})
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Decode, RequestID: "b-p1", BreakAfter: new(0), Times: 1})
	got := r.post(completionsPath, batchBody(batchPrompts, ""), "X-Request-Id", "b")
	if got.status != http.StatusOK || got.err != nil || strings.Count(got.body, `"index"`) != len(batchPrompts) {
		t.Errorf("got %d %v %s", got.status, got.err, got.body)
	}
	for _, prompt := range batchPrompts {
		if !strings.Contains(got.body, cluster.Reply(prompt)) {
			t.Errorf("no answer to %q in %s", prompt, got.body)
		}
	}
	if legs := r.legIDs("b-p1"); !slices.Equal(legs, []string{"render:b-p1", "prefill:b-p1", "decode:b-p1", "prefill:b-p1-r1", "decode:b-p1-r1"}) {
		t.Errorf("legs %v", legs)
	}
	r.settled()
}

// TestAnswerThatBreaksIsAborted once some of it has gone out: it is too long to be
// kept until all of it has come.
func TestAnswerThatBreaksIsAborted(t *testing.T) {
	r := newRig(t, setup{toml: quick})
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Decode, BreakAfter: new(0)})
	got := r.post(chatPath, chatBody(strings.Repeat("word ", 10_000), false), "X-Request-Id", "id")
	if got.status != http.StatusOK || got.err == nil || strings.Contains(got.body, "error") || !strings.Contains(got.body, "You said: word word") {
		t.Errorf("got %d %v %.200q", got.status, got.err, got.body)
	}
	if legs := r.legs("id"); !slices.Equal(legs, []string{"render", "prefill", "decode"}) {
		t.Errorf("legs %v", legs)
	}
	if n := r.metric(t, "llm_d_coordinator_stream_broken_total", "cause=upstream"); n != 1 {
		t.Errorf("counted %v broken streams", n)
	}
	r.settled()
}

// TestProbeWhoseAnswerBreaksIsNoHit: the request takes the full path.
func TestProbeWhoseAnswerBreaksIsNoHit(t *testing.T) {
	for _, fault := range []cluster.Fault{
		{BreakAfter: new(0)},              // a hit
		{BreakAfter: new(0), Status: 409}, // an answer for the client
	} {
		r := newRig(t, setup{steps: probingSteps, toml: quick, cluster: cluster.Options{CacheDecodes: true}})
		r.post(chatPath, chatBody("hi there", false))
		fault.Leg = cluster.Probe
		r.cluster.AddFault(fault)
		got := r.post(chatPath, chatBody("hi there", false), "X-Request-Id", "id")
		if got.status != http.StatusOK || got.err != nil || !strings.Contains(got.body, cluster.Reply("hi there")) {
			t.Errorf("got %d %v %s", got.status, got.err, got.body)
		}
		if legs := r.legs("id"); !slices.Equal(legs, []string{"render", "probe", "prefill", "decode"}) {
			t.Errorf("legs %v", legs)
		}
		if n := r.metric(t, "llm_d_coordinator_conditional_decode_probes_total", "result=error"); n != 1 {
			t.Errorf("counted %v", n)
		}
		r.settled()
	}
}

// TestPassedAnswerThatBreaks before any of it has gone out is an error, and is not
// asked for again: what it is for is not known here.
func TestPassedAnswerThatBreaks(t *testing.T) {
	sent := make(chan string, 10)
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent <- r.URL.Path
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("a part of a secret"))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(gateway.Close)
	r := newRig(t, setup{steps: decodeStep, toml: quick, gateway: gateway.URL})
	got := r.do(http.MethodPost, "/v1/embeddings", "application/json", `{"model":"demo-model","input":"x"}`)
	if got.status != http.StatusBadGateway || got.err != nil || strings.Contains(got.body, "secret") {
		t.Errorf("got %d %v %s", got.status, got.err, got.body)
	}
	if n := len(sent); n != 1 {
		t.Errorf("sent %d times", n)
	}
}
