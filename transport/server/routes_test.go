package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"

	"github.com/llm-coordinator/coordinator/phases"
)

func TestRoutes(t *testing.T) {
	r := start(t, ok)
	tests := []struct {
		method, path string
		status       int
		code, allow  string
	}{
		{"POST", chatPath, 200, "", ""},
		{"POST", chatPath + "?x=/", 200, "", ""},
		{"POST", completionsPath, 200, "", ""},
		{"POST", completionsPath + "/", 404, "not_found", ""},
		{"POST", "/v1/Completions", 404, "not_found", ""},
		{"POST", "/v1//completions", 404, "not_found", ""},
		{"POST", "/v1/completions/../completions", 404, "not_found", ""},
		{"POST", "/v1/completions/render", 404, "not_found", ""},
		{"POST", "/", 404, "not_found", ""},
		{"POST", "/v1/load_lora_adapter", 404, "not_found", ""},
		{"GET", "/metrics", 404, "not_found", ""},
		{"GET", "/healthz/", 404, "not_found", ""},
		{"GET", completionsPath, 405, "method_not_allowed", "POST"},
		{"PUT", completionsPath, 405, "method_not_allowed", "POST"},
		{"OPTIONS", chatPath, 405, "method_not_allowed", "POST"},
		{"BREW", chatPath, 405, "method_not_allowed", "POST"},
		{"POST", "/healthz", 405, "method_not_allowed", "GET, HEAD"},
		{"GET", "/healthz", 200, "", ""},
		{"GET", "/readyz", 200, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.method+tt.path, func(t *testing.T) {
			got := r.send(tt.method, tt.path, `{"prompt":"x"}`)
			if tt.code == "" {
				if got.status != tt.status || got.err != nil {
					t.Errorf("%+v", got)
				}
				return
			}
			wantError(t, got, tt.status, "invalid_request_error", tt.code)
			if allow := got.header.Get("Allow"); allow != tt.allow {
				t.Errorf("Allow: %q, want %q", allow, tt.allow)
			}
			if got.header.Get("Location") != "" {
				t.Error("it was redirected")
			}
		})
	}
}

// TestHeadOfRoutes: load balancers ask with HEAD.
func TestHeadOfRoutes(t *testing.T) {
	r := start(t, never(t))
	for path, status := range map[string]int{"/healthz": 200, "/readyz": 200, "/nothing": 404, chatPath: 405} {
		got := r.send("HEAD", path, "")
		if got.status != status || got.body != "" || got.err != nil || got.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %+v", path, got)
		}
	}
}

// TestConnectHasNoPath must not crash the router.
func TestConnectHasNoPath(t *testing.T) {
	r := start(t, never(t))
	c, in := r.dial()
	go c.Write([]byte("CONNECT host:80 HTTP/1.1\r\nHost: host:80\r\n\r\n"))
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, read(resp), 404, "invalid_request_error", "not_found")
}

func TestHealth(t *testing.T) {
	r := start(t, never(t))
	check := func(path string, status int, body string) {
		t.Helper()
		got := r.send("GET", path, "")
		if got.status != status || got.body != body || got.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %+v", path, got)
		}
	}
	check("/healthz", 200, `{"ok":true}`)
	check("/readyz", 200, `{"ready":true}`)
	r.Drain()
	check("/healthz", 200, `{"ok":true}`)
	check("/readyz", 503, `{"ready":false,"reason":"shutting down"}`)
}

// TestDrainingServerStillServes: only readiness is off.
func TestDrainingServerStillServes(t *testing.T) {
	r := start(t, ok)
	r.Drain()
	if got := r.post(hello); got.status != 200 || got.body != "m" {
		t.Errorf("%+v", got)
	}
}

func TestShutdownWaitsForRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := start(t, plays(func(ctx context.Context, out *phases.Response) error {
			<-gate
			return say(ctx, out, head(200))
		}))
		got := make(chan answer)
		go func() { got <- r.post(hello) }()
		synctest.Wait()
		ended := make(chan error, 1)
		go func() { ended <- r.Shutdown(context.Background()) }()
		synctest.Wait()
		if len(ended) != 0 {
			t.Error("it did not wait")
		}
		close(gate)
		if a := <-got; a.status != 200 || a.err != nil {
			t.Errorf("%+v", a)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestRequestIDs(t *testing.T) {
	r := start(t, ok)
	for _, route := range []struct{ method, path string }{{"POST", completionsPath}, {"GET", "/healthz"}, {"GET", "/readyz"}, {"GET", "/no"}, {"GET", chatPath}} {
		for _, tt := range []struct {
			id   string
			kept bool
		}{
			{"abc-123-XYZ", true}, {strings.Repeat("x", 128), true},
			{"", false}, {strings.Repeat("x", 129), false}, {"a b", false}, {"a_b", false}, {"a/../b", false}, {"é", false},
		} {
			got := r.send(route.method, route.path, hello, "X-Request-Id", tt.id).header["X-Request-Id"]
			if len(got) != 1 {
				t.Errorf("%s: ids %q", route.path, got)
				continue
			}
			if _, err := uuid.Parse(got[0]); tt.kept != (got[0] == tt.id) || !tt.kept && err != nil {
				t.Errorf("%s: %q became %q", route.path, tt.id, got[0])
			}
		}
	}
	if text := r.log.String(); strings.Contains(text, "a_b") || !strings.Contains(text, "length=129") {
		t.Error("of an id that was rejected only the length is logged")
	}
}

// TestHandlerNeedsNoServer: others may mount it.
func TestHandlerNeedsNoServer(t *testing.T) {
	s := New(Settings{MaxBody: 100, ReadTimeout: 1, WriteTimeout: 1}, ok, nil, nil)
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest("POST", completionsPath, strings.NewReader(hello)))
	if w.Code != 200 || w.Body.String() != "m" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}
