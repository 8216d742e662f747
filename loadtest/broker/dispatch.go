package broker

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// dispatch takes what is in the queue for as long as the broker runs.
func (b *Broker) dispatch() {
	again := time.NewTicker(b.options.PollInterval)
	defer again.Stop()
	for b.ctx.Err() == nil {
		b.returnDue()
		for b.take() {
		}
		select {
		case <-again.C:
		case <-b.ctx.Done():
		}
	}
}

// returnDue puts back into the queue what has waited long enough to be sent again.
func (b *Broker) returnDue() {
	now := strconv.FormatFloat(unix(time.Now()), 'f', 3, 64)
	due, err := b.redis.ZRangeArgs(b.ctx, redis.ZRangeArgs{Key: b.options.RetryQueue, ByScore: true, Start: "-inf", Stop: now, Count: 100}).Result()
	if err != nil {
		return // the next time
	}
	for _, member := range due {
		_, _ = b.redis.TxPipelined(b.ctx, func(p redis.Pipeliner) error {
			p.ZRem(b.ctx, b.options.RetryQueue, member)
			if m, err := parse(member); err == nil {
				p.ZAdd(b.ctx, b.options.Queue, redis.Z{Score: float64(m.data.Deadline), Member: member})
			}
			return nil
		})
	}
}

// unix is a time as scores have it.
func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// take takes one request for each worker that is free, and reports whether there may
// be more.
func (b *Broker) take() bool {
	n := cap(b.free) - len(b.free)
	if n == 0 {
		return false
	}
	taken, err := b.redis.ZPopMin(b.ctx, b.options.Queue, int64(n)).Result()
	if err != nil {
		return false
	}
	for _, z := range taken {
		b.free <- struct{}{}
		b.count(func(s *State) { s.Taken++; s.Running++ })
		b.running.Go(func() {
			b.handle(z.Member.(string), z.Score)
			<-b.free
			b.count(func(s *State) { s.Running-- })
		})
	}
	return len(taken) == n
}

// handle does all there is to do with one request.
func (b *Broker) handle(member string, score float64) {
	m, err := parse(member)
	if err != nil {
		b.count(func(s *State) { s.Dropped++ })
		return
	}
	b.inspect(m, member, score)
	if !m.deadline().After(time.Now()) {
		b.deliver(m, m.failure(deadlineExceeded, "the deadline passed in the queue"), func(s *State) { s.Expired++ })
		return
	}
	switch gone, err := b.isCancelled(m); {
	case err != nil: // nothing is sent unchecked
		b.aside(m, m.internal.Retries, time.Now().Add(time.Second), func(s *State) { s.Back++ })
		return
	case gone:
		b.deliver(m, m.failure(cancelled, "the request was cancelled"), func(s *State) { s.Cancelled++ })
		return
	}
	release := b.takeQuota(m)
	defer release()
	b.send(m)
}

// inspect notes what is wrong with a request that was not here before.
func (b *Broker) inspect(m *message, member string, score float64) {
	found := m.violations(b.options.Queue, score)
	if m.internal.Retries == 0 {
		for _, name := range foreign(member) {
			found = append(found, m.data.ID+": "+name+" is the broker's own")
		}
	}
	if len(found) > 0 {
		b.count(func(s *State) { s.Violations = append(s.Violations, found...)[:min(100, len(s.Violations)+len(found))] })
	}
}

func (b *Broker) isCancelled(m *message) (bool, error) {
	value, err := b.redis.Get(b.ctx, cancelKey(m.data.ID)).Result()
	if err == redis.Nil {
		return false, nil
	}
	return err == nil && value == m.internal.Token, err
}

// delivering puts a result into its mailbox, and removes what says that the request is
// alive, if that is said of this one.
var delivering = redis.NewScript(`
redis.call('LPUSH', KEYS[1], ARGV[1])
if tonumber(ARGV[2]) > 0 then redis.call('EXPIRE', KEYS[1], ARGV[2]) end
for i = 2, 3 do
  if redis.call('GET', KEYS[i]) == ARGV[3] then redis.call('DEL', KEYS[i]) end
end
return 1`)

// deliver puts a result into its mailbox, however long Redis takes to be there for it,
// and counts it.
func (b *Broker) deliver(m *message, r *result, counted func(*State)) {
	keys := []string{m.mailbox(), activeKey(m.data.ID), cancelKey(m.data.ID)}
	ok := b.insist(func(ctx context.Context) error {
		return delivering.Run(ctx, b.redis, keys, r.text(), int(b.options.ResultTTL/time.Second), m.internal.Token).Err()
	})
	if !ok {
		counted = func(s *State) { s.Lost++ }
	}
	b.count(counted)
}

// aside has a request sent again later, and counts it.
func (b *Broker) aside(m *message, retries int, at time.Time, counted func(*State)) {
	if last := m.deadline(); at.After(last) {
		at = last
	}
	z := redis.Z{Score: unix(at), Member: m.again(retries)}
	if !b.insist(func(ctx context.Context) error { return b.redis.ZAdd(ctx, b.options.RetryQueue, z).Err() }) {
		counted = func(s *State) { s.Lost++ }
	}
	b.count(counted)
}

// insist calls do until it succeeds, and once more when the broker was closed.
func (b *Broker) insist(do func(context.Context) error) bool {
	again := time.NewTicker(b.options.PollInterval)
	defer again.Stop()
	for b.ctx.Err() == nil {
		if do(b.ctx) == nil {
			return true
		}
		select {
		case <-again.C:
		case <-b.ctx.Done():
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), time.Second)
	defer cancel()
	return do(ctx) == nil
}
