package gateway

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// RetrySettings say how often a leg is sent, and how long is waited in between.
// The zero value sends everything once.
type RetrySettings struct {
	// MaxAttempts of one leg; 0 and 1 are no retry.
	MaxAttempts int
	// BaseDelay is the longest wait before the second attempt; it doubles for
	// each further one up to MaxDelay. What is waited is chosen at random from 0
	// on, so that those that failed together do not come back together.
	BaseDelay, MaxDelay time.Duration
}

// Resend says after which failures a leg may be sent again.
type Resend uint8

// The ways to go on after a failure.
const (
	// ResendAny is for legs that do the same if they are done twice.
	ResendAny Resend = iota
	// ResendDead is for legs that were not answered with a single byte on a
	// connection that had been used before, or reached no worker: the gateway has
	// closed it most likely before it saw them.
	ResendDead
	// ResendUnreached is for legs that must not be done twice: provably no worker
	// has seen them, for there was no connection, or the gateway says that it has
	// dropped them.
	ResendUnreached
	// ResendNever is for those that are worth one attempt.
	ResendNever
)

// Reasons why attempts failed, where another could do better.
const (
	reasonConnect = "connect"
	reasonDead    = "dead_connection"
	reasonBroken  = "broken"
	reasonTimeout = "timeout"
)

// failure is how an attempt failed.
type failure struct {
	fault *wire.Fault
	// reason names what another attempt could do better at; "" is nothing.
	reason string
	// unreached: provably no worker has seen the leg.
	unreached bool
	// after is what the upstream says of when to come again: its Retry-After.
	after string
	// answered: the failure is an answer that can be passed on.
	answered bool
	// refused: the breaker let no attempt pass.
	refused bool
	// worker: a worker that has seen the leg says so, and not because it is busy.
	worker bool
}

// why says in a word why the attempt failed.
func (f *failure) why() string {
	if f.reason != "" {
		return f.reason
	}
	return f.fault.ErrorCode()
}

// statusReason returns the reason to send a leg again that was answered with a
// status, or "".
func statusReason(status int) string {
	switch status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return strconv.Itoa(status)
	}
	return ""
}

// allows reports whether a leg may be sent again after a failure.
func (r Resend) allows(f *failure) bool {
	switch {
	case f.reason == "" || r == ResendNever:
		return false
	case f.unreached || r == ResendAny:
		return true
	}
	return r == ResendDead && f.reason == reasonDead
}

// again decides whether a leg gets another attempt, and waits for its time. It
// counts what it allows.
func (u *Upstream) again(ctx context.Context, leg *Leg, attempts int, f *failure) bool {
	if !leg.Resend.allows(f) || !u.Retry(ctx, attempts, f.reason, f.after, leg.Deadline) {
		return false
	}
	leg.fresh = leg.fresh || f.reason == reasonDead // the neighbours of a dead connection are as old
	return true
}

// Retry asks for another attempt at something that has been tried so often, and
// waits until it is time for it. It reports false if there is to be none: because
// attempts are used up, the budget of the process is, or there is no time for it:
// the upstream says after when it may be tried, "" if it does not, and a deadline
// that is not zero ends it, or ctx.
func (u *Upstream) Retry(ctx context.Context, attempts int, reason, after string, deadline time.Time) bool {
	if attempts >= u.Retries.MaxAttempts {
		return false
	}
	wait, ok := u.delay(attempts, after)
	if !ok || !deadline.IsZero() && time.Until(deadline) <= wait || ctx.Err() != nil {
		return false
	}
	if !u.budget.take() {
		u.metrics.retriesRefused.WithLabelValues(u.Name).Inc()
		return false
	}
	u.metrics.retries.WithLabelValues(u.Name, reason).Inc()
	return pause(ctx, wait)
}

// delay returns how long to wait before the next attempt. It reports false if
// the upstream asks for more patience than there is.
func (u *Upstream) delay(attempts int, after string) (time.Duration, bool) {
	most := u.Retries.MaxDelay
	if shift := max(0, attempts-1); shift < 32 && u.Retries.BaseDelay<<shift < most {
		most = u.Retries.BaseDelay << shift
	}
	jitter := time.Duration(rand.Int64N(int64(most) + 1))
	if after == "" {
		return jitter, true
	}
	told, ok := retryAfter(after)
	if !ok {
		return jitter, true // nothing that makes sense
	}
	if told > u.Retries.MaxDelay {
		return 0, false
	}
	return min(told+jitter, u.Retries.MaxDelay), true
}

// retryAfter reads a header Retry-After: seconds, or a date (RFC 9110, 10.2.3).
func retryAfter(text string) (time.Duration, bool) {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at)), true
	}
	return 0, false
}

// pause waits. It reports false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
