package assembly_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/loadtest/broker"
	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// quickly is how a broker of a test polls.
const quickly = 5 * time.Millisecond

// TestAsyncWithABroker: who waits, and who comes again, gets what a request gets that
// does not wait, and the broker finds nothing amiss.
func TestAsyncWithABroker(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{})
	b := a.startBroker(broker.Options{PollInterval: quickly, ResultTTL: time.Minute})
	want := cluster.Reply("a < b & c")
	got := a.ask("wait", "w-1", fairHeader, "mine")
	if got.is(t, 200, "{"); !strings.Contains(got.body, want) {
		t.Errorf("%s", got.body)
	}
	a.ask("enqueue", "e-1", tenHeader, "acme").is(t, 202, `{"id":"e-1","status":"pending"}`)
	if err := b.Wait(within(t), func(s broker.State) bool { return s.Answered == 2 && s.Running == 0 }); err != nil {
		t.Fatalf("%v %+v", err, b.State())
	}
	for range 2 {
		got = a.call(http.MethodGet, "e-1", tenHeader, "acme")
		if got.is(t, 200, "{"); !strings.Contains(got.body, want) {
			t.Errorf("%s", got.body)
		}
	}
	// What the client did wrong it is told.
	got = a.post(chatPath, `{"model":"no-such","messages":[]}`, modeHeader, "wait")
	if got.status != 404 || !strings.Contains(got.body, "upstream_rejected") {
		t.Errorf("%d %s", got.status, got.body)
	}
	a.atBrokersRest(b)
}

// atBrokersRest checks that nothing is left where requests wait, and that the broker
// found nothing amiss.
func (a *asyncRig) atBrokersRest(b *broker.Broker) {
	a.t.Helper()
	if err := b.Wait(within(a.t), func(s broker.State) bool { return s.Running == 0 }); err != nil {
		a.t.Fatal(err)
	}
	a.settled()
	if s := b.State(); len(s.Violations) > 0 || s.Lost > 0 || s.Dropped > 0 {
		a.t.Errorf("the broker: %+v", s)
	}
	if left := a.redis.Keys(a.t.Context(), "request-*").Val(); len(left) > 0 {
		a.t.Errorf("left in Redis: %q", left)
	}
}

// TestAsyncCancelledByTheBroker: whose client has left is not sent, and when he comes
// again it begins anew.
func TestAsyncCancelledByTheBroker(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{})
	s := a.begins("wait", "c-1")
	a.held(1)
	s.leave()
	<-s.answer
	a.eventually("called off", func() bool { return a.exists(cancelKey("c-1")) })
	b := a.startBroker(broker.Options{PollInterval: quickly})
	if err := b.Wait(within(t), func(s broker.State) bool { return s.Cancelled == 1 }); err != nil {
		t.Fatal(err)
	}
	a.call(http.MethodGet, "c-1").is(t, 499, "cancelled", "CANCELLED", "")
	if n := a.cluster.Count(cluster.Decode); n != 0 {
		t.Errorf("%d were sent", n)
	}
	a.ask("wait", "c-1").is(t, 200, "{")
	a.atBrokersRest(b)
}

// TestAsyncTwoResultsInOneMailbox: an id was submitted twice, for what was known of it
// could not be found out.
func TestAsyncTwoResultsInOneMailbox(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{})
	a.redis.Set(t.Context(), mailbox("two-1"), "no list", 0)
	for range 2 {
		a.ask("enqueue", "two-1").is(t, 202, `{"id":"two-1"`)
	}
	a.queued(asyncQueue, 2)
	a.redis.Del(t.Context(), mailbox("two-1"))
	b := a.startBroker(broker.Options{PollInterval: quickly})
	if err := b.Wait(within(t), func(s broker.State) bool { return s.Answered == 2 }); err != nil {
		t.Fatal(err)
	}
	if n := a.redis.LLen(t.Context(), mailbox("two-1")).Val(); n != 2 {
		t.Errorf("%d in the mailbox", n)
	}
	a.ask("wait", "two-1").is(t, 200, "{")
	a.eventually("without a mailbox", func() bool { return !a.exists(mailbox("two-1")) })
	a.atBrokersRest(b)
}

// TestAsyncLateResult: what was deleted while it was being served comes all the same.
func TestAsyncLateResult(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{})
	b := a.startBroker(broker.Options{PollInterval: quickly, ResultTTL: time.Minute})
	gate := a.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtArrival})
	a.ask("enqueue", "l-1").is(t, 202, `{"id":"l-1"`)
	if err := gate.WaitFor(within(t), 1); err != nil {
		t.Fatal(err)
	}
	a.call(http.MethodDelete, "l-1").is(t, 204, "")
	gate.Release()
	if err := b.Wait(within(t), func(s broker.State) bool { return s.Answered == 1 }); err != nil {
		t.Fatal(err)
	}
	a.call(http.MethodGet, "l-1").is(t, 200, "{")
	a.call(http.MethodDelete, "l-1").is(t, 204, "")
	a.call(http.MethodGet, "l-1").is(t, 410, "invalid_request_error", "UNKNOWN_REQUEST", "")
	a.atBrokersRest(b)
}

// TestAsyncQuotaIsShared with the broker: what it sends counts for who does not wait.
func TestAsyncQuotaIsShared(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{params: strings.Replace(quotaParams, "acme = 2", "acme = 1", 1)})
	b := a.startBroker(broker.Options{PollInterval: quickly, Quota: broker.Quota{Limits: map[string]int{"acme": 1}, Header: objHeader, Reserved: "batch", Overflow: "rest"}})
	gate := a.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtArrival, Times: 1})
	s := a.begins("wait", "w-1", tenHeader, "acme")
	if err := gate.WaitFor(within(t), 1); err != nil {
		t.Fatal(err)
	}
	if got := a.objective("p-1", tenHeader, "acme"); got != "second acme" {
		t.Errorf("%s", got)
	}
	gate.Release()
	(<-s.answer).is(t, 200, "{")
	a.eventually("none counted", func() bool { return a.counted() == "0" })
	if got := a.objective("p-2", tenHeader, "acme"); got != "first acme" {
		t.Errorf("%s", got)
	}
	a.atBrokersRest(b)
}
