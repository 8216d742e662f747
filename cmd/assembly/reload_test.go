package assembly_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/llm-coordinator/coordinator/cmd/assembly"
	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// reload has the configuration's file say something else, and reads it again.
func (r *rig) reload(text string) (assembly.Reloaded, error) {
	r.text.Store(&text)
	return r.Reload()
}

// mustReload reloads to a setup.
func (r *rig) mustReload(s setup) assembly.Reloaded {
	r.t.Helper()
	done, err := r.reload(r.file(s))
	if err != nil {
		r.t.Fatal(err)
	}
	return done
}

// connections counts the connections to upstreams.
type connections struct {
	mu      sync.Mutex
	open    int
	changed chan struct{} // closed and replaced at each change
}

func (r *rig) countConnections() *connections {
	c := &connections{changed: make(chan struct{})}
	r.dials.mu.Lock()
	defer r.dials.mu.Unlock()
	r.dials.made = func(conn net.Conn) net.Conn {
		c.add(1)
		return &counted{Conn: conn, closed: sync.OnceFunc(func() { c.add(-1) })}
	}
	return c
}

func (c *connections) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open += n
	close(c.changed)
	c.changed = make(chan struct{})
}

// wantOpen waits until so many are open.
func (c *connections) wantOpen(t testing.TB, want int) {
	t.Helper()
	for ctx := within(t); ; {
		c.mu.Lock()
		open, changed := c.open, c.changed
		c.mu.Unlock()
		if open == want {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("%d connections are open, want %d", open, want)
		}
	}
}

type counted struct {
	net.Conn
	closed func()
}

func (c *counted) Close() error {
	c.closed()
	return c.Conn.Close()
}

// TestReloadUnderLoad: requests do not notice that everything under them is put in
// another's place again and again, and nothing of what was there stays.
func TestReloadUnderLoad(t *testing.T) {
	const first = "[gateway]\nidle_conn_timeout = \"80s\"\n"
	r := newRig(t, setup{toml: first + "[actors.pools]\ndecode = { size = 64, queue = 64 }\n"})
	conns := r.countConnections()
	pools := "[actors.pools]\nrender = { size = %[1]d, queue = 99 }\nprefill = { size = %[1]d, queue = 99 }\ndecode = { size = %[1]d, queue = 99 }\npassthrough = { size = %[1]d, queue = 99 }\n"
	variants := []setup{
		{toml: fmt.Sprintf(pools, 3) + "[gateway.breaker]\nconsecutive_failures = 7\n"},
		{toml: fmt.Sprintf(pools, 40) + "[actors]\nqueue_timeout = \"50s\"\nmax_inflight_requests = 50\nmax_inflight_size = 100\n", steps: prefillStep + decodeStep},
		{toml: fmt.Sprintf(pools, 8) + "[gateway.retry]\nmax_attempts = 1\nbudget_ratio = 0.5\n[server]\nmax_request_body_size = 9\nwrite_timeout = \"99s\"\n", steps: decodeStep},
		{toml: fmt.Sprintf(pools, 8) + "[gateway]\nstream_idle_timeout = \"0s\"\nidle_conn_timeout = \"70s\"\n", pipeline: "request_timeout = \"100s\"\n"},
	}
	stop := make(chan struct{})
	var asking sync.WaitGroup
	answered := make(chan struct{}, 1)
	for i := range 6 {
		asking.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				text := fmt.Sprintf("words of %d and %d", i, n)
				got := r.post(chatPath, chatBody(text, i%2 == 0))
				if got.err != nil || got.status != http.StatusOK || i%2 == 0 && !strings.HasSuffix(got.body, "data: [DONE]\n\n") {
					t.Errorf("%d %v %s", got.status, got.err, got.body)
					return
				}
				select {
				case answered <- struct{}{}:
				default:
				}
			}
		})
	}
	for i := range 100 {
		if done := r.mustReload(variants[i%len(variants)]); len(done.Applied) == 0 || len(done.Restart) != 0 {
			t.Errorf("%+v", done)
		}
		select {
		case <-answered: // so that they meet
		case <-within(t).Done():
			t.Fatal("nothing is answered any more")
		}
	}
	close(stop)
	asking.Wait()
	r.settled()
	if n := r.metric(t, "llm_d_coordinator_reloads_total", "result=ok"); n != 100 {
		t.Errorf("%v reloads", n)
	}
	for _, p := range r.Engine.Status().Pools {
		if p.Name == "decode" && (p.Size != 8 || p.Queue != 99) {
			t.Errorf("%+v", p)
		}
	}
	// The gateway gets other connections, the render service needs none any more.
	r.mustReload(setup{toml: first, steps: decodeStep})
	conns.wantOpen(t, 0)
	if n := r.Memory.Used(); n != 0 {
		t.Errorf("%d bytes are charged", n)
	}
}

// TestReloadWhileAStreamRuns: it ends as it began, and what only it used is closed
// then.
func TestReloadWhileAStreamRuns(t *testing.T) {
	r := newRig(t, setup{})
	conns := r.countConnections()
	gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtChunk, Chunk: 2, RequestID: "old"})
	resp, err := r.open(within(t), chatPath, chatBody("one two three", true), "X-Request-Id", "old")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	before := r.cluster.Hold(cluster.Gate{Leg: cluster.Render, RequestID: "early"})
	early := make(chan response)
	go func() { early <- r.post(chatPath, chatBody("hi", false), "X-Request-Id", "early") }()
	if err := before.WaitFor(within(t), 1); err != nil {
		t.Fatal(err)
	}

	done := r.mustReload(setup{steps: decodeStep, toml: "[gateway]\nidle_conn_timeout = \"1h\"\n[server]\npassthrough_routes = []\n"})
	if want := []string{"gateway.idle_conn_timeout", "pipeline.steps", "server.passthrough_routes"}; !slices.Equal(done.Applied, want) || len(done.Restart) > 0 {
		t.Errorf("%+v", done)
	}
	if got := r.post(chatPath, chatBody("hi", false), "X-Request-Id", "new"); got.status != http.StatusOK {
		t.Errorf("%d %s", got.status, got.body)
	}
	if legs := r.legs("new"); !slices.Equal(legs, []string{"decode"}) {
		t.Errorf("the new request had the legs %v", legs)
	}
	if got := r.Status("").Pipeline; !slices.Equal(got, []string{"decode"}) {
		t.Errorf("the pipeline is %v", got)
	}
	before.Release()
	if got := <-early; got.status != http.StatusOK {
		t.Errorf("%d %s", got.status, got.body)
	}
	if legs := r.legs("early"); !slices.Equal(legs, []string{"render", "prefill", "decode"}) {
		t.Errorf("the request that came before had the legs %v", legs)
	}
	gate.Release()
	if text, err := io.ReadAll(resp.Body); err != nil || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
		t.Errorf("%v %q", err, text)
	}
	r.settled()
	conns.wantOpen(t, 1) // that of the new request
}

// TestReloadKeepsConnectionsThatItNeedNotClose.
func TestReloadKeepsConnectionsThatItNeedNotClose(t *testing.T) {
	r := newRig(t, setup{})
	r.post(chatPath, chatBody("hi", false))
	r.mustReload(setup{toml: "[gateway]\ntimeout = \"50s\"\n[gateway.retry]\nmax_attempts = 2\n", pipeline: "request_timeout = \"1m\"\n"})
	r.post(chatPath, chatBody("hi", false), "X-Request-Id", "id")
	for _, leg := range r.cluster.Legs("id") {
		if !leg.Reused {
			t.Errorf("%s made a connection of its own", leg.Name)
		}
	}
	r.settled()
}

// TestReloadThatFails changes nothing, and says what is wrong.
func TestReloadThatFails(t *testing.T) {
	good := setup{toml: "[server]\nmax_request_body_size = 3\n"}
	tests := []struct{ name, want string }{
		{"no TOML", "rig.toml:2: expected"},
		{"unknown key", "rig.toml:2: server.max_body: unknown key"},
		{"a value", "rig.toml:2: actors.pools.decode.size: must be from 1"},
		{"a step", "unknown step type: decodee"},
		{"a param", "pipeline.steps[1] (render): timeout: must be more than 0s"},
		{"a connector", `unknown kv connector "kv-x"`},
		{"a credential", `gateway.headers.Authorization: there is no environment variable "NO_SUCH_VARIABLE"`},
		{"a certificate", "rig.toml:2: server.tls.cert_file"},
		{"pipeline", `a "decode" step must be there`},
	}
	r := newRig(t, good)
	texts := map[string]string{
		"no TOML":       "[server\n",
		"unknown key":   "[server]\nmax_body = 1\n" + decodeStep,
		"a value":       "[actors.pools]\ndecode.size = 0\n" + decodeStep,
		"a step":        "[[pipeline.steps]]\ntype = \"decodee\"\n",
		"a param":       r.file(setup{toml: good.toml, render: `timeout = "0s"`}),
		"a connector":   r.file(setup{toml: good.toml, kv: "kv-x"}),
		"a credential":  r.file(setup{toml: "[gateway]\nheaders = { Authorization = \"env:NO_SUCH_VARIABLE\" }\n"}),
		"a certificate": "[server.tls]\ncert_file = \"/nowhere/cert.pem\"\nkey_file = \"/nowhere/key.pem\"\n" + decodeStep,
		"pipeline":      r.file(setup{steps: prefillStep}),
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := r.reload(texts[tt.name])
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
			if got := r.post(chatPath, chatBody("hi", false), "X-Request-Id", tt.name[:1]); got.status != http.StatusOK {
				t.Errorf("%d %s", got.status, got.body)
			}
			if c := r.Config(); c.Server.MaxRequestBodySize != 3 || len(r.Pipeline().Phases()) != 3 {
				t.Errorf("%+v", c)
			}
		})
	}
	if failed := r.metric(t, "llm_d_coordinator_reloads_total", "result=failed"); failed != float64(len(tests)) {
		t.Errorf("%v failed", failed)
	}
	if log := r.logs.String(); strings.Count(log, "the configuration was not reloaded") != len(tests) || !strings.Contains(log, "server.max_body: unknown key") {
		t.Errorf("%s", log)
	}
	if done := r.mustReload(good); !done.Unchanged() {
		t.Errorf("%+v", done)
	}
	r.settled()
}

// TestReloadOfTheSame says so.
func TestReloadOfTheSame(t *testing.T) {
	r := newRig(t, setup{})
	pipeline := r.Pipeline()
	if done, err := r.Reload(); err != nil || !done.Unchanged() || r.Pipeline() != pipeline {
		t.Errorf("%+v, %v", done, err)
	}
	if !strings.Contains(r.logs.String(), "nothing changed") || r.metric(t, "llm_d_coordinator_reloads_total", "result=unchanged") != 1 {
		t.Error(r.logs.String())
	}
}

// TestReloadsAreOneAfterTheOther.
func TestReloadsAreOneAfterTheOther(t *testing.T) {
	cfg := func() *conf.Config {
		c, err := conf.Parse("f.toml", []byte(decodeStep), nil)
		if err != nil {
			t.Error(err)
		}
		return c
	}
	loading := make(chan struct{}, 1)
	size := 0
	c, err := assembly.New(cfg(), assembly.Options{Load: func() (*conf.Config, error) {
		select {
		case loading <- struct{}{}:
		default:
			t.Error("two at once")
		}
		next := cfg()
		size++
		next.Actors.Pools.Media.Size = 100 + size
		<-loading
		return next, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if done, err := c.Reload(); err != nil || !slices.Equal(done.Applied, []string{"actors.pools.media.size"}) {
				t.Errorf("%+v, %v", done, err)
			}
		})
	}
	all.Wait()
	if got := c.Config().Actors.Pools.Media.Size; got != 108 {
		t.Errorf("size %d", got)
	}
}

// TestNoReloadWhileDraining, nor without a file.
func TestNoReloadWhileDraining(t *testing.T) {
	r := newRig(t, setup{})
	gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtHeaders})
	held := make(chan response)
	go func() { held <- r.post(chatPath, chatBody("hi", false)) }()
	if err := gate.WaitFor(within(t), 1); err != nil {
		t.Fatal(err)
	}
	text := r.file(setup{steps: decodeStep})
	if _, err := r.reload(text); err != nil {
		t.Fatal(err)
	}
	r.stop()
	for ctx := within(t); ; {
		_, err := r.Reload() // unchanged, until the drain has begun
		if errors.Is(err, assembly.ErrDraining) {
			break
		}
		if err != nil || ctx.Err() != nil {
			t.Fatal(err, context.Cause(ctx))
		}
	}
	gate.Release()
	if got := <-held; got.status != http.StatusOK {
		t.Errorf("%d %s", got.status, got.body)
	}

	cfg, err := conf.Parse("f.toml", []byte(decodeStep), nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := assembly.New(cfg, assembly.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Reload(); !errors.Is(err, assembly.ErrNoSource) {
		t.Errorf("got %v", err)
	}
}
