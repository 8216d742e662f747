package actors

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/journal"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a phase made of functions. Those that are nil do what a phase without
// them does.
type fake struct {
	name     string
	plan     func(r *phases.Request) (phases.Plan, error)
	join     func(r *phases.Request, results []phases.Result) (phases.Verdict, error)
	recovers func(r *phases.Request, err error) (phases.Verdict, error)
	admit    func(r *phases.Request) error
	release  func(r *phases.Request) []phases.Task
}

var (
	_ phases.Phase     = (*fake)(nil)
	_ phases.Recoverer = (*fake)(nil)
	_ phases.Admitter  = (*fake)(nil)
	_ phases.Releaser  = (*fake)(nil)
)

func (f *fake) Name() string { return f.name }

func (f *fake) Plan(r *phases.Request) (phases.Plan, error) {
	if f.plan == nil {
		return phases.Plan{}, nil
	}
	return f.plan(r)
}

func (f *fake) Join(r *phases.Request, results []phases.Result) (phases.Verdict, error) {
	if f.join == nil {
		return phases.Next, nil
	}
	return f.join(r, results)
}

func (f *fake) Recover(r *phases.Request, err error) (phases.Verdict, error) {
	if f.recovers == nil {
		return phases.Verdict{}, err
	}
	return f.recovers(r, err)
}

func (f *fake) Admit(r *phases.Request) error {
	if f.admit == nil {
		return nil
	}
	return f.admit(r)
}

func (f *fake) Release(r *phases.Request) []phases.Task {
	if f.release == nil {
		return nil
	}
	return f.release(r)
}

// work is what a task does.
type work = func(ctx context.Context) (phases.Result, error)

// plans makes a Plan function that plans the same for every request.
func plans(p phases.Plan) func(*phases.Request) (phases.Plan, error) {
	return func(*phases.Request) (phases.Plan, error) { return p, nil }
}

// one is a phase of one task, in the pool of the phase's name.
func one(name string, run work, places ...string) *fake {
	return &fake{name: name, plan: plans(phases.Plan{Places: places, Tasks: []phases.Task{{Pool: name, Run: run}}})}
}

// many is a phase of n tasks, in the pool of the phase's name.
func many(name string, n, maxParallel int, run func(ctx context.Context, i int) (phases.Result, error)) *fake {
	p := phases.Plan{MaxParallel: maxParallel}
	for i := range n {
		p.Tasks = append(p.Tasks, phases.Task{Pool: name, Run: func(ctx context.Context) (phases.Result, error) { return run(ctx, i) }})
	}
	return &fake{name: name, plan: plans(p)}
}

// nothing is work that is done at once.
func nothing(context.Context) (phases.Result, error) { return nil, nil }

// slow is work that tells when it has begun and goes on until it is let go or
// cancelled. It counts how often it ran and how many were at it at a time.
type slow struct {
	began       chan struct{}
	let         chan struct{}
	runs        atomic.Int32
	now, atOnce atomic.Int32
}

func newSlow() *slow {
	return &slow{began: make(chan struct{}, 10_000), let: make(chan struct{})}
}

func (s *slow) run(ctx context.Context) (phases.Result, error) {
	s.runs.Add(1)
	now := s.now.Add(1)
	defer s.now.Add(-1)
	for most := s.atOnce.Load(); now > most && !s.atOnce.CompareAndSwap(most, now); most = s.atOnce.Load() {
	}
	s.began <- struct{}{}
	select {
	case <-s.let:
		return nil, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// stubborn is slow work that does not listen to its context.
func (s *slow) stubborn(context.Context) (phases.Result, error) { return s.run(context.Background()) }

// patience bounds what a test waits for: in a bubble of synctest it takes no
// time.
const patience = 20 * time.Second

// take receives from ch or fails the test.
func take[T any](t testing.TB, ch <-chan T, what string) (v T) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case v = <-ch:
	case <-timer.C:
		buf := make([]byte, 1<<20)
		t.Fatalf("%s: nothing came\n%s", what, buf[:runtime.Stack(buf, true)])
	}
	return v
}

// eventually waits for what happens on another goroutine with nothing to tell
// of it.
func eventually(t testing.TB, what string, cond func() bool) bool {
	t.Helper()
	for range 200_000 { // no clock: in a bubble of synctest it would stand still
		if cond() {
			return true
		}
		for range 200 {
			runtime.Gosched()
		}
	}
	t.Errorf("never came true: %s", what)
	return false
}

// rig is an engine under test.
type rig struct {
	*Engine
	t    testing.TB
	base int // live actors without workers and their parents, when nothing is in flight
}

// setup is what an engine under test is made of.
type setup struct {
	pools    map[string]PoolSettings
	timeout  time.Duration // default: an hour
	inflight int
	watchdog time.Duration
	log      *slog.Logger
	metrics  *Metrics
}

// engine starts an engine. At the end of the test it is closed, and whatever it
// did, nothing is left of it.
func (s setup) engine(t testing.TB, line ...phases.Phase) *rig {
	t.Helper()
	if s.timeout == 0 {
		s.timeout = time.Hour
	}
	e := NewEngine(Settings{QueueTimeout: s.timeout, MaxInflight: s.inflight, Watchdog: s.watchdog, Pools: s.pools}, phases.PipelineOf(), s.log, s.metrics)
	rg := &rig{Engine: e, t: t}
	if err := rg.do(); err != nil { // the shared guardian registers on first use
		t.Fatal(err)
	}
	rg.base = rg.actors()
	rg.Swap(phases.PipelineOf(line...))
	t.Cleanup(rg.finish)
	return rg
}

// engine starts an engine with pools of one size each.
func engine(t testing.TB, pools map[string]PoolSettings, line ...phases.Phase) *rig {
	t.Helper()
	return setup{pools: pools}.engine(t, line...)
}

// roomyPools are pools in which nothing waits.
func roomyPools(names ...string) map[string]PoolSettings {
	all := map[string]PoolSettings{}
	for _, n := range names {
		all[n] = PoolSettings{Size: 64, Queue: 64}
	}
	return all
}

// actors counts the live actors but for those of the pools.
func (rg *rig) actors() (n int) {
	for _, m := range rg.system.ProcessRegistry.LocalPIDs.LocalPIDs {
		n += m.Count()
	}
	rg.pools.mu.Lock()
	defer rg.pools.mu.Unlock()
	for _, p := range rg.pools.all {
		n -= p.workers + 1
	}
	return n
}

// idle reports whether nothing is at work, queued, in flight or detached.
func (rg *rig) idle() bool {
	s := rg.Status()
	for _, p := range s.Pools {
		if p.Busy != 0 || p.Queued != 0 {
			return false
		}
	}
	return s.Inflight == 0 && s.Detached == 0
}

// allBack fails the test unless everything of the requests that are done is
// back. Surplus workers and detached tasks may take a moment.
func (rg *rig) allBack() {
	rg.t.Helper()
	idle := eventually(rg.t, "nothing is busy, queued, in flight or detached", rg.idle)
	if !eventually(rg.t, "the actor registry is back to its base", func() bool { return rg.actors() == rg.base }) || !idle {
		rg.t.Logf("status %+v, actors %d, base %d", rg.Status(), rg.actors(), rg.base)
	}
}

func (rg *rig) finish() {
	rg.mu.Lock()
	closed := rg.closing
	rg.mu.Unlock()
	if !closed {
		rg.allBack()
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if cut := rg.Close(ctx); cut != 0 {
		rg.t.Errorf("Close cut %d requests", cut)
	}
	if !rg.idle() {
		rg.t.Errorf("after Close: %+v", rg.Status())
	}
	workers := 0
	for _, p := range rg.pools.all {
		workers += p.workers + 1
	}
	if n := rg.actors() + workers; n != rg.base {
		rg.t.Errorf("%d actors are left after Close, base is %d", n, rg.base)
	}
}

// begin starts a request that must not be refused at the door.
func (rg *rig) begin(ctx context.Context) *phases.Request {
	rg.t.Helper()
	r := &phases.Request{ID: "request-1", Out: phases.NewResponse(), Journal: &journal.Journal{}}
	if err := rg.Start(ctx, r); err != nil {
		rg.t.Fatalf("refused: %v", err)
	}
	return r
}

// from starts a request of a tenant, which must not be refused at the door.
func (rg *rig) from(tenant string) *phases.Request {
	rg.t.Helper()
	r := &phases.Request{ID: tenant, Tenant: tenant, Out: phases.NewResponse(), Journal: &journal.Journal{}}
	if err := rg.Start(context.Background(), r); err != nil {
		rg.t.Fatalf("%s is refused: %v", tenant, err)
	}
	return r
}

// due starts a request that must be answered within some time.
func (rg *rig) due(within time.Duration) *phases.Request {
	rg.t.Helper()
	r := &phases.Request{ID: "request-1", Out: phases.NewResponse(), Journal: &journal.Journal{}, Deadline: time.Now().Add(within)}
	if err := rg.Start(context.Background(), r); err != nil {
		rg.t.Fatalf("refused: %v", err)
	}
	return r
}

// wantWell fails the test unless requests end well.
func (rg *rig) wantWell(all ...*phases.Request) {
	rg.t.Helper()
	for _, r := range all {
		if err := rg.outcome(r); err != nil {
			rg.t.Errorf("%s: %v", r.ID, err)
		}
	}
}

// outcome waits for a request's.
func (rg *rig) outcome(r *phases.Request) error {
	rg.t.Helper()
	take(rg.t, r.Out.Done(), "the end of the request")
	return r.Out.Err()
}

// do runs a request from begin to end.
func (rg *rig) do() error {
	rg.t.Helper()
	return rg.outcome(rg.begin(context.Background()))
}

// pool returns the status of a pool.
func (rg *rig) pool(name string) PoolStatus {
	rg.t.Helper()
	for _, p := range rg.Status().Pools {
		if p.Name == name {
			return p
		}
	}
	rg.t.Fatalf("no pool %s", name)
	return PoolStatus{}
}

// wantPool fails the test unless so many are busy and queued.
func (rg *rig) wantPool(name string, busy, queued int) {
	rg.t.Helper()
	if p := rg.pool(name); p.Busy != busy || p.Queued != queued {
		rg.t.Errorf("pool %s: %d busy, %d queued; want %d, %d", name, p.Busy, p.Queued, busy, queued)
	}
}

// wantKind fails the test unless err is a fault of this kind.
func wantKind(t testing.TB, err error, kind wire.Kind) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want %v", kind)
		return
	}
	var f *wire.Fault
	if !errors.As(err, &f) {
		t.Errorf("error %v is no fault, want %v", err, kind)
	} else if f.Kind != kind {
		t.Errorf("fault of kind %v (%v), want %v", f.Kind, err, kind)
	}
}

// record is a log of strings that many may write.
type record struct {
	mu    sync.Mutex
	lines []string
}

func (rc *record) add(line string) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	rc.lines = append(rc.lines, line)
}

func (rc *record) all() []string {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	return append([]string(nil), rc.lines...)
}

var errTest = errors.New("the test's error")
