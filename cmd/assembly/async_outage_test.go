package assembly_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestAsyncRedisThatIsReadOnly, as one that has become a replica: what needs no write
// goes on.
func TestAsyncRedisThatIsReadOnly(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{params: quotaParams, real: true})
	a.mail("g-1", answered("g-1", 200, "{}"))
	if err := a.redis.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	a.ask("enqueue", "ro-1").is(t, 503, "api_error", "ENQUEUE_FAILED", "failed to enqueue request")
	a.ask("wait", "ro-1").is(t, 503, "api_error", "ENQUEUE_FAILED", "failed to enqueue request")
	a.call(http.MethodGet, "g-1").is(t, 200, "{}")
	a.call(http.MethodDelete, "g-1").is(t, 500, "api_error", "DELETE_FAILED", "")
	if got := a.objective("p-1", tenHeader, "acme"); got != "first acme" {
		t.Errorf("%s", got)
	}
	if err := a.redis.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	a.eventually("served again", func() bool { return a.ask("enqueue", "ro-1").status == 202 })
	a.call(http.MethodDelete, "g-1").is(t, 204, "")
	a.settled()
}

// TestAsyncRedisThatIsFull takes nothing new, and gives what it has.
func TestAsyncRedisThatIsFull(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{params: quotaParams, real: true})
	s := a.begins("wait", "oom-1")
	a.held(1)
	a.mail("g-1", answered("g-1", 200, "{}"))
	a.mail("oom-1", answered("oom-1", 200, "{}"))
	a.redis.ConfigSet(t.Context(), "maxmemory", "1")
	(<-s.answer).is(t, 200, "{}")
	a.ask("enqueue", "oom-2").is(t, 503, "api_error", "ENQUEUE_FAILED", "failed to enqueue request")
	a.call(http.MethodGet, "g-1").is(t, 200, "{}")
	a.call(http.MethodDelete, "g-1").is(t, 204, "")
	if got := a.objective("p-1", tenHeader, "acme"); got != "first acme" {
		t.Errorf("%s", got)
	}
	a.redis.ConfigSet(t.Context(), "maxmemory", "0")
	a.eventually("served again", func() bool { return a.ask("enqueue", "oom-2").status == 202 })
	a.settled()
}

// TestAsyncRedisThatHasLostItsKeys: who waits for what is lost is told so at his
// deadline, no later; who asks again is served.
func TestAsyncRedisThatHasLostItsKeys(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"notify", "poll"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			a := newAsync(t, asyncSetup{params: `wakeup_mode = "` + mode + `"`, real: true})
			a.ask("enqueue", "gone-1").is(t, 202, `{"id":"gone-1"`)
			lost, kept := a.begins("wait", "lost-1", timeHeader, "15"), a.begins("wait", "kept-1")
			a.held(2)
			a.server.Stop()
			a.server.Start()
			a.eventually("served again", func() bool { return a.ask("enqueue", "new-1").status == 202 })
			a.call(http.MethodGet, "gone-1").is(t, 410, "invalid_request_error", "UNKNOWN_REQUEST", "")
			a.mail("kept-1", answered("kept-1", 200, "{}"))
			(<-kept.answer).is(t, 200, "{}")
			(<-lost.answer).is(t, 504, "timeout_error", "DEADLINE_EXCEEDED", "request deadline exceeded before a result was produced")
			a.redis.Del(t.Context(), asyncQueue)
			again := a.begins("wait", "lost-1")
			a.queued(asyncQueue, 1)
			a.held(1)
			a.mail("lost-1", answered("lost-1", 200, "{}"))
			(<-again.answer).is(t, 200, "{}")
			a.settled()
		})
	}
}

// TestAsyncUser: an ACL user with the rights that docs/async.md names can do all there
// is to do, and no more is asked of Redis.
func TestAsyncUser(t *testing.T) {
	t.Parallel()
	rights := "app on >secret resetkeys ~request-* ~results:req:* ~quota:* resetchannels &__keyspace@* -@all +@read +@write +@connection +@transaction +@scripting +@pubsub +config|get"
	a := newAsync(t, asyncSetup{user: "app:secret@", params: quotaParams, redis: append([]string{"--user"}, strings.Fields(rights)...), real: true})
	if got := a.objective("u-1", tenHeader, "acme"); got != "first acme" {
		t.Errorf("%s", got)
	}
	s := a.begins("wait", "u-2")
	a.held(1)
	channel := "__keyspace@0__:" + mailbox("u-2")
	a.eventually("subscribed", func() bool { return a.redis.PubSubNumSub(t.Context(), channel).Val()[channel] == 1 })
	s.leave()
	<-s.answer
	a.eventually("called off", func() bool { return a.exists(cancelKey("u-2")) })
	s = a.begins("wait", "u-2")
	a.held(1)
	a.mail("u-2", answered("u-2", 200, "{}"))
	(<-s.answer).is(t, 200, "{}")
	a.mail("u-3", answered("u-3", 200, "{}"))
	a.call(http.MethodGet, "u-3").is(t, 200, "{}")
	a.call(http.MethodDelete, "u-3").is(t, 204, "")
	a.settled()
	if denied := a.redis.ACLLog(t.Context(), 10).Val(); len(denied) > 0 {
		t.Errorf("denied: %+v", denied[0])
	}
}

// TestAsyncDrain: who waits while the coordinator is ended is told to come back, and his
// request stays in the queue.
func TestAsyncDrain(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{setup: setup{toml: "[server]\nshutdown_timeout = \"200ms\"\n"}})
	s := a.begins("wait", "d-1")
	a.held(1)
	a.stop()
	a.ended <- <-a.ended // it is done
	(<-s.answer).is(t, 503, "overloaded_error", "shutting_down", "")
	if a.queued(asyncQueue, 1); a.exists(cancelKey("d-1")) {
		t.Error("the request was called off")
	}
}

// TestAsyncRedisThatIsSlow: each command has its time, so nobody waits for it for ever.
func TestAsyncRedisThatIsSlow(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{setup: setup{steps: decodeStep, hasty: true}, params: quotaParams})
	s := a.begins("wait", "slow-1", timeHeader, "10")
	a.held(1)
	a.line.Stall()
	// First, while no breaker can be open yet: it is not answered later than it was to be.
	a.ask("wait", "slow-3", timeHeader, "1").is(t, 504, "timeout_error", "DEADLINE_EXCEEDED", "")
	(<-s.answer).is(t, 504, "timeout_error", "DEADLINE_EXCEEDED", "")
	if got := a.objective("slow-2", tenHeader, "acme"); got != "first acme" { // no place, but service
		t.Errorf("%s", got)
	}
	a.ask("wait", "slow-5", timeHeader, "20").is(t, 503, "api_error", "ENQUEUE_FAILED", "")
	a.call(http.MethodGet, "slow-1").is(t, 500, "api_error", "LOOKUP_FAILED", "")
	a.line.Resume()
	a.eventually("served again", func() bool { return a.ask("enqueue", "slow-4").status == 202 })
	a.settled()
}
