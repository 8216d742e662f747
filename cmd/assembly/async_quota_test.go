package assembly_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// quotaParams has two tiers, one of them without objectives, and a quota of two.
const quotaParams = `
routes = [{ tenant = "plain", tier = "none" }, { tier = "gold" }]
objectives = { gold = { reserved = "first", overflow = "second" } }
quota = { limits = { acme = 2, free = 0 }, window_seconds = 100 }
`

const quotaKey = "quota:userid:acme"

func (a *asyncRig) counted() string { return a.redis.Get(a.t.Context(), quotaKey).Val() }

// objective sends a passthrough request, and returns what the worker is told of it: its
// objective, and whom it is for.
func (a *asyncRig) objective(id string, header ...string) string {
	a.t.Helper()
	if got := a.ask("passthrough", id, header...); got.status != http.StatusOK {
		a.t.Errorf("%s: %d %v %s", id, got.status, got.err, got.body)
	}
	return a.told(id)
}

func (a *asyncRig) told(id string) string {
	a.t.Helper()
	a.eventually("sent", func() bool { return len(a.cluster.Legs(id)) > 0 })
	h := a.cluster.Legs(id)[0].Header
	if alias := h.Get("X-Gateway-Inference-Objective") + h.Get("X-Gateway-Inference-Fairness-Id"); alias != "" {
		a.t.Errorf("%s: an alias says %q", id, alias)
	}
	return strings.Join(h.Values(objHeader), ",") + " " + strings.Join(h.Values(fairHeader), ",")
}

// TestAsyncQuota: up to the limit a request is reserved, and beyond it is not; what a
// client says itself is not believed; each place is given back.
func TestAsyncQuota(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{setup: setup{steps: decodeStep}, params: quotaParams})
	acme := []string{tenHeader, "acme", objHeader, "mine", fairHeader, "mine", "X-Gateway-Inference-Objective", "mine", "X-Gateway-Inference-Fairness-Id", "mine"}
	gate := a.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtHeaders})
	first, second := a.begins("passthrough", "q-1", acme...), a.begins("passthrough", "q-2", acme...)
	a.eventually("both counted", func() bool { return a.counted() == "2" })
	third := a.begins("passthrough", "q-3", acme...)
	if got := [3]string{a.told("q-1"), a.told("q-2"), a.told("q-3")}; got != [3]string{"first acme", "first acme", "second acme"} {
		t.Errorf("%q", got)
	}
	if ttl := a.redis.TTL(t.Context(), quotaKey).Val(); a.counted() != "2" || ttl <= 50*time.Second || ttl > 100*time.Second {
		t.Errorf("counted %s for %v", a.counted(), ttl)
	}
	second.leave()
	<-second.answer
	a.eventually("one counted", func() bool { return a.counted() == "1" })
	gate.Release()
	(<-first.answer).is(t, 200, "{")
	(<-third.answer).is(t, 200, "{")
	a.eventually("none counted", func() bool { return a.counted() == "0" })

	for id, want := range map[string]string{"q-4": "first acme", "q-5": "first acme"} {
		if got := a.objective(id, acme...); got != want {
			t.Errorf("%s: %s", id, got)
		}
	}
	for tenant, want := range map[string]string{"free": "first free", "": "first default", "plain": " plain"} {
		if got := a.objective("q-of-"+tenant, append([]string{tenHeader, tenant}, acme[2:]...)...); got != want {
			t.Errorf("%q: %s", tenant, got)
		}
	}
	a.eventually("none counted", func() bool { return a.counted() == "0" })
	if keys := a.redis.Keys(t.Context(), "quota:*").Val(); len(keys) != 1 {
		t.Errorf("counted in %q", keys)
	}
	a.settled()
}

// TestAsyncQuotaOfAnotherKind, and one that cannot be asked for: who cannot be counted
// is served, streaming included.
func TestAsyncQuotaOfAnotherKind(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{setup: setup{steps: decodeStep}, params: quotaParams})
	a.redis.ZAdd(t.Context(), quotaKey, z(1, "a rate limit's"))
	if got := a.objective("k-1", tenHeader, "acme"); got != "first acme" {
		t.Errorf("%s", got)
	}
	a.line.Down()
	if got := a.objective("k-2", tenHeader, "acme"); got != "first acme" {
		t.Errorf("%s", got)
	}
	if got := a.post(chatPath, chatBody("x", true), modeHeader, "passthrough", tenHeader, "acme"); got.status != 200 || !strings.HasSuffix(got.body, "data: [DONE]\n\n") {
		t.Errorf("%d %s", got.status, got.body)
	}
	if n := a.metric(t, metricPrefix+"async_quota_total", "outcome=failed_open"); n != 3 {
		t.Errorf("%v counted as failed open", n)
	}
	a.settled()
}

// TestAsyncQuotaIsReleasedWhateverHappens: the client leaves at any place, the worker
// fails, the request is refused.
func TestAsyncQuotaIsReleasedWhateverHappens(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{setup: setup{cluster: cluster.Options{Lease: byHand}}, params: quotaParams})
	for _, leg := range []string{cluster.Render, cluster.Prefill, cluster.Decode} {
		gate := a.cluster.Hold(cluster.Gate{Leg: leg, At: cluster.AtArrival})
		s := a.begins("passthrough", "left-at-"+leg, tenHeader, "acme")
		if err := gate.WaitFor(within(t), 1); err != nil {
			t.Fatal(err)
		}
		if a.counted() != "1" {
			t.Errorf("%s: counted %s", leg, a.counted())
		}
		s.leave()
		<-s.answer
		a.eventually("none counted", func() bool { return a.counted() == "0" })
		gate.Release()

		fault := a.cluster.AddFault(cluster.Fault{Leg: leg, Status: 400})
		a.ask("passthrough", "fails-at-"+leg, tenHeader, "acme")
		a.cluster.RemoveFault(fault)
		a.eventually("none counted", func() bool { return a.counted() == "0" })
	}
	a.settled()
}

// stalledQuota is a rig with quotas, whose Redis gets commands and answers none.
func stalledQuota(t *testing.T) *asyncRig {
	t.Helper()
	a := newAsync(t, asyncSetup{params: quotaParams})
	a.objective("warm", tenHeader, "acme") // Redis knows the script
	a.settled()                            // and a connection is free
	a.line.Stall()
	return a
}

// TestAsyncQuotaWhoseClientLeavesMeanwhile: the command that takes the place is under
// way when the client leaves, so whether it was taken is known only then.
func TestAsyncQuotaWhoseClientLeavesMeanwhile(t *testing.T) {
	t.Parallel()
	a := stalledQuota(t)
	ctx, leave := context.WithCancel(within(t))
	done := make(chan response, 1)
	go func() {
		done <- a.postCtx(ctx, chatPath, asyncBody, modeHeader, "passthrough", tenHeader, "acme")
	}()
	a.eventually("taken", func() bool { return a.counted() == "1" })
	leave()
	<-done
	a.line.Resume()
	a.eventually("none counted", func() bool { return a.counted() == "0" })
	a.settled()
}

// TestAsyncQuotaWhoseReplyIsLost: the place that Redis has counted is given back when
// the request ends, though nobody knew that it was taken.
func TestAsyncQuotaWhoseReplyIsLost(t *testing.T) {
	t.Parallel()
	a := stalledQuota(t)
	s := a.begins("passthrough", "lost", tenHeader, "acme")
	a.eventually("taken", func() bool { return a.counted() == "1" })
	a.line.Cut()
	a.line.Resume()
	(<-s.answer).is(t, 200, "{")
	a.eventually("none counted", func() bool { return a.counted() == "0" })
	if n := a.metric(t, metricPrefix+"async_quota_total", "outcome=failed_open"); n != 1 {
		t.Errorf("%v counted as failed open", n)
	}
	a.settled()
}
