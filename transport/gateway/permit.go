package gateway

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// Permit is the right to send one attempt past a breaker. It must be settled
// by exactly one of Succeed, Fail and GiveBack; later ones do nothing, so that
// whoever owns a permit can give it back on every way out. It may be used by
// several goroutines. A nil permit judges nothing.
type Permit struct {
	breaker *breaker // nil: there is none
	era     uint64
	settled atomic.Bool

	// trial settles gobreaker's own permit, if it was given half open. It is
	// called once: when the permit is settled, or when patience ends.
	trial    func(error)
	returned atomic.Bool
	patience atomic.Pointer[time.Timer]
}

// trialPatience is how long an attempt that was let through half open keeps
// others out. One that takes longer is judged all the same, when it is answered.
const trialPatience = time.Second

// Trials are the attempts that one request makes past half-open breakers. If one of
// its legs may try, those beside it may too: else they would be refused, the request
// fail, and the trials end with it before they have told anything. It may be used by
// several goroutines. Nil is each leg for itself.
type Trials struct {
	mu    sync.Mutex
	given map[*breaker]uint64 // the era of the last
}

// try asks a half-open breaker whether a leg may try, with what allow says. done is
// nil for one that may because another has been allowed to in this era. No leg is
// asked for while another is, or it could be refused for one that is about to be noted.
func (t *Trials) try(b *breaker, era uint64, allow func() (func(error), error)) (done func(error), err error) {
	if t == nil {
		return allow()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	done, err = allow()
	given, ok := t.given[b]
	switch {
	case err == nil && t.given == nil:
		t.given = map[*breaker]uint64{b: era}
	case err == nil:
		t.given[b] = era
	case errors.Is(err, gobreaker.ErrTooManyRequests) && ok && given == era:
		return nil, nil
	}
	return done, err
}

// Sent notes that the attempt is on its way. It may be called again, for another one.
func (p *Permit) Sent() {
	if p != nil && p.trial != nil {
		p.wait(time.AfterFunc(trialPatience, func() { p.giveTrial(errUnused) }))
	}
}

// Back notes that an attempt that was sent has told nothing, and that another may
// follow under the permit.
func (p *Permit) Back() {
	if p != nil {
		p.wait(nil)
	}
}

func (p *Permit) wait(patience *time.Timer) {
	if before := p.patience.Swap(patience); before != nil {
		before.Stop()
	}
}

// giveTrial settles gobreaker's permit. It reports false if that was done before.
func (p *Permit) giveTrial(outcome error) bool {
	if p.trial == nil || !p.returned.CompareAndSwap(false, true) {
		return false
	}
	p.trial(outcome)
	return true
}

// settle settles the permit, and reports whether it was not settled yet.
func (p *Permit) settle(outcome error) bool {
	if p == nil || !p.settled.CompareAndSwap(false, true) {
		return false
	}
	p.wait(nil)
	if p.breaker != nil && !p.giveTrial(outcome) {
		p.breaker.count(p.era, outcome)
	}
	return true
}

// broke counts one more failure of an attempt that has been judged.
func (p *Permit) broke() {
	if p != nil && p.breaker != nil {
		p.breaker.broke(p.era)
	}
}

// Succeed reports that the upstream works.
func (p *Permit) Succeed() { p.settle(nil) }

// SucceedTrial reports that the upstream works, if that is asked: by what was sent
// beside what is judged, whose failures do not count. It ends half open, and is no
// success among the failures of others.
func (p *Permit) SucceedTrial() {
	if p != nil && p.trial != nil {
		p.Succeed()
	} else {
		p.GiveBack()
	}
}

// Fail reports that it does not.
func (p *Permit) Fail() { p.settle(errFailure) }

// GiveBack reports that nothing was learnt: the attempt was not sent, or the
// client left before it was answered.
func (p *Permit) GiveBack() { p.settle(errUnused) }
