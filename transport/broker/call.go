package broker

import (
	"context"
	"errors"
	"time"
)

// command is what is asked of Redis: a label of figures.
type command string

const (
	cmdPing      command = "ping"
	cmdSettings  command = "settings"
	cmdLookup    command = "lookup"
	cmdSubmit    command = "submit"
	cmdCancel    command = "cancel"
	cmdRevive    command = "revive"
	cmdDelete    command = "delete"
	cmdFetched   command = "fetched"
	cmdTake      command = "take_quota"
	cmdRelease   command = "release_quota"
	cmdPoll      command = "poll"
	cmdSubscribe command = "subscribe"
)

// send sends a command once, past the breaker, and waits for its outcome: at
// most for the broker's time-out and until the context's deadline. That the
// context is canceled does not end it, for then nobody would know whether it
// was done.
func (b *Broker) send(ctx context.Context, c command, f func(context.Context) error) error {
	permit, ok := b.guard.Begin()
	if !ok {
		return b.fail(c, &Error{Command: string(c), Kind: BreakerOpen, cause: ErrOpen})
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.settings.Timeout)
	defer cancel()
	until, hurried := ctx.Deadline()
	if hurried {
		limited, cancel = context.WithDeadline(limited, until)
		defer cancel()
	}
	start := time.Now()
	e := failure(c, f(limited))
	b.guard.Took(time.Since(start))
	switch {
	case e == nil:
		permit.Succeed()
		b.outages.worked(c)
		return nil
	case e.Kind == Timeout && hurried && !time.Now().Before(until):
		permit.GiveBack() // the request had no time left; Redis may be well
		return b.gaveUp(c, context.DeadlineExceeded)
	case e.Kind.silent():
		permit.Fail()
	default:
		permit.Succeed() // it answers
	}
	return b.fail(c, e)
}

// fail counts a failure and returns it.
func (b *Broker) fail(c command, e *Error) error {
	b.metrics.errors.WithLabelValues(string(c), string(e.Kind)).Inc()
	b.outages.failed(c, e)
	return e
}

// ask sends a command that may be sent twice: it is, if a connection broke that
// had been made before. It returns when the context ends, whatever Redis does.
func ask[T any](ctx context.Context, b *Broker, c command, f func(context.Context) (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	var none T
	if !b.enter() {
		return none, &Error{Command: string(c), Kind: Closed, cause: errClosed}
	}
	done := make(chan outcome, 1)
	go func() {
		defer b.running.Done()
		var o outcome
		once := func(ctx context.Context) (err error) {
			o.value, err = f(ctx)
			return err
		}
		unhurried := context.WithoutCancel(ctx)
		o.err = b.send(unhurried, c, once)
		if worthAnother(o.err) && ctx.Err() == nil {
			o.err = b.send(unhurried, c, once)
		}
		done <- o
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
		return none, b.gaveUp(c, ctx.Err())
	}
}

// tell sends a command once, with send's limits.
func (b *Broker) tell(ctx context.Context, c command, f func(context.Context) error) error {
	if ctx.Err() != nil {
		return b.gaveUp(c, ctx.Err())
	}
	if !b.enter() {
		return &Error{Command: string(c), Kind: Closed, cause: errClosed}
	}
	defer b.running.Done()
	return b.send(ctx, c, f)
}

// gaveUp is the error of a command that its caller does not wait for any more,
// or has no time left for. It says nothing of Redis, and is counted so.
func (b *Broker) gaveUp(c command, why error) error {
	b.metrics.errors.WithLabelValues(string(c), string(Canceled)).Inc()
	e := &Error{Command: string(c), Kind: Canceled, cause: why}
	if errors.Is(why, context.DeadlineExceeded) {
		e.Kind = Timeout
	}
	return e
}

// worthAnother reports whether a command failed because its connection had
// died: one that was kept for long, mostly.
func worthAnother(err error) bool {
	var e *Error
	var dial *dialError
	return errors.As(err, &e) && e.Kind == Connection && !errors.As(err, &dial)
}

// enter has Close wait for a command, whose end calls running.Done.
func (b *Broker) enter() bool {
	b.closing.RLock()
	defer b.closing.RUnlock()
	if b.closed {
		return false
	}
	b.running.Add(1)
	return true
}
