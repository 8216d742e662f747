package gateway

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/metricstest"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// secret is what the upstreams of these tests put where nobody may see it.
const secret = "the patient has gout"

// rig is an upstream seen through a profile, and the figures of it.
type rig struct {
	*Upstream
	t   *testing.T
	reg *prometheus.Registry
}

// dial makes a rig of an upstream that listens on pipes.
func dial(t *testing.T, l *cluster.PipeListener, edit ...func(*UpstreamSettings)) *rig {
	t.Helper()
	o, err := NewOrigin(OriginSettings{Address: "http://upstream.test:8080", MaxIdle: 10, Dial: l.DialContext})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return see(t, o, edit...)
}

// see makes a rig of an origin.
func see(t *testing.T, o *Origin, edit ...func(*UpstreamSettings)) *rig {
	s := UpstreamSettings{Name: "prefill", ProfileHeader: "EPP-Profile", Profile: "prefill", Timeout: time.Minute}
	for _, f := range edit {
		f(&s)
	}
	r := &rig{t: t, reg: prometheus.NewRegistry()}
	m := NewMetrics(r.reg)
	r.Upstream = NewUpstream(o, s, m)
	m.Show(r.Upstream)
	return r
}

// seeOver makes a rig of an origin over TCP, which keeps one connection.
func seeOver(t *testing.T, url string) *rig {
	t.Helper()
	o, err := NewOrigin(OriginSettings{Address: url, MaxIdle: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return see(t, o)
}

// retrying has legs sent up to so many times, without a pause.
func retrying(attempts int) func(*UpstreamSettings) {
	return func(s *UpstreamSettings) { s.Retries.MaxAttempts = attempts }
}

// metric returns the value of a series, named as name or name{a="b",c="d"}.
func (r *rig) metric(series string) float64 {
	r.t.Helper()
	return metricstest.All(r.t, r.reg)[series]
}

// call calls and returns what is known of the fault, if it is one.
func (r *rig) call(leg Leg) (body string, sent Sent, f *wire.Fault) {
	r.t.Helper()
	text, sent, err := r.Call(r.t.Context(), leg)
	return string(text), sent, faultOf(r.t, err)
}

func faultOf(t *testing.T, err error) (f *wire.Fault) {
	t.Helper()
	if err != nil && !errors.As(err, &f) {
		t.Errorf("%v is no fault", err)
		return wire.FaultOf(err)
	}
	return f
}

// leg is a leg with this body.
func leg(body string) Leg {
	return Leg{Path: "/v1/completions", ID: "req", Body: func(string) wire.Payload { return wire.NewPayload([]byte(body)) }}
}

// raw starts an upstream that is a function of each connection, which it
// numbers from 0: it hears and says bytes, and knows no HTTP.
func raw(t *testing.T, serve func(n int, c *conn)) *cluster.PipeListener {
	l := cluster.NewPipeListener()
	var running sync.WaitGroup
	var conns []net.Conn
	accepted := make(chan struct{})
	running.Go(func() {
		defer close(accepted)
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns = append(conns, c)
			running.Go(func() {
				defer c.Close()
				serve(n, newConn(c))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		<-accepted
		for _, c := range conns {
			c.Close()
		}
		running.Wait()
	})
	return l
}

type conn struct {
	net.Conn
	in *bufio.Reader
}

func newConn(c net.Conn) *conn { return &conn{Conn: c, in: bufio.NewReader(c)} }

// heard is a request as it was on the wire.
type heard struct {
	line   string
	header []string // sorted
	body   string
}

func (h heard) values(name string) (values []string) {
	for _, line := range h.header {
		if n, v, _ := strings.Cut(line, ": "); textproto.CanonicalMIMEHeaderKey(n) == name {
			values = append(values, v)
		}
	}
	return values
}

// hear reads a request. ok is false if the connection ended first.
func (c *conn) hear() (h heard, ok bool) {
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			return h, false
		}
		line = strings.TrimSuffix(line, "\r\n")
		if line == "" {
			break
		}
		if h.line == "" {
			h.line = line
		} else {
			h.header = append(h.header, line)
		}
	}
	slices.Sort(h.header)
	n := 0
	if length := h.values("Content-Length"); len(length) == 1 {
		n, _ = strconv.Atoi(length[0])
	}
	body := make([]byte, n)
	_, err := io.ReadFull(c.in, body)
	h.body = string(body)
	return h, err == nil
}

// say writes; with net.Pipe it returns when the other side has read that.
func (c *conn) say(text string) { io.WriteString(c, text) }

// good is a whole good answer.
const good = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

// serve starts an upstream that is a handler.
func serve(t *testing.T, h http.HandlerFunc) *cluster.PipeListener {
	l := cluster.NewPipeListener()
	s := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	var running sync.WaitGroup
	running.Go(func() { s.Serve(l) })
	t.Cleanup(func() {
		s.Close()
		running.Wait()
	})
	return l
}

// tripAfter switches a breaker on that n failures in a row trip.
func tripAfter(n uint32) func(*UpstreamSettings) {
	return func(s *UpstreamSettings) {
		s.Breaker = BreakerSettings{Enabled: true, ConsecutiveFailures: n, Interval: 10 * time.Second,
			OpenTimeout: 5 * time.Second, HalfOpenRequests: 3}
	}
}
