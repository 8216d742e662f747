package broker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// The keys of a request. The names are the broker's.
func (k Key) active() string  { return "request-active:" + k.String() }
func (k Key) cancel() string  { return "request-cancel:" + k.String() }
func (k Key) mailbox() string { return mailboxPrefix + k.String() }

const mailboxPrefix = "results:req:"

// cancelFor is how long a cancellation is remembered, in seconds.
const cancelFor = 7 * 24 * 60 * 60

// cancelScript writes the token of the request that is under way to the cancel
// key.
var cancelScript = redis.NewScript(`
local token = redis.call('GET', KEYS[1])
if not token then
	return 0
end
redis.call('SET', KEYS[2], token, 'EX', ARGV[1])
return 1`)

// reviveScript takes a cancellation back if it is for the request that is under
// way.
var reviveScript = redis.NewScript(`
local token = redis.call('GET', KEYS[1])
if token and redis.call('GET', KEYS[2]) == token then
	return redis.call('DEL', KEYS[2])
end
return 0`)

// forgetScript says of a request that it is not under way, if it has this token.
var forgetScript = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then
	return redis.call('DEL', KEYS[1])
end
return 0`)

// Lookup says what is known of a request; of one that is Ready, its newest
// result. It is asked first whether it is under way: a broker writes the result
// before it says that it is not.
func (b *Broker) Lookup(ctx context.Context, k Key) (State, *Result, error) {
	type found struct {
		active  bool
		element []byte
		there   bool
	}
	f, err := ask(ctx, b, cmdLookup, func(ctx context.Context) (f found, err error) {
		pipe := b.client.Pipeline()
		active := pipe.Exists(ctx, k.active())
		newest := pipe.LIndex(ctx, k.mailbox(), 0)
		if err := firstError(pipe.Exec(ctx)); err != nil {
			return f, err
		}
		f.active = active.Val() > 0
		f.element, err = newest.Bytes()
		f.there = err == nil
		return f, err
	})
	switch {
	case err != nil:
		return Unknown, nil, err
	case f.there:
		return Ready, readResult(f.element), nil
	case f.active:
		return Pending, nil, nil
	default:
		return Unknown, nil, nil
	}
}

// Submit puts a request into its queue. It is sent once, and its outcome is
// waited for even if the context is canceled, so that who gives a request up
// can cancel it afterwards. After a time-out it may be queued nevertheless.
func (b *Broker) Submit(ctx context.Context, s Submission) error {
	var random [16]byte
	rand.Read(random[:]) // it never fails
	token := hex.EncodeToString(random[:])
	member, err := s.envelope(token)
	if err != nil {
		return err
	}
	err = b.tell(ctx, cmdSubmit, func(ctx context.Context) error {
		pipe := b.client.TxPipeline()
		pipe.Del(ctx, s.cancel())
		pipe.Set(ctx, s.active(), token, max(time.Millisecond, time.Until(s.Deadline)))
		pipe.ZAdd(ctx, s.Queue, redis.Z{Score: float64(s.Deadline.Unix()), Member: member})
		return firstError(pipe.Exec(ctx))
	})
	if e, ok := errors.AsType[*Error](err); ok && e.Kind == WrongType {
		// The queue is no sorted set. Of a transaction, what did not fail is done:
		// the request would seem to be under way without being queued.
		_ = b.tell(ctx, cmdSubmit, func(ctx context.Context) error {
			return forgetScript.Run(ctx, b.client, []string{s.active()}, token).Err()
		})
	}
	return err
}

// Cancel asks for a request not to be sent any more. It reports false if there
// is none under way.
func (b *Broker) Cancel(ctx context.Context, k Key) (bool, error) {
	return ask(ctx, b, cmdCancel, func(ctx context.Context) (bool, error) {
		return cancelScript.Run(ctx, b.client, []string{k.active(), k.cancel()}, cancelFor).Bool()
	})
}

// Revive takes the cancellation of a request back, if it is not too late.
func (b *Broker) Revive(ctx context.Context, k Key) error {
	_, err := ask(ctx, b, cmdRevive, func(ctx context.Context) (any, error) {
		return reviveScript.Run(ctx, b.client, []string{k.active(), k.cancel()}).Result()
	})
	return err
}

// Delete deletes a mailbox.
func (b *Broker) Delete(ctx context.Context, k Key) error { return b.empty(ctx, cmdDelete, k) }

// Fetched has a mailbox stay for the grace, from now on.
func (b *Broker) Fetched(ctx context.Context, k Key) error {
	if b.settings.FetchGrace == 0 {
		return b.empty(ctx, cmdFetched, k)
	}
	_, err := ask(ctx, b, cmdFetched, func(ctx context.Context) (bool, error) {
		return b.client.PExpire(ctx, k.mailbox(), b.settings.FetchGrace).Result()
	})
	return err
}

func (b *Broker) empty(ctx context.Context, c command, k Key) error {
	_, err := ask(ctx, b, c, func(ctx context.Context) (int64, error) {
		return b.client.Del(ctx, k.mailbox()).Result()
	})
	return err
}

// firstError returns why the commands of a pipeline failed: that a transaction
// was given up says less than the command because of which it was.
func firstError(commands []redis.Cmder, err error) error {
	if err == nil {
		return nil
	}
	for _, c := range commands {
		if e := c.Err(); e != nil && e != redis.Nil && !strings.HasPrefix(e.Error(), "EXECABORT") {
			return e
		}
	}
	if err == redis.Nil {
		return nil
	}
	return err
}
