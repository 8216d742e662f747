package enginetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// maxIterations is how many a script may have here; settings make it small.
const maxIterations = 2000

// schedule is when which iteration begins, on a clock that is put forward.
type schedule struct {
	ahead  time.Duration // of the real clock
	events []event       // those to come
	busy   int           // how many of them are running, one within the sleep of the other
}

// event is one iteration.
type event struct {
	at  time.Time
	run func() error
}

func (s *schedule) now() time.Time { return time.Now().Add(s.ahead) }

// advance puts the clock forward.
func (s *schedule) advance(to time.Time) { s.ahead += max(0, to.Sub(s.now())) }

// sleep lets what is due in the meantime happen, and puts the clock forward. In
// setup and teardown, which wait for others, it is a real sleep.
func (s *schedule) sleep(ctx context.Context, d time.Duration) error {
	if s.busy == 0 {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	until := s.now().Add(d)
	err := s.runUntil(until)
	s.advance(until)
	return err
}

// runUntil runs what begins before then. What runs while another iteration does
// that was begun by a third is not started: two are enough.
func (s *schedule) runUntil(until time.Time) error {
	for s.busy < 2 && len(s.events) > 0 && s.events[0].at.Before(until) {
		next := s.events[0]
		s.events = s.events[1:]
		s.advance(next.at)
		s.busy++
		err := next.run()
		s.busy--
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *schedule) runAll() error { return s.runUntil(s.now().Add(1000 * time.Hour)) }

// plan makes the events of all scenarios. Each scenario has two virtual users,
// that take turns, or as many as it wants.
func (e *Engine) plan(script string, data jsonText) error {
	began := e.now()
	for name, s := range e.Options.Scenarios {
		users := make([]*vu, min(2, max(s.VUs, s.MaxVUs)))
		for i := range users {
			var err error
			if users[i], err = e.newVU(script); err != nil {
				return fmt.Errorf("init: %w", err)
			}
		}
		for i, offset := range s.begins() {
			user, function := users[i%len(users)], cmp.Or(s.Exec, "default")
			e.events = append(e.events, event{began.Add(offset), func() error {
				user.state.enter(name, began, i)
				e.metrics.add("iterations", 1, map[string]string{"scenario": name})
				if _, err := user.call(function, data); err != nil {
					return fmt.Errorf("scenario %s, iteration %d: %w", name, i, err)
				}
				return nil
			}})
		}
		if len(e.events) > maxIterations {
			return fmt.Errorf("scenario %s: too many iterations to try: %d", name, len(e.events))
		}
	}
	slices.SortStableFunc(e.events, func(a, b event) int { return a.at.Compare(b.at) })
	return nil
}

// begins are the times at which a scenario's iterations begin.
func (s Scenario) begins() []time.Duration {
	switch s.Executor {
	case "shared-iterations":
		return make([]time.Duration, s.Iterations) // one after the other
	case "per-vu-iterations":
		return make([]time.Duration, s.Iterations*s.VUs)
	case "constant-arrival-rate":
		return arrivals(s.Rate, []stage{{s.Rate, s.Duration}}, duration(s.TimeUnit))
	}
	return arrivals(s.StartRate, s.Stages, duration(s.TimeUnit))
}

// arrivals are the times of a rate that goes evenly from one stage's target to
// the next one's.
func arrivals(rate int, stages []stage, unit time.Duration) []time.Duration {
	const tick = time.Millisecond
	var all []time.Duration
	var at time.Duration
	from, due := float64(rate), 1.0 // the first one begins at once
	for _, st := range stages {
		length, to := duration(st.Duration), float64(st.Target)
		for in := time.Duration(0); in < length; in += tick {
			if due >= 1 {
				all = append(all, at+in)
				due--
			}
			due += (from + (to-from)*float64(in)/float64(length)) * float64(tick) / float64(unit)
			if len(all) > maxIterations {
				return all
			}
		}
		at, from = at+length, to
	}
	return all
}
