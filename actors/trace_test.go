package actors

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// steps are the phases of a trace.
func steps(r *phases.Request) (names []string) {
	for _, s := range r.Journal.Entry().Steps {
		names = append(names, s.Phase)
	}
	return names
}

func TestTraceTellsWhatHappenedWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sleeps := func(context.Context) (phases.Result, error) { time.Sleep(time.Second); return nil, nil }
		rg := engine(t, map[string]PoolSettings{"a": {1, 9}, "b": {1, 9}},
			&fake{name: "skipped"}, one("a", sleeps), many("b", 3, 0, func(ctx context.Context, _ int) (phases.Result, error) { return sleeps(ctx) }),
			&fake{name: "skipped, too"})
		began := time.Now()
		first, second := rg.begin(t.Context()), rg.begin(t.Context())
		for _, r := range []*phases.Request{first, second} {
			if err := rg.outcome(r); err != nil {
				t.Error(err)
			}
			if got, want := steps(r), []string{"a", "b"}; !slices.Equal(got, want) {
				t.Errorf("steps %v, want %v", got, want)
			}
		}
		a, b, queued := first.Journal.Entry().Steps[0], first.Journal.Entry().Steps[1], second.Journal.Entry().Steps[0]
		at := func(what string, got time.Time, want time.Duration) {
			t.Helper()
			if got.Sub(began) != want {
				t.Errorf("%s at %v, want %v", what, got.Sub(began), want)
			}
		}
		at("a began", a.Began, 0)
		at("a sent", a.Sent, 0)
		at("a ended", a.Ended, time.Second)
		at("b began", b.Began, time.Second)
		at("b sent", b.Sent, time.Second)
		at("b ended", b.Ended, 4*time.Second)
		at("queued began", queued.Began, 0)
		at("queued sent", queued.Sent, time.Second)
		if a.Tasks != 1 || b.Tasks != 3 {
			t.Errorf("%d and %d tasks, want 1 and 3", a.Tasks, b.Tasks)
		}
		if a.Code != "" || b.Code != "" {
			t.Errorf("codes %q, %q", a.Code, b.Code)
		}
		e := second.Journal.Entry()
		if len(e.Waits) != 4 || e.Waits[0].Pool != "a" || e.Queued(0) != time.Second || e.Queued(1) != 4*time.Second {
			t.Errorf("waits %+v", e.Waits)
		}
		if first := first.Journal.Entry(); len(first.Waits) != 2 || first.Queued(0) != 0 || first.Queued(1) != 2*time.Second {
			t.Errorf("waits of the first %+v", first.Waits)
		}
	})
}

func TestTraceNotesHowAStepEnded(t *testing.T) {
	crash := func() { panic(panicText) }
	s := newSlow()
	for name, tc := range map[string]struct {
		then  *fake
		tasks int
		sent  bool
		is    func(error) bool
	}{
		"error of a task": {one("b", func(context.Context) (phases.Result, error) { return nil, errTest }), 1, true,
			func(err error) bool { return errors.Is(err, errTest) }},
		"error of Plan": {&fake{plan: func(*phases.Request) (phases.Plan, error) { return phases.Plan{}, errTest }}, 0, false,
			func(err error) bool { return errors.Is(err, errTest) }},
		"full queue": {one("full", nothing), 1, false, func(err error) bool { return wire.FaultOf(err).Kind == wire.QueueFull }},
		"panic of a task": {one("b", panics), 1, true,
			func(err error) bool { return wire.FaultOf(err).Kind == wire.Internal }},
		"panic of Plan": {&fake{plan: func(*phases.Request) (phases.Plan, error) { crash(); return phases.Plan{}, nil }}, 0, false,
			func(err error) bool { return wire.FaultOf(err).Kind == wire.Internal }},
		"panic of Join": {&fake{plan: one("b", nothing).plan, join: func(*phases.Request, []phases.Result) (phases.Verdict, error) {
			crash()
			return phases.Next, nil
		}}, 1, true, func(err error) bool { return wire.FaultOf(err).Kind == wire.Internal }},
		"cancel": {one("b", s.run), 1, true, func(err error) bool { return wire.FaultOf(err).Kind == wire.Canceled }},
		"cancel while queued": {one("slow", s.run), 1, false,
			func(err error) bool { return wire.FaultOf(err).Kind == wire.Canceled }},
	} {
		t.Run(name, func(t *testing.T) {
			tc.then.name = "last"
			pools := map[string]PoolSettings{"a": {3, 3}, "b": {3, 3}, "full": {0, 0}, "slow": {0, 1}}
			rg := engine(t, pools, many("a", 3, 0, func(context.Context, int) (phases.Result, error) { return nil, nil }), tc.then)
			ctx, cancel := context.WithCancel(t.Context())
			r := rg.begin(ctx)
			switch name {
			case "cancel":
				take(t, s.began, "the task")
				cancel()
			case "cancel while queued":
				eventually(t, "it is queued", func() bool { return rg.pool("slow").Queued == 1 })
				cancel()
			}
			err := rg.outcome(r)
			cancel()
			if got := steps(r); !slices.Equal(got, []string{"a", "last"}) {
				t.Fatalf("steps %v", got)
			}
			st := r.Journal.Entry().Steps[1]
			if !tc.is(err) || st.Code != wire.FaultOf(err).ErrorCode() {
				t.Errorf("step %v, outcome %v", st.Code, err)
			}
			if waits := r.Journal.Entry().Waits; (len(waits) == 1) != (name == "cancel while queued") {
				t.Errorf("waits %+v", waits)
			}
			if st.Tasks != tc.tasks {
				t.Errorf("%d tasks, want %d", st.Tasks, tc.tasks)
			}
			if st.Sent.IsZero() == tc.sent {
				t.Errorf("sent at %v", st.Sent)
			}
			if st.Ended.IsZero() || st.Ended.Before(st.Began) || tc.sent && (st.Sent.Before(st.Began) || st.Ended.Before(st.Sent)) {
				t.Errorf("began %v, sent %v, ended %v", st.Began, st.Sent, st.Ended)
			}
			if r.Journal.Entry().Phase != "last" {
				t.Errorf("ended in %q", r.Journal.Entry().Phase)
			}
		})
	}
}
