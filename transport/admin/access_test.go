package admin

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-coordinator/coordinator/transport/monitor"
)

func TestAccess(t *testing.T) {
	drained := 0
	settings := Settings{Gather: prometheus.NewRegistry(), Monitor: monitor.New(), Status: func() monitor.Status { return monitor.Status{} },
		Config: func() any { return nil }, Drain: func() { drained++ }, Reload: func() (any, error) { return "done", nil }}
	open := New(settings)
	settings.Token = func() string { return "the token" }
	closed := New(settings)
	for _, tt := range []struct {
		s            *Server
		method, host string
		header       []string
		want         int
	}{
		{open, "GET", "127.0.0.1:9090", nil, 200},
		{open, "GET", "localhost:9090", nil, 200},
		{open, "GET", "[::1]:9090", nil, 200},
		{open, "GET", "rebound.example:9090", nil, 421},
		{open, "POST", "127.0.0.1:9090", nil, 200},
		{open, "POST", "127.0.0.1:9090", []string{"Origin", "http://127.0.0.1:9090", "Sec-Fetch-Site", "same-origin"}, 200},
		{open, "POST", "127.0.0.1:9090", []string{"Origin", "http://evil.example"}, 403},
		{open, "POST", "127.0.0.1:9090", []string{"Origin", "null"}, 403},
		{open, "POST", "127.0.0.1:9090", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{open, "POST", "127.0.0.1:9090", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{closed, "GET", "127.0.0.1:9090", nil, 401},
		{closed, "GET", "any.example", []string{"Authorization", "Bearer the token"}, 200},
		{closed, "GET", "any.example", []string{"Authorization", "Basic b3BzOnRoZSB0b2tlbg=="}, 200}, // ops:the token
		{closed, "GET", "any.example", []string{"Authorization", "Bearer another"}, 401},
		{closed, "GET", "any.example", []string{"Authorization", "Bearer "}, 401},
		{closed, "POST", "any.example", []string{"Authorization", "Bearer the token", "Sec-Fetch-Site", "cross-site"}, 403},
	} {
		path := map[string]string{"GET": "/status", "POST": "/drain"}[tt.method]
		r := httptest.NewRequest(tt.method, "http://"+tt.host+path, nil)
		for i := 0; i < len(tt.header); i += 2 {
			r.Header.Set(tt.header[i], tt.header[i+1])
		}
		before, w := drained, httptest.NewRecorder()
		tt.s.Handler().ServeHTTP(w, r)
		if w.Code != tt.want || (drained > before) != (tt.method == "POST" && tt.want == 200) {
			t.Errorf("%s %s %v: %d, want %d; drained %d", tt.method, tt.host, tt.header, w.Code, tt.want, drained-before)
		}
	}
}

// TestPagesAreWritten with names that are no HTML.
func TestPagesAreWritten(t *testing.T) {
	m := monitor.New()
	finish := m.Began(&hostile.Running)
	s := New(Settings{Gather: prometheus.NewRegistry(), Monitor: m, Status: func() monitor.Status {
		st := monitor.Status{Pipeline: []monitor.Phase{{Name: "decode", Description: "<b>"}}, Breakers: []monitor.Breaker{{Profile: "decode", State: "open", HalfOpenIn: 3}}}
		m.Fill(&st)
		return st
	}})
	look := func(path string) {
		t.Helper()
		r := httptest.NewRequest("GET", "http://127.0.0.1"+path, nil)
		r.Header.Set("Accept", "text/html")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if w.Code != http.StatusOK || strings.Contains(w.Body.String(), "<img src=x") || !strings.Contains(w.Body.String(), "&lt;img src=x") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	look("/")
	look("/requests/one-1")
	finish(hostile)
	look("/")
	look("/?outcome=failed&id=one")
	look("/requests/one-1")
}
