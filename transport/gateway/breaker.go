package gateway

import (
	"errors"
	"math"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// BreakerSettings say when an upstream is left alone. The zero value is no
// breaker at all.
type BreakerSettings struct {
	Enabled bool
	// ConsecutiveFailures in a row within Interval trip it; at least 1.
	ConsecutiveFailures uint32
	// FailureRatio of the attempts of Interval trips it too, once there were
	// MinRequests of them; 0 switches this rule off. An Interval of 0 never
	// forgets.
	FailureRatio float64
	MinRequests  uint32
	Interval     time.Duration
	// OpenTimeout is how long nothing is sent. Then HalfOpenRequests may try,
	// and as many successes in a row close it; both are more than 0.
	OpenTimeout      time.Duration
	HalfOpenRequests uint32
}

// breaker is the circuit breaker of one profile. A nil breaker lets
// everything pass.
type breaker struct {
	profile  string
	trials   uint32
	cb       *gobreaker.TwoStepCircuitBreaker[struct{}]
	rejected func()
	// era is counted up whenever the state changes: what was sent in another
	// era is not judged.
	era atomic.Uint64
	// openUntil is when an open breaker lets attempts try; nil while it never was open.
	openUntil atomic.Pointer[time.Time]
	// trial settles the latest permit that was given while half open.
	trial atomic.Pointer[func(error)]
}

// windowBuckets is the grain of the rolling window that failures are counted in.
const windowBuckets = 10

var (
	errFailure = errors.New("failure")
	errUnused  = errors.New("unused")
)

func newBreaker(profile string, s BreakerSettings, m *Metrics) *breaker {
	if !s.Enabled {
		return nil
	}
	b := &breaker{profile: profile, trials: s.HalfOpenRequests, rejected: m.breakerRejected.WithLabelValues(profile).Inc}
	b.cb = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:         profile,
		MaxRequests:  s.HalfOpenRequests,
		Interval:     s.Interval,
		BucketPeriod: s.Interval / windowBuckets,
		Timeout:      s.OpenTimeout,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			judged := c.TotalSuccesses + c.TotalFailures
			return c.ConsecutiveFailures >= s.ConsecutiveFailures ||
				s.FailureRatio > 0 && judged >= s.MinRequests && float64(c.TotalFailures) >= s.FailureRatio*float64(judged)
		},
		IsExcluded: func(err error) bool { return errors.Is(err, errUnused) },
		// This runs under the breaker's lock: asking it anything here would
		// wait for ever.
		OnStateChange: func(_ string, from, to gobreaker.State) {
			b.era.Add(1)
			if to == gobreaker.StateOpen {
				b.openUntil.Store(new(time.Now().Add(s.OpenTimeout)))
			}
			m.breakerTransitions.WithLabelValues(profile, from.String(), to.String()).Inc()
		},
	})
	return b
}

// TakeOver has the upstream go on with the breaker of the one in whose place it
// is put, with all that it knows, if that is for the same profile of the same
// address and has the same settings. It is called before the upstream is used; a
// nil upstream changes nothing.
func (u *Upstream) TakeOver(from *Upstream) {
	if from != nil && u.Name == from.Name && u.Profile == from.Profile && u.Address() == from.Address() && u.Breaker == from.Breaker {
		u.breaker = from.breaker
	}
}

// ready reports, without taking a permit, whether one could be had.
func (b *breaker) ready() error {
	if b == nil {
		return nil
	}
	switch b.cb.State() {
	case gobreaker.StateOpen:
		return b.refuse()
	case gobreaker.StateHalfOpen:
		if c := b.cb.Counts(); c.Requests >= b.trials+c.TotalExclusions {
			return b.refuse()
		}
	}
	return nil
}

// stillOpen returns how long an open breaker lets nothing pass yet.
func (b *breaker) stillOpen() time.Duration {
	if b == nil || b.cb.State() != gobreaker.StateOpen {
		return 0
	}
	return b.left()
}

// left returns how long it is until an open breaker lets attempts try.
func (b *breaker) left() time.Duration {
	until := b.openUntil.Load()
	if until == nil {
		return 0
	}
	return max(0, time.Until(*until))
}

func (b *breaker) refuse() error {
	b.rejected()
	f := wire.Faultf(wire.Unavailable, "%s workers are unavailable: their circuit breaker is open", b.profile)
	f.RetryAfter = strconv.Itoa(max(1, int(math.Ceil(b.left().Seconds()))))
	return f
}

// permit takes the right to send one attempt of a request.
func (b *breaker) permit(t *Trials) (*Permit, error) {
	if b == nil {
		return &Permit{}, nil
	}
	state := b.cb.State() // moves on from open first
	era := b.era.Load()
	if state == gobreaker.StateClosed {
		return &Permit{breaker: b, era: era}, nil
	}
	done, err := t.try(b, era, b.cb.Allow)
	switch {
	case err != nil:
		return nil, b.refuse()
	case done == nil:
		return &Permit{breaker: b, era: era}, nil
	}
	b.trial.Store(&done)
	return &Permit{breaker: b, era: era, trial: done}, nil
}

// count counts an attempt that holds none of the breaker's own permits, unless
// the state has changed since it was sent. It is counted when it is judged and
// not when it began: gobreaker forgets what began before its window, so that a
// time-out longer than the window would never count.
func (b *breaker) count(era uint64, outcome error) {
	b.cb.State() // moves on from open, if it is time
	if errors.Is(outcome, errUnused) || b.era.Load() != era {
		return
	}
	b.report(outcome)
}

// report counts an outcome under a permit of its own. A half-open breaker whose
// permits are all out counts a failure against the latest of them.
func (b *breaker) report(outcome error) {
	done, err := b.cb.Allow()
	if err == nil {
		done(outcome)
	} else if trial := b.trial.Load(); trial != nil && outcome != nil && errors.Is(err, gobreaker.ErrTooManyRequests) {
		(*trial)(outcome)
	}
}

// broke counts a failure that came after its attempt had been judged. It says
// something of now if all is thought to be well; if not, only if it was sent
// since.
func (b *breaker) broke(era uint64) {
	if b.cb.State() == gobreaker.StateClosed || b.era.Load() == era {
		b.report(errFailure)
	}
}

func (b *breaker) state() string {
	if b == nil {
		return "disabled"
	}
	return b.cb.State().String()
}
