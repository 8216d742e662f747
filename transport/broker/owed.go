package broker

import (
	"context"
	"errors"
	"sync"
	"time"
)

// owed are the slots of requests that have ended while Redis did not answer. A quota
// that is in use is kept for ever: what is not given back a busy tenant would lack
// until nobody of its own is served any more.
type owed struct {
	mu    sync.Mutex
	slots []*Slot
	busy  bool // somebody gives them back
}

// maxOwed bounds what is kept, of about 100 bytes each.
const maxOwed = 100_000

// owedPause is between two attempts while Redis does not answer.
const owedPause = time.Second

// Owe has a slot given back in the background, as soon as Redis answers. It returns
// at once.
func (b *Broker) Owe(slot *Slot) {
	b.owed.mu.Lock()
	defer b.owed.mu.Unlock()
	switch {
	case len(b.owed.slots) == maxOwed:
		b.log.Error("too many slots of quotas could not be given back: one is lost until its counter expires", "kept", maxOwed)
		return
	case !b.owed.busy && !b.enter(): // closed
		b.log.Warn("slots of quotas could not be given back: they are lost until their counters expire", "slots", 1)
		return
	case !b.owed.busy:
		b.owed.busy = true
		go b.repay()
	}
	b.owed.slots = append(b.owed.slots, slot)
	b.metrics.owed.Inc()
}

// repay gives back what is owed, until nothing is or the broker is closed.
func (b *Broker) repay() {
	defer b.running.Done()
	again := time.NewTicker(owedPause)
	defer again.Stop()
	for {
		slot := b.owed.first()
		if slot == nil {
			return
		}
		var err error
		if b.guard.State() == "open" && b.ctx.Err() == nil {
			err = &Error{Command: string(cmdRelease), Kind: BreakerOpen, cause: ErrOpen} // asking would only be counted
		} else {
			err = b.release(context.WithoutCancel(b.ctx), slot, false)
		}
		if errors.Is(err, errClosed) {
			b.abandon()
			return
		}
		if !passes(err) {
			if err != nil {
				b.log.Warn("a slot of a quota could not be given back: it is lost until its counter expires", "error", err)
			}
			b.owed.drop()
			b.metrics.owed.Dec()
			continue
		}
		select {
		case <-again.C:
		case <-b.ctx.Done(): // what is asked next is refused
		}
	}
}

// first returns the slot that is next, or nil if there is none, and nobody gives
// any back then.
func (o *owed) first() *Slot {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.slots) == 0 {
		o.slots, o.busy = nil, false
		return nil
	}
	return o.slots[0]
}

func (o *owed) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.slots = o.slots[1:]
}

// abandon gives up what is owed when the broker is closed.
func (b *Broker) abandon() {
	b.owed.mu.Lock()
	defer b.owed.mu.Unlock()
	b.metrics.owed.Sub(float64(len(b.owed.slots)))
	b.log.Warn("slots of quotas could not be given back: they are lost until their counters expire", "slots", len(b.owed.slots))
	b.owed.slots, b.owed.busy = nil, false
}

// passes reports whether the failure of a command is one that may be over soon.
func passes(err error) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return false
	}
	switch e.Kind {
	case Timeout, Connection, Loading, BreakerOpen, ReadOnly, OutOfMemory, Denied: // credentials are read again
		return true
	}
	return false
}
