package actors

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// placed is a phase of one task that needs places.
func placed(name string, run work, hook func() error, places ...string) *fake {
	return &fake{name: name, plan: plans(phases.Plan{Places: places, Placed: hook,
		Tasks: []phases.Task{{Pool: name, Run: run}}})}
}

func TestDecodesPlaceIsTakenBeforePrefillIsSent(t *testing.T) {
	prefill, decode := newSlow(), newSlow()
	close(prefill.let)
	rg := engine(t, map[string]PoolSettings{"prefill": {4, 4}, "decode": {2, 2}},
		one("prefill", prefill.run, "decode"), one("decode", decode.run))
	var all []*phases.Request
	for range 2 {
		all = append(all, rg.begin(t.Context()))
		take(t, prefill.began, "prefill")
		take(t, decode.began, "decode")
	}
	for range 2 { // decode is full
		all = append(all, rg.begin(t.Context()))
	}
	rg.wantPool("decode", 2, 2)
	rg.wantPool("prefill", 0, 0)
	if n := prefill.runs.Load(); n != 2 {
		t.Errorf("%d prefills were sent, want 2", n)
	}
	wantKind(t, rg.do(), wire.QueueFull) // and its queue as well
	decode.let <- struct{}{}
	take(t, prefill.began, "the prefill of the next")
	take(t, decode.began, "its decode")
	if n := prefill.runs.Load(); n != 3 {
		t.Errorf("%d prefills were sent, want 3", n)
	}
	close(decode.let)
	for _, r := range all {
		if err := rg.outcome(r); err != nil {
			t.Error(err)
		}
	}
}

// A place that a request holds runs its tasks whatever waits in the pool.
func TestATaskRunsOnTheHeldPlaceThoughTheQueueIsFull(t *testing.T) {
	prefill, decode := newSlow(), newSlow()
	rg := engine(t, map[string]PoolSettings{"prefill": {1, 1}, "decode": {1, 1}},
		one("prefill", prefill.run, "decode"), one("decode", decode.run))
	first := rg.begin(t.Context())
	take(t, prefill.began, "prefill")
	second := rg.begin(t.Context())
	rg.wantPool("decode", 1, 1)
	wantKind(t, rg.do(), wire.QueueFull)
	close(prefill.let)
	take(t, decode.began, "decode, past its full queue")
	rg.wantPool("decode", 1, 1)
	close(decode.let)
	for _, r := range []*phases.Request{first, second} {
		if err := rg.outcome(r); err != nil {
			t.Error(err)
		}
	}
}

func TestPlacesAreTakenTogetherOrNot(t *testing.T) {
	s := newSlow()
	rg := engine(t, map[string]PoolSettings{"a": {1, 9}, "b": {1, 9}, "x": {9, 9}}, one("a", s.run))
	holder := rg.begin(t.Context())
	rg.Swap(phases.PipelineOf(one("x", nothing, "b", "a")))
	both := rg.begin(t.Context())
	rg.wantPool("a", 1, 1)
	rg.wantPool("b", 0, 1) // b's place is not held meanwhile
	close(s.let)
	for _, r := range []*phases.Request{holder, both} {
		if err := rg.outcome(r); err != nil {
			t.Error(err)
		}
	}
}

func TestPlacesInAnyOrderNeverDeadlock(t *testing.T) {
	rg := engine(t, map[string]PoolSettings{"a": {1, 500}, "b": {1, 500}, "c": {2, 500}, "x": {9, 500}})
	var lines []*phases.Pipeline
	for _, places := range [][]string{{"a", "b"}, {"b", "a"}, {"c", "a"}, {"b", "c"}, {"a"}, {"c", "b", "a"}} {
		lines = append(lines, phases.PipelineOf(placed("x", nothing, nil, places...), one(places[0], nothing)))
	}
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			for j := range 40 {
				rg.Swap(lines[(i+j)%len(lines)])
				if err := rg.do(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestHeldPlacesAreNotTakenAgain(t *testing.T) {
	var rec record
	hook := func(name string) func() error {
		return func() error { rec.add("placed " + name); return nil }
	}
	task := func(name string) work {
		return func(context.Context) (phases.Result, error) { rec.add("run " + name); return nil, nil }
	}
	s := newSlow()
	rg := engine(t, map[string]PoolSettings{"a": {1, 1}, "b": {1, 1}, "x": {1, 1}, "y": {1, 1}},
		placed("x", task("x"), hook("x"), "a"), placed("y", task("y"), hook("y"), "a", "b"), one("a", s.run))
	r := rg.begin(t.Context())
	take(t, s.began, "the task on the held place")
	rg.wantPool("a", 1, 0)
	rg.wantPool("b", 1, 0)
	close(s.let)
	if err := rg.outcome(r); err != nil {
		t.Error(err)
	}
	if got, want := rec.all(), []string{"placed x", "run x", "placed y", "run y"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A pool named twice took two places, and with one idle it crashed under the
// pools' lock.
func TestAPlaceNamedTwiceIsTakenOnce(t *testing.T) {
	s := newSlow()
	rg := engine(t, map[string]PoolSettings{"a": {2, 1}, "x": {1, 1}}, placed("x", s.run, nil, "a", "a"))
	r := rg.begin(t.Context())
	rg.wantPool("a", 1, 0)
	close(s.let)
	if err := rg.outcome(r); err != nil {
		t.Error(err)
	}
	if err := rg.Resize("a", PoolSettings{1, 1}); err != nil {
		t.Error(err)
	}
	if err := rg.do(); err != nil {
		t.Error(err)
	}
}

func TestPlacedHookFailureSendsNothing(t *testing.T) {
	s := newSlow()
	rg := engine(t, map[string]PoolSettings{"a": {1, 1}, "x": {1, 1}}, placed("x", s.run, func() error { return errTest }, "a"))
	if err := rg.do(); !errors.Is(err, errTest) {
		t.Errorf("outcome is %v", err)
	}
	if n := s.runs.Load(); n != 0 {
		t.Errorf("%d tasks ran", n)
	}
}

// A second task for a pool in which the request holds the only place waited in
// the queue until it was refused, with that place idle.
func TestATaskQueuedBehindItsOwnPlaceRunsOnIt(t *testing.T) {
	var ran record
	p := many("a", 4, 0, func(context.Context, int) (phases.Result, error) { ran.add("run"); return nil, nil })
	plan := p.plan
	p.plan = func(r *phases.Request) (phases.Plan, error) {
		pl, err := plan(r)
		pl.Places = []string{"a"}
		return pl, err
	}
	rg := engine(t, map[string]PoolSettings{"a": {1, 2}}, p)
	if err := rg.do(); err != nil {
		t.Error(err)
	}
	if n := len(ran.all()); n != 4 {
		t.Errorf("%d tasks ran", n)
	}
}

func TestPlacesComeBackOnEveryWayOut(t *testing.T) {
	panics := func(context.Context) (phases.Result, error) { panic("on purpose") }
	fails := func(context.Context) (phases.Result, error) { return nil, errTest }
	again := func() *fake {
		p, runs := one("b", nothing), 0
		p.join = func(*phases.Request, []phases.Result) (phases.Verdict, error) {
			if runs++; runs%2 == 1 {
				return phases.Verdict{Again: "x"}, nil
			}
			return phases.Next, nil
		}
		return p
	}
	for name, then := range map[string]phases.Phase{
		"success":             one("b", nothing),
		"error":               one("b", fails),
		"panic":               one("b", panics),
		"error on the place":  one("a", fails),
		"panic on the place":  one("a", panics),
		"rerun":               again(),
		"panic in supervisor": &fake{name: "b", plan: func(*phases.Request) (phases.Plan, error) { panic("on purpose") }},
	} {
		t.Run(name, func(t *testing.T) {
			rg := engine(t, map[string]PoolSettings{"a": {1, 1}, "b": {1, 1}, "x": {1, 1}}, placed("x", nothing, nil, "a", "b"), then)
			for range 5 {
				_ = rg.do()
				rg.wantPool("a", 0, 0)
				rg.wantPool("b", 0, 0)
			}
		})
	}
	// The cancel meets the grant: whichever comes first, the place is back.
	t.Run("cancel when granted", func(t *testing.T) {
		s := newSlow()
		rg := engine(t, map[string]PoolSettings{"a": {1, 9}, "b": {1, 9}, "x": {1, 9}})
		holds, wants := phases.PipelineOf(one("a", s.run)), phases.PipelineOf(placed("x", nothing, nil, "b", "a"))
		for range 300 {
			rg.Swap(holds)
			holder := rg.begin(t.Context())
			rg.Swap(wants)
			ctx, cancel := context.WithCancel(t.Context())
			waits := rg.begin(ctx)
			go cancel()
			s.let <- struct{}{}
			if err := rg.outcome(waits); err != nil {
				wantKind(t, err, wire.Canceled)
			}
			if err := rg.outcome(holder); err != nil {
				t.Error(err)
			}
			rg.wantPool("a", 0, 0)
			rg.wantPool("b", 0, 0)
		}
	})
}

// A request that holds d and wants e waited behind a newcomer that wants both,
// which waited for d: neither went on until the queue's time-out.
func TestARequestThatHoldsAPlaceGoesAheadOfNewcomers(t *testing.T) {
	s, first := newSlow(), newSlow()
	rg := engine(t, map[string]PoolSettings{"d": {1, 9}, "e": {1, 9}, "x": {9, 9}})
	holdsD := phases.PipelineOf(placed("x", first.run, nil, "d"), one("e", nothing))
	wantsBoth := phases.PipelineOf(placed("x", nothing, nil, "d", "e"))
	rg.Swap(phases.PipelineOf(one("e", s.run)))
	busy := rg.begin(t.Context()) // keeps e busy
	take(t, s.began, "the task in e")
	rg.Swap(holdsD)
	holder := rg.begin(t.Context())
	take(t, first.began, "the task of the holder")
	rg.Swap(wantsBoth)
	newcomer := rg.begin(t.Context())
	rg.wantPool("e", 1, 1)
	first.let <- struct{}{} // the holder goes on, and queues for e
	eventually(t, "the holder queues", func() bool { return rg.pool("e").Queued == 2 })
	s.let <- struct{}{} // e is free: it is the holder's
	for _, r := range []*phases.Request{busy, holder, newcomer} {
		if err := rg.outcome(r); err != nil {
			t.Error(err)
		}
	}
}
