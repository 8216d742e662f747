package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/transport/journal"
	"github.com/llm-coordinator/coordinator/transport/monitor"
	"github.com/llm-coordinator/coordinator/transport/server"
)

// crowded has seen ten requests, of which the last is running.
func crowded() *Server {
	s := newServer()
	for i := range 10 {
		j := &journal.Journal{}
		status, model := 200, "small"
		switch {
		case i%2 == 1:
			j.Begin("decode", "", time.Now())
			model = "large"
		case i == 2:
			status = 429
		}
		running := server.Running{Serial: fmt.Sprintf("s-%d", i), ID: fmt.Sprintf("id-%d", i), Model: model, Received: time.Now(), Journal: j}
		finished := s.settings.Monitor.Began(&running)
		if e := j.Entry(); i < 9 {
			finished(server.Record{Running: running, Status: status, Entry: e, Path: e.Path()})
		}
	}
	return s
}

func TestRequestsAreFiltered(t *testing.T) {
	c := serve(t, crowded())
	for _, tt := range []struct{ query, want string }{
		{"", "9 8 7 6 5 4 3 2 1 0"},
		{"?limit=3", "9 8 7"},
		{"?limit=100000", "9 8 7 6 5 4 3 2 1 0"},
		{"?id=ID-4", "4"},
		{"?id=s-4", "4"},
		{"?id=nobody", ""},
		{"?model=LARGE", "9 7 5 3 1"},
		{"?model=large&limit=2", "9 7"},
		{"?path=decode-only&outcome=ok", "7 5 3 1"},
		{"?path=none", "8 6 4 2 0"},
		{"?outcome=running", "9"},
		{"?outcome=refused", "2"},
		{"?outcome=refuse", ""},
	} {
		resp, body := get(t, c, "GET", "/requests"+tt.query)
		var list struct{ Requests []monitor.View }
		if err := json.Unmarshal([]byte(body), &list); err != nil || list.Requests == nil {
			t.Fatalf("%s: %d %v %s", tt.query, resp.StatusCode, err, body)
		}
		var got []string
		for _, v := range list.Requests {
			got = append(got, strings.TrimPrefix(v.Serial, "s-"))
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %q, want %q", tt.query, got, tt.want)
		}
	}
	for _, limit := range []string{"0", "-1", "x", "1e3", "99999999999999999999"} {
		if resp, body := get(t, c, "GET", "/requests?limit="+limit); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("limit %s: %d %s", limit, resp.StatusCode, body)
		}
	}
}

func TestOneRequest(t *testing.T) {
	s := newServer()
	s.settings.Monitor.Began(&hostile.Running)(hostile)
	c := serve(t, s)
	resp, body := get(t, c, "GET", "/requests/one-1")
	var v monitor.View
	if err := json.Unmarshal([]byte(body), &v); err != nil || resp.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("%v %v %s", err, resp.Header, body)
	}
	if v.Outcome != monitor.Failed || v.Code != "upstream_failed" || v.Tenant != hostile.Tenant || len(v.Notes) != 1 ||
		len(v.Steps) != 1 || v.Steps[0].Queued != 1000 || len(v.Calls) != 1 || v.Calls[0].Status != 500 || len(v.Waits) != 1 {
		t.Errorf("%s", body)
	}
	for _, serial := range []string{"one-2", "%3Cimg%20src=x%3E", "..%2fone-1"} {
		resp, body := get(t, c, "GET", "/requests/"+serial, "Accept", "text/html")
		if resp.StatusCode != http.StatusNotFound || strings.Contains(body, "<") {
			t.Errorf("%s: %d %s", serial, resp.StatusCode, body)
		}
	}
}

func TestReload(t *testing.T) {
	for _, tt := range []struct {
		reload func() (any, error)
		status int
		want   string
	}{
		{nil, http.StatusNotImplemented, "nothing to reload"},
		{func() (any, error) { return map[string][]string{"applied": {"log_level"}}, nil }, http.StatusOK, `"log_level"`},
		{func() (any, error) { return nil, errors.New("a.toml:3: <b>") }, http.StatusBadRequest, `a.toml:3: \u003cb\u003e`},
	} {
		s := newServer()
		s.settings.Reload = tt.reload
		if resp, body := get(t, serve(t, s), "POST", "/reload"); resp.StatusCode != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
	}
}

// TestHeadersOfAllAnswers keep other sites, frames and caches away.
func TestHeadersOfAllAnswers(t *testing.T) {
	h := newServer().Handler()
	for _, path := range []string{"/", "/page.css", "/page.js", "/status", "/requests", "/requests/none", "/favicon.ico", "/nowhere"} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "http://127.0.0.1"+path, nil)
		r.Header.Set("Origin", "http://other.example")
		h.ServeHTTP(w, r)
		got := w.Header()
		if !strings.HasPrefix(got.Get("Content-Security-Policy"), "default-src 'none';") || strings.Contains(got.Get("Content-Security-Policy"), "unsafe") ||
			got.Get("X-Content-Type-Options") != "nosniff" || got.Get("Referrer-Policy") != "no-referrer" || got.Get("Cache-Control") != "no-store" ||
			got.Get("Cross-Origin-Resource-Policy") != "same-origin" || got.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %v", path, got)
		}
	}
}
