package broker

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// How a result was found: values of the label by.
const (
	byNotification = "notification"
	byPoll         = "poll" // or by the look after subscribing
)

const (
	// askAtOnce is how many mailboxes one command is about.
	askAtOnce = 500
	// readAtOnce is how many results are read together: they may be large.
	readAtOnce = 32
)

// look looks into mailboxes, until the broker is closed: into all in turns, and
// into those where there may be something at once. It is the one goroutine that
// wakes watchers.
func (b *Broker) look() {
	var all []any
	timer := time.NewTimer(b.settings.PollInterval)
	defer timer.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-b.toLook:
			b.readAll(b.takeDue())
		case <-timer.C:
			clear(all)
			all = b.keys(all[:0])
			b.poll(all)
			timer.Reset(b.interval())
		}
	}
}

// interval is until the next look at all mailboxes.
func (b *Broker) interval() time.Duration {
	if b.live.Load() {
		return b.settings.BackupInterval
	}
	return b.settings.PollInterval
}

// poll looks into these mailboxes. Most are empty, so it is asked first whether
// any of a batch is not. With none to look into, nothing might be asked of Redis
// for long: then it is asked whether its outage is over.
func (b *Broker) poll(keys []any) {
	if len(keys) == 0 && b.outages.missing() {
		_ = b.background(cmdPing, func(ctx context.Context) error { return b.client.Ping(ctx).Err() })
	}
	for len(keys) > 0 && b.ctx.Err() == nil {
		n := min(askAtOnce, len(keys))
		batch := keys[:n]
		keys = keys[n:]
		if b.anyFilled(batch) {
			b.readAll(b.filled(batch))
		}
	}
}

// anyFilled reports whether there is something in one of the mailboxes; not if
// Redis fails, for then they are asked for again soon.
func (b *Broker) anyFilled(keys []any) bool {
	var exists *redis.IntCmd
	err := b.background(cmdPoll, func(ctx context.Context) error {
		exists = redis.NewIntCmd(ctx, append([]any{"exists"}, keys...)...)
		return b.client.Process(ctx, exists)
	})
	return err == nil && exists.Val() > 0
}

// filled returns those of the mailboxes in which there is something.
func (b *Broker) filled(keys []any) (due []dueKey) {
	exist := make([]*redis.IntCmd, len(keys))
	err := b.background(cmdPoll, func(ctx context.Context) error {
		pipe := b.client.Pipeline()
		for i, key := range keys {
			exist[i] = pipe.Exists(ctx, *key.(*string))
		}
		return firstError(pipe.Exec(ctx))
	})
	if err != nil {
		return nil
	}
	for i, there := range exist {
		if there.Val() > 0 {
			due = append(due, dueKey{*keys[i].(*string), byPoll})
		}
	}
	return due
}

// readAll reads mailboxes, some at a time.
func (b *Broker) readAll(due []dueKey) {
	for len(due) > 0 && b.ctx.Err() == nil {
		n := min(readAtOnce, len(due))
		b.read(due[:n])
		due = due[n:]
	}
}

// read reads mailboxes, and wakes who waits for those in which there is
// something.
func (b *Broker) read(due []dueKey) {
	found := make([]*redis.StringCmd, len(due))
	_ = b.background(cmdPoll, func(ctx context.Context) error {
		pipe := b.client.Pipeline()
		for i, d := range due {
			found[i] = pipe.LIndex(ctx, d.key, 0)
		}
		return firstError(pipe.Exec(ctx))
	})
	for i, d := range due {
		if found[i] == nil { // it was not sent
			return
		}
		if element, err := found[i].Bytes(); err == nil && b.deliver(d.key, readResult(element)) {
			b.metrics.wakeups.WithLabelValues(d.by).Inc()
		}
	}
}

// background sends a command of the broker's own.
func (b *Broker) background(c command, f func(context.Context) error) error {
	return b.send(b.ctx, c, f)
}
