package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/transport/broker/redistest"
	"github.com/llm-coordinator/coordinator/transport/porttest"
)

// commands are all that a request asks of a broker.
var commands = map[string]func(context.Context, *rig) error{
	"lookup":        func(ctx context.Context, r *rig) error { _, _, err := r.Lookup(ctx, abc); return err },
	"submit":        func(ctx context.Context, r *rig) error { return r.Submit(ctx, submission(abc, `{}`)) },
	"cancel":        func(ctx context.Context, r *rig) error { _, err := r.Cancel(ctx, abc); return err },
	"revive":        func(ctx context.Context, r *rig) error { return r.Revive(ctx, abc) },
	"delete":        func(ctx context.Context, r *rig) error { return r.Delete(ctx, abc) },
	"fetched":       func(ctx context.Context, r *rig) error { return r.Fetched(ctx, abc) },
	"release_quota": func(ctx context.Context, r *rig) error { return r.releaseNow(ctx, &Slot{Tenant: "acme", ID: "x"}) },
	"take_quota": func(ctx context.Context, r *rig) error {
		reserved, slot, err := r.TakeQuota(ctx, "acme")
		if err != nil && (!reserved || slot != nil && !slot.Unsure) {
			return fmt.Errorf("reserved %v, slot %+v, %w", reserved, slot, err)
		}
		return err
	},
}

// fails runs all commands, of which these fail so.
func (r *rig) fails(want Kind, which ...string) {
	r.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		err := commands[name](r.t.Context(), r)
		e, ok := errors.AsType[*Error](err)
		if expected := slices.Contains(which, name); expected != ok || expected && e.Kind != want {
			r.t.Errorf("%s: %v, want %s: %v", name, err, want, expected)
		}
	}
}

// all of them.
var all = slices.Sorted(maps.Keys(commands))

// quick has commands that are not answered fail soon.
func quick(s *Settings) { limits(s); s.Timeout = 2 * time.Second }

// TestGone: Redis is gone, every command says so, the breaker leaves it alone;
// it is back without its keys, and all is well. The log says it once.
func TestGone(t *testing.T) {
	defer func(usual time.Duration) { breaker.OpenTimeout = usual }(breaker.OpenTimeout)
	breaker.OpenTimeout = 5 * time.Second // it is still open when all that is asked here has been
	server := startRedis(t)
	r := connect(t, server.URL(), limits)
	if err := r.Submit(t.Context(), submission(abc, `{}`)); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	kinds := map[Kind]int{}
	for range 20 {
		_, _, err := r.Lookup(t.Context(), abc)
		e, ok := errors.AsType[*Error](err)
		if !ok || (e.Kind == BreakerOpen) != errors.Is(err, ErrOpen) {
			t.Fatalf("error %v", err)
		}
		kinds[e.Kind]++
	}
	if kinds[Connection] == 0 || kinds[BreakerOpen] == 0 || len(kinds) != 2 {
		t.Errorf("the lookups failed so: %v", kinds)
	}
	r.fails(BreakerOpen, all...)
	if s := r.Status(); s.Reachable || s.Breaker != "open" || s.Wakeup != Poll {
		t.Errorf("status %+v", s)
	}
	server.Start()
	until(t, "Redis answers", func() bool { state, _, err := r.Lookup(t.Context(), abc); return err == nil && state == Unknown })
	r.fails("")
	until(t, "notifications arrive", r.live.Load)
	if s := r.Status(); !s.Reachable || s.Breaker != "closed" {
		t.Errorf("status %+v", s)
	}
	if down, up := r.log.count("redis does not answer"), r.log.count("redis answers again"); down != 1 || up != 1 {
		t.Errorf("the log has %d and %d lines:\n%s", down, up, r.log.said)
	}
	for series, least := range map[string]float64{
		`redis_errors_total{command="lookup",kind="connection"}`:             float64(kinds[Connection]),
		`redis_errors_total{command="lookup",kind="breaker_open"}`:           float64(kinds[BreakerOpen]),
		`redis_errors_total{command="take_quota",kind="breaker_open"}`:       1,
		`upstream_request_total{upstream="redis"}`:                           10,
		`breaker_transitions_total{from="closed",profile="redis",to="open"}`: 1,
	} {
		if got := r.metric(series); got < least {
			t.Errorf("%s is %v, want at least %v", series, got, least)
		}
	}
}

// TestQuietOutages: nobody asks for anything and nobody waits, and yet each outage
// is logged as begun and as over.
func TestQuietOutages(t *testing.T) {
	server := startRedis(t)
	r := connect(t, server.URL(), limits, func(s *Settings) { s.Wakeup = Poll })
	calm := func(d time.Duration) {
		r.outages.mu.Lock()
		defer r.outages.mu.Unlock()
		r.outages.calm = d
	}
	for outage := range 2 {
		calm(time.Hour)
		server.Stop()
		if _, _, err := r.Lookup(t.Context(), abc); err == nil {
			t.Fatal("Redis answers")
		}
		server.Start()
		until(t, "Redis answers", func() bool { return r.Status().Reachable })
		calm(0) // it has been well for long
		until(t, "that is told", func() bool { return r.log.count("redis answers again") == outage+1 })
		if n := r.log.count("redis does not answer"); n != outage+1 {
			t.Errorf("after outage %d the log has %s", outage, r.log.said)
		}
	}
	if r.outages.missing() {
		t.Error("the outage is not over")
	}
}

// TestSilent: Redis takes commands and says nothing. Each ends with its time-out.
func TestSilent(t *testing.T) {
	p := redistest.NewLine(t, startRedis(t).Addr)
	r := connect(t, p.URL(), quick)
	p.Stall()
	for _, name := range all[:4] { // as many as the breaker lets pass
		err := commands[name](t.Context(), r)
		if e, ok := errors.AsType[*Error](err); !ok || e.Kind != Timeout && e.Kind != BreakerOpen {
			t.Errorf("%s: %v", name, err)
		}
	}
	p.Resume()
	until(t, "Redis answers", func() bool { _, _, err := r.Lookup(t.Context(), abc); return err == nil })
}

// TestContextEnds before Redis says something: the command ends with it, and
// that says nothing of Redis.
func TestContextEnds(t *testing.T) {
	p := redistest.NewLine(t, startRedis(t).Addr)
	r := connect(t, p.URL(), limits, func(s *Settings) { s.Timeout = time.Hour; s.Wakeup = Poll; s.PollInterval = time.Hour })
	p.Stall()
	for range 10 {
		for _, name := range []string{"lookup", "cancel", "revive", "delete", "fetched"} {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			err := commands[name](ctx, r)
			if e, ok := errors.AsType[*Error](err); !ok || e.Kind != Canceled || !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for _, name := range []string{"lookup", "submit", "take_quota"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		err := commands[name](ctx, r)
		if e, ok := errors.AsType[*Error](err); !ok || e.Kind != Timeout || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	if s := r.Status(); s.Breaker != "closed" || !s.Reachable || len(r.log.said) > 0 {
		t.Errorf("status %+v, the log has %s", s, r.log.said)
	}
	if n := r.metric(`redis_errors_total{command="lookup",kind="canceled"}`); n != 11 {
		t.Errorf("%v lookups were given up", n)
	}
	p.Resume()
}

// TestBrokenConnection: what may be sent twice is, and nothing else.
func TestBrokenConnection(t *testing.T) {
	server := startRedis(t)
	p := redistest.NewLine(t, server.Addr)
	r := connect(t, p.URL(), limits, func(s *Settings) { s.Wakeup = Poll; s.PollInterval = time.Hour })
	once := map[string]bool{"submit": true, "take_quota": true}
	for _, name := range all {
		p.BreakNext()
		err := commands[name](t.Context(), r)
		e, ok := errors.AsType[*Error](err)
		if once[name] != ok || ok && e.Kind != Connection {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReadOnly: Redis is a replica. What reads works.
func TestReadOnly(t *testing.T) {
	server := startRedis(t)
	r := connect(t, server.URL(), limits)
	if err := r.Submit(t.Context(), submission(abc, `{}`)); err != nil {
		t.Fatal(err)
	}
	r.raw.ConfigSet(t.Context(), "replica-serve-stale-data", "yes")
	if err := r.raw.ReplicaOf(t.Context(), "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	for range 3 { // it answers: no breaker is in the way
		r.fails(ReadOnly, "submit", "cancel", "delete", "fetched", "take_quota")
	}
	if s := r.Status(); !s.Reachable || s.Breaker != "closed" {
		t.Errorf("status %+v", s)
	}
	if n := r.log.count("redis refuses a command"); n != 5 {
		t.Errorf("the log has %d lines:\n%s", n, r.log.said)
	}
	r.raw.ReplicaOf(t.Context(), "no", "one")
	r.fails("")
	if n := r.log.count("redis takes a command again"); n != 5 {
		t.Errorf("the log has %d lines:\n%s", n, r.log.said)
	}
}

// TestOutOfMemory: what makes nothing larger works.
func TestOutOfMemory(t *testing.T) {
	r := connect(t, startRedis(t, "--maxmemory-policy", "noeviction").URL(), limits)
	if err := r.Submit(t.Context(), submission(abc, `{}`)); err != nil {
		t.Fatal(err)
	}
	r.raw.ConfigSet(t.Context(), "maxmemory", "1")
	r.fails(OutOfMemory, "submit", "cancel", "take_quota")
	if state, _, err := r.Lookup(t.Context(), abc); state != Pending || err != nil {
		t.Errorf("found %v, %v", state, err)
	}
	r.raw.ConfigSet(t.Context(), "maxmemory", "0")
	r.fails("")
}

// TestWatchersOutlive an outage of each kind, and find what came meanwhile and
// afterwards.
func TestWatchersOutlive(t *testing.T) {
	for name, outage := range map[string]func(*redistest.Server, *redistest.Line, *rig){
		"restarted without its keys": func(s *redistest.Server, _ *redistest.Line, r *rig) {
			s.Stop()
			until(r.t, "Redis is missed", func() bool { return r.Status().Breaker == "open" })
			s.Start()
		},
		"silent for a while": func(_ *redistest.Server, p *redistest.Line, r *rig) {
			p.Stall()
			until(r.t, "Redis is missed", func() bool { return r.Status().Breaker == "open" })
			p.Resume()
		},
		"cut off": func(_ *redistest.Server, p *redistest.Line, r *rig) {
			for range 5 {
				p.Cut()
			}
		},
		"its subscribers killed": func(_ *redistest.Server, _ *redistest.Line, r *rig) {
			r.raw.ClientKillByFilter(r.t.Context(), "TYPE", "pubsub")
		},
		"a replica for a while": func(_ *redistest.Server, _ *redistest.Line, r *rig) {
			r.raw.ReplicaOf(r.t.Context(), "127.0.0.1", "1")
			r.fails(ReadOnly, "submit", "delete", "fetched", "take_quota")
			r.raw.ReplicaOf(r.t.Context(), "no", "one")
		},
		"notifications switched off": func(_ *redistest.Server, _ *redistest.Line, r *rig) {
			r.raw.ConfigSet(r.t.Context(), "notify-keyspace-events", "")
		},
	} {
		how := limits
		if name == "silent for a while" {
			how = quick
		}
		for _, way := range []string{Auto, Poll} {
			t.Run(name+", "+way, func(t *testing.T) {
				server := startRedis(t)
				p := redistest.NewLine(t, server.Addr)
				r := connect(t, p.URL(), how, func(s *Settings) { s.Wakeup = way })
				r.raw = client(t, server.URL())
				if way == Auto {
					until(t, "notifications arrive", r.live.Load)
				}
				var waiting []<-chan *Result
				for i := range 20 {
					c, _ := r.watch(Key{Tenant: "acme", ID: fmt.Sprint(i)})
					waiting = append(waiting, c)
				}
				outage(server, p, r)
				if way == Auto && name != "notifications switched off" {
					until(t, "all are subscribed again", func() bool { return subscribed(t, r.raw) == len(waiting) })
				}
				for i, c := range waiting {
					r.push(Key{Tenant: "acme", ID: fmt.Sprint(i)}, `{"status_code":200}`)
					if found := woken(t, c); found.Status != 200 {
						t.Errorf("found %+v", found)
					}
				}
			})
		}
	}
}

// TestOpenWithoutRedis fails, and leaves nothing behind.
func TestOpenWithoutRedis(t *testing.T) {
	at := porttest.FreeAddr(t)
	_, err := Open(t.Context(), Settings{URL: "redis://user:gout@" + at}, nil, nil)
	want := "redis at " + at + "/0: redis: ping: connection: dial tcp " + at + ": connect: connection refused"
	if err == nil || err.Error() != want {
		t.Errorf("error %v\n want %s", err, want)
	}
}
