package broker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-coordinator/coordinator/transport/broker/redistest"
)

func limits(s *Settings) { s.QuotaLimits = map[string]int64{"acme": 2, "free": 0} }

// TestQuota is taken up to its limit and given back, and its counter never falls
// below nothing.
func TestQuota(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		r := connect(t, url, limits)
		take := func(tenant string, wantReserved, wantTaken bool) *Slot {
			t.Helper()
			reserved, slot, err := r.TakeQuota(t.Context(), tenant)
			if reserved != wantReserved || (slot != nil) != wantTaken || err != nil {
				t.Errorf("%s: reserved %v, slot %+v, %v", tenant, reserved, slot, err)
			}
			return slot
		}
		counter := func() string { return r.raw.Get(t.Context(), "quota:userid:acme").Val() }
		slots := []*Slot{take("acme", true, true), take("acme", true, true), {Tenant: "acme", ID: "of-nobody"}}
		take("acme", false, false)
		if left := r.raw.PTTL(t.Context(), "quota:userid:acme").Val(); left <= 0 || left > time.Minute || counter() != "2" {
			t.Errorf("the counter is %s for %v", counter(), left)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for i, want := range []string{"1", "0", "0"} {
			r.raw.Persist(t.Context(), "quota:userid:acme")
			if err := r.ReleaseQuota(gone, slots[i]); err != nil || counter() != want {
				t.Errorf("released: %v, the counter is %s, want %s", err, counter(), want)
			}
			if left := r.raw.PTTL(t.Context(), "quota:userid:acme").Val(); (left > 0) != (want == "1") {
				t.Errorf("at %s the counter stays for %v", want, left)
			}
		}
		take("free", true, false)
		take("anybody", true, false)
		if keys := r.raw.Keys(t.Context(), "quota:*").Val(); len(keys) != 1 {
			t.Errorf("there are %v", keys)
		}
	})
}

// TestQuotaThatCannotBeCounted reserves, and takes nothing: a broker in another
// mode keeps a sorted set there.
func TestQuotaThatCannotBeCounted(t *testing.T) {
	r := connect(t, startRedis(t).URL(), limits)
	const counter = "quota:userid:acme"
	for want, put := range map[Kind]func(){
		WrongType: func() { r.raw.ZAdd(t.Context(), counter, redis.Z{Score: 1, Member: "x"}) },
		Refused:   func() { r.raw.Set(t.Context(), counter, "many", 0) },
	} {
		r.raw.Del(t.Context(), counter)
		put()
		reserved, slot, err := r.TakeQuota(t.Context(), "acme")
		e, ok := errors.AsType[*Error](err)
		if !reserved || slot != nil || !ok || e.Kind != want {
			t.Errorf("%s: reserved %v, slot %+v, %v", want, reserved, slot, err)
		}
	}
}

// TestQuotaWhoseAnswerIsLost: the slot is given back if it was taken, once, and
// nobody else's if it was not.
func TestQuotaWhoseAnswerIsLost(t *testing.T) {
	const counter = "quota:userid:acme"
	lose := map[string]struct {
		before, meanwhile func(r *rig, line *redistest.Line)
		counted           string // while the request is served, another being counted too
	}{
		"after it was counted": {func(_ *rig, line *redistest.Line) { line.Stall() }, func(r *rig, line *redistest.Line) {
			until(t, "counted", func() bool { return r.raw.Get(t.Context(), counter).Val() == "2" })
			line.Cut()
			line.Resume()
		}, "2"},
		"before it was counted": {func(_ *rig, line *redistest.Line) { line.BreakNext() }, func(*rig, *redistest.Line) {}, "1"},
	}
	for name, test := range lose {
		t.Run(name, func(t *testing.T) {
			server := startRedis(t)
			line := redistest.NewLine(t, server.Addr)
			r := connect(t, line.URL(), limits, func(s *Settings) { s.Wakeup = Poll }) // nothing else is said on the line
			r.raw = client(t, server.URL())
			_, others, err := r.TakeQuota(t.Context(), "acme")
			if err != nil {
				t.Fatal(err)
			}
			test.before(r, line)
			var slot *Slot
			done := make(chan error, 1)
			go func() {
				_, taken, err := r.TakeQuota(t.Context(), "acme")
				slot = taken
				done <- err
			}()
			test.meanwhile(r, line)
			if err := <-done; err == nil || slot == nil || !slot.Unsure {
				t.Fatalf("slot %+v, %v", slot, err)
			}
			if got := r.raw.Get(t.Context(), counter).Val(); got != test.counted {
				t.Errorf("counted %s, want %s", got, test.counted)
			}
			release := func(s *Slot, want string) {
				t.Helper()
				err := r.ReleaseQuota(t.Context(), s)
				if got := r.raw.Get(t.Context(), counter).Val(); err != nil || got != want {
					t.Errorf("counted %s, want %s, %v", got, want, err)
				}
			}
			line.BreakNext() // another connection is dead too
			release(slot, "1")
			release(slot, "1")
			// A take that Redis reads only now is too late.
			if late, err := takeScript.Run(t.Context(), r.raw, r.quotaKeys(slot), 9, 60_000, 60_000).Bool(); late || err != nil {
				t.Errorf("taken %t, %v", late, err)
			}
			if left := r.raw.PTTL(t.Context(), r.quotaKeys(others)[1]).Val(); left < markKept/2 {
				t.Errorf("a mark is gone in %v, though its request may last", left)
			}
			line.BreakNext()
			release(others, "0")
			for _, key := range r.raw.Keys(t.Context(), "quota:*").Val() {
				if r.raw.PTTL(t.Context(), key).Val() <= 0 {
					t.Errorf("%s stays", key)
				}
			}
		})
	}
}

// TestSlotsAreGivenBackAfterAnOutage: requests end while Redis does not answer, or
// nobody had the time to tell it.
func TestSlotsAreGivenBackAfterAnOutage(t *testing.T) {
	const counter = "quota:userid:acme"
	server := startRedis(t)
	line := redistest.NewLine(t, server.Addr)
	r := connect(t, line.URL(), limits, func(s *Settings) { s.Wakeup = Poll })
	r.raw = client(t, server.URL())
	take := func() *Slot {
		t.Helper()
		reserved, slot, err := r.TakeQuota(t.Context(), "acme")
		if err != nil || !reserved || slot == nil {
			t.Fatalf("reserved %t, slot %+v, %v", reserved, slot, err)
		}
		return slot
	}
	first, second := take(), take()
	line.Down()
	for range 10 { // until the breaker refuses
		if _, _, err := r.Lookup(t.Context(), abc); err == nil {
			t.Fatal("Redis answers")
		}
	}
	for _, slot := range []*Slot{first, second} {
		if err := r.ReleaseQuota(t.Context(), slot); err != nil {
			t.Error(err)
		}
	}
	if n, counted := r.metric("async_quota_owed"), r.raw.Get(t.Context(), counter).Val(); n != 2 || counted != "2" {
		t.Errorf("%v are owed, %s counted", n, counted)
	}
	line.Up()
	until(t, "they are given back", func() bool { return r.metric("async_quota_owed") == 0 })
	if counted := r.raw.Get(t.Context(), counter).Val(); counted != "0" {
		t.Errorf("%s counted", counted)
	}
	r.Owe(take())
	until(t, "it is given back, too", func() bool { return r.raw.Get(t.Context(), counter).Val() == "0" })

	last := take()
	line.Down()
	r.Owe(last)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if n := r.log.count("slots of quotas could not be given back"); n != 1 || r.metric("async_quota_owed") != 0 {
		t.Errorf("%v are owed, the log has\n%s", r.metric("async_quota_owed"), r.log.said)
	}
	r.Owe(last) // closed: nothing is kept
	if n := r.metric("async_quota_owed"); n != 0 {
		t.Errorf("%v are owed to nobody", n)
	}
}
