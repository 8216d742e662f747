package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// takeScript counts a request if there are fewer than the limit, and marks its
// slot. One whose slot has a mark already has been given up by who asked.
var takeScript = redis.NewScript(`
if redis.call('EXISTS', KEYS[2]) == 1 then
	return 0
end
local count = tonumber(redis.call('GET', KEYS[1]) or '0')
if count and count >= tonumber(ARGV[1]) then
	return 0
end
redis.call('INCR', KEYS[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('SET', KEYS[2], 'taken', 'PX', ARGV[3])
return 1`)

// releaseScript counts a request less; a counter that is down to nothing is
// left to expire. A slot of which it is not known that it was taken must have
// its mark. If it has none, it gets one by which a take that is still on its way
// knows that it is too late.
var releaseScript = redis.NewScript(`
local mark = redis.call('GET', KEYS[2])
if ARGV[2] == '0' and mark ~= 'taken' then
	redis.call('SET', KEYS[2], 'void', 'PX', ARGV[3])
	return 0
end
if mark then
	redis.call('DEL', KEYS[2])
end
local count = tonumber(redis.call('GET', KEYS[1]) or '0')
if count and count > 0 and redis.call('DECR', KEYS[1]) > 0 then
	redis.call('PEXPIRE', KEYS[1], ARGV[1])
end
return 0`)

// markKept is how long a slot keeps its mark: for longer than any request lasts.
const markKept = 24 * time.Hour

// Slot is a request's place in its tenant's quota.
type Slot struct {
	Tenant string
	// ID is random. The slot is marked by it in Redis, so that one that may have been
	// taken can be released without freeing another's.
	ID string
	// Unsure: Redis was asked, and its answer was lost.
	Unsure bool
}

// TakeQuota counts a request against its tenant's quota, which is shared with
// the brokers of the queue. reserved is false if the quota is used up; if it
// cannot be told, because Redis fails, then it is true. The slot of a request that
// was counted, or may have been, is to be released, that of others is nil. Its
// outcome is waited for even if the context is canceled.
func (b *Broker) TakeQuota(ctx context.Context, tenant string) (reserved bool, slot *Slot, err error) {
	limit := b.settings.QuotaLimits[tenant]
	if limit == 0 {
		return true, nil, nil
	}
	slot = &Slot{Tenant: tenant, ID: rand.Text()}
	taken := false
	err = b.tell(ctx, cmdTake, func(ctx context.Context) (err error) {
		taken, err = takeScript.Run(ctx, b.client, b.quotaKeys(slot), limit, b.settings.QuotaWindow.Milliseconds(), markKept.Milliseconds()).Bool()
		return err
	})
	switch {
	case err != nil && mayBeDone(err):
		slot.Unsure = true
		return true, slot, err
	case err != nil:
		return true, nil, err
	case !taken:
		return false, nil, nil
	}
	return true, slot, nil
}

// ReleaseQuota counts a request less that TakeQuota has counted. A context that
// has ended does not keep it from that. If Redis fails for the time being, the slot is
// owed, which is no error.
func (b *Broker) ReleaseQuota(ctx context.Context, slot *Slot) error {
	err := b.releaseNow(context.WithoutCancel(ctx), slot)
	if passes(err) {
		b.Owe(slot)
		return nil
	}
	return err
}

// releaseNow sends the command, twice if need be, for what has broken a connection may
// have broken others; the second counts only if the slot has its mark.
func (b *Broker) releaseNow(ctx context.Context, slot *Slot) error {
	err := b.release(ctx, slot, !slot.Unsure)
	if worthAnother(err) {
		err = b.release(ctx, slot, false)
	}
	return err
}

// release sends the command. sure: the slot was taken, whatever its mark says.
func (b *Broker) release(ctx context.Context, slot *Slot, sure bool) error {
	return b.tell(ctx, cmdRelease, func(ctx context.Context) error {
		return releaseScript.Run(ctx, b.client, b.quotaKeys(slot), b.settings.QuotaWindow.Milliseconds(), sure, markKept.Milliseconds()).Err()
	})
}

// mayBeDone reports whether a command that failed may have been done: it was sent,
// and nothing came back.
func mayBeDone(err error) bool {
	var unsent *dialError
	e, ok := errors.AsType[*Error](err)
	return ok && (e.Kind == Timeout || e.Kind == Connection) && !errors.As(err, &unsent)
}

// quotaKeys are the counter of a slot's tenant, which brokers know, and the
// slot's mark, which they do not. No tenant has a colon.
func (b *Broker) quotaKeys(slot *Slot) []string {
	counter := b.settings.QuotaPrefix + b.settings.QuotaAttribute + ":" + slot.Tenant
	return []string{counter, counter + ":" + slot.ID}
}
