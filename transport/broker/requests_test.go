package broker

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestSubmit leaves exactly what a broker reads.
func TestSubmit(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		r := connect(t, url)
		r.raw.Set(t.Context(), "request-cancel:acme:abc-1", "an older token", 0)
		s := submission(abc, `{"model":"m"}`)
		if err := r.Submit(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		token := r.raw.Get(t.Context(), "request-active:acme:abc-1").Val()
		if len(token) != 32 {
			t.Errorf("the token is %q", token)
		}
		if left := r.raw.PTTL(t.Context(), "request-active:acme:abc-1").Val(); left <= 0 || left > time.Minute {
			t.Errorf("the active key stays for %v", left)
		}
		if n := r.raw.Exists(t.Context(), "request-cancel:acme:abc-1").Val(); n != 0 {
			t.Error("an old cancellation is still there")
		}
		queued := r.raw.ZRangeWithScores(t.Context(), "request-sortedset", 0, -1).Val()
		if len(queued) != 1 || queued[0].Score != float64(s.Deadline.Unix()) {
			t.Fatalf("the queue holds %v", queued)
		}
		var envelope struct {
			Internal struct {
				Token string `json:"request_token"`
			}
		}
		if err := json.Unmarshal([]byte(queued[0].Member.(string)), &envelope); err != nil || envelope.Internal.Token != token {
			t.Errorf("the envelope's token is %q, the active key's %q (%v)", envelope.Internal.Token, token, err)
		}
	})
}

// TestSubmitPastDeadline is queued all the same: the broker says that it is late.
func TestSubmitPastDeadline(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		r := connect(t, url)
		s := submission(abc, `{}`)
		s.Deadline = s.Created.Add(-time.Second)
		if err := r.Submit(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if n := r.raw.ZCard(t.Context(), s.Queue).Val(); n != 1 {
			t.Errorf("%d are queued", n)
		}
	})
}

// TestSubmitToNoQueue fails, and the request does not seem to be under way.
func TestSubmitToNoQueue(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		r := connect(t, url)
		r.raw.Set(t.Context(), "request-sortedset", "text", 0)
		err := r.Submit(t.Context(), submission(abc, `{}`))
		if e, ok := errors.AsType[*Error](err); !ok || e.Kind != WrongType {
			t.Errorf("error %v", err)
		}
		if state, _, err := r.Lookup(t.Context(), abc); state != Unknown || err != nil {
			t.Errorf("the request is %v (%v)", state, err)
		}
	})
}

// TestLookup finds what is there, the newest first.
func TestLookup(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		r := connect(t, url)
		expect := func(want State) *Result {
			t.Helper()
			state, result, err := r.Lookup(t.Context(), abc)
			if state != want || err != nil || (result != nil) != (want == Ready) {
				t.Errorf("found %v, %v, %v", state, result, err)
			}
			return result
		}
		expect(Unknown)
		if err := r.Submit(t.Context(), submission(abc, `{}`)); err != nil {
			t.Fatal(err)
		}
		expect(Pending)
		r.push(abc, `{"status_code":500}`)
		r.push(abc, `{"id":"acme:abc-1","status_code":200,"payload":"{}","request_token":"x"}`)
		if found := expect(Ready); found != nil && (found.Status != 200 || string(found.Payload) != "{}") {
			t.Errorf("found %+v", found)
		}
		if err := r.Delete(t.Context(), abc); err != nil {
			t.Fatal(err)
		}
		expect(Pending)
		other := Key{Tenant: "other", ID: abc.ID}
		if state, _, err := r.Lookup(t.Context(), other); state != Unknown || err != nil {
			t.Errorf("another tenant finds %v, %v", state, err)
		}
		r.push(abc, "no JSON")
		if found := expect(Ready); found != nil && !found.Malformed {
			t.Errorf("found %+v", found)
		}
		r.raw.Del(t.Context(), abc.mailbox())
		r.raw.Set(t.Context(), abc.mailbox(), "text", 0)
		_, _, err := r.Lookup(t.Context(), abc)
		if e, ok := errors.AsType[*Error](err); !ok || e.Kind != WrongType {
			t.Errorf("a mailbox that is no list: %v", err)
		}
	})
}

// TestCancelAndRevive take each other back, for the request that is under way
// and for no other.
func TestCancelAndRevive(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		r := connect(t, url)
		canceled := func() string { return r.raw.Get(t.Context(), "request-cancel:acme:abc-1").Val() }
		if done, err := r.Cancel(t.Context(), abc); done || err != nil || canceled() != "" {
			t.Errorf("cancelled what is not there: %v, %v", done, err)
		}
		if err := r.Submit(t.Context(), submission(abc, `{}`)); err != nil {
			t.Fatal(err)
		}
		token := r.raw.Get(t.Context(), "request-active:acme:abc-1").Val()
		for range 2 { // it may be sent twice
			if done, err := r.Cancel(t.Context(), abc); !done || err != nil || canceled() != token {
				t.Errorf("cancelled: %v, %v, with %q", done, err, canceled())
			}
		}
		if left := r.raw.TTL(t.Context(), "request-cancel:acme:abc-1").Val(); left != 7*24*time.Hour {
			t.Errorf("the cancellation stays for %v", left)
		}
		for range 2 {
			if err := r.Revive(t.Context(), abc); err != nil || canceled() != "" {
				t.Errorf("revived: %v, with %q", err, canceled())
			}
		}
		r.raw.Set(t.Context(), "request-cancel:acme:abc-1", "another token", 0)
		if err := r.Revive(t.Context(), abc); err != nil || canceled() != "another token" {
			t.Errorf("revived another's: %v, with %q", err, canceled())
		}
		r.raw.Del(t.Context(), "request-active:acme:abc-1")
		if err := r.Revive(t.Context(), abc); err != nil || canceled() != "another token" {
			t.Errorf("revived what is over: %v, with %q", err, canceled())
		}
	})
}

// TestFetched renews the grace, or deletes without one.
func TestFetched(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		r := connect(t, url)
		r.push(abc, `{}`)
		for range 2 {
			if err := r.Fetched(t.Context(), abc); err != nil {
				t.Fatal(err)
			}
			if left := r.raw.PTTL(t.Context(), abc.mailbox()).Val(); left <= 0 || left > time.Minute {
				t.Errorf("the mailbox stays for %v", left)
			}
			r.raw.Persist(t.Context(), abc.mailbox())
		}
		none := connect(t, url, func(s *Settings) { s.FetchGrace = 0 })
		if err := none.Fetched(t.Context(), abc); err != nil || r.raw.Exists(t.Context(), abc.mailbox()).Val() != 0 {
			t.Errorf("without a grace the mailbox stays (%v)", err)
		}
		if err := r.Fetched(t.Context(), abc); err != nil {
			t.Errorf("of an empty mailbox: %v", err)
		}
	})
}

// TestDatabase is the one of the URL, notifications included.
func TestDatabase(t *testing.T) {
	r := connect(t, startRedis(t).URL()+"/3", func(s *Settings) { s.PollInterval = time.Hour; s.BackupInterval = time.Hour })
	until(t, "notifications arrive", r.live.Load)
	got, _ := r.watch(abc)
	until(t, "it is subscribed", func() bool { return subscribed(t, r.raw) == 1 })
	r.push(abc, `{"status_code":200}`)
	if found := woken(t, got); found.Status != 200 {
		t.Errorf("found %+v", found)
	}
	if s := r.Status(); s.Address[len(s.Address)-2:] != "/3" || s.Wakeup != Notify || !s.Reachable || s.Breaker != "closed" {
		t.Errorf("status %+v", s)
	}
}

// subscribed returns how many mailboxes are subscribed.
func subscribed(t *testing.T, raw *redis.Client) int {
	return len(raw.PubSubChannels(t.Context(), "__keyspace@*").Val())
}
