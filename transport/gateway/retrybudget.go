package gateway

import (
	"sync"
	"time"
)

// RetryBudget bounds the retries of a process: when everything fails, sending it
// all again would only make it worse. It may be used by many goroutines. A nil
// budget allows everything.
type RetryBudget struct {
	mu      sync.Mutex
	ratio   float64
	least   int
	seconds [budgetWindow]budgetSecond
}

// budgetWindow is how many seconds back legs and retries are counted.
const budgetWindow = 10

// budgetSecond is what happened in one second.
type budgetSecond struct {
	at            int64 // Unix time
	legs, retries int
}

// NewRetryBudget makes a budget: of the legs of the last 10 s so large a part may
// be sent again, and always so many.
func NewRetryBudget(ratio float64, least int) *RetryBudget {
	return &RetryBudget{ratio: ratio, least: least}
}

// Set changes what is allowed. Legs and retries of the last 10 s still count.
func (b *RetryBudget) Set(ratio float64, least int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ratio, b.least = ratio, least
}

// now returns the current second. The lock is held.
func (b *RetryBudget) now() *budgetSecond {
	at := time.Now().Unix()
	s := &b.seconds[at%budgetWindow]
	if s.at != at {
		*s = budgetSecond{at: at}
	}
	return s
}

// leg counts a leg at its first attempt.
func (b *RetryBudget) leg() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now().legs++
}

// take allows one retry, or not.
func (b *RetryBudget) take() bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left() < 1 {
		return false
	}
	b.now().retries++
	return true
}

// left returns how many retries are left now. The lock is held.
func (b *RetryBudget) left() int {
	now := b.now().at
	legs, retries := 0, 0
	for _, s := range b.seconds {
		if now-s.at < budgetWindow {
			legs, retries = legs+s.legs, retries+s.retries
		}
	}
	return max(b.least, int(b.ratio*float64(legs))) - retries
}

// Remaining returns how many retries are left now.
func (b *RetryBudget) Remaining() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(0, b.left())
}
