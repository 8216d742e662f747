package gateway

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

func TestLegOnTheWire(t *testing.T) {
	client := http.Header{"Authorization": {"Bearer x"}, "X-Many": {"1", "2"}, "Accept-Encoding": {"br, gzip"}}
	tests := []struct {
		name string
		edit func(*UpstreamSettings)
		leg  func(*Leg)
		open bool
		line string
		want []string
	}{
		{
			name: "Call",
			line: "POST /v1/completions HTTP/1.1",
			want: []string{"Content-Length: 7", "Content-Type: application/json", "Epp-Profile: prefill", "Host: upstream.test:8080",
				"X-Coordinator-Hop: 1", "X-Request-Id: req"},
		}, {
			name: "Open with all of a client's headers",
			leg:  func(l *Leg) { l.Header, l.Query = client, "a=b&c=%20&&d" },
			open: true,
			line: "POST /v1/completions?a=b&c=%20&&d HTTP/1.1",
			want: []string{"Accept-Encoding: br, gzip", "Authorization: Bearer x", "Content-Length: 7", "Content-Type: application/json",
				"Epp-Profile: prefill", "Host: upstream.test:8080", "X-Coordinator-Hop: 1", "X-Many: 1", "X-Many: 2", "X-Request-Id: req"},
		}, {
			name: "Call takes no Accept-Encoding",
			leg:  func(l *Leg) { l.Header = client },
			line: "POST /v1/completions HTTP/1.1",
			want: []string{"Authorization: Bearer x", "Content-Length: 7", "Content-Type: application/json", "Epp-Profile: prefill",
				"Host: upstream.test:8080", "X-Coordinator-Hop: 1", "X-Many: 1", "X-Many: 2", "X-Request-Id: req"},
		}, {
			name: "a profile header of the operator's, a later attempt, the client's user agent",
			edit: func(s *UpstreamSettings) { s.ProfileHeader, s.Profile = "x-my-profile", "decode" },
			leg:  func(l *Leg) { l.Attempt, l.Header = 2, http.Header{"User-Agent": {"curl/8"}} },
			line: "POST /v1/completions HTTP/1.1",
			want: []string{"Content-Length: 7", "Content-Type: application/json", "Host: upstream.test:8080", "User-Agent: curl/8",
				"X-Coordinator-Hop: 1", "X-My-Profile: decode", "X-Request-Id: req-r2"},
		}, {
			name: "no profile header",
			edit: func(s *UpstreamSettings) { s.ProfileHeader = "" },
			leg:  func(l *Leg) { l.Path = "/v1/completions/render" },
			line: "POST /v1/completions/render HTTP/1.1",
			want: []string{"Content-Length: 7", "Content-Type: application/json", "Host: upstream.test:8080",
				"X-Coordinator-Hop: 1", "X-Request-Id: req"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := make(chan heard, 1)
			l := raw(t, func(_ int, c *conn) {
				h, _ := c.hear()
				got <- h
				c.say(good)
			})
			r := dial(t, l)
			if tt.edit != nil {
				r = dial(t, l, tt.edit)
			}
			sent := leg(`{"a":1}`)
			if tt.leg != nil {
				tt.leg(&sent)
			}
			before := len(sent.Header)
			if tt.open {
				a, _, err := r.Open(t.Context(), sent)
				if err != nil {
					t.Fatal(err)
				}
				a.Close()
			} else if _, _, f := r.call(sent); f != nil {
				t.Fatal(f)
			}
			h := <-got
			if h.line != tt.line || h.body != `{"a":1}` || !slices.Equal(h.header, tt.want) {
				t.Errorf("got  %q\n%q\n%q\nwant %q\n%q", h.line, h.header, h.body, tt.line, tt.want)
			}
			if len(sent.Header) != before {
				t.Errorf("the leg's header was changed: %v", sent.Header)
			}
		})
	}
}

func TestBodyIsBuiltForItsAttempt(t *testing.T) {
	l := raw(t, func(_ int, c *conn) {
		h, _ := c.hear()
		c.say("HTTP/1.1 200 OK\r\nContent-Length: " + h.values("Content-Length")[0] + "\r\n\r\n" + h.body)
	})
	body, sent, f := dial(t, l).call(Leg{Path: "/", ID: "a", Attempt: 3, Body: func(id string) wire.Payload {
		return wire.NewPayload([]byte("body of " + id))
	}})
	if f != nil || body != "body of a-r3" || sent.Attempts != 1 || !sent.Reached {
		t.Errorf("%q, %+v, %v", body, sent, f)
	}
}

// TestProxiesOfTheEnvironmentAreIgnored: legs carry prompts.
func TestProxiesOfTheEnvironmentAreIgnored(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	l := raw(t, func(_ int, c *conn) {
		c.hear()
		c.say(good)
	})
	var dialed string
	o, err := NewOrigin(OriginSettings{Address: "http://upstream.test", Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		dialed = address
		return l.DialContext(ctx, network, address)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	if _, _, f := see(t, o).call(leg("{}")); f != nil || dialed != "upstream.test:80" {
		t.Errorf("dialed %q: %v", dialed, f)
	}
}

func TestAddressIsABase(t *testing.T) {
	for _, address := range []string{"", "host:80", "ftp://host", "http://", "http:///path", "http://host/path", "http://host?q", "http://host#f",
		"http://user:secret@host", "http://ho st"} {
		if _, err := NewOrigin(OriginSettings{Address: address}); err == nil || bytes.Contains([]byte(err.Error()), []byte("secret")) {
			t.Errorf("%q: %v", address, err)
		}
	}
	for _, address := range []string{"http://host", "https://host:8443", "http://host:80/", "http://[::1]:80"} {
		if _, err := NewOrigin(OriginSettings{Address: address}); err != nil {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// TestOpenPassesAnswersThrough: whatever an answer is, it is the worker's.
func TestOpenPassesAnswersThrough(t *testing.T) {
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	zip.Write([]byte("some text"))
	zip.Close()
	tests := []struct {
		name   string
		status int
		header http.Header
		body   string
	}{
		{"gzip", 200, http.Header{"Content-Encoding": {"gzip"}, "Content-Type": {"text/event-stream"}}, packed.String()},
		{"redirect", 307, http.Header{"Location": {"http://elsewhere.test/"}}, "gone"},
		{"rejected", 400, http.Header{"Content-Type": {"application/json"}}, `{"error":"no"}`},
		{"failed", 500, http.Header{"X-Several": {"a", "b"}}, "oops"},
		{"missed", 412, http.Header{}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			calls := 0
			r := dial(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
				calls++
				for name, values := range tt.header {
					w.Header()[name] = values
				}
				w.WriteHeader(tt.status)
				io.WriteString(w, tt.body)
			}))
			l := leg("{}")
			l.Header = http.Header{"Accept-Encoding": {"gzip"}}
			a, _, err := r.Open(t.Context(), l)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			body, err := io.ReadAll(a)
			if err != nil || a.Status != tt.status || string(body) != tt.body || calls != 1 {
				t.Errorf("%d %q %v after %d calls", a.Status, body, err, calls)
			}
			for name, values := range tt.header {
				if !slices.Equal(a.Header[name], values) {
					t.Errorf("%s: %q", name, a.Header[name])
				}
			}
		})
	}
}
