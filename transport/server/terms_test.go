package server

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-coordinator/coordinator/phases"
)

const timeoutHeader = "x-llm-d-request-timeout-seconds"

// keeps is an engine that hands over each request that it is given.
func keeps(requests chan<- *phases.Request) engine {
	return func(ctx context.Context, r *phases.Request) error {
		requests <- r
		return ok(ctx, r)
	}
}

// termsRig serves a pipeline's route and one that is passed through.
func termsRig(t *testing.T, edit func(*Settings)) (*rig, chan *phases.Request) {
	requests := make(chan *phases.Request, 1)
	return start(t, keeps(requests), func(s *Settings) {
		s.Passthrough, s.PassthroughEngine = []string{"/v1/models"}, keeps(requests)
		edit(s)
	}), requests
}

func TestDeadline(t *testing.T) {
	tests := []struct {
		name     string
		own      time.Duration // RequestTimeout
		asked    string        // by the client, "" is nothing
		deadline time.Duration // after the headers, 0 is none
	}{
		{"nobody sets one", 0, "", 0},
		{"ours", time.Minute, "", time.Minute},
		{"the client's", 0, "30", 30 * time.Second},
		{"the client's is shorter", time.Minute, "2.5", 2500 * time.Millisecond},
		{"the client's is longer", time.Minute, "61", time.Minute},
		{"the client's is the longest there may be", 0, "86400", 24 * time.Hour},
		{"a fraction only", 0, ".5", 500 * time.Millisecond},
		{"no fraction behind the point", 0, "5.", 5 * time.Second},
		{"zeros ahead", 0, "007.50", 7500 * time.Millisecond},
		{"less than a nanosecond is no time, but a limit", time.Minute, "0.0000000001", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, requests := termsRig(t, func(s *Settings) { s.RequestTimeout = tt.own })
				var header []string
				if tt.asked != "" {
					header = []string{timeoutHeader, tt.asked}
				}
				for _, call := range [][2]string{{"POST", completionsPath}, {"GET", "/v1/models"}} {
					began := time.Now()
					if got := r.send(call[0], call[1], map[string]string{"POST": hello}[call[0]], header...); got.status != 200 {
						t.Fatalf("%+v", got)
					}
					req := <-requests
					want := time.Time{}
					if tt.deadline > 0 {
						want = began.Add(tt.deadline)
					}
					if !req.Deadline.Equal(want) || !req.Received.Equal(began) {
						t.Errorf("%s: received %v, deadline %v; want %v", call[1], req.Received, req.Deadline, want)
					}
					if got := req.Header.Get(timeoutHeader); got != tt.asked {
						t.Errorf("%s: the legs' header is %q", call[1], got)
					}
				}
			})
		})
	}
}

// TestDeadlineCountsFromTheHeaders: what a client takes to send its body is its
// own time.
func TestDeadlineCountsFromTheHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, requests := termsRig(t, func(s *Settings) { s.RequestTimeout = time.Minute })
		c, in := r.dial()
		began := time.Now()
		go func() {
			c.Write([]byte(request("POST", completionsPath, len(hello), hello[:5])))
			wait(20 * time.Second)
			c.Write([]byte(hello[5:]))
		}()
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := read(resp); got.status != 200 || time.Since(began) != 20*time.Second {
			t.Errorf("%+v after %v", got, time.Since(began))
		}
		if req := <-requests; !req.Deadline.Equal(began.Add(time.Minute)) {
			t.Errorf("deadline %v after the headers", req.Deadline.Sub(began))
		}
	})
}

func TestTimeoutsThatAreNone(t *testing.T) {
	r := start(t, never(t), func(s *Settings) {
		s.Passthrough, s.PassthroughEngine = []string{"/v1/models"}, never(t)
	})
	for _, value := range []string{"", "0", "0.0", "-1", "+1", "86400.001", "1e3", "0x10", "1_000", "NaN", "Inf", ".", "1.2.3", "1,5", "30s", "5, 5",
		"soon", secret, strings.Repeat("9", 1000)} {
		for _, call := range [][2]string{{"POST", completionsPath}, {"GET", "/v1/models"}} {
			body := map[string]string{"POST": hello}[call[0]]
			got := r.send(call[0], call[1], body, timeoutHeader, value)
			wantError(t, got, 400, "invalid_request_error", "invalid_timeout")
			if rec := <-r.records; rec.Status != 400 || rec.Total <= 0 {
				t.Errorf("%q: record %+v", value, rec)
			}
		}
	}
	wantError(t, r.post(hello, timeoutHeader, "5", timeoutHeader, "6"), 400, "invalid_request_error", "invalid_timeout")
}

func TestTenant(t *testing.T) {
	long := strings.Repeat("x", 256)
	tests := []struct {
		name   string
		header string // the setting
		sent   []string
		want   string
	}{
		{"none", "x-tenant", nil, ""},
		{"empty", "x-tenant", []string{"X-Tenant", ""}, ""},
		{"one", "x-tenant", []string{"X-TENANT", "acme corp"}, "acme corp"},
		{"the first of several", "x-tenant", []string{"X-Tenant", "a", "X-Tenant", "b"}, "a"},
		{"as long as may be", "x-tenant", []string{"X-Tenant", long}, long},
		{"longer", "x-tenant", []string{"X-Tenant", long + "y"}, long},
		{"not asked for", "", []string{"X-Tenant", "a"}, ""},
		{"another header", "x-llm-d-inference-fairness-id", []string{"X-Tenant", "a"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, requests := termsRig(t, func(s *Settings) { s.TenantHeader = tt.header })
			for _, call := range [][2]string{{"POST", completionsPath}, {"GET", "/v1/models"}} {
				if got := r.send(call[0], call[1], map[string]string{"POST": hello}[call[0]], tt.sent...); got.status != 200 {
					t.Fatalf("%+v", got)
				}
				req := <-requests
				if req.Tenant != tt.want {
					t.Errorf("%s: tenant %q", call[1], req.Tenant)
				}
				if got := req.Header["X-Tenant"]; len(got) != len(tt.sent)/2 {
					t.Errorf("%s: the legs' headers are %q", call[1], got)
				}
			}
		})
	}
}

func TestReadinessAsksWhy(t *testing.T) {
	reason := ""
	r := start(t, ok, func(s *Settings) { s.Unready = func() string { return reason } })
	check := func(status int, body string) {
		t.Helper()
		if got := r.send("GET", "/readyz", ""); got.status != status || got.body != body || got.header.Get("Content-Type") != "application/json" {
			t.Errorf("%+v", got)
		}
	}
	check(200, `{"ready":true}`)
	reason = `the circuit breaker of "decode" is open`
	check(503, `{"ready":false,"reason":"the circuit breaker of \"decode\" is open"}`)
	if got := r.send("GET", "/healthz", ""); got.status != 200 {
		t.Errorf("healthz: %+v", got)
	}
	if got := r.post(hello); got.status != 200 {
		t.Errorf("only readiness is off: %+v", got)
	}
	reason = ""
	check(200, `{"ready":true}`)
	reason = "whatever"
	r.Drain()
	check(503, `{"ready":false,"reason":"shutting down"}`)
}
