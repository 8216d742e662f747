package broker

import (
	"cmp"
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Quota counts the requests of a tenant that are being sent, in a counter that is
// shared with who else counts there. Who is above the limit is sent all the same, with
// the other objective.
type Quota struct {
	// Prefix and Attribute make a counter's key, with the tenant, which is the
	// metadata of the name Attribute. Defaults "quota:" and "userid".
	Prefix, Attribute string
	// Limits are how many may be counted, by tenant. Who is not among them, or has
	// 0, is not counted.
	Limits map[string]int
	// Window is how long a counter is kept that nothing changes. Default 5m.
	Window time.Duration
	// Header tells the gateway, with the value Reserved, or Overflow. "" tells it
	// nothing.
	Header, Reserved, Overflow string
}

func (q Quota) withDefaults() Quota {
	q.Prefix = cmp.Or(q.Prefix, "quota:")
	q.Attribute = cmp.Or(q.Attribute, "userid")
	q.Window = cmp.Or(q.Window, 5*time.Minute)
	return q
}

var (
	taking = redis.NewScript(`
if tonumber(redis.call('GET', KEYS[1]) or '0') >= tonumber(ARGV[1]) then return 0 end
redis.call('INCR', KEYS[1])
redis.call('EXPIRE', KEYS[1], ARGV[2])
return 1`)
	releasing = redis.NewScript(`
if tonumber(redis.call('GET', KEYS[1]) or '0') <= 0 then return 0 end
if redis.call('DECR', KEYS[1]) > 0 then redis.call('EXPIRE', KEYS[1], ARGV[1]) end
return 1`)
)

// takeQuota counts a request, stamps it, and returns what counts it out.
func (b *Broker) takeQuota(m *message) (release func()) {
	q := b.options.Quota
	tenant := m.data.Metadata[q.Attribute]
	limit := q.Limits[tenant]
	if limit <= 0 {
		m.stamp(q.Header, q.Reserved)
		return func() {}
	}
	keys, window := []string{q.Prefix + q.Attribute + ":" + tenant}, int(q.Window/time.Second)
	taken, err := taking.Run(b.ctx, b.redis, keys, limit, window).Int()
	if err != nil || taken == 0 {
		m.stamp(q.Header, q.Overflow)
		return func() {}
	}
	m.stamp(q.Header, q.Reserved)
	return func() {
		b.insist(func(ctx context.Context) error { return releasing.Run(ctx, b.redis, keys, window).Err() })
	}
}

// stamp sets a header of a message over one of the client's.
func (m *message) stamp(name, value string) {
	if name == "" || value == "" {
		return
	}
	if m.data.Headers == nil {
		m.data.Headers = map[string]string{}
	}
	m.data.Headers[name] = value
}
