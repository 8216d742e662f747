package actors

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// watched is less than a test has patience for.
const watched = 12 * time.Second

func TestTheWatchdogEndsARequestInWhichNothingHappens(t *testing.T) {
	never := func(context.Context, func(phases.Result, error)) {}
	s := newSlow()
	for name, tc := range map[string]struct {
		line  []phases.Phase
		phase string
	}{
		"at work":  {[]phases.Phase{one("a", nothing), one("b", s.run)}, "b"},
		"awaiting": {[]phases.Phase{one("a", nothing), &fake{name: "c", plan: plans(phases.Plan{Tasks: []phases.Task{{Await: never}}})}}, "c"},
		"sending nothing more": {[]phases.Phase{&fake{name: "b", plan: func(r *phases.Request) (phases.Plan, error) {
			return phases.Plan{Tasks: []phases.Task{{Pool: "b", Run: func(ctx context.Context) (phases.Result, error) {
				_ = r.Out.Send(ctx, phases.Item{Head: &phases.Head{}})
				return s.run(ctx)
			}}}}, nil
		}}}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				*s = slow{began: make(chan struct{}, 9), let: make(chan struct{})}
				var out logged
				reg := prometheus.NewRegistry()
				rg := setup{pools: roomyPools("a", "b"), watchdog: watched, log: out.logger(), metrics: NewMetrics(reg)}.engine(t, tc.line...)
				began := time.Now()
				err := rg.outcome(rg.begin(t.Context()))
				wantKind(t, err, wire.Internal)
				if !errors.Is(err, errStuck) {
					t.Errorf("outcome is %v", err)
				}
				if took := time.Since(began); took < watched || took > watched*5/4 {
					t.Errorf("it took %v", took)
				}
				text := out.String()
				for _, want := range []string{"level=ERROR", "request_id=request-1", "phase=" + tc.phase, "for=12s"} {
					if !strings.Contains(text, want) {
						t.Errorf("the log lacks %q: %s", want, text)
					}
				}
				if n := counter(t, reg, "llm_d_coordinator_watchdog_total", "phase", tc.phase); n != 1 {
					t.Errorf("counted %v times", n)
				}
			})
		})
	}
}

// One that does not even end when it is cancelled is told of once.
func TestTheWatchdogTellsOfARequestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out logged
		s := newSlow()
		rg := setup{pools: roomyPools("a"), watchdog: watched, log: out.logger()}.engine(t, one("a", s.stubborn))
		r := rg.begin(t.Context())
		time.Sleep(20 * watched)
		synctest.Wait()
		if n := strings.Count(out.String(), "was stuck"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		close(s.let)
		wantKind(t, rg.outcome(r), wire.Internal)
	})
}

func TestTheWatchdogLeavesARequestThatMakesProgress(t *testing.T) {
	const step = watched * 9 / 10
	pause := func(ctx context.Context) (phases.Result, error) { time.Sleep(step); return nil, nil }
	for name, tc := range map[string][]phases.Phase{
		"phase by phase": {one("a", pause), one("b", pause), one("a", pause)},
		"task by task":   {many("a", 5, 1, func(ctx context.Context, _ int) (phases.Result, error) { return pause(ctx) })},
		"chunk by chunk": {&fake{name: "a", plan: func(r *phases.Request) (phases.Plan, error) {
			return phases.Plan{Tasks: []phases.Task{{Pool: "a", Run: func(ctx context.Context) (phases.Result, error) {
				it := phases.Item{Head: &phases.Head{}}
				for range 10 {
					time.Sleep(step)
					if err := r.Out.Send(ctx, it); err != nil {
						return nil, err
					}
					(<-r.Out.Items()).Free()
					it = phases.Item{Chunk: phases.NewChunk()}
				}
				return nil, nil
			}}}}, nil
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rg := setup{pools: roomyPools("a", "b"), watchdog: watched}.engine(t, tc...)
				time.Sleep(watched * 7 / 10) // it begins between two looks
				r := rg.begin(t.Context())
				time.Sleep(20 * watched)
				rg.wantWell(r)
			})
		})
	}
}

// A request that waits is ended by queue_timeout, not by the watchdog.
func TestTheWatchdogAndTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		rg := setup{pools: map[string]PoolSettings{"a": {1, 9}}, watchdog: watched, timeout: watched * 9 / 10}.engine(t, one("a", s.run))
		holder := rg.begin(t.Context())
		wantKind(t, rg.outcome(rg.begin(t.Context())), wire.QueueFull)
		close(s.let)
		rg.wantWell(holder)
	})
}

// Close waits for the watchdog, which goleak would find, and it watches until
// the last request is gone.
func TestTheWatchdogWatchesWhileTheEngineIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		rg := setup{pools: roomyPools("a"), watchdog: watched}.engine(t, one("a", s.run))
		r := rg.begin(t.Context())
		if n := rg.Close(context.Background()); n != 0 {
			t.Errorf("%d requests cut", n)
		}
		wantKind(t, rg.outcome(r), wire.Internal)
	})
}
