package assembly_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/llm-coordinator/coordinator/cmd/assembly"
	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/broker"
	"github.com/llm-coordinator/coordinator/transport/server"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a whole coordinator and a simulated cluster behind it, on loopback,
// with a client in front.
type rig struct {
	t       testing.TB
	cluster *cluster.Cluster
	*assembly.Coordinator
	base   string
	client *http.Client
	logs   *logBuffer
	stop   context.CancelFunc
	ended  chan outcome
	// finished gets a value for each request that has been counted and logged,
	// sent counts the requests on the pipeline's routes.
	finished chan server.Record
	sent     atomic.Int64
	dials    *dialGate
	// text is what the configuration's file says when it is read again.
	text         atomic.Pointer[string]
	leasesByHand bool
}

// outcome is what Run returned.
type outcome struct {
	cut int
	err error
}

const (
	renderStep  = "[[pipeline.steps]]\ntype = \"render\"\nparams = { address = \"CLUSTER\", RENDER }\n"
	prefillStep = "[[pipeline.steps]]\ntype = \"prefill\"\n"
	decodeStep  = "[[pipeline.steps]]\ntype = \"decode\"\n"
	fullSteps   = renderStep + prefillStep + decodeStep
)

// setup says what a rig is like. Its zero value is the full pipeline over
// kv-nixl with the defaults of the configuration.
type setup struct {
	kv string // connector, default kv-nixl
	ec string // connector, default ec-nixl
	// tokensIn: use_openai_format = false
	tokensIn bool
	steps    string // of the pipeline, default fullSteps
	render   string // further params of the render step
	toml     string // further tables, but for [pipeline]
	pipeline string // further keys of [pipeline]
	cluster  cluster.Options
	gateway  string // instead of the cluster
	trace    bool   // log all, bodies too
	// hasty: Redis has as long for a command as a coordinator gives it, and not so long
	// that it cannot be too slow on a machine that has other things to do.
	hasty bool
}

// byHand is a lease for tests in which KV is lost on purpose: it ends when they have
// settled, however long they take until then.
const byHand = 24 * time.Hour

// dialGate holds the connections that a coordinator makes.
type dialGate struct {
	mu      sync.Mutex
	open    chan struct{} // closed unless dials are held
	reached chan struct{} // gets a value for each that is
	// made, if set, is given each connection, and returns what is used for it.
	made func(net.Conn) net.Conn
}

func newDialGate() *dialGate {
	g := &dialGate{open: make(chan struct{}), reached: make(chan struct{}, 100)}
	close(g.open)
	return g
}

func (g *dialGate) hold() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
}

func (g *dialGate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.open)
}

func (g *dialGate) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	g.mu.Lock()
	open, made := g.open, g.made
	g.mu.Unlock()
	select {
	case <-open:
	default:
		g.reached <- struct{}{}
		select {
		case <-open:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err == nil && made != nil {
		conn = made(conn)
	}
	return conn, err
}

// file is the configuration file of a setup.
func (r *rig) file(s setup) string {
	s = s.whole()
	steps := strings.NewReplacer("CLUSTER", r.cluster.URL(), "WORKERPORT", r.workerPort(), ", RENDER", prefixed(s.render)).Replace(s.steps)
	return "log_level = 5\n" + tables(s.toml, "gateway", fmt.Sprintf("address = %q\n", cmp.Or(s.gateway, r.cluster.URL()))) +
		fmt.Sprintf("[pipeline]\nkv_connector = %q\nec_connector = %q\nuse_openai_format = %t\n%s", s.kv, s.ec, !s.tokensIn, s.pipeline) + steps
}

// whole returns the setup with what its zero values stand for.
func (s setup) whole() setup {
	s.kv, s.ec, s.steps = cmp.Or(s.kv, cluster.KVNixl), cmp.Or(s.ec, cluster.ECNixl), cmp.Or(s.steps, fullSteps)
	return s
}

func newRig(t testing.TB, s setup) *rig {
	t.Helper()
	s = s.whole()
	s.cluster.KV, s.cluster.EC = s.kv, s.ec
	r := &rig{t: t, cluster: cluster.New(s.cluster), logs: &logBuffer{}, ended: make(chan outcome, 1),
		finished: make(chan server.Record, 10_000), dials: newDialGate(), leasesByHand: s.cluster.Lease == byHand}
	if err := r.cluster.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	text := r.file(s)
	r.text.Store(&text)
	load := func() (*conf.Config, error) { return conf.Parse("rig.toml", []byte(*r.text.Load()), nil) }
	cfg, err := load()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	level := slog.LevelDebug
	if s.trace {
		level = wire.LevelTrace
	}
	o := assembly.Options{Version: "test", Dial: r.dials.dial, Load: load, LookupEnv: r.lookupEnv, OpenBroker: openPatient,
		Log: slog.New(slog.NewTextHandler(r.logs, &slog.HandlerOptions{Level: level}))}
	if s.hasty {
		o.OpenBroker = nil
	}
	r.Coordinator, err = assembly.New(cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	r.OnFinished(func(rec server.Record) { r.finished <- rec })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.base = "http://" + l.Addr().String()
	r.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 500}}
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.Background())
	go func() {
		cut, err := r.Run(ctx, l, nil)
		r.ended <- outcome{cut, err}
	}()
	t.Cleanup(r.close)
	return r
}

// openPatient opens a broker whose Redis may take its time.
func openPatient(ctx context.Context, s broker.Settings, log *slog.Logger, m *broker.Metrics) (assembly.OpenedBroker, error) {
	s.Timeout = time.Minute
	return broker.Open(context.WithoutCancel(ctx), s, log, m)
}

// workerPort is where the cluster's prefill worker listens for other workers.
func (r *rig) workerPort() string {
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(r.cluster.URL(), "http://"))
	return port
}

// lookupEnv tells the coordinator what its workers are told.
func (r *rig) lookupEnv(name string) (string, bool) {
	switch name {
	case "VLLM_MOONCAKE_BOOTSTRAP_PORT", "VLLM_P2P_SIDE_CHANNEL_PORT":
		return r.workerPort(), true
	}
	return os.LookupEnv(name)
}

func prefixed(params string) string {
	if params == "" {
		return ""
	}
	return ", " + params
}

// tables puts lines into the table of that name, which may be among more.
func tables(more, name, lines string) string {
	head := "[" + name + "]\n"
	if before, after, ok := strings.Cut(more, head); ok {
		return before + head + lines + after
	}
	return more + "\n" + head + lines
}

func (r *rig) close() {
	r.cluster.ClearFaults()
	r.stop()
	<-r.ended
	r.client.CloseIdleConnections()
	r.cluster.Close()
}

// within is a context that ends a test which hangs.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// response is an answer as the client has it.
type response struct {
	status int
	header http.Header
	body   string
	err    error // of reading the body
}

// post sends a request and reads its answer. header holds names and values.
func (r *rig) post(path, body string, header ...string) response {
	r.t.Helper()
	return r.postCtx(within(r.t), path, body, header...)
}

func (r *rig) postCtx(ctx context.Context, path, body string, header ...string) response {
	r.t.Helper()
	resp, err := r.open(ctx, path, body, header...)
	if err != nil {
		return response{err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return response{resp.StatusCode, resp.Header, string(text), err}
}

func (r *rig) open(ctx context.Context, path, body string, header ...string) (*http.Response, error) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.base+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	r.sent.Add(1)
	return r.client.Do(req)
}

const (
	chatPath        = "/v1/chat/completions"
	completionsPath = "/v1/completions"
)

func chatBody(text string, stream bool) string {
	return fmt.Sprintf(`{"model":"demo-model","stream":%t,"messages":[{"role":"user","content":%q}]}`, stream, text)
}

// clusterAtRest waits until the cluster has nothing of any request, once they have
// ended. Where leases end by hand they do as soon as nothing is on the way.
func (r *rig) clusterAtRest() {
	r.t.Helper()
	if r.leasesByHand {
		r.eventually("no release on the way", func() bool { return r.Engine.Status().Detached == 0 })
		if err := r.cluster.Wait(within(r.t), cluster.State.Quiet); err != nil {
			r.t.Fatalf("legs are in flight: %v: %+v", err, r.cluster.State())
		}
		r.cluster.EndLeases()
	}
	if err := r.cluster.Wait(within(r.t), cluster.State.Idle); err != nil {
		r.t.Fatalf("the cluster is not idle: %v: %+v", err, r.cluster.State())
	}
}

// settled waits until all requests have ended (a handler does a moment after
// its client has seen the end), and checks that nothing is left of any: in the
// cluster, in the engine, in the pools.
func (r *rig) settled() {
	r.t.Helper()
	for ctx := within(r.t); r.sent.Load() > 0; r.sent.Add(-1) {
		select {
		case <-r.finished:
		case <-ctx.Done():
			r.t.Fatalf("%d requests have not ended: %+v", r.sent.Load(), r.Engine.Status())
		}
	}
	r.clusterAtRest()
	s := r.Engine.Status()
	if s.Inflight != 0 || s.Detached != 0 {
		r.t.Errorf("left in the engine: %+v", s)
	}
	for _, p := range s.Pools {
		if p.Busy != 0 || p.Queued != 0 {
			r.t.Errorf("left in pool %s: %+v", p.Name, p)
		}
	}
	if st := r.cluster.State(); st.ViolationCount != 0 {
		r.t.Errorf("the cluster saw violations: %q", st.Violations)
	}
}

// legs returns the names of the legs that the cluster saw of a request ("" is
// all), in order of arrival.
func (r *rig) legs(id string) (names []string) {
	for _, l := range r.cluster.Legs(id) {
		names = append(names, l.Name)
	}
	return names
}

// logBuffer is a log that many goroutines write.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
