package assembly_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/metricstest"
)

// quick has legs sent again without a pause.
const quick = "[gateway.retry]\nbase_delay = \"0s\"\n[gateway.breaker]\nconsecutive_failures = 100\n"

// legIDs returns the legs of a request as name:id.
func (r *rig) legIDs(id string) (all []string) {
	for _, l := range r.cluster.Legs(id) {
		all = append(all, l.Name+":"+l.RequestID)
	}
	return all
}

// TestDecodeThatFailsBeforeItAnswers is made good for once: again with the same
// hand-off only if no worker had it, else from prefill. What a client is shown is
// whole or an error, never a part.
func TestDecodeThatFailsBeforeItAnswers(t *testing.T) {
	var (
		first = []string{"render:id", "prefill:id", "decode:id"}
		again = append(slices.Clone(first), "prefill:id-r1", "decode:id-r1")
		same  = append(slices.Clone(first), "decode:id-r1")
	)
	dropped := map[string]string{"x-llm-d-request-dropped-reason": "full"}
	for _, tt := range []struct {
		name   string
		fault  cluster.Fault
		stream bool // only what can happen in a stream
		toml   string
		steps  string
		legs   []string
		status int
		want   string // in the body
		reason string // of the rerun
	}{
		{name: "500", fault: cluster.Fault{Status: 500}, legs: again, status: 200, reason: "500"},
		{name: "503", fault: cluster.Fault{Status: 503}, legs: again, status: 200, reason: "503"},
		{name: "503 with a short Retry-After", fault: cluster.Fault{Status: 503, Headers: map[string]string{"Retry-After": "0"}}, legs: again, status: 200, reason: "503"},
		{name: "503 with a long Retry-After", fault: cluster.Fault{Status: 503, Body: "later", Headers: map[string]string{"Retry-After": "60"}}, legs: first, status: 503, want: "later"},
		{name: "503, dropped by the gateway", fault: cluster.Fault{Status: 503, Headers: dropped}, legs: same, status: 200},
		{name: "429", fault: cluster.Fault{Status: 429, Body: "busy"}, legs: first, status: 429, want: "busy"},
		{name: "400", fault: cluster.Fault{Status: 400, Body: "bad"}, legs: first, status: 400, want: "bad"},
		{name: "no answer", fault: cluster.Fault{Drop: true}, legs: again, status: 200, reason: "dead_connection"},
		{name: "retries switched off", fault: cluster.Fault{Status: 503, Body: "no"}, toml: "[gateway.retry]\nmax_attempts = 1\n[gateway.breaker]\nconsecutive_failures = 100\n", legs: first, status: 503, want: "no"},
		{name: "retries of decode switched off", fault: cluster.Fault{Drop: true}, toml: "[gateway.profiles.decode.retry]\nmax_attempts = 1\n", legs: first, status: 502, want: "upstream_failed"},
		{name: "an error event first", fault: cluster.Fault{ErrorEventAfter: new(0)}, stream: true, legs: again, status: 200, reason: "first_event"},
		{name: "an error event behind the role", fault: cluster.Fault{ErrorEventAfter: new(1)}, stream: true, legs: again, status: 200, reason: "first_event"},
		{name: "an error of the request", fault: cluster.Fault{ErrorEventAfter: new(1), ErrorCode: 400}, stream: true, legs: first, status: 200, want: `"code":400`},
		{name: "the stream ends behind the role", fault: cluster.Fault{EndAfter: new(1)}, stream: true, legs: again, status: 200, reason: "first_event"},
		{name: "the stream breaks behind the role", fault: cluster.Fault{BreakAfter: new(1)}, stream: true, legs: again, status: 200, reason: "first_event"},
		{name: "an error event, not held", fault: cluster.Fault{ErrorEventAfter: new(1)}, stream: true,
			steps: renderStep + prefillStep + decodeStep + "params = { hold_first_event = false }\n", legs: first, status: 200, want: `"code":500`},
	} {
		for _, stream := range []bool{false, true} {
			if tt.stream && !stream {
				continue
			}
			t.Run(fmt.Sprintf("%s, streamed=%t", tt.name, stream), func(t *testing.T) {
				r := newRig(t, setup{steps: tt.steps, toml: quickBut(tt.toml), cluster: cluster.Options{Lease: byHand}})
				tt.fault.Leg, tt.fault.Times = cluster.Decode, 1
				r.cluster.AddFault(tt.fault)
				got := r.post(chatPath, chatBody("hi there", stream), "X-Request-Id", "id")
				if legs := r.legIDs("id"); !slices.Equal(legs, tt.legs) {
					t.Errorf("legs %v, want %v", legs, tt.legs)
				}
				want := tt.want
				if want == "" && !stream {
					want = cluster.Reply("hi there")
				} else if want == "" {
					want = "data: [DONE]"
				}
				if got.status != tt.status || !strings.Contains(got.body, want) {
					t.Errorf("got %d %s", got.status, got.body)
				}
				if n := strings.Count(got.body, `"role":"assistant"`); tt.status == 200 && n != 1 && tt.want == "" {
					t.Errorf("the answer begins %d times: %s", n, got.body)
				}
				if tt.reason != "" {
					if n := r.metric(t, "llm_d_coordinator_reruns_total", "reason="+tt.reason); n != 1 {
						t.Errorf("counted %v", n)
					}
				}
				if st := r.cluster.State(); st.ReusedHandoffs != 0 {
					t.Errorf("a hand-off was used twice: %+v", st)
				}
				r.settled()
			})
		}
	}
}

// quickBut is quick with other tables, whose keys win.
func quickBut(toml string) string {
	if strings.Contains(toml, "[gateway.retry]") {
		return toml
	}
	return quick + toml
}

// TestDecodeThatFailsTwice: the second answer is the client's, as it is.
func TestDecodeThatFailsTwice(t *testing.T) {
	r := newRig(t, setup{toml: quick, cluster: cluster.Options{Lease: byHand}})
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Decode, Status: 500, Body: "the worker's own"})
	if got := r.post(chatPath, chatBody("hi", true)); got.status != 500 || got.body != "the worker's own" {
		t.Errorf("got %d %s", got.status, got.body)
	}
	r.cluster.ClearFaults()
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Decode, ErrorEventAfter: new(1)})
	got := r.post(chatPath, chatBody("hi", true))
	if o := readError(t, got.body); got.status != http.StatusBadGateway || o.Error.Code != "upstream_failed" {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if n := r.metric(t, "llm_d_coordinator_reruns_total"); n != 2 {
		t.Errorf("counted %v", n)
	}
	r.settled()
}

// TestRefusalInAStream is the client's, and says nothing of the worker: neither its
// breaker nor the count of broken streams takes it for a failure.
func TestRefusalInAStream(t *testing.T) {
	refusal := cluster.Fault{ErrorEventAfter: new(0), ErrorCode: 400}
	const touchy = "[gateway.breaker]\nconsecutive_failures = 2\nfailure_ratio = 0.5\nmin_requests = 2\n"
	for name, steps := range map[string]string{
		"held":     fullSteps,
		"not held": renderStep + prefillStep + decodeStep + "params = { hold_first_event = false }\n",
	} {
		r := newRig(t, setup{steps: steps, toml: touchy})
		refusal.Leg = cluster.Decode
		r.cluster.AddFault(refusal)
		for range 4 {
			if got := r.post(chatPath, chatBody("hi there", true)); got.status != http.StatusOK || got.err != nil || strings.Count(got.body, `"code":400`) != 1 {
				t.Errorf("%s: got %d %v %s", name, got.status, got.err, got.body)
			}
		}
		if n, ok := metricstest.Sum(t, r.Registry, "llm_d_coordinator_stream_broken_total"); ok || r.breaker("decode") != "closed" {
			t.Errorf("%s: %v broken streams, breaker %s", name, n, r.breaker("decode"))
		}
		r.settled()
	}
	// Both legs of a pair refuse it: whichever is first, it is not sent again.
	r := newPairRig(t, touchy)
	for _, refusal.Leg = range []string{cluster.Prefill, cluster.Decode} {
		r.cluster.AddFault(refusal)
	}
	for i := range 4 {
		id := fmt.Sprintf("id-%d", i)
		if got := r.post(chatPath, chatBody("hi there", true), "X-Request-Id", id); got.status != http.StatusOK || got.err != nil || strings.Count(got.body, `"code":400`) != 1 {
			t.Errorf("pair: got %d %v %s", got.status, got.err, got.body)
		}
		if legs := r.legs(id); len(legs) > 4 { // render, reserve, and the two
			t.Errorf("pair: legs %v", legs)
		}
	}
	if p, d := r.breaker("prefill"), r.breaker("decode"); p != "closed" || d != "closed" {
		t.Errorf("breakers %s, %s", p, d)
	}
	r.settled()
}

// TestProbeThatFailsInsideIsNoHit: the request takes the full path, and the
// client sees nothing of it.
func TestProbeThatFailsInsideIsNoHit(t *testing.T) {
	r := newRig(t, setup{steps: probingSteps, toml: quick, cluster: cluster.Options{CacheDecodes: true}})
	r.post(chatPath, chatBody("hi there", true))
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Probe, ErrorEventAfter: new(1)})
	got := r.post(chatPath, chatBody("hi there", true), "X-Request-Id", "id")
	if got.status != 200 || strings.Count(got.body, `"role":"assistant"`) != 1 || !strings.HasSuffix(got.body, "data: [DONE]\n\n") {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if legs := r.legs("id"); !slices.Equal(legs, []string{"render", "probe", "prefill", "decode"}) {
		t.Errorf("legs %v", legs)
	}
	if n := r.metric(t, "llm_d_coordinator_conditional_decode_probes_total", "result=error"); n != 1 {
		t.Errorf("counted %v", n)
	}
	r.settled()
}

// TestWhatWasDoneIsKept when something behind it is tried again: encodes when
// prefill fails, and of many encodes all but the one that failed.
func TestWhatWasDoneIsKept(t *testing.T) {
	for name, tt := range map[string]struct {
		fault cluster.Fault
		want  map[string]int
	}{
		"prefill":       {cluster.Fault{Leg: cluster.Prefill, Status: 503, Times: 2}, map[string]int{"render": 1, "encode": 3, "prefill": 3, "decode": 1}},
		"one encode":    {cluster.Fault{Leg: cluster.Encode, Drop: true, Times: 1}, map[string]int{"render": 1, "encode": 4, "prefill": 1, "decode": 1}},
		"render":        {cluster.Fault{Leg: cluster.Render, Status: 502, Times: 2}, map[string]int{"render": 3, "encode": 3, "prefill": 1, "decode": 1}},
		"decode":        {cluster.Fault{Leg: cluster.Decode, Status: 500, Times: 1}, map[string]int{"render": 1, "encode": 3, "prefill": 2, "decode": 2}},
		"a bad request": {cluster.Fault{Leg: cluster.Prefill, Status: 400}, map[string]int{"render": 1, "encode": 3, "prefill": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{steps: wholeSteps, toml: quick, cluster: cluster.Options{Lease: byHand}})
			r.cluster.AddFault(tt.fault)
			got := r.post(chatPath, imagesBody(dataURI(picture(1, 100)), dataURI(picture(2, 200)), dataURI(picture(3, 300))), "X-Request-Id", "id")
			if (got.status == 200) != (tt.want["decode"] > 0) {
				t.Errorf("got %d %s", got.status, got.body)
			}
			counts := map[string]int{}
			ids := map[string]bool{}
			for _, l := range r.cluster.Legs("id") {
				counts[l.Name]++
				if key := l.Name + l.RequestID; l.Name != "encode" && ids[key] {
					t.Errorf("two legs are %s", key)
				} else {
					ids[key] = true
				}
			}
			if fmt.Sprint(counts) != fmt.Sprint(tt.want) {
				t.Errorf("legs %v, want %v", counts, tt.want)
			}
			r.settled()
		})
	}
}

// TestErrorEventInARunningStream goes to the client as it is, and is a failure of
// decode's.
func TestErrorEventInARunningStream(t *testing.T) {
	r := newRig(t, setup{toml: "[gateway.breaker]\nconsecutive_failures = 1\n"})
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Decode, ErrorEventAfter: new(3), Times: 1})
	got := r.post(chatPath, chatBody("one two three four five six", true))
	if got.status != 200 || !strings.Contains(got.body, `"code":500`) || strings.Contains(got.body, "upstream_failed") {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if n := r.metric(t, "llm_d_coordinator_stream_broken_total", "cause=error_event"); n != 1 {
		t.Errorf("counted %v", n)
	}
	if n := r.metric(t, "llm_d_coordinator_breaker_state", "profile=decode"); n != 2 {
		t.Errorf("the breaker's state is %v", n)
	}
	r.settled()
}

// TestHandOffWhoseLeaseIsOver is not sent: prefill runs again.
func TestHandOffWhoseLeaseIsOver(t *testing.T) {
	r := newRig(t, setup{toml: "[gateway.retry]\nbase_delay = \"0s\"\nmax_delay = \"5s\"\n[gateway.breaker]\nenabled = false\n", cluster: cluster.Options{Lease: byHand},
		pipeline: "kv_lease = \"4s\"\n"})
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Decode, Times: 1, Status: 503,
		Headers: map[string]string{"x-llm-d-request-dropped-reason": "full", "Retry-After": "4"}})
	got := r.post(chatPath, chatBody("hi", false), "X-Request-Id", "id")
	if got.status != 200 || !strings.Contains(got.body, cluster.Reply("hi")) {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if legs, want := r.legIDs("id"), []string{"render:id", "prefill:id", "decode:id", "prefill:id-r1", "decode:id-r1"}; !slices.Equal(legs, want) {
		t.Errorf("legs %v, want %v", legs, want)
	}
	if n := r.metric(t, "llm_d_coordinator_kv_handoff_expired_total"); n != 1 {
		t.Errorf("counted %v", n)
	}
	r.settled()
}
