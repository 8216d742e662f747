package broker

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// takeScript counts a request if there are fewer than the limit.
var takeScript = redis.NewScript(`
local count = tonumber(redis.call('GET', KEYS[1]) or '0')
if count and count >= tonumber(ARGV[1]) then
	return 0
end
redis.call('INCR', KEYS[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1`)

// releaseScript counts a request less; a counter that is down to nothing is
// left to expire.
var releaseScript = redis.NewScript(`
local count = tonumber(redis.call('GET', KEYS[1]) or '0')
if count and count > 0 and redis.call('DECR', KEYS[1]) > 0 then
	redis.call('PEXPIRE', KEYS[1], ARGV[1])
end
return 0`)

// TakeQuota counts a request against its tenant's quota, which is shared with
// the brokers of the queue. reserved is false if the quota is used up; if it
// cannot be told, because Redis fails, then it is true. taken says that the
// request was counted, and is to be released. Its outcome is waited for even if
// the context is canceled.
func (b *Broker) TakeQuota(ctx context.Context, tenant string) (reserved, taken bool, err error) {
	limit := b.settings.QuotaLimits[tenant]
	if limit == 0 {
		return true, false, nil
	}
	err = b.tell(ctx, cmdTake, func(ctx context.Context) (err error) {
		taken, err = takeScript.Run(ctx, b.client, []string{b.quotaKey(tenant)}, limit, b.settings.QuotaWindow.Milliseconds()).Bool()
		return err
	})
	if err != nil {
		return true, false, err
	}
	return taken, taken, nil
}

// ReleaseQuota counts a request less that TakeQuota has taken. A context that
// has ended does not keep it from that.
func (b *Broker) ReleaseQuota(ctx context.Context, tenant string) error {
	return b.tell(context.WithoutCancel(ctx), cmdRelease, func(ctx context.Context) error {
		return releaseScript.Run(ctx, b.client, []string{b.quotaKey(tenant)}, b.settings.QuotaWindow.Milliseconds()).Err()
	})
}

func (b *Broker) quotaKey(tenant string) string {
	return b.settings.QuotaPrefix + b.settings.QuotaAttribute + ":" + tenant
}
