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
			for due := b.takeDue(); len(due) > 0 && b.ctx.Err() == nil; {
				n := min(readAtOnce, len(due))
				b.read(due[:n])
				due = due[n:]
			}
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

// poll looks into these mailboxes. Most are empty, so it is asked first how many
// of a batch are not.
func (b *Broker) poll(keys []any) {
	if len(keys) == 0 && b.outages.silent() {
		_ = b.background(cmdPing, func(ctx context.Context) error { return b.client.Ping(ctx).Err() })
	}
	for len(keys) > 0 && b.ctx.Err() == nil {
		n := min(askAtOnce, len(keys))
		batch := keys[:n]
		keys = keys[n:]
		if b.filled(batch) == 0 {
			continue
		}
		for len(batch) > 0 {
			n := min(readAtOnce, len(batch))
			due := make([]dueKey, n)
			for i, key := range batch[:n] {
				due[i] = dueKey{*key.(*string), byPoll}
			}
			b.read(due)
			batch = batch[n:]
		}
	}
}

// filled returns in how many of the mailboxes there is something; none if Redis
// fails, for then they are asked for again soon.
func (b *Broker) filled(keys []any) (n int64) {
	_ = b.background(cmdPoll, func(ctx context.Context) (err error) {
		exists := redis.NewIntCmd(ctx, append([]any{"exists"}, keys...)...)
		err = b.client.Process(ctx, exists)
		n = exists.Val()
		return err
	})
	return n
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
