package assembly_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// TestReloadAndBreakers: one whose settings are the same knows what it knew, one
// whose settings are others knows nothing.
func TestReloadAndBreakers(t *testing.T) {
	const retry = "[gateway.retry]\nmax_attempts = 1\n"
	rules := func(timeout string, more string) setup {
		return setup{toml: "[gateway.breaker]\nconsecutive_failures = 1\nopen_timeout = \"" + timeout + "\"\n" + retry + more}
	}
	r := newRig(t, rules("1h", ""))
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Prefill, Status: 500, Times: 1})
	r.post(chatPath, chatBody("hi", false))
	states := func(when, prefill string, gauge float64, status int) {
		t.Helper()
		if s := r.Status("").Breakers["prefill"]; s != prefill || r.metric(t, "llm_d_coordinator_breaker_state", "profile=prefill") != gauge {
			t.Errorf("%s: the breaker is %s, the gauge %v", when, s, r.metric(t, "llm_d_coordinator_breaker_state", "profile=prefill"))
		}
		if got := r.post(chatPath, chatBody("hi", false)); got.status != status {
			t.Errorf("%s: %d %s", when, got.status, got.body)
		}
		resp, err := r.client.Get(r.base + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != status {
			t.Errorf("%s: readyz %d", when, resp.StatusCode)
		}
	}
	states("before", "open", 2, http.StatusServiceUnavailable)
	r.mustReload(rules("1h", "[actors.pools]\ndecode.size = 20\n"))
	r.mustReload(rules("1h", "[gateway.profiles.prefill]\ntimeout = \"50s\"\n"))
	r.mustReload(rules("1h", "[gateway.profiles.decode.breaker]\nmin_requests = 9\n"))
	states("other settings changed", "open", 2, http.StatusServiceUnavailable)
	r.mustReload(rules("2h", ""))
	states("its own changed", "closed", 0, http.StatusOK)
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Prefill, Status: 500, Times: 1})
	r.post(chatPath, chatBody("hi", false))
	states("open again", "open", 2, http.StatusServiceUnavailable)
	r.mustReload(rules("2h", "[gateway.profiles.prefill.breaker]\nenabled = false\n"))
	states("without", "disabled", 0, http.StatusOK)
	r.settled()
}

// TestReloadTellsWhatNeedsARestart, each time, until it is started again or the
// file says again what is in force.
func TestReloadTellsWhatNeedsARestart(t *testing.T) {
	r := newRig(t, setup{})
	other := setup{toml: "[server]\nlisten_addr = \":1\"\nread_timeout = \"9s\"\nidle_timeout = \"9s\"\nwrite_timeout = \"9s\"\n[admin]\nlisten_addr = \":2\"\n" +
		"[gateway]\nheaders = { Authorization = \"secret-of-the-gateway\" }\n"}
	restart := []string{"admin.listen_addr", "server.idle_timeout", "server.listen_addr", "server.read_timeout"}
	done := r.mustReload(other)
	if want := []string{"gateway.headers.Authorization", "server.read_timeout", "server.write_timeout"}; !slices.Equal(done.Applied, want) || !slices.Equal(done.Restart, restart) {
		t.Errorf("%+v", done)
	}
	log := r.logs.String()
	for _, want := range []string{`level=WARN msg="configuration reloaded"`, "gateway.headers.Authorization", "server.listen_addr"} {
		if !strings.Contains(log, want) {
			t.Errorf("no %s in the log", want)
		}
	}
	if strings.Contains(log, "secret-of-the-gateway") {
		t.Error("a credential is in the log")
	}
	if done := r.mustReload(other); len(done.Applied) != 0 || !slices.Equal(done.Restart, restart) || done.Unchanged() {
		t.Errorf("once more: %+v", done)
	}
	if done := r.mustReload(setup{}); len(done.Applied) != 3 || len(done.Restart) != 0 {
		t.Errorf("back: %+v", done)
	}
	if done := r.mustReload(setup{}); !done.Unchanged() {
		t.Errorf("back again: %+v", done)
	}
}

// TestReloadAppliesLimits: what requests may be and have is what the file says now.
func TestReloadAppliesLimits(t *testing.T) {
	r := newRig(t, setup{})
	large := chatBody(strings.Repeat("x", 3<<19), false) // 1.5 MB
	models := func() int {
		resp, err := r.client.Get(r.base + "/v1/models")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if got := r.post(chatPath, large); got.status != http.StatusOK {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if got := models(); got != http.StatusOK {
		t.Fatalf("models: %d", got)
	}
	r.mustReload(setup{toml: "[server]\nmax_request_body_size = 1\npassthrough_routes = []\n"})
	if got := r.post(chatPath, large); got.status != http.StatusRequestEntityTooLarge {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := models(); got != http.StatusNotFound {
		t.Errorf("models: %d", got)
	}
	r.mustReload(setup{toml: "[actors]\nmax_inflight_size = 1\n"})
	if got := r.post(chatPath, large); got.status != http.StatusTooManyRequests {
		t.Errorf("%d %s", got.status, got.body)
	}
	r.mustReload(setup{toml: "[actors]\nmax_inflight_requests = 1\n"})
	gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode})
	held := make(chan response)
	go func() { held <- r.post(chatPath, chatBody("hi", false)) }()
	if err := gate.WaitFor(within(t), 1); err != nil {
		t.Fatal(err)
	}
	if got := r.post(chatPath, chatBody("hi", false)); got.status != http.StatusTooManyRequests {
		t.Errorf("%d %s", got.status, got.body)
	}
	r.mustReload(setup{toml: "[gateway.retry]\nmin_retries = 17\nbudget_ratio = 0\n"})
	if n := r.metric(t, "llm_d_coordinator_retry_budget_remaining"); n != 17 {
		t.Errorf("%v retries remain", n)
	}
	gate.Release()
	if got := <-held; got.status != http.StatusOK {
		t.Errorf("%d %s", got.status, got.body)
	}
	r.sent.Add(1) // the first for models is recorded too
	r.settled()
}
