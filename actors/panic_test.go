package actors

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// logged is a log at debug level that many may write.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logged) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

const panicText = "the text of the panic"

func panics(context.Context) (phases.Result, error) { panic(panicText) }

// wantCrash fails the test unless err is one internal error that tells a client
// nothing of the panic.
func wantCrash(t *testing.T, err error) {
	t.Helper()
	wantKind(t, err, wire.Internal)
	if err != nil && strings.Contains(err.Error(), panicText) {
		t.Errorf("the error tells of the panic: %v", err)
	}
}

func TestAPanickingTaskFailsItsRequestOnly(t *testing.T) {
	for name, line := range map[string][]phases.Phase{
		"on a worker":     {one("a", panics)},
		"on a held place": {one("b", nothing, "a"), one("a", panics)},
		"of several":      {many("a", 3, 0, func(ctx context.Context, i int) (phases.Result, error) { return panics(ctx) })},
	} {
		t.Run(name, func(t *testing.T) {
			var out logged
			reg := prometheus.NewRegistry()
			s := newSlow()
			rg := setup{pools: map[string]PoolSettings{"a": {2, 99}, "b": {9, 9}}, log: out.logger(), metrics: NewMetrics(reg)}.
				engine(t, one("a", s.run))
			other := rg.begin(t.Context())
			take(t, s.began, "the other request")
			rg.Swap(phases.PipelineOf(line...))
			for range 50 {
				wantCrash(t, rg.do())
			}
			rg.Swap(phases.PipelineOf(many("a", 2, 0, func(ctx context.Context, _ int) (phases.Result, error) { return s.run(ctx) })))
			next := rg.begin(t.Context())
			take(t, s.began, "a worker that had panicked")
			s.let <- struct{}{}
			take(t, s.began, "the other worker")
			close(s.let)
			for _, r := range []*phases.Request{other, next} {
				if err := rg.outcome(r); err != nil {
					t.Error(err)
				}
			}
			text := out.String()
			for _, want := range []string{"request_id=request-1", "phase=a", "panic_test.go"} {
				if !strings.Contains(text, want) {
					t.Errorf("the log lacks %q:\n%.2000s", want, text)
				}
			}
			if n := counter(t, reg, "llm_d_coordinator_actor_restarts_total", "kind", "worker"); n < 50 {
				t.Errorf("%v restarts counted, want 50 or more", n)
			}
		})
	}
}

// 50 requests at once panic on a pool of two: it is still of two.
func TestAPoolKeepsItsSizeThroughPanics(t *testing.T) {
	rg := engine(t, map[string]PoolSettings{"a": {2, 100}}, one("a", panics))
	var all []*phases.Request
	for range 50 {
		all = append(all, rg.begin(t.Context()))
	}
	for _, r := range all {
		wantCrash(t, rg.outcome(r))
	}
	s := newSlow()
	rg.Swap(phases.PipelineOf(one("a", s.run)))
	for range 2 {
		all = append(all, rg.begin(t.Context()))
		take(t, s.began, "a worker")
	}
	third := rg.begin(t.Context())
	rg.wantPool("a", 2, 1)
	close(s.let)
	for _, r := range append(all[50:], third) {
		if err := rg.outcome(r); err != nil {
			t.Error(err)
		}
	}
}

// A panic in what the supervisor calls is one internal error: nothing is run
// twice, and everything is back.
func TestAPanicOfASupervisorIsOneError(t *testing.T) {
	boom := func() { panic(panicText) }
	verdict := func() (phases.Verdict, error) { boom(); return phases.Next, nil }
	s := newSlow()
	begun := make(chan struct{}, 1)
	sibling := phases.Task{Pool: "a", Run: func(ctx context.Context) (phases.Result, error) {
		begun <- struct{}{}
		return s.stubborn(ctx)
	}}
	atWork := func() { <-begun } // one that has not begun would not run any more
	for name, tc := range map[string]struct {
		phase *fake
		runs  int32 // of its task
	}{
		"Plan": {&fake{plan: func(*phases.Request) (phases.Plan, error) { boom(); return phases.Plan{}, nil }}, 0},
		"Join": {&fake{plan: one("a", s.run).plan,
			join: func(*phases.Request, []phases.Result) (phases.Verdict, error) { return verdict() }}, 1},
		"Recover": {&fake{plan: one("a", func(ctx context.Context) (phases.Result, error) { _, _ = s.run(ctx); return nil, errTest }).plan,
			recovers: func(*phases.Request, error) (phases.Verdict, error) { return verdict() }}, 1},
		"Placed": {&fake{plan: plans(phases.Plan{Places: []string{"a", "b"}, Tasks: []phases.Task{sibling},
			Placed: func() error { boom(); return nil }})}, 0},
		"Await": {&fake{plan: plans(phases.Plan{Tasks: []phases.Task{
			{Await: func(context.Context, func(phases.Result, error)) { boom() }}}})}, 0},
		// The one that was at work was forgotten: its request ended before it.
		"Await with a sibling at work": {&fake{plan: plans(phases.Plan{Tasks: []phases.Task{sibling,
			{Await: func(context.Context, func(phases.Result, error)) { atWork(); boom() }}}})}, 1},
		"Await that has woken": {&fake{plan: plans(phases.Plan{Tasks: []phases.Task{sibling,
			{Await: func(_ context.Context, wake func(phases.Result, error)) { atWork(); wake(nil, nil); boom() }}}})}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var out logged
			*s = slow{began: make(chan struct{}, 9), let: make(chan struct{})}
			reg := prometheus.NewRegistry()
			tc.phase.name = "p"
			before, after := newSlow(), newSlow()
			close(before.let)
			rg := setup{pools: map[string]PoolSettings{"a": {1, 1}, "b": {1, 1}}, log: out.logger(), metrics: NewMetrics(reg)}.
				engine(t, one("b", before.run, "b"), tc.phase, one("a", after.run))
			r := rg.begin(t.Context())
			if tc.runs > 0 {
				take(t, s.began, "the task")
				select {
				case <-r.Out.Done():
					t.Error("the request ended with a task at work")
				default:
				}
			}
			close(s.let)
			wantCrash(t, rg.outcome(r))
			rg.wantPool("a", 0, 0)
			rg.wantPool("b", 0, 0)
			if b, n, a := before.runs.Load(), s.runs.Load(), after.runs.Load(); b != 1 || n != tc.runs || a != 0 {
				t.Errorf("ran %d, %d, %d times; want 1, %d, 0", b, n, a, tc.runs)
			}
			text := out.String()
			if n := strings.Count(text, "a request's supervisor panicked"); n != 1 {
				t.Errorf("logged %d times:\n%s", n, text)
			}
			for _, want := range []string{"request_id=request-1", "phase=p", "panic_test.go"} {
				if !strings.Contains(text, want) {
					t.Errorf("the log lacks %q:\n%s", want, text)
				}
			}
			if n := counter(t, reg, "llm_d_coordinator_actor_restarts_total", "kind", "supervisor"); n != 1 {
				t.Errorf("%v crashes counted, want 1", n)
			}
			if n := counter(t, reg, "llm_d_coordinator_step_running", "step", "p"); n != 0 {
				t.Errorf("step_running is %v", n)
			}
		})
	}
}

// What Release leaves undone changes nothing for the client, who has its answer,
// nor for the phases after it.
func TestAPanicInReleaseKeepsTheOutcome(t *testing.T) {
	for _, outcome := range []error{nil, errTest} {
		t.Run(fmt.Sprint(outcome), func(t *testing.T) {
			var out logged
			run := newSlow()
			close(run.let)
			released := newSlow()
			p := one("a", func(ctx context.Context) (phases.Result, error) {
				_, _ = run.run(ctx)
				return nil, outcome
			})
			p.release = func(*phases.Request) []phases.Task { panic(panicText) }
			last := &fake{name: "b", release: func(*phases.Request) []phases.Task {
				return []phases.Task{{Pool: "a", Run: released.run}}
			}}
			rg := setup{pools: roomyPools("a"), log: out.logger()}.engine(t, p, last)
			if err := rg.do(); err != outcome {
				t.Errorf("outcome is %v, want %v", err, outcome)
			}
			take(t, released.began, "what the other phase released")
			close(released.let)
			if n := run.runs.Load(); n != 1 {
				t.Errorf("the task ran %d times", n)
			}
			if text := out.String(); !strings.Contains(text, "phase=a") || !strings.Contains(text, "panic_test.go") {
				t.Errorf("the log lacks phase or stack:\n%s", text)
			}
		})
	}
}

// Admit is called on the goroutine of a caller, who must not be taken along.
func TestAPanicInAdmitRefusesTheRequest(t *testing.T) {
	var out logged
	p := one("a", nothing)
	p.admit = func(*phases.Request) error { panic(panicText) }
	rg := setup{pools: roomyPools("a"), log: out.logger()}.engine(t, p)
	r := &phases.Request{ID: "request-1", Out: phases.NewResponse()}
	wantCrash(t, rg.Start(t.Context(), r))
	select {
	case <-r.Out.Done():
		t.Error("a refused request has an outcome")
	default:
	}
	for _, want := range []string{"request_id=request-1", "phase=a", "panic_test.go"} {
		if text := out.String(); !strings.Contains(text, want) {
			t.Errorf("the log lacks %q:\n%s", want, text)
		}
	}
}

func TestAdmitRefuses(t *testing.T) {
	p := one("a", nothing)
	fault := wire.Faultf(wire.Unavailable, "it is open")
	p.admit = func(*phases.Request) error { return fault }
	rg := engine(t, roomyPools("a"), one("a", nothing), p)
	r := &phases.Request{Out: phases.NewResponse()}
	if err := rg.Start(t.Context(), r); err != fault {
		t.Errorf("refused with %v", err)
	}
}
