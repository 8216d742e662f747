package gateway

import (
	"sync/atomic"
	"time"
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

// sent notes that the attempt is on its way.
func (p *Permit) sent() {
	if p != nil && p.trial != nil {
		p.patience.Store(time.AfterFunc(trialPatience, func() { p.giveTrial(errUnused) }))
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
	if t := p.patience.Load(); t != nil {
		t.Stop()
	}
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

// Fail reports that it does not.
func (p *Permit) Fail() { p.settle(errFailure) }

// GiveBack reports that nothing was learnt: the attempt was not sent, or the
// client left before it was answered.
func (p *Permit) GiveBack() { p.settle(errUnused) }
