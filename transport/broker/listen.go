package broker

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// subscribeAtOnce is how many mailboxes one command subscribes.
const subscribeAtOnce = 500

// errOff ends a subscription that is of no use any more.
var errOff = errors.New("it sends no keyspace notifications for lists any more")

// listen keeps the mailboxes that are waited for subscribed, until the broker is
// closed. While it cannot, they are polled.
func (b *Broker) listen() {
	for b.ctx.Err() == nil {
		pause := b.recheck
		offers, e := b.offersNotifications(b.ctx)
		if offers || e.answered() && b.settings.Wakeup == Notify {
			if e = b.subscription(); b.ctx.Err() != nil {
				return
			}
			_ = b.fail(cmdSubscribe, e)
		}
		if e != nil && !e.answered() {
			pause = b.settings.BackupInterval // it may be back soon
		}
		select {
		case <-b.ctx.Done():
		case <-time.After(pause):
		}
	}
}

// offersNotifications reports whether Redis sends the notifications that are
// needed. Many let nobody ask for settings.
func (b *Broker) offersNotifications(ctx context.Context) (bool, *Error) {
	flags, err := ask(ctx, b, cmdSettings, func(ctx context.Context) (string, error) {
		all, err := b.client.ConfigGet(ctx, "notify-keyspace-events").Result()
		return all["notify-keyspace-events"], err
	})
	return err == nil && listNotifications(flags), failure(cmdSettings, err)
}

// subscription is one connection on which notifications arrive, for as long as
// they do. It returns why they do not any more.
func (b *Broker) subscription() *Error {
	ctx, cancel := context.WithCancel(b.ctx)
	ps := b.client.Subscribe(ctx)
	ended := make(chan error, 2)
	defer b.live.Store(false)
	defer b.resubscribe(false)
	defer func() {
		cancel()
		ps.Close() // ends the receiver
		<-ended
	}()
	b.resubscribe(true)
	go func() {
		ended <- b.receive(ctx, ps)
		close(ended)
	}()
	return failure(cmdSubscribe, b.subscribe(ctx, ps, ended))
}

// subscribe subscribes and unsubscribes what is to be, and pings: each pong says
// that the connection still is.
func (b *Broker) subscribe(ctx context.Context, ps *redis.PubSub, ended <-chan error) error {
	within := func(f func(context.Context, ...string) error, names ...string) error {
		limited, cancel := context.WithTimeout(ctx, b.settings.Timeout)
		defer cancel()
		return f(limited, names...)
	}
	err := within(ps.Ping)
	beat, check := time.NewTicker(b.settings.BackupInterval), time.NewTicker(b.recheck)
	defer beat.Stop()
	defer check.Stop()
	for err == nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err = <-ended:
		case <-beat.C:
			err = within(ps.Ping)
		case <-check.C:
			if offers, e := b.offersNotifications(ctx); e == nil && !offers {
				err = &Error{Command: string(cmdSubscribe), Kind: Refused, cause: errOff}
			}
		case <-b.toChange:
			subscribe, unsubscribe := b.takeChanges(subscribeAtOnce)
			if len(unsubscribe) > 0 {
				err = within(ps.Unsubscribe, unsubscribe...)
			}
			if len(subscribe) > 0 && err == nil {
				err = within(ps.Subscribe, subscribe...)
			}
		}
	}
	return err
}

// receive takes what arrives on a subscription, until it has been silent for
// longer than between two pongs.
func (b *Broker) receive(ctx context.Context, ps *redis.PubSub) error {
	for {
		message, err := ps.ReceiveTimeout(ctx, b.settings.BackupInterval+b.settings.Timeout)
		if err != nil {
			return err
		}
		switch message := message.(type) {
		case *redis.Pong:
			b.live.Store(true)
		case *redis.Subscription:
			// What came before is not told of.
			if message.Kind == "subscribe" {
				b.outages.worked(cmdSubscribe)
				b.isDue(message.Channel[len(b.prefix):], byPoll)
			}
		case *redis.Message:
			if message.Payload == "lpush" || message.Payload == "rpush" {
				b.isDue(message.Channel[len(b.prefix):], byNotification)
			}
		}
	}
}
