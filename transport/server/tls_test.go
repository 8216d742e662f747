package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/files"
	"github.com/llm-coordinator/coordinator/transport/files/filestest"
)

// secureRig is a server that speaks TLS, on loopback, and its client.
type secureRig struct {
	t      *testing.T
	base   string
	client *http.Client
	dir    *filestest.Dir
	ca     *filestest.CA
	log    *logged
}

func startTLS(t *testing.T, e Engine, mutual bool, protocols ...string) *secureRig {
	t.Helper()
	r := &secureRig{t: t, dir: filestest.NewDir(t), ca: filestest.NewCA(t, "ca"), log: &logged{}}
	var s files.ServerTLS
	s.CertFile, s.KeyFile = r.dir.Pair("server", r.ca, "127.0.0.1")
	if mutual {
		s.ClientCAFile = r.dir.Write("ca.pem", r.ca.PEM)
	}
	config, err := s.Config(files.Options{Every: -1})
	if err != nil {
		t.Fatal(err)
	}
	srv := New(Settings{ReadTimeout: 30 * time.Second, WriteTimeout: 20 * time.Second, IdleTimeout: time.Hour, MaxBody: 1 << 20, TLS: config},
		e, slog.New(slog.NewTextHandler(r.log, nil)), nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := srv.Serve(l); err != nil {
			t.Error(err)
		}
	})
	r.base = "https://" + l.Addr().String()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.ca.PEM)
	p := new(http.Protocols)
	p.SetHTTP1(len(protocols) > 0)
	p.SetHTTP2(len(protocols) == 0)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, Protocols: p}
	r.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		srv.Close()
		running.Wait()
	})
	return r
}

// post posts a request; reused tells whether it went out on a connection that
// was there.
func (r *secureRig) post(ctx context.Context) (resp *http.Response, reused bool, err error) {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.base+completionsPath, strings.NewReader(hello))
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err = r.client.Do(req)
	return resp, reused, err
}

func TestClientsOverTLS(t *testing.T) {
	for _, tt := range []struct {
		protocols []string
		want      string
	}{{nil, "HTTP/2.0"}, {[]string{"http/1.1"}, "HTTP/1.1"}} {
		r := startTLS(t, ok, false, tt.protocols...)
		resp, _, err := r.post(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if a := read(resp); resp.Proto != tt.want || a.status != 200 || a.body != "m" || a.err != nil {
			t.Errorf("%s: %+v", resp.Proto, a)
		}
	}
}

// TestAnswersWithoutABodyOverHTTP2: net/http takes even an empty piece of a body ill
// there.
func TestAnswersWithoutABodyOverHTTP2(t *testing.T) {
	for _, status := range []int{200, 204, 304, 412} {
		r := startTLS(t, plays(func(ctx context.Context, out *phases.Response) error { return say(ctx, out, head(status), "") }), false)
		resp, _, err := r.post(t.Context())
		if err != nil {
			t.Errorf("%d: %v", status, err)
			continue
		}
		if a := read(resp); a.status != status || a.body != "" || a.err != nil {
			t.Errorf("%+v", a)
		}
	}
}

// TestStreamsOverHTTP2 arrive chunk by chunk; one that breaks off resets its
// stream, after the error event, and leaves the connection to others.
func TestStreamsOverHTTP2(t *testing.T) {
	next := make(chan string)
	r := startTLS(t, plays(func(ctx context.Context, out *phases.Response) error {
		if err := say(ctx, out, events); err != nil {
			return err
		}
		for text := range next {
			if text == "break" {
				return errors.New("broken")
			}
			if err := say(ctx, out, nil, text); err != nil {
				return err
			}
			if strings.Contains(text, "[DONE]") {
				return nil
			}
		}
		return nil
	}), false)
	for i, end := range []string{"data: [DONE]\n\n", "break", "data: [DONE]\n\n"} {
		resp, reused, err := r.post(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if resp.ProtoMajor != 2 || reused != (i > 0) {
			t.Errorf("%s, reused %t", resp.Proto, reused)
		}
		for _, text := range []string{"data: 1\n\n", "data: 2\n\n", "data: 3\n\n"} {
			next <- text // only now may it come
			buf := make([]byte, len(text))
			if _, err := io.ReadFull(resp.Body, buf); err != nil || string(buf) != text {
				t.Fatalf("%q, %v", buf, err)
			}
		}
		next <- end
		rest, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if end == "break" {
			if err == nil || !strings.Contains(err.Error(), "stream error") || !strings.HasPrefix(string(rest), `data: {"error":`) {
				t.Errorf("%q, %v", rest, err)
			}
		} else if err != nil || string(rest) != end {
			t.Errorf("%q, %v", rest, err)
		}
	}
}

// TestClientThatLeavesOverHTTP2 by resetting its stream is noticed.
func TestClientThatLeavesOverHTTP2(t *testing.T) {
	left := make(chan struct{})
	r := startTLS(t, plays(func(ctx context.Context, out *phases.Response) error {
		if err := say(ctx, out, events, "data: 1\n\n"); err != nil {
			return err
		}
		<-ctx.Done()
		close(left)
		return ctx.Err()
	}), false)
	ctx, cancel := context.WithCancel(t.Context())
	resp, _, err := r.post(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	<-left
	resp.Body.Close()
}

// TestOnlyClientsWithCertificatesGetIn if that is what the listener asks for.
func TestOnlyClientsWithCertificatesGetIn(t *testing.T) {
	r := startTLS(t, ok, true)
	if _, _, err := r.post(t.Context()); err == nil {
		t.Error("a client without one got in")
	}
	cert, key := r.ca.Issue("client")
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	r.client.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{pair}
	resp, _, err := r.post(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if a := read(resp); resp.ProtoMajor != 2 || a.status != 200 {
		t.Errorf("%s: %+v", resp.Proto, a)
	}
}
