package assembly_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// notSent is decode's leg as it fares with a gateway that has no worker for it: no
// worker has seen it.
var notSent = cluster.Fault{Leg: cluster.Decode, Status: http.StatusServiceUnavailable, Headers: map[string]string{"x-llm-d-request-dropped-reason": "full"}}

// prefilled waits until the prefill of the one request there is has answered.
func (r *rig) prefilled() {
	r.t.Helper()
	if err := r.cluster.Wait(within(r.t), func(st cluster.State) bool { return st.Legs[cluster.Prefill] == 1 && st.InFlight[cluster.Prefill] == 0 }); err != nil {
		r.t.Fatal(err)
	}
	r.eventually("prefilled", func() bool { return r.poolBusy("prefill") == 0 })
}

// released waits until nothing is left to be done for requests that have ended.
func (r *rig) released() {
	r.t.Helper()
	r.eventually("released", func() bool { s := r.Engine.Status(); return s.Inflight+s.Detached == 0 })
	r.settled()
}

// TestKVOfAPairThatNobodyWillReadIsReleased: prefill has answered, and decode, which
// was sent beside it, reached no worker.
func TestKVOfAPairThatNobodyWillReadIsReleased(t *testing.T) {
	for _, tt := range []struct {
		name, kv, params string
		lease            time.Duration
		released         int
		expired          int
	}{
		{"kv-mooncake", cluster.KVMooncake, "", 0, 1, 0},
		{"kv-mooncake, switched off", cluster.KVMooncake, ", release_on_abort = false", byHand, 0, 1},
		{"kv-offloading, pins nothing", cluster.KVOffloading, "", 0, 0, 0},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, streamed=%t", tt.name, stream), func(t *testing.T) {
				r := newRig(t, setup{kv: tt.kv, toml: quick, steps: renderStep + pairStep(`bootstrap_from = "static:127.0.0.1"`+tt.params), cluster: cluster.Options{Lease: tt.lease}})
				gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode})
				dropped := notSent
				dropped.Times, dropped.Body = 3, "full"
				r.cluster.AddFault(dropped)
				answered := make(chan response, 1)
				go func() { answered <- r.post(chatPath, chatBody("one two", stream), "X-Request-Id", "id") }()
				r.prefilled()
				gate.Release()
				if got := <-answered; got.status != http.StatusServiceUnavailable || got.body != "full" {
					t.Errorf("got %d %s", got.status, got.body)
				}
				r.released()
				decodes := slices.DeleteFunc(r.legIDs(""), func(l string) bool { return !strings.HasPrefix(l, "decode:") })
				want := []string{"decode:id", "decode:id-r1", "decode:id-r2", "decode:id-release"}[:3+tt.released]
				if !slices.Equal(decodes, want) {
					t.Errorf("legs %v, want %v", decodes, want)
				}
				if st := r.cluster.State(); st.FetchedKV != tt.released || st.ExpiredLeases != tt.expired || st.Legs[cluster.Prefill] != 1 {
					t.Errorf("%+v", st)
				}
				if tt.released > 0 && r.metric(t, "llm_d_coordinator_kv_release_total", "result=released") != 1 {
					t.Error("the release is not counted")
				}
			})
		}
	}
}

// TestHangUpWhileDecodeOfAPairWaitsToBeSentAgain: what prefill keeps is released.
func TestHangUpWhileDecodeOfAPairWaitsToBeSentAgain(t *testing.T) {
	r := newRig(t, setup{kv: cluster.KVMooncake, toml: "[gateway.retry]\nmax_delay = \"2h\"\n", steps: renderStep + pairStep(`bootstrap_from = "static:127.0.0.1"`)})
	later := notSent
	later.Times, later.Headers = 1, map[string]string{"x-llm-d-request-dropped-reason": "full", "Retry-After": "3600"}
	r.cluster.AddFault(later)
	ctx, leave := context.WithCancel(within(t))
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		r.postCtx(ctx, chatPath, chatBody("one two", true), "X-Request-Id", "id")
	}()
	r.prefilled()
	r.awaitMetric("retries_total", "decode", 1)
	leave()
	<-gone
	r.released()
	if st := r.cluster.State(); st.FetchedKV != 1 || st.HeldKV != 0 {
		t.Errorf("%+v", st)
	}
}

// TestPrefillThatComputesForADecodeThatWasNotSent is ended, by which its worker keeps
// nothing: there is nothing to release.
func TestPrefillThatComputesForADecodeThatWasNotSent(t *testing.T) {
	r := newRig(t, setup{kv: cluster.KVMooncake, toml: quick, steps: renderStep + pairStep(`bootstrap_from = "static:127.0.0.1"`)})
	r.cluster.Hold(cluster.Gate{Leg: cluster.Prefill, At: cluster.AtHeaders})
	r.cluster.AddFault(notSent)
	if got := r.post(chatPath, chatBody("one two", false)); got.status != http.StatusServiceUnavailable {
		t.Errorf("got %d %s", got.status, got.body)
	}
	r.released()
	if st := r.cluster.State(); st.Aborted[cluster.Prefill] != 1 || st.HeldKV != 0 || st.Legs[cluster.Decode] != 3 {
		t.Errorf("%+v", st)
	}
}

// TestReleaseThatNobodyTookIsSentAgain, as the decode before it was.
func TestReleaseThatNobodyTookIsSentAgain(t *testing.T) {
	r := newRig(t, setup{toml: quick})
	dropped := notSent
	dropped.Times = 4 // three of decode, one of the release
	r.cluster.AddFault(dropped)
	r.post(chatPath, chatBody("one two", true), "X-Request-Id", "id")
	r.released()
	if legs := r.legIDs(""); !slices.Equal(legs[max(0, len(legs)-2):], []string{"decode:id-release", "decode:id-release-r1"}) {
		t.Errorf("legs %v", legs)
	}
	if st := r.cluster.State(); st.FetchedKV != 1 || r.metric(t, "llm_d_coordinator_kv_release_total", "result=released") != 1 {
		t.Errorf("%+v", st)
	}
}

// TestDecodeThatNobodyTookIsNotPrefilledAgain: its hand-off, which no worker has, is
// released instead of staying behind.
func TestDecodeThatNobodyTookIsNotPrefilledAgain(t *testing.T) {
	r := newRig(t, setup{toml: quick})
	dropped := notSent
	dropped.Times, dropped.Body = 3, "full"
	r.cluster.AddFault(dropped)
	if got := r.post(chatPath, chatBody("one two", true), "X-Request-Id", "id"); got.status != http.StatusServiceUnavailable || got.body != "full" {
		t.Errorf("got %d %s", got.status, got.body)
	}
	r.released()
	if legs, want := r.legIDs(""), []string{"render:id", "prefill:id", "decode:id", "decode:id-r1", "decode:id-r2", "decode:id-release"}; !slices.Equal(legs, want) {
		t.Errorf("legs %v, want %v", legs, want)
	}
	if st := r.cluster.State(); st.FetchedKV != 1 || st.ExpiredLeases != 0 {
		t.Errorf("%+v", st)
	}
}

// TestDecodeThatAnswers500IsPrefilledAgain, whatever else the answer says: a worker that
// could not load the KV says so.
func TestDecodeThatAnswers500IsPrefilledAgain(t *testing.T) {
	r := newRig(t, setup{toml: quick, cluster: cluster.Options{Lease: byHand}})
	broken := notSent
	broken.Status, broken.Times = http.StatusInternalServerError, 1
	r.cluster.AddFault(broken)
	if got := r.post(chatPath, chatBody("one two", true), "X-Request-Id", "id"); got.status != http.StatusOK {
		t.Errorf("got %d %s", got.status, got.body)
	}
	r.released()
	if legs, want := r.legIDs(""), []string{"render:id", "prefill:id", "decode:id", "prefill:id-r1", "decode:id-r1"}; !slices.Equal(legs, want) {
		t.Errorf("legs %v, want %v", legs, want)
	}
}
