package admin

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/monitor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a server on pipes, and returns a client of it.
func serve(t *testing.T, s *Server) *http.Client {
	l := cluster.NewPipeListener()
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Serve(l); err != nil {
			t.Error(err)
		}
	})
	transport := &http.Transport{DialContext: l.DialContext, DisableCompression: true}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		running.Wait()
	})
	return &http.Client{Transport: transport}
}

func get(t *testing.T, c *http.Client, method, path string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://admin.test"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func newServer() *Server {
	reg := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "things_total", Help: "Things."})
	reg.MustRegister(c)
	c.Inc()
	return New(Settings{Gather: reg, Monitor: monitor.New(), Status: func() monitor.Status { return monitor.Status{Inflight: 3} },
		Host: "admin.test", Config: func() any { return make(chan int) }, Drain: func() {}})
}

func TestMetricsInBothFormats(t *testing.T) {
	c := serve(t, newServer())
	for _, tt := range []struct{ accept, kind, end string }{
		{"", "text/plain", "things_total 1\n"},
		{"text/plain", "text/plain", "things_total 1\n"},
		{"application/openmetrics-text; version=1.0.0", "application/openmetrics-text", "things_total 1.0\n# EOF\n"},
	} {
		resp, body := get(t, c, "GET", "/metrics", "Accept", tt.accept)
		if resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), tt.kind) || !strings.HasSuffix(body, tt.end) {
			t.Errorf("%q: %d %v %s", tt.accept, resp.StatusCode, resp.Header, body)
		}
	}
	_, body := get(t, c, "GET", "/metrics", "Accept-Encoding", "gzip")
	unzip, err := gzip.NewReader(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(unzip); err != nil || !strings.HasSuffix(string(text), "things_total 1\n") {
		t.Errorf("%s, %v", text, err)
	}
}

func TestStatus(t *testing.T) {
	resp, body := get(t, serve(t, newServer()), "GET", "/status")
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/json" || !strings.Contains(body, "\"inflight\": 3,") || !json.Valid([]byte(body)) {
		t.Errorf("%d %v %q", resp.StatusCode, resp.Header, body)
	}
}

// TestWhatCannotBeWritten is no empty success.
func TestWhatCannotBeWritten(t *testing.T) {
	if resp, body := get(t, serve(t, newServer()), "GET", "/config"); resp.StatusCode != 500 {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
}

func TestProfiles(t *testing.T) {
	c := serve(t, newServer())
	for _, tt := range []struct {
		method, path, kind, holds string
		status                    int
	}{
		{"GET", "/debug/pprof/", "text/html", "goroutine", 200},
		{"GET", "/debug/pprof/heap", "application/octet-stream", "\x1f\x8b", 200},
		{"GET", "/debug/pprof/heap?debug=1", "text/plain", "heap profile:", 200},
		{"GET", "/debug/pprof/goroutine?debug=2", "text/plain", "admin.profile", 200},
		{"GET", "/debug/pprof/cmdline", "text/plain", "test", 200},
		{"GET", "/debug/pprof/symbol", "text/plain", "num_symbols", 200},
		{"POST", "/debug/pprof/symbol", "text/plain", "num_symbols", 200},
		{"GET", "/debug/pprof/trace?seconds=0.001", "application/octet-stream", "go 1.", 200},
		{"GET", "/debug/pprof/nothing", "text/plain", "Unknown profile", 404},
	} {
		resp, body := get(t, c, tt.method, tt.path)
		if resp.StatusCode != tt.status || !strings.HasPrefix(resp.Header.Get("Content-Type"), tt.kind) || !strings.Contains(body, tt.holds) {
			t.Errorf("%s: %d %v %.200q", tt.path, resp.StatusCode, resp.Header, body)
		}
	}
}

// TestProfileEndsWithItsClient: seconds=0 is half a minute to net/http/pprof,
// and one who leaves must not keep the profiler busy so long.
func TestProfileEndsWithItsClient(t *testing.T) {
	s := newServer()
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest("GET", "http://127.0.0.1/debug/pprof/profile?seconds=0", nil).WithContext(ctx))
		if w.Code != 200 || !bytes.HasPrefix(w.Body.Bytes(), []byte("\x1f\x8b")) {
			t.Errorf("%d %.200q", w.Code, w.Body)
		}
	}
}

// TestThereIsNoIcon, and a browser that asks for one does not complain.
func TestThereIsNoIcon(t *testing.T) {
	if resp, body := get(t, serve(t, newServer()), "GET", "/favicon.ico"); resp.StatusCode != http.StatusNoContent || body != "" {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
}

func TestNothingElse(t *testing.T) {
	c := serve(t, newServer())
	for _, tt := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/metrics/", 404}, {"GET", "/status/x", 404}, {"GET", "/debug/pprof", 404}, {"GET", "/v1/models", 404},
		{"POST", "/metrics", 405}, {"DELETE", "/status", 405}, {"PUT", "/debug/pprof/heap", 405},
	} {
		if resp, _ := get(t, c, tt.method, tt.path); resp.StatusCode != tt.status || resp.Header.Get("Location") != "" {
			t.Errorf("%s %s: %d", tt.method, tt.path, resp.StatusCode)
		}
	}
}
