package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/metricstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	chatPath        = "/v1/chat/completions"
	completionsPath = "/v1/completions"
	hello           = `{"model":"m","prompt":"hello"}`

	// secret is what clients and workers say to each other in these tests.
	secret = "the patient has gout"
)

// engine is an Engine that is a function.
type engine func(ctx context.Context, r *phases.Request) error

func (f engine) Start(ctx context.Context, r *phases.Request) error {
	ctx, cancel := context.WithCancelCause(ctx) // which ends with the client's request
	r.Out.StopBy(cancel)
	return f(ctx, r)
}

// plays is an engine that answers as told, in a goroutine of its own, and ends
// the request with what that returns.
func plays(answer func(ctx context.Context, out *phases.Response) error) engine {
	return func(ctx context.Context, r *phases.Request) error {
		go func() { r.Out.Finish(answer(ctx, r.Out)) }()
		return nil
	}
}

// never is an engine that must not be started.
func never(t *testing.T) engine {
	return func(context.Context, *phases.Request) error {
		t.Error("the engine was started")
		return nil
	}
}

// ok answers with 200 and what the client wrote about its model.
var ok = engine(func(ctx context.Context, r *phases.Request) error {
	go func() { r.Out.Finish(say(ctx, r.Out, head(200), r.Model)) }()
	return nil
})

func head(status int, header ...string) *phases.Head {
	h := &phases.Head{Status: status, Header: http.Header{"Content-Type": {"application/json"}}}
	for i := 0; i < len(header); i += 2 {
		h.Header[header[i]] = []string{header[i+1]}
	}
	return h
}

var events = head(200, "Content-Type", "text/event-stream; charset=utf-8")

// say sends a head and chunks.
func say(ctx context.Context, out *phases.Response, head *phases.Head, chunks ...string) error {
	if head != nil {
		if err := out.Send(ctx, phases.Item{Head: head}); err != nil {
			return err
		}
	}
	for _, text := range chunks {
		c := phases.NewChunk()
		c.Fill(func(p []byte) (int, error) { return copy(p, text), nil })
		if err := out.Send(ctx, phases.Item{Chunk: c}); err != nil {
			return err
		}
	}
	return nil
}

// rig is a server that listens on pipes.
type rig struct {
	*Server
	t       *testing.T
	pipes   *cluster.PipeListener
	client  *http.Client
	reg     *prometheus.Registry
	records chan Record
	log     *logged
}

func start(t *testing.T, e Engine, edit ...func(*Settings)) *rig {
	return startWith(t, nil, e, edit...)
}

// startWith starts a server and a client that speak other protocols than HTTP/1.1.
func startWith(t *testing.T, protocols *http.Protocols, e Engine, edit ...func(*Settings)) *rig {
	s := Settings{ReadTimeout: 30 * time.Second, WriteTimeout: 20 * time.Second, IdleTimeout: time.Hour, MaxBody: 1 << 20, ProfileHeader: "EPP-Profile"}
	for _, f := range edit {
		f(&s)
	}
	r := &rig{t: t, pipes: cluster.NewPipeListener(), reg: prometheus.NewRegistry(), records: make(chan Record, 100), log: &logged{}}
	r.Server = New(s, e, slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.Level(math.MinInt)})), NewMetrics(r.reg))
	r.Finished = func(rec Record) { r.records <- rec }
	r.http.Protocols = protocols
	var running, conns sync.WaitGroup
	r.http.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			conns.Add(1)
		case http.StateClosed:
			conns.Done()
		}
	}
	running.Go(func() {
		if err := r.Serve(r.pipes); err != nil {
			t.Error(err)
		}
	})
	transport := &http.Transport{DialContext: r.pipes.DialContext, DisableCompression: true, Protocols: protocols}
	r.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		r.Close()
		running.Wait()
		conns.Wait()
	})
	return r
}

// logged is what was logged.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

func (r *rig) send(method, path, body string, header ...string) answer {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, "http://coordinator.test"+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	return read(resp)
}

func (r *rig) post(body string, header ...string) answer {
	r.t.Helper()
	return r.send(http.MethodPost, completionsPath, body, header...)
}

func read(resp *http.Response) answer {
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(body), err}
}

// open posts a request and returns the answer unread.
func (r *rig) open(ctx context.Context) *http.Response {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://coordinator.test"+completionsPath, strings.NewReader(hello))
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp
}

// dial returns a connection to which the test writes bytes itself.
func (r *rig) dial() (net.Conn, *bufio.Reader) {
	r.t.Helper()
	c, err := r.pipes.DialContext(r.t.Context(), "", "")
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c, bufio.NewReader(c)
}

// request is a request on the wire; body may be less than length says.
func request(method, path string, length int, body string, header ...string) string {
	text := method + " " + path + " HTTP/1.1\r\nHost: coordinator.test\r\nContent-Length: " + strconv.Itoa(length) + "\r\n"
	for i := 0; i < len(header); i += 2 {
		text += header[i] + ": " + header[i+1] + "\r\n"
	}
	return text + "\r\n" + body
}

// wantError fails the test unless the answer is an error object, whole and as
// the contract says.
func wantError(t *testing.T, a answer, status int, kind, code string) {
	t.Helper()
	if a.err != nil || a.status != status {
		t.Errorf("got %d %q, %v; want %d", a.status, a.body, a.err, status)
		return
	}
	if got := a.header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %q", got)
	}
	wantErrorObject(t, a.body, a.header.Get("X-Request-Id"), kind, code)
}

func wantErrorObject(t *testing.T, body, id, kind, code string) {
	t.Helper()
	var o struct {
		Error struct {
			Message string          `json:"message"`
			Type    string          `json:"type"`
			Param   json.RawMessage `json:"param"`
			Code    string          `json:"code"`
		} `json:"error"`
	}
	d := json.NewDecoder(strings.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		t.Errorf("%v in %q", err, body)
	}
	e := o.Error
	if id == "" || !strings.HasSuffix(e.Message, " (request_id: "+id+")") || e.Type != kind || string(e.Param) != "null" || e.Code != code {
		t.Errorf("%s; want %s, %s, of %s", body, kind, code, id)
	}
	if strings.Contains(body, secret) {
		t.Errorf("tells what it must not: %s", body)
	}
}

// metric returns the value of a series, named as name or name{a="b",c="d"}.
func (r *rig) metric(series string) float64 {
	r.t.Helper()
	return metricstest.All(r.t, r.reg)[series]
}

func wait(d time.Duration) { <-time.After(d) }
