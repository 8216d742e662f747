package media

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// TestWhatAnOriginSees: these bytes and no others, whatever the context of a
// request holds and whatever an origin has set before.
func TestWhatAnOriginSees(t *testing.T) {
	headers := func(host string) []string {
		return []string{"Accept-Encoding: identity", "Accept: image/*", "Connection: close", "Host: " + host, "User-Agent: llm-coordinator"}
	}
	for _, tt := range []struct{ url, line, host string }{
		{"http://img.test", "GET / HTTP/1.1", "img.test"},
		{"HTTP://img.test:80/a%2Fb/ü ö?x=%20&&y=1 2#frag?x", "GET /a%2Fb/%C3%BC%20%C3%B6?x=%20&&y=1%202 HTTP/1.1", "img.test:80"},
		{"http://img.test/?q=a|b&c=\"ü\"&d={%7B}", "GET /?q=a%7Cb&c=%22%C3%BC%22&d=%7B%7B%7D HTTP/1.1", "img.test"},
		{"http://img.test/a|b", "GET /a%7Cb HTTP/1.1", "img.test"},
		{"http://IMG.test/?", "GET /? HTTP/1.1", "IMG.test"},
		{"http://93.184.216.34/../x", "GET /../x HTTP/1.1", "93.184.216.34"},
	} {
		got := make(chan []string, 2)
		first := true
		w := hosting(raw(t, func(c *conn) {
			got <- c.hear()
			if first {
				first = false
				c.say("HTTP/1.1 302 Found\r\nLocation: /next\r\nSet-Cookie: a=b\r\n\r\n")
			} else {
				c.say("HTTP/1.1 200 OK\r\nContent-Length: 8\r\nContent-Type: text/html\r\n\r\n" + png)
			}
		}))
		w.names["IMG.test"] = w.names["img.test"]
		if _, err := w.fetcher(t).Fetch(t.Context(), wire.Image, tt.url); err != nil {
			t.Errorf("%s: %v", tt.url, err)
			continue
		}
		for _, line := range []string{tt.line, "GET /next HTTP/1.1"} {
			if h := <-got; h[0] != line || !slices.Equal(h[1:], headers(tt.host)) {
				t.Errorf("%s: got %q, want %q %q", tt.url, h, line, headers(tt.host))
			}
		}
	}
}

func TestURLsThatAreRefused(t *testing.T) {
	for _, u := range []string{
		"", " ", "a.png", "/a.png", "//img.test/a.png", "img.test/a.png", "file:///etc/passwd", "ftp://img.test/", "data:image/png;base64,iVBORw0KGgo=",
		"httpx://img.test/", "http:", "http:/", "http://", "http:img.test", "https:/img.test", " http://img.test", "http ://img.test",
		"http://img.test/\n" + secret, "http://img.test/\x00", "http://img.test/%zz" + secret, "http://img.test /", "http://img.test\t/",
		"http://" + secret + "@img.test/", "http://a:" + secret + "@img.test/", "unix:///run/x.sock", "gopher://img.test:6379/_x", "jar:http://img.test!/",
		"http://img.test/?" + string(make([]byte, maxURL)),
	} {
		w := hosting(says(t, ""))
		_, err := w.fetcher(t).Fetch(t.Context(), wire.Image, u)
		wantFault(t, err, wire.BadRequest, "invalid_media")
		if len(w.dialed)+len(w.lookedUp) != 0 {
			t.Errorf("%.40q: dialed %q, looked up %q", u, w.dialed, w.lookedUp)
		}
	}
}

// TestProxiesOfTheEnvironmentAreIgnored: they would look names up themselves.
func TestProxiesOfTheEnvironmentAreIgnored(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, "http://8.8.8.8:3128")
	}
	w := hosting(says(t, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n"+png))
	if _, err := w.fetcher(t).Fetch(t.Context(), wire.Image, "http://img.test/"); err != nil || w.dialed[0] != "93.184.216.34:80" {
		t.Errorf("dialed %q: %v", w.dialed, err)
	}
}

// TestTLS: certificates are checked against the name in the URL.
func TestTLS(t *testing.T) {
	l := cluster.NewPipeListener()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 {
			w.WriteHeader(http.StatusHTTPVersionNotSupported)
		}
		io.WriteString(w, png)
	}))
	s.Listener.Close()
	s.Listener = l
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.StartTLS()
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())

	w := hosting(l)
	w.names["example.com"] = w.names["img.test"]
	f := w.fetcher(t)
	_, err := f.Fetch(t.Context(), wire.Image, "https://example.com/")
	wantFault(t, err, wire.UpstreamFailed, "media_fetch_failed")

	f.transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	f.transport = f.transport.Clone()
	if got, err := f.Fetch(t.Context(), wire.Image, "https://example.com/"); err != nil || string(got) != pngURI {
		t.Errorf("%s, %v", got, err)
	}
	_, err = f.Fetch(t.Context(), wire.Image, "https://img.test/")
	wantFault(t, err, wire.UpstreamFailed, "media_fetch_failed")
	if want := "the image at https://img.test could not be fetched: its origin could not be reached or broke off"; wire.FaultOf(err).Message != want {
		t.Errorf("message %q", wire.FaultOf(err).Message)
	}
}

// TestRealNetwork goes through the real dialer and resolver, on loopback.
func TestRealNetwork(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, png) }))
	defer s.Close()
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	plain := func(s *Settings) { s.Resolve, s.Dial = nil, nil }
	closed := new(world).fetcher(t, plain)
	open := new(world).fetcher(t, plain, func(s *Settings) {
		s.AllowedNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	})
	for _, host := range []string{"127.0.0.1", "localhost"} {
		_, err := closed.Fetch(context.Background(), wire.Image, "http://"+host+":"+port)
		wantFault(t, err, wire.BadRequest, "media_fetch_failed")
		if got, err := open.Fetch(context.Background(), wire.Image, "http://"+host+":"+port); err != nil || string(got) != pngURI {
			t.Errorf("%s: %s, %v", host, got, err)
		}
	}
	_, err = open.Fetch(t.Context(), wire.Image, "http://127.0.0.1:1/")
	wantFault(t, err, wire.UpstreamFailed, "media_fetch_failed")
}
