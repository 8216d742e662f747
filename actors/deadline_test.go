package actors

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// late is when the requests of these tests must be answered.
const late = 10 * time.Second

// wantLate fails the test unless a request ends now because its deadline has
// come.
func (rg *rig) wantLate(r *phases.Request) {
	rg.t.Helper()
	err := rg.outcome(r)
	wantKind(rg.t, err, wire.UpstreamTimeout)
	if !errors.Is(err, phases.ErrExpired) {
		rg.t.Errorf("outcome is %v", err)
	}
	if over := time.Since(r.Deadline); over != 0 {
		rg.t.Errorf("ended %v after its deadline", over)
	}
}

func TestTheDeadlineEndsARequestInEachState(t *testing.T) {
	s := newSlow()
	for name, line := range map[string][]phases.Phase{
		"queued for a task":   {one("a", s.run)},
		"queued for a place":  {one("b", s.run, "a")},
		"queued for several":  {one("b", s.run, "b", "a")},
		"at work":             {one("b", s.run)},
		"in its second phase": {one("b", nothing), one("b", s.run)},
		"several at work":     {many("b", 3, 0, func(ctx context.Context, _ int) (phases.Result, error) { return s.run(ctx) })},
		"awaiting": {&fake{name: "b", plan: plans(phases.Plan{Tasks: []phases.Task{
			{Await: func(context.Context, func(phases.Result, error)) {}}}})}},
		"trying to send a head": {one("b", nothing), &fake{name: "b", plan: func(r *phases.Request) (phases.Plan, error) {
			return phases.Plan{Tasks: []phases.Task{{Pool: "b", Run: func(ctx context.Context) (phases.Result, error) {
				<-ctx.Done()
				return nil, r.Out.Send(context.Background(), phases.Item{Head: &phases.Head{}})
			}}}}, nil
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				*s = slow{began: make(chan struct{}, 9), let: make(chan struct{})}
				rg := engine(t, map[string]PoolSettings{"a": {1, 9}, "b": {2, 9}}, one("a", s.run))
				holder := rg.begin(t.Context())
				rg.Swap(phases.PipelineOf(line...))
				rg.wantLate(rg.due(late))
				rg.wantPool("a", 1, 0)
				rg.wantPool("b", 0, 0)
				close(s.let)
				rg.wantWell(holder)
			})
		})
	}
}

func TestTheDeadlineIsOfTheFirstByteOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		rg := engine(t, roomyPools("a"), &fake{name: "a", plan: func(r *phases.Request) (phases.Plan, error) {
			return phases.Plan{Tasks: []phases.Task{{Pool: "a", Run: func(ctx context.Context) (phases.Result, error) {
				time.Sleep(late - 1)
				if err := r.Out.Send(ctx, phases.Item{Head: &phases.Head{}}); err != nil {
					return nil, err
				}
				return s.run(ctx)
			}}}}, nil
		}})
		r := rg.due(late)
		time.Sleep(time.Hour)
		synctest.Wait()
		close(s.let)
		rg.wantWell(r)
	})
}

func TestARequestAfterItsDeadlineIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, reg := newSlow(), prometheus.NewRegistry()
		rg := setup{pools: roomyPools("a"), metrics: NewMetrics(reg)}.engine(t, one("a", s.run))
		for _, ago := range []time.Duration{0, time.Minute} {
			r := &phases.Request{Out: phases.NewResponse(), Deadline: time.Now().Add(-ago)}
			if err := rg.Start(t.Context(), r); !errors.Is(err, phases.ErrExpired) {
				t.Errorf("%v after its deadline: %v", ago, err)
			}
		}
		if n := s.runs.Load(); n != 0 {
			t.Errorf("%d tasks ran", n)
		}
		if n := counter(t, reg, "llm_d_coordinator_deadline_exceeded_total", "phase", "admission"); n != 2 {
			t.Errorf("%v counted", n)
		}
	})
}

// supervisorOf returns the supervisor of a request in flight.
func (rg *rig) supervisorOf(r *phases.Request) *supervisor {
	rg.mu.Lock()
	defer rg.mu.Unlock()
	for s := range rg.live {
		if s.req == r {
			return s
		}
	}
	return nil
}

func TestTheTimerOfADeadlineIsStopped(t *testing.T) {
	for name, end := range map[string]func(s *slow, cancel func()){
		"success": func(s *slow, _ func()) { s.let <- struct{}{} },
		"cancel":  func(_ *slow, cancel func()) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSlow()
			rg := engine(t, roomyPools("a"), one("a", s.run))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := &phases.Request{Out: phases.NewResponse(), Deadline: time.Now().Add(time.Hour)}
			if err := rg.Start(ctx, r); err != nil {
				t.Fatal(err)
			}
			sup := rg.supervisorOf(r)
			take(t, s.began, "the task")
			end(s, cancel)
			_ = rg.outcome(r)
			if sup.deadline.Stop() {
				t.Error("the timer was left running")
			}
		})
	}
	s := newSlow()
	rg := engine(t, roomyPools("a"), one("a", s.run))
	r := rg.begin(t.Context())
	take(t, s.began, "the task")
	if rg.supervisorOf(r).deadline != nil {
		t.Error("a timer was made for a request that has no deadline")
	}
	close(s.let)
	rg.wantWell(r)
}

// pace has a pool of one place give it back every so often, for so long that its
// rate is known.
func pace(s *slow, every time.Duration) {
	for range 50 {
		<-s.began
		time.Sleep(every)
		s.let <- struct{}{}
	}
	synctest.Wait()
}

func TestARequestThatWouldWaitPastItsDeadlineIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		s := newSlow()
		rg := setup{pools: map[string]PoolSettings{"a": {1, 100}, "b": {9, 9}}, metrics: NewMetrics(reg)}.engine(t, one("a", s.run))
		early := rg.due(time.Hour)
		var all []*phases.Request
		for range 59 {
			all = append(all, rg.begin(t.Context()))
		}
		unknown := rg.due(5 * time.Minute) // nothing is known of the pool: it waits
		pace(s, 2*time.Second)
		rg.wantWell(early)
		rg.wantWell(all[:49]...)
		rg.wantPool("a", 1, 10) // a newcomer waits for about 22 seconds
		refused := rg.due(15 * time.Second)
		err := rg.outcome(refused)
		wantKind(t, err, wire.QueueFull)
		if !errors.Is(err, errTooSlow) || time.Until(refused.Deadline) != 15*time.Second {
			t.Errorf("outcome is %v", err)
		}
		if after := wire.FaultOf(err).RetryAfter; after != "19" && after != "20" {
			t.Errorf("RetryAfter is %s, want about 20: ten wait for two seconds each", after)
		}
		waits := []*phases.Request{rg.due(25 * time.Second), rg.begin(t.Context())}
		rg.Swap(phases.PipelineOf(one("b", nothing, "a")))
		wantKind(t, rg.outcome(rg.due(15*time.Second)), wire.QueueFull) // a place is no different
		if n := counter(t, reg, "llm_d_coordinator_shed_total", "reason", "deadline"); n != 2 {
			t.Errorf("%v counted, want 2", n)
		}
		if n := counter(t, reg, "llm_d_coordinator_shed_total", "reason", "queue_full"); n != 0 {
			t.Errorf("%v counted as refused by a full queue", n)
		}
		close(s.let)
		rg.wantWell(append(append(all, waits...), unknown)...)
	})
}

// An answer that has begun has no deadline any more, whatever waits.
func TestARequestThatHasBegunIsNotRefusedForItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		rg := engine(t, map[string]PoolSettings{"a": {1, 100}, "b": {9, 9}}, one("a", s.run))
		var all []*phases.Request
		for range 60 {
			all = append(all, rg.begin(t.Context()))
		}
		pace(s, 2*time.Second)
		rg.Swap(phases.PipelineOf(&fake{name: "b", plan: func(r *phases.Request) (phases.Plan, error) {
			return phases.Plan{Tasks: []phases.Task{{Pool: "b", Run: func(ctx context.Context) (phases.Result, error) {
				return nil, r.Out.Send(ctx, phases.Item{Head: &phases.Head{}})
			}}}}, nil
		}}, one("a", s.run)))
		r := rg.due(time.Second)
		synctest.Wait()
		rg.wantPool("a", 1, 10)
		close(s.let)
		rg.wantWell(append(all, r)...)
	})
}

func TestRetryAfterOfAPoolIsFromItsDrainRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		rg := setup{pools: map[string]PoolSettings{"a": {1, 60}}, timeout: 3 * time.Minute}.engine(t, one("a", s.run))
		for range 61 {
			rg.begin(t.Context())
		}
		pace(s, time.Second)
		retry := func(r *phases.Request) string {
			err := rg.outcome(r)
			wantKind(t, err, wire.QueueFull)
			return wire.FaultOf(err).RetryAfter
		}
		var last *phases.Request
		for range 60 - rg.pool("a").Queued {
			last = rg.begin(t.Context())
		}
		if after := retry(rg.begin(t.Context())); after != "58" && after != "59" {
			t.Errorf("RetryAfter is %s, want about 60: so many wait for a second each", after)
		}
		// Nothing comes back any more, and the last of them has waited too long.
		time.Sleep(3 * time.Minute)
		if after := retry(last); after != "60" {
			t.Errorf("RetryAfter is %s, want 60, the most there is", after)
		}
		close(s.let)
	})
}

func TestRetryAfterInFlightIsFromTheRateOfEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		rg := setup{pools: roomyPools("a"), inflight: 2}.engine(t, one("a", s.run))
		long := rg.begin(t.Context())
		for range 30 {
			r := rg.begin(t.Context())
			rg.wantRefused("")
			time.Sleep(4 * time.Second)
			s.let <- struct{}{}
			synctest.Wait()
			select {
			case <-r.Out.Done():
			default: // the other of the two was let go
				long, r = r, long
			}
			rg.wantWell(r)
		}
		r := rg.begin(t.Context())
		err := rg.Start(t.Context(), &phases.Request{Out: phases.NewResponse()})
		if after := wire.FaultOf(err).RetryAfter; after != "4" && after != "5" {
			t.Errorf("RetryAfter is %s, want 4: one ends every four seconds", after)
		}
		close(s.let)
		rg.wantWell(long, r)
	})
}
