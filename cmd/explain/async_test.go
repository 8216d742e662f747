package explain

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/conf"
)

const asyncSteps = `[[pipeline.steps]]
type = "async-broker"
[pipeline.steps.params]
redis_url = "env:NOT_SET"
routes = [{ tenant = "acme", queue = "acmes" }]
timeouts.enqueue.default_seconds = 90
[[pipeline.steps]]
type = "decode"
`

// TestARequestThatMayWait: Redis is not called, nor is its credential read.
func TestARequestThatMayWait(t *testing.T) {
	cfg, err := conf.Parse("explain.toml", []byte(asyncSteps), nil)
	if err != nil {
		t.Fatal(err)
	}
	const waits = `it may wait (it has x-llm-d-async-mode): it is put into the queue "acmes" as "acme:explained-request", for /v1/chat/completions and at most `
	for mode, want := range map[string]struct {
		first, second string
		runs          bool
		legs          int
	}{
		"":            {"the request does not say that it may wait", "there was no prefill", false, 1},
		"passthrough": {"it may not wait", "there was no prefill", false, 1},
		"enqueue":     {waits + "1m30s", notReached + ": the request waits", true, 0},
		"wait":        {waits + "1m0s", notReached + ": the request waits", true, 0},
		"later":       {notReached + ": the request is refused at the door", notReached, false, 0},
	} {
		r, err := Explain(t.Context(), cfg, nothing, Request{Route: "/v1/chat/completions", Body: []byte(`{"model":"m","messages":[{"role":"user","content":"x"}]}`),
			Header: http.Header{"X-Llm-D-Async-Mode": {mode}, "X-Llm-D-Tenant": {"acme"}}})
		if err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
		if len(r.Legs) != want.legs || r.Accepted != (mode != "later") || r.Phases[0].Runs != want.runs ||
			!strings.HasPrefix(r.Phases[0].Why, want.first) || !strings.HasPrefix(r.Phases[1].Why, want.second) {
			t.Errorf("%s: %v, %d legs, %+v", mode, r.Accepted, len(r.Legs), r.Phases)
		}
		var keys []string
		for _, l := range r.Limits {
			keys = append(keys, l.Key)
		}
		for key, is := range map[string]bool{"actors.max_waiting_requests": want.runs, "actors.pools.broker": want.runs,
			"wait_cap_seconds": want.runs, "actors.max_inflight_requests": !want.runs} {
			if slices.Contains(keys, key) != is {
				t.Errorf("%s: %s among the limits: %t, want %t", mode, key, !is, is)
			}
		}
	}
}
