package broker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func limits(s *Settings) { s.QuotaLimits = map[string]int64{"acme": 2, "free": 0} }

// TestQuota is taken up to its limit and given back, and its counter never falls
// below nothing.
func TestQuota(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		r := connect(t, url, limits)
		take := func(tenant string, wantReserved, wantTaken bool) {
			t.Helper()
			reserved, taken, err := r.TakeQuota(t.Context(), tenant)
			if reserved != wantReserved || taken != wantTaken || err != nil {
				t.Errorf("%s: reserved %v, taken %v, %v", tenant, reserved, taken, err)
			}
		}
		counter := func() string { return r.raw.Get(t.Context(), "quota:userid:acme").Val() }
		take("acme", true, true)
		take("acme", true, true)
		take("acme", false, false)
		if left := r.raw.PTTL(t.Context(), "quota:userid:acme").Val(); left <= 0 || left > time.Minute || counter() != "2" {
			t.Errorf("the counter is %s for %v", counter(), left)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for _, want := range []string{"1", "0", "0"} {
			r.raw.Persist(t.Context(), "quota:userid:acme")
			if err := r.ReleaseQuota(gone, "acme"); err != nil || counter() != want {
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
		reserved, taken, err := r.TakeQuota(t.Context(), "acme")
		e, ok := errors.AsType[*Error](err)
		if !reserved || taken || !ok || e.Kind != want {
			t.Errorf("%s: reserved %v, taken %v, %v", want, reserved, taken, err)
		}
	}
}
