package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/files"
	"github.com/llm-coordinator/coordinator/transport/files/filestest"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// secureServer serves a handler over TLS, or without if there are no files, on
// loopback, and returns its address. Pipes would not do: in a handshake both
// sides write, and would wait for each other.
func secureServer(t *testing.T, s files.ServerTLS, p *http.Protocols, h http.Handler) string {
	t.Helper()
	config, err := s.Config(files.Options{Every: -1})
	if err != nil {
		t.Fatal(err)
	}
	if config != nil && config.GetConfigForClient != nil && !p.HTTP2() {
		inner := config.GetConfigForClient
		config.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			c, err := inner(h)
			c.NextProtos = []string{"http/1.1"}
			return c, err
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h, TLSConfig: config, Protocols: p, ConnContext: cluster.ConnContext,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	var running sync.WaitGroup
	running.Go(func() {
		if config == nil {
			srv.Serve(l)
		} else {
			srv.ServeTLS(l, "", "")
		}
	})
	t.Cleanup(func() {
		srv.Close()
		running.Wait()
	})
	return l.Addr().String()
}

// to makes a rig of an address.
func to(t *testing.T, s OriginSettings, edit ...func(*UpstreamSettings)) *rig {
	t.Helper()
	if s.Files.Every == 0 {
		s.Files.Every = -1
	}
	s.MaxIdle = 10
	o, err := NewOrigin(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return see(t, o, edit...)
}

func protocolsOf(http1, http2, h2c bool) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(http1)
	p.SetHTTP2(http2)
	p.SetUnencryptedHTTP2(h2c)
	return p
}

// proto answers with the protocol that it was asked by, and who asked.
var proto = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	who := ""
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		who = " " + r.TLS.PeerCertificates[0].Subject.CommonName
	}
	io.WriteString(w, r.Proto+who)
})

// TestLegsOverTLS: with whom, by which protocol, and what the fault is if not.
func TestLegsOverTLS(t *testing.T) {
	d, ca, other := filestest.NewDir(t), filestest.NewCA(t, "ca"), filestest.NewCA(t, "other")
	caFile, otherFile := d.Write("ca.pem", ca.PEM), d.Write("other.pem", other.PEM)
	cert, key := d.Pair("server", ca, "gw.test", "127.0.0.1")
	mine, mineKey := d.Pair("mine", ca, "me")
	wrong, wrongKey := d.Pair("wrong", other, "me")
	one := files.ServerTLS{CertFile: cert, KeyFile: key}
	both := files.ServerTLS{CertFile: cert, KeyFile: key, ClientCAFile: caFile}
	modern, old := protocolsOf(true, true, false), protocolsOf(true, false, false)
	tests := []struct {
		name    string
		server  files.ServerTLS
		speaks  *http.Protocols
		client  TLS
		body    string // or else
		fault   error
		because string
	}{
		{"HTTP/2", one, modern, TLS{CAFile: caFile}, "HTTP/2.0", nil, ""},
		{"HTTP/1.1", one, old, TLS{CAFile: caFile}, "HTTP/1.1", nil, ""},
		{"named otherwise", one, modern, TLS{CAFile: caFile, ServerName: "gw.test"}, "HTTP/2.0", nil, ""},
		{"both have certificates", both, modern, TLS{CAFile: caFile, CertFile: mine, KeyFile: mineKey}, "HTTP/2.0 me", nil, ""},
		{"both, HTTP/1.1", both, old, TLS{CAFile: caFile, CertFile: mine, KeyFile: mineKey}, "HTTP/1.1 me", nil, ""},
		{"wrong name", one, modern, TLS{CAFile: caFile, ServerName: "x.test"}, "", errNoConnection, "TLS handshake: tls: failed to verify certificate: x509: certificate is valid for gw.test, not x.test"},
		{"another CA", one, modern, TLS{CAFile: otherFile}, "", errNoConnection, "TLS handshake: tls: failed to verify certificate: x509: certificate signed by unknown authority"},
		{"no certificate", both, modern, TLS{CAFile: caFile}, "", errNoAnswer, ""},
		{"no certificate, HTTP/1.1", both, old, TLS{CAFile: caFile}, "", errNoAnswer, ""},
		{"wrong certificate", both, modern, TLS{CAFile: caFile, CertFile: wrong, KeyFile: wrongKey}, "", errNoAnswer, ""},
		{"no TLS", files.ServerTLS{}, old, TLS{CAFile: caFile}, "", errNoConnection, "TLS handshake: the upstream does not speak TLS"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := to(t, OriginSettings{Address: "https://" + secureServer(t, tt.server, tt.speaks, proto), TLS: tt.client})
			body, sent, f := r.call(leg("{}"))
			if tt.fault == nil {
				if f != nil || body != tt.body {
					t.Errorf("%q, %v", body, f)
				}
				return
			}
			// What a server has against a certificate comes after the handshake,
			// and the client may find the connection closed before it reads that.
			late := tt.fault == errNoAnswer && errors.Is(f, errNoConnection)
			if f == nil || f.Kind != wire.UpstreamFailed || !late && !errors.Is(f, tt.fault) || !strings.Contains(f.Error(), tt.because) ||
				sent.Attempts != 1 || sent.Reached != errors.Is(f, errNoAnswer) {
				t.Errorf("%+v, %v", sent, f)
			}
		})
	}
}

// TestAlertsAreTold, if they are read at all.
func TestAlertsAreTold(t *testing.T) {
	alert := &net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("net/http: %w", alert), errNoAnswer.Error() + ": remote error: tls: certificate required"},
		{errors.New(secret), errNoAnswer.Error()},
		{&net.OpError{Op: "read", Err: errors.New(secret)}, errNoAnswer.Error()},
	} {
		if got := noAnswer(tt.err); got.Error() != tt.want || !errors.Is(got, errNoAnswer) {
			t.Errorf("got %v, want %s", got, tt.want)
		}
	}
}

func TestH2C(t *testing.T) {
	address := "http://" + secureServer(t, files.ServerTLS{}, protocolsOf(true, false, true), proto)
	for h2c, want := range map[bool]string{true: "HTTP/2.0", false: "HTTP/1.1"} {
		r := to(t, OriginSettings{Address: address, H2C: h2c})
		for range 2 {
			if body, _, f := r.call(leg("{}")); f != nil || body != want {
				t.Errorf("h2c %t: %q, %v", h2c, body, f)
			}
		}
	}
}

// TestGatewayWithANewCertificate: connections that are made from then on see it.
func TestGatewayWithANewCertificate(t *testing.T) {
	d, first, second := filestest.NewDir(t), filestest.NewCA(t, "first"), filestest.NewCA(t, "second")
	caFile := d.Write("ca.pem", first.PEM)
	cert, key := d.Pair("server", first, "127.0.0.1")
	once := func(w http.ResponseWriter, r *http.Request) { // so that each call makes a new connection
		w.Header().Set("Connection", "close")
		proto(w, r)
	}
	r := to(t, OriginSettings{TLS: TLS{CAFile: caFile},
		Address: "https://" + secureServer(t, files.ServerTLS{CertFile: cert, KeyFile: key}, protocolsOf(true, false, false), http.HandlerFunc(once))})
	for _, s := range []struct {
		name   string
		change func()
		good   bool
	}{
		{"as it was", func() {}, true},
		{"renewed", func() { d.Pair("server", first, "127.0.0.1") }, true},
		{"of another CA", func() { d.Pair("server", second, "127.0.0.1") }, false},
		{"which is known now", func() { d.Write("ca.pem", second.PEM) }, true},
		{"and lost", func() { d.Write("ca.pem", nil) }, true},
	} {
		s.change()
		if _, _, f := r.call(leg("{}")); (f == nil) != s.good {
			t.Errorf("%s: %v", s.name, f)
		}
	}
}

// TestOriginsThatCannotBe name their key, and what is wrong with it.
func TestOriginsThatCannotBe(t *testing.T) {
	d, ca := filestest.NewDir(t), filestest.NewCA(t, "ca")
	cert, _ := d.Pair("a", ca, "a")
	empty, none := d.Write("empty", nil), d.Path("none")
	lines, breaks := d.Write("lines", []byte(secret+"\nX-Evil: 1\n")), d.Write("breaks", []byte("\r\n\n"))
	env := func(name string) (string, bool) {
		value, ok := map[string]string{"EMPTY": "", "LINES": secret + "\r\nX-Evil: 1"}[name]
		return value, ok
	}
	headers := func(name, value string) OriginSettings {
		return OriginSettings{Address: "http://h", Headers: map[string]string{name: value}, LookupEnv: env, ProfileHeader: "X-My-Profile"}
	}
	const control = "the value has a line break or another control character in it"
	tests := []struct {
		settings OriginSettings
		want     string
	}{
		{OriginSettings{Address: "https://h", H2C: true}, "h2c: is for an http address; over https HTTP/2 is spoken anyway"},
		{OriginSettings{Address: "http://h", TLS: TLS{CAFile: "x"}}, "tls.ca_file: is for an https address"},
		{OriginSettings{Address: "http://h", TLS: TLS{ServerName: "x"}}, "tls.server_name: is for an https address"},
		{OriginSettings{Address: "https://h", TLS: TLS{CertFile: cert}}, "tls.cert_file: needs key_file too"},
		{OriginSettings{Address: "https://h", TLS: TLS{KeyFile: cert}}, "tls.key_file: needs cert_file too"},
		{OriginSettings{Address: "https://h", TLS: TLS{CAFile: none}}, "tls.ca_file: stat " + none + ": no such file or directory"},
		{OriginSettings{Address: "https://h", TLS: TLS{CAFile: empty}}, "tls.ca_file: " + empty + ": no certificate in PEM is in it"},
		{headers("X-A", ""), "headers.X-A: the value is empty"},
		{headers("X-A", " "), "headers.X-A: the value is empty"},
		{headers("X-A", secret+"\n"), "headers.X-A: " + control},
		{headers("X-A", "env:NONE"), `headers.X-A: there is no environment variable "NONE"`},
		{headers("X-A", "env:EMPTY"), "headers.X-A: the value is empty"},
		{headers("X-A", "env:LINES"), "headers.X-A: " + control},
		{headers("X-A", "file:"+none), "headers.X-A: stat " + none + ": no such file or directory"},
		{headers("X-A", "file:"+empty), "headers.X-A: " + empty + ": the value is empty"},
		{headers("X-A", "file:"+breaks), "headers.X-A: " + breaks + ": the value is empty"},
		{headers("X-A", "file:"+lines), "headers.X-A: " + lines + ": " + control},
		{headers("X A", "x"), "headers.X A: want the name of an HTTP header"},
		{headers("", "x"), "headers.: want the name of an HTTP header"},
		{OriginSettings{Address: "http://h", Headers: map[string]string{"x-a": "1", "X-A": "2"}}, "headers.x-a: is there twice, in capitals and small letters"},
	}
	for _, name := range []string{"x-my-profile", "X-Request-ID", "x-coordinator-hop", "Prefer", "Content-Type", "content-length", "Content-Language",
		"Host", "Connection", "te", "Transfer-Encoding", "Upgrade", "Keep-Alive", "Trailer", "Proxy-Authorization", "Proxy-Connection", "Expect", "Accept-Encoding"} {
		tests = append(tests, struct {
			settings OriginSettings
			want     string
		}{headers(name, "x"), "headers." + name + ": is the coordinator's own to set"})
	}
	for _, tt := range tests {
		_, err := NewOrigin(tt.settings)
		bad := (*SettingError)(nil)
		if !errors.As(err, &bad) || err.Error() != tt.want || strings.Contains(err.Error(), secret) {
			t.Errorf("got  %v\nwant %s", err, tt.want)
		}
	}
}

// TestHeadersOfAnOrigin go on each of its legs, in place of the client's.
func TestHeadersOfAnOrigin(t *testing.T) {
	d, logs := filestest.NewDir(t), &bytes.Buffer{}
	file := d.Write("token", []byte("Bearer one\n"))
	l := raw(t, func(_ int, c *conn) {
		for {
			h, ok := c.hear()
			if !ok {
				return
			}
			text := strings.Join(h.values("Authorization"), "|") + "," + strings.Join(h.values("X-Env"), "|") + "," +
				strings.Join(h.values("X-Literal"), "|") + "," + strings.Join(h.values("Epp-Profile"), "|")
			c.say("HTTP/1.1 200 OK\r\nContent-Length: " + strconv.Itoa(len(text)) + "\r\n\r\n" + text)
		}
	})
	r := to(t, OriginSettings{Address: "http://upstream.test", Dial: l.DialContext, ProfileHeader: "EPP-Profile",
		Files:     files.Options{Every: -1, Log: slog.New(slog.NewTextHandler(logs, nil))},
		LookupEnv: func(name string) (string, bool) { return "value of " + name, true },
		Headers:   map[string]string{"authorization": "file:" + file, "X-Env": "env:NAME", "x-literal": "a: b"}})
	client := http.Header{"Authorization": {"Bearer client", "another"}, "X-Literal": {"client"}}
	for _, s := range []struct{ name, change, want string }{
		{"as it was", "", "Bearer one,value of NAME,a: b,prefill"},
		{"changed", "Bearer two\r\n", "Bearer two,value of NAME,a: b,prefill"},
		{"broken", "Bearer three\nX-Evil: 1\n", "Bearer two,value of NAME,a: b,prefill"},
		{"again", "Bearer four", "Bearer four,value of NAME,a: b,prefill"},
	} {
		if s.change != "" {
			d.Write("token", []byte(s.change))
		}
		for range 2 {
			lg := leg("{}")
			lg.Header = client
			if body, _, f := r.call(lg); f != nil || body != s.want {
				t.Errorf("%s: %q, %v; want %q", s.name, body, f, s.want)
			}
		}
	}
	if len(client["Authorization"]) != 2 {
		t.Errorf("the client's headers were changed: %v", client)
	}
	if n := strings.Count(logs.String(), "level=WARN"); n != 1 || strings.Contains(logs.String(), "Bearer") {
		t.Errorf("%d warnings:\n%s", n, logs)
	}
}

// TestTheClusterOverHTTP2 streams chunk by chunk: the next is held until the one
// before has arrived.
func TestTheClusterOverHTTP2(t *testing.T) {
	d, ca := filestest.NewDir(t), filestest.NewCA(t, "ca")
	cert, key := d.Pair("server", ca, "127.0.0.1")
	for _, tt := range []struct {
		name   string
		server files.ServerTLS
		speaks *http.Protocols
		scheme string
		client TLS
		h2c    bool
	}{
		{"TLS", files.ServerTLS{CertFile: cert, KeyFile: key}, protocolsOf(true, true, false), "https://", TLS{CAFile: d.Write("ca.pem", ca.PEM)}, false},
		{"h2c", files.ServerTLS{}, protocolsOf(false, false, true), "http://", TLS{}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := cluster.New(cluster.Options{})
			t.Cleanup(c.Close)
			r := to(t, OriginSettings{Address: tt.scheme + secureServer(t, tt.server, tt.speaks, c.Handler()), TLS: tt.client, H2C: tt.h2c},
				func(s *UpstreamSettings) { s.Name, s.Profile = "decode", "decode" })
			held := c.Hold(cluster.Gate{At: cluster.AtChunk, Chunk: 1})
			a, _, err := r.Open(t.Context(), leg(`{"model":"demo-model","prompt":"a b c","stream":true}`))
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			if n, err := a.Read(make([]byte, 1<<16)); n == 0 || err != nil {
				t.Fatalf("%d bytes, %v", n, err)
			}
			if err := held.WaitFor(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			held.Release()
			rest, err := io.ReadAll(a)
			if err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
				t.Errorf("%q, %v", rest, err)
			}
			// To leave tells the worker to stop, and the connection lives on.
			c.Hold(cluster.Gate{At: cluster.AtChunk, Chunk: 1})
			if a, _, err = r.Open(t.Context(), leg(`{"model":"demo-model","prompt":"d","stream":true}`)); err != nil {
				t.Fatal(err)
			}
			a.Close()
			within, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := c.Wait(within, cluster.State.Idle); err != nil {
				t.Errorf("the worker was not told: %v", err)
			}
		})
	}
}
