package assembly_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/cmd/assembly"
	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// TestReadyUnlessABreakerThatAllNeedIsOpen: the others only fail the requests
// that need them.
func TestReadyUnlessABreakerThatAllNeedIsOpen(t *testing.T) {
	probed := renderStep + conditionalStep + encodeStep + prefillStep + decodeStep
	tests := []struct {
		name, steps, leg, reason string
	}{
		{"decode", fullSteps, cluster.Decode, "the circuit breaker of decode is open"},
		{"prefill", fullSteps, cluster.Prefill, "the circuit breaker of prefill is open"},
		{"render", fullSteps, cluster.Render, "the circuit breaker of render is open"},
		{"encode, for images only", allSteps, cluster.Encode, ""},
		{"prefill, where a probe may serve", probed, cluster.Prefill, ""},
		{"render, which a probe needs too", probed, cluster.Render, "the circuit breaker of render is open"},
		{"decode, which the probe needs too", probed, cluster.Decode, "the circuit breaker of decode is open"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, setup{steps: tt.steps, toml: "[gateway.breaker]\nconsecutive_failures = 1\nopen_timeout = \"1h\"\n[gateway.retry]\nmax_attempts = 1\n"})
			if status, body := r.readyz(); status != 200 || body != `{"ready":true}` {
				t.Errorf("at first: %d %s", status, body)
			}
			r.cluster.AddFault(cluster.Fault{Leg: tt.leg, Status: 500})
			image := `{"model":"demo-model","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"` + dataURI(picture(1, 100)) + `"}}]}]}`
			if got := r.post(chatPath, image); got.status < 500 {
				t.Fatalf("%d %s", got.status, got.body)
			}
			if state := r.Status("").Breakers[tt.leg]; state != "open" {
				t.Fatalf("the breaker is %s", state)
			}
			want, wantBody := 200, `{"ready":true}`
			if tt.reason != "" {
				want, wantBody = 503, `{"ready":false,"reason":"`+tt.reason+`"}`
			}
			if status, body := r.readyz(); status != want || body != wantBody {
				t.Errorf("%d %s, want %d %s", status, body, want, wantBody)
			}
		})
	}
}

func (r *rig) readyz() (status int, body string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(within(r.t), http.MethodGet, r.base+"/readyz", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// TestReadyAgainWhenTheBreakerTries: nobody need send the requests that close it
// to a replica which is not ready.
func TestReadyAgainWhenTheBreakerTries(t *testing.T) {
	r := newRig(t, setup{toml: "[gateway.breaker]\nconsecutive_failures = 1\nopen_timeout = \"1ms\"\n[gateway.retry]\nmax_attempts = 1\n"})
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Prefill, Status: 500})
	if got := r.post(chatPath, chatBody("hi", false)); got.status < 500 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	for ctx := within(t); ; {
		status, body := r.readyz()
		if status == 200 {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("%d %s", status, body)
		}
	}
	if state := r.Status("").Breakers["prefill"]; state != "half-open" {
		t.Errorf("the breaker is %s", state)
	}
}

// TestTermsOfRequestsAreThoseOfTheConfiguration: what comes of them is the engine's
// and the pools' affair.
func TestTermsOfRequestsAreThoseOfTheConfiguration(t *testing.T) {
	cfg, err := conf.Parse("f.toml", []byte("[server]\ntenant_header = \"X-Tenant\"\n[pipeline]\nrequest_timeout = \"7s\"\n"+decodeStep), nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := assembly.New(cfg, assembly.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if s := c.Server.Settings(); s.TenantHeader != "X-Tenant" || s.RequestTimeout != 7*time.Second {
		t.Errorf("%+v", s)
	}
}
