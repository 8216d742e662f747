package actors

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

func TestAgainRunsFromAnEarlierPhase(t *testing.T) {
	for _, tc := range []struct {
		again string
		want  []string
	}{
		{"a", []string{"a", "b", "c", "a", "b", "c", "d"}},
		{"b", []string{"a", "b", "c", "b", "c", "d"}},
		{"c", []string{"a", "b", "c", "c", "d"}},
	} {
		for _, from := range []string{"Join", "Recover"} {
			t.Run(from+" to "+tc.again, func(t *testing.T) {
				var ran record
				var hooks int
				phase := func(name string) *fake {
					return placed(name, func(context.Context) (phases.Result, error) { ran.add(name); return nil, nil }, nil)
				}
				a, b, c := phase("a"), phase("b"), phase("c")
				b.plan = plans(phases.Plan{Places: []string{"d"}, Placed: func() error { hooks++; return nil },
					Tasks: []phases.Task{{Pool: "b", Run: func(context.Context) (phases.Result, error) { ran.add("b"); return nil, nil }}}})
				reruns := 0
				verdict := func() (phases.Verdict, error) {
					if reruns++; reruns == 1 {
						return phases.Verdict{Again: tc.again}, nil
					}
					return phases.Next, nil
				}
				c.join = func(*phases.Request, []phases.Result) (phases.Verdict, error) { return verdict() }
				if from == "Recover" {
					c.plan = one("c", func(context.Context) (phases.Result, error) { ran.add("c"); return nil, errTest }).plan
					c.recovers = func(*phases.Request, error) (phases.Verdict, error) { return verdict() }
				}
				// The place in d is kept: with a pool of one it could not be taken twice.
				rg := engine(t, map[string]PoolSettings{"a": {1, 1}, "b": {1, 1}, "c": {1, 1}, "d": {1, 0}}, a, b, c, phase("d"))
				if err := rg.do(); err != nil {
					t.Error(err)
				}
				if got := ran.all(); !slices.Equal(got, tc.want) {
					t.Errorf("ran %v, want %v", got, tc.want)
				}
			})
		}
	}
}

func TestAgainToWhereItCannotGo(t *testing.T) {
	for _, to := range []string{"nowhere", "b"} { // b is later
		t.Run(to, func(t *testing.T) {
			a := one("a", nothing)
			a.join = func(*phases.Request, []phases.Result) (phases.Verdict, error) { return phases.Verdict{Again: to}, nil }
			rg := engine(t, roomyPools("a", "b"), a, one("b", nothing))
			wantKind(t, rg.do(), wire.Internal)
		})
	}
}

func TestEndlessRerunsEnd(t *testing.T) {
	s := newSlow()
	close(s.let)
	a := one("a", s.run, "b")
	a.join = func(*phases.Request, []phases.Result) (phases.Verdict, error) { return phases.Verdict{Again: "a"}, nil }
	rg := engine(t, map[string]PoolSettings{"a": {1, 1}, "b": {1, 1}}, a)
	r := rg.begin(t.Context())
	wantKind(t, rg.outcome(r), wire.Internal)
	if n := s.runs.Load(); n != maxReruns+1 {
		t.Errorf("ran %d times, want %d", n, maxReruns+1)
	}
	if n := len(r.Journal.Entry().Steps); n != maxReruns+1 {
		t.Errorf("%d steps in the trace", n)
	}
}

// What an earlier run left to wake late is not taken for this run's.
func TestALateWakeOfAnEarlierRunIsHarmless(t *testing.T) {
	wakes := make(chan func(phases.Result, error), 9)
	var joined record
	p := &fake{name: "a", plan: plans(phases.Plan{Tasks: []phases.Task{
		{Await: func(_ context.Context, wake func(phases.Result, error)) { wakes <- wake }},
		{Await: func(_ context.Context, wake func(phases.Result, error)) { wakes <- wake }},
	}})}
	p.recovers = func(*phases.Request, error) (phases.Verdict, error) { return phases.Verdict{Again: "a"}, nil }
	p.join = func(_ *phases.Request, results []phases.Result) (phases.Verdict, error) {
		joined.add(fmt.Sprint(results))
		return phases.Next, nil
	}
	rg := engine(t, nil, p)
	r := rg.begin(t.Context())
	fails, late := take(t, wakes, "wake"), take(t, wakes, "wake")
	fails(nil, errTest)
	first, second := take(t, wakes, "wake again"), take(t, wakes, "wake again")
	late("late", nil)
	second(2, nil)
	first(1, nil)
	if err := rg.outcome(r); err != nil {
		t.Error(err)
	}
	if got := joined.all(); !slices.Equal(got, []string{"[1 2]"}) {
		t.Errorf("joined %v", got)
	}
}
