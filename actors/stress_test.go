package actors

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/journal"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// chance makes all that phases of one request do a matter of (seeded) luck. The
// supervisor and tasks ask it at once.
type chance struct {
	mu  sync.Mutex
	rnd *rand.Rand
}

func (c *chance) of(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rnd.IntN(n)
}

// errOnPurpose is the outcome of a request that was to fail.
var errOnPurpose = errors.New("on purpose")

// luck returns an error or panics, sometimes.
func (c *chance) luck() error {
	switch c.of(60) {
	case 0:
		return errOnPurpose
	case 1:
		panic("on purpose")
	}
	return nil
}

// task is one that does anything.
func (c *chance) task() phases.Task {
	pool := []string{"a", "b", "c"}[c.of(3)]
	if c.of(6) == 0 {
		return phases.Task{Await: func(ctx context.Context, wake func(phases.Result, error)) {
			if c.of(2) == 0 {
				wake(nil, nil)
			}
			if c.of(40) == 0 {
				panic("on purpose")
			}
			go wake(nil, nil)
		}}
	}
	return phases.Task{Pool: pool, Run: func(ctx context.Context) (phases.Result, error) {
		switch c.of(12) {
		case 0: // I/O
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(time.Duration(c.of(1000)) * time.Microsecond):
			}
		case 1: // deaf I/O
			<-time.After(time.Duration(c.of(500)) * time.Microsecond)
		}
		return nil, c.luck()
	}}
}

// phase is one that does anything.
func (c *chance) phase(name, earlier string) phases.Phase {
	verdict := func() (phases.Verdict, error) {
		if err := c.luck(); err != nil {
			return phases.Next, err
		}
		switch c.of(20) {
		case 0:
			return phases.Verdict{Again: earlier}, nil
		case 1:
			return phases.Done, nil
		}
		return phases.Next, nil
	}
	return &fake{name: name,
		plan: func(*phases.Request) (phases.Plan, error) {
			p := phases.Plan{MaxParallel: c.of(4)}
			for range c.of(5) {
				p.Tasks = append(p.Tasks, c.task())
			}
			p.Places = [][]string{nil, nil, {"a"}, {"b", "a"}, {"a", "c"}}[c.of(5)]
			if c.of(2) == 0 {
				p.Placed = c.luck
			}
			return p, c.luck()
		},
		join: func(*phases.Request, []phases.Result) (phases.Verdict, error) { return verdict() },
		recovers: func(_ *phases.Request, err error) (phases.Verdict, error) {
			if c.of(2) == 0 {
				return phases.Next, err
			}
			return verdict()
		},
		release: func(*phases.Request) []phases.Task {
			if c.of(10) == 0 {
				_ = c.luck()
				return []phases.Task{{Pool: "r", Run: func(context.Context) (phases.Result, error) { return nil, c.luck() }}}
			}
			return nil
		},
	}
}

// Requests in which everything goes wrong that can, at once, over small pools:
// each has one outcome, and afterwards everything is back.
func TestStress(t *testing.T) {
	const callers, each = 24, 125
	rg := setup{timeout: 5 * time.Millisecond, inflight: callers - 4, watchdog: time.Minute,
		pools: map[string]PoolSettings{"a": {8, 10}, "b": {8, 10}, "c": {8, 10}, "r": {1, 2}}}.engine(t)
	var mu sync.Mutex
	kinds := map[string]int{}
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for i := range each {
				c := &chance{rnd: rand.New(rand.NewPCG(uint64(caller), uint64(i)))}
				rg.Swap(phases.PipelineOf(c.phase("p", "p"), c.phase("q", "p"), c.phase("r", "q"), c.phase("s", "p")))
				ctx, cancel := context.WithCancel(context.Background())
				if c.of(4) == 0 {
					time.AfterFunc(time.Duration(c.of(1500))*time.Microsecond, cancel)
				}
				r := &phases.Request{Tenant: strconv.Itoa(min(caller, 3)), Out: phases.NewResponse(), Journal: &journal.Journal{}}
				if c.of(4) == 0 {
					r.Deadline = time.Now().Add(time.Duration(c.of(3000)) * time.Microsecond)
				}
				err := rg.Start(ctx, r)
				if err == nil {
					err = rg.outcome(r)
					for _, st := range r.Journal.Entry().Steps {
						if st.Ended.Before(st.Began) || !st.Sent.IsZero() && (st.Sent.Before(st.Began) || st.Ended.Before(st.Sent)) {
							t.Errorf("step %+v", st)
						}
					}
				}
				kind := "well"
				switch {
				case errors.Is(err, errOnPurpose):
					kind = "failed"
				case errors.Is(err, errDisplaced):
					kind = "displaced"
				case errors.Is(err, errTooSlow):
					kind = "too slow"
				case err != nil:
					kind = wire.FaultOf(err).Kind.String()
				}
				cancel()
				mu.Lock()
				kinds[kind]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	rg.allBack()
	t.Logf("outcomes: %v", kinds)
	for _, kind := range []string{"well", "failed", "internal"} { // the others are a matter of timing
		if kinds[kind] == 0 {
			t.Errorf("no request was %s", kind)
		}
	}
	for kind := range kinds {
		switch kind {
		case "well", "failed", "internal", "queue full", "displaced", "too slow", "canceled", "upstream timeout":
		default:
			t.Errorf("%d requests were %s", kinds[kind], kind)
		}
	}
	// The pools have kept their sizes.
	for name, size := range map[string]int{"a": 8, "b": 8, "c": 8, "r": 1} {
		s := newSlow()
		rg.Swap(phases.PipelineOf(one(name, s.run)))
		var all []*phases.Request
		for range size {
			all = append(all, rg.begin(t.Context()))
			take(t, s.began, "a worker of "+name)
		}
		rg.wantPool(name, size, 0)
		close(s.let)
		for _, r := range all {
			if err := rg.outcome(r); err != nil {
				t.Error(err)
			}
		}
	}
}
