package actors

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// watchdog finds requests in which nothing happens any more. Everything that a
// request waits for is bounded by a time-out of its own, so that is a bug; it
// would hold its places and its memory for ever.
type watchdog struct {
	patience time.Duration
	stop     chan struct{}
	stopped  chan struct{}
}

// pulse is what the watchdog feels of a request. It counts what happens instead
// of noting when: that is cheaper for the supervisor, and a clock that is set
// kills no request.
type pulse struct {
	beats atomic.Int64              // messages handled and steps begun
	at    atomic.Int32              // the index of the phase
	until atomic.Pointer[time.Time] // before that nothing need happen; nil is none

	// The watchdog's own: what it felt last, and since when it has felt the same.
	felt  int64
	sent  time.Time // something of the answer
	since time.Time
	// given up: it was found stuck.
	givenUp bool
}

// errStuck is the cause of a fault, for the log.
var errStuck = errors.New("nothing has happened in the request for too long")

// beat notes that something happens in the request: what was expected is over.
func (s *supervisor) beat() {
	s.pulse.beats.Add(1)
	s.pulse.until.Store(nil)
	s.pulse.at.Store(int32(s.at))
}

// expect notes that nothing need happen in the request before a time; zero is none.
// It stands until the next beat.
func (p *pulse) expect(until time.Time) {
	if !until.IsZero() {
		p.until.Store(new(until.Add(time.Second)))
	}
}

// watch has a watchdog with that patience take the place of the one there is; 0
// is none. The caller holds sizing, or is the only one to know the engine.
func (e *Engine) watch(patience time.Duration) {
	if e.patience == patience {
		return
	}
	e.watchdog.close()
	e.mu.Lock()
	e.patience = patience
	e.mu.Unlock()
	if e.watchdog = nil; patience > 0 {
		e.watchdog = e.startWatchdog(patience)
	}
}

func (e *Engine) startWatchdog(patience time.Duration) *watchdog {
	w := &watchdog{patience: patience, stop: make(chan struct{}), stopped: make(chan struct{})}
	go func() {
		defer close(w.stopped)
		tick := time.NewTicker(max(patience/4, 1))
		defer tick.Stop()
		for {
			select {
			case now := <-tick.C:
				e.endStuck(w.patience, now)
			case <-w.stop:
				return
			}
		}
	}()
	return w
}

// close stops the watchdog, if there is one, and waits until it is gone.
func (w *watchdog) close() {
	if w != nil {
		close(w.stop)
		<-w.stopped
	}
}

// endStuck cancels requests in which nothing has happened for too long.
func (e *Engine) endStuck(patience time.Duration, now time.Time) {
	for _, s := range e.stuck(patience, now) {
		phase := ""
		if at := int(s.pulse.at.Load()); at < len(s.line.phases) {
			phase = s.line.phases[at].Name()
		}
		e.metrics.stuck.WithLabelValues(phase).Inc()
		e.log.Error("a request was stuck and is cancelled: nothing happened in it any more",
			"request_id", s.req.ID, "phase", phase, "for", now.Sub(s.pulse.since))
		s.cancel(wire.Faultf(wire.Internal, "internal error").Because(errStuck))
	}
}

// stuck returns the requests in which nothing has happened for too long and that
// it has not returned yet. One that came under a longer patience keeps it.
func (e *Engine) stuck(patience time.Duration, now time.Time) (found []*supervisor) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for s := range e.live {
		p := &s.pulse
		if beats, sent := p.beats.Load(), s.req.Out.Active(); p.since.IsZero() || beats != p.felt || !sent.Equal(p.sent) {
			p.felt, p.sent, p.since = beats, sent, now
		} else if until := p.until.Load(); until != nil && until.After(now) {
			p.since = now // it only waits, as it is meant to
		} else if !p.givenUp && s.patience > 0 && now.Sub(p.since) >= max(s.patience, patience) {
			p.givenUp = true
			found = append(found, s)
		}
	}
	return found
}
