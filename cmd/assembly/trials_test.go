package assembly_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// trying has a breaker open at once and be half open soon.
const trying = "[gateway.breaker]\nconsecutive_failures = 1\nopen_timeout = \"50ms\"\nhalf_open_requests = 2\n[gateway.retry]\nmax_attempts = 1\n"

// trip has a leg fail once, and waits until its breaker is half open.
func (r *rig) trip(leg, path, body string) {
	r.t.Helper()
	r.cluster.AddFault(cluster.Fault{Leg: leg, Drop: true, Times: 1})
	if got := r.post(path, body); got.status == http.StatusOK {
		r.t.Fatalf("%s did not fail: %s", leg, got.body)
	}
	r.eventually("half open", func() bool { return r.breaker(leg) == "half-open" })
}

// TestRequestOfManyLegsClosesABreaker: all legs that a request has beside each other
// may try, though they are more than may otherwise. Were some refused, the request
// would fail, and its trials with it, whatever is well by now.
func TestRequestOfManyLegsClosesABreaker(t *testing.T) {
	var parts strings.Builder
	for i := range 6 {
		fmt.Fprintf(&parts, `,{"type":"image_url","image_url":{"url":%q}}`, dataURI(picture(byte(i), 500)))
	}
	images := fmt.Sprintf(`{"model":"demo-model","messages":[{"role":"user","content":[{"type":"text","text":"hi"}%s]}]}`, parts.String())
	prompts := batchBody([]string{"a", "b", "c", "d", "e"}, "")
	for _, tt := range []struct{ leg, steps, path, body string }{
		{cluster.Encode, mediaStep + renderStep + encodeStep + prefillStep + decodeStep, chatPath, images},
		{cluster.Render, fullSteps, completionsPath, prompts},
		{cluster.Prefill, fullSteps, completionsPath, prompts},
		{cluster.Decode, fullSteps, completionsPath, prompts},
	} {
		t.Run(tt.leg, func(t *testing.T) {
			r := newRig(t, setup{steps: tt.steps, toml: trying, pipeline: batching, cluster: cluster.Options{Lease: byHand}})
			r.trip(tt.leg, tt.path, tt.body)
			if got := r.post(tt.path, tt.body); got.status != http.StatusOK {
				t.Errorf("got %d %s", got.status, got.body)
			}
			if s := r.breaker(tt.leg); s != "closed" {
				t.Errorf("the breaker is %s", s)
			}
			r.settled()
		})
	}
}

// TestHitsCloseABreaker as soon as they are answered, however long they last.
func TestHitsCloseABreaker(t *testing.T) {
	r := newRig(t, setup{steps: probingSteps, toml: trying, cluster: cluster.Options{CacheDecodes: true, Lease: byHand}})
	cached := chatBody("one two three", true)
	r.post(chatPath, cached)
	r.trip(cluster.Decode, chatPath, chatBody("not cached", true))
	gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Probe, At: cluster.AtChunk, Chunk: 3})
	for i := range 2 {
		if s := r.breaker("decode"); s != "half-open" {
			t.Errorf("before hit %d the breaker is %s", i, s)
		}
		resp, err := r.open(within(t), chatPath, cached)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.ReadFull(resp.Body, make([]byte, 1)); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("hit %d: %d %v", i, resp.StatusCode, err)
		}
		defer io.Copy(io.Discard, resp.Body)
	}
	r.eventually("closed", func() bool { return r.breaker("decode") == "closed" })
	gate.Release()
}
