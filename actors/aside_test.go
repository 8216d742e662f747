package actors

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/journal"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// newAside is a phase that takes requests of the tenant "aside" to itself; the test
// wakes them. Others go on.
func newAside() wakers {
	w := newWakers()
	plan := w.plan
	w.admit = func(r *phases.Request) error {
		r.Aside = r.Tenant == "aside"
		return nil
	}
	w.plan = func(r *phases.Request) (phases.Plan, error) {
		if !r.Aside {
			return phases.Plan{}, nil
		}
		return plan(r)
	}
	w.join = func(*phases.Request, []phases.Result) (phases.Verdict, error) { return phases.Done, nil }
	return w
}

// start starts a request of a tenant, which may be refused.
func (rg *rig) start(tenant string) (*phases.Request, error) {
	r := &phases.Request{ID: tenant, Tenant: tenant, Out: phases.NewResponse(), Journal: &journal.Journal{}}
	return r, rg.Start(context.Background(), r)
}

// TestRequestsThatStandAsideLeaveTheRoomToOthers: they are not among those in
// flight, have a bound of their own, and the phases after theirs are not asked.
func TestRequestsThatStandAsideLeaveTheRoomToOthers(t *testing.T) {
	w, s := newAside(), newSlow()
	var asked atomic.Int32
	last := one("a", s.run)
	last.admit = func(*phases.Request) error { asked.Add(1); return nil }
	rg := setup{pools: roomyPools("a"), inflight: 1}.engine(t, w, last)
	rg.maxAside.Store(2)

	waiting := []*phases.Request{rg.from("aside"), rg.from("aside")}
	if n := asked.Load(); n != 0 {
		t.Errorf("phases that they never reach were asked %d times", n)
	}
	_, err := rg.start("aside")
	wantKind(t, err, wire.QueueFull)
	other := rg.from("other")
	_, err = rg.start("other")
	wantKind(t, err, wire.QueueFull)
	if st := rg.Status(); st.Aside != 2 || st.MaxAside != 2 || st.Inflight != 3 {
		t.Errorf("%+v", st)
	}
	take(t, w.wakes, "a wake")(nil, nil)
	take(t, w.wakes, "a wake")(nil, nil)
	rg.wantWell(waiting...)
	if st := rg.Status(); st.Aside != 0 || st.Inflight != 1 {
		t.Errorf("%+v", st)
	}
	close(s.let)
	rg.wantWell(other)
	if n := asked.Load(); n != 2 {
		t.Errorf("others' phases were asked %d times, want 2", n)
	}
}

// TestTheWatchdogLetsWaitWhatIsMeantTo: until its time, and not for ever.
func TestTheWatchdogLetsWaitWhatIsMeantTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		until := began.Add(10 * watched)
		never := func(context.Context, func(phases.Result, error)) {}
		rg := setup{pools: roomyPools("a"), watchdog: watched}.engine(t,
			&fake{name: "c", plan: plans(phases.Plan{Tasks: []phases.Task{{Until: until, Await: never}}})})
		r := rg.begin(t.Context())
		select {
		case <-r.Out.Done():
		case <-time.After(12 * watched):
			t.Fatal("it waits for ever")
		}
		wantKind(t, r.Out.Err(), wire.Internal)
		if took := time.Since(began); took < 11*watched {
			t.Errorf("it ended after %v, its own time is %v", took, until.Sub(began))
		}
	})
}

// TestAPhaseCanDoWithoutATaskThatIsRefused.
func TestAPhaseCanDoWithoutATaskThatIsRefused(t *testing.T) {
	s := newSlow()
	spare := one("a", s.run)
	spare.recovers = func(_ *phases.Request, err error) (phases.Verdict, error) {
		if wire.FaultOf(err).Kind != wire.QueueFull {
			t.Errorf("asked to recover from %v", err)
		}
		return phases.Next, nil
	}
	rg := engine(t, map[string]PoolSettings{"a": {1, 0}, "b": {1, 1}}, spare, one("b", nothing))
	first := rg.begin(t.Context())
	take(t, s.began, "the first")
	if err := rg.do(); err != nil {
		t.Error(err)
	}
	close(s.let)
	rg.wantWell(first)
}

// TestWhatTasksHoldIsLetGoWhenTheRequestGoesOn: a task that was queued holds what
// its request may have let go.
func TestWhatTasksHoldIsLetGoWhenTheRequestGoesOn(t *testing.T) {
	s, w := newSlow(), newWakers()
	gone := make(chan struct{})
	big := &fake{name: "a", plan: func(*phases.Request) (phases.Plan, error) {
		held := new([1 << 16]byte)
		runtime.AddCleanup(held, func(int) { close(gone) }, 0)
		return phases.Plan{Tasks: []phases.Task{{Pool: "a", Run: func(context.Context) (phases.Result, error) {
			held[0]++
			return nil, nil
		}}}}, nil
	}}
	rg := engine(t, map[string]PoolSettings{"a": {1, 1}, "b": {1, 1}}, one("b", nothing))
	rg.Swap(phases.PipelineOf(one("a", s.run)))
	first := rg.begin(t.Context())
	take(t, s.began, "the first")
	rg.Swap(phases.PipelineOf(big, w))
	second := rg.begin(t.Context())
	rg.wantPool("a", 1, 1)
	close(s.let)
	wake := take(t, w.wakes, "a wake")
	rg.wantWell(first)
	rg.Swap(phases.PipelineOf(one("a", nothing)))
	if err := rg.do(); err != nil { // the worker has another job
		t.Error(err)
	}
	eventually(t, "what the task held is gone", func() bool {
		runtime.GC()
		select {
		case <-gone:
			return true
		default:
			return false
		}
	})
	wake(nil, nil)
	rg.wantWell(second)
}
