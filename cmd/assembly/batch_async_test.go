package assembly_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// TestBatchThatMayWait is queued as it is; one that may not takes a slot of the quota
// for each prompt.
func TestBatchThatMayWait(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{setup: setup{steps: decodeStep, pipeline: batching}, params: quotaParams})
	body := batchBody(batchPrompts, "")
	if got := a.post(completionsPath, body, modeHeader, "enqueue", tenHeader, "acme", "X-Request-Id", "later"); got.status != http.StatusAccepted {
		t.Errorf("%d %s", got.status, got.body)
	}
	if legs := a.legs(""); len(legs) > 0 {
		t.Errorf("legs %v", legs)
	}
	gate := a.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtHeaders})
	answer := make(chan response)
	go func() {
		answer <- a.post(completionsPath, body, modeHeader, "passthrough", tenHeader, "acme", "X-Request-Id", "now")
	}()
	if err := gate.WaitFor(within(t), 3); err != nil {
		t.Fatal(err)
	}
	told := map[string]int{}
	for _, id := range []string{"now-p0", "now-p1", "now-p2"} {
		told[a.told(id)]++
	}
	if a.counted() != "2" || told["first acme"] != 2 || told["second acme"] != 1 {
		t.Errorf("counted %s, the workers are told %v", a.counted(), told)
	}
	gate.Release()
	texts, _, _ := merged(t, <-answer, false)
	if len(texts) != 3 {
		t.Errorf("%v", texts)
	}
	a.settled()
	a.eventually("all slots are given back", func() bool { return a.counted() == "0" || a.counted() == "" })
}

// TestBatchThatIsHeldHoldsNothing: it waits for its result as one request, and nothing is
// charged meanwhile.
func TestBatchThatIsHeldHoldsNothing(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{setup: setup{steps: decodeStep, pipeline: batching}})
	for _, leaves := range []bool{false, true} {
		ctx, leave := context.WithCancel(within(t))
		id, answer := fmt.Sprint("held-", leaves), make(chan response)
		go func() {
			answer <- a.postCtx(ctx, completionsPath, batchBody([]string{strings.Repeat("x", 1<<20), "y"}, ""), a.headers("wait", id, nil)...)
		}()
		a.held(1)
		a.eventually("everything is given back", func() bool { return a.Memory.Used() == 0 })
		if n := len(a.queued(asyncQueue, 1)[0].Data.Payload); n < 1<<20 {
			t.Errorf("%d bytes are queued", n)
		}
		a.redis.Del(t.Context(), asyncQueue)
		if leaves {
			leave()
			if got := <-answer; got.err == nil {
				t.Errorf("%d %s", got.status, got.body)
			}
		} else {
			a.mail(id, answered(id, 200, `{"choices":[]}`))
			(<-answer).is(t, 200, `{"choices":[]}`)
			leave()
		}
		a.settled()
		if used := a.Memory.Used(); used != 0 {
			t.Errorf("%d bytes are still charged", used)
		}
	}
	if legs := a.legs(""); len(legs) > 0 {
		t.Errorf("legs %v", legs)
	}
}

// TestPromptsThatWaitAreCharged, all of the batch, until the answers to all are on their
// way; also if one of them fails then.
func TestPromptsThatWaitAreCharged(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		a := newAsync(t, asyncSetup{setup: setup{steps: decodeStep, pipeline: batching}, params: quotaParams})
		large := strings.Repeat("x", 200<<10)
		body := batchBody([]string{large, large + " 2", large + " 3"}, `,"stream":true`)
		streaming := a.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtChunk, Chunk: 1})
		last := a.cluster.Hold(cluster.Gate{Leg: cluster.Decode, RequestID: "now-p2"})
		if fails {
			a.cluster.AddFault(cluster.Fault{Leg: cluster.Decode, RequestID: "now-p2", Status: 400})
		}
		answer := make(chan response)
		go func() {
			answer <- a.post(completionsPath, body, modeHeader, "passthrough", tenHeader, "acme", "X-Request-Id", "now")
		}()
		for gate, n := range map[*cluster.Held]int{streaming: 2, last: 1} {
			if err := gate.WaitFor(within(t), n); err != nil {
				t.Fatal(err)
			}
		}
		if used := a.Memory.Used(); used < int64(len(body)) {
			t.Errorf("%d bytes are charged while a prompt of %d waits", used, len(body))
		}
		if last.Release(); !fails {
			if err := streaming.WaitFor(within(t), 3); err != nil {
				t.Fatal(err)
			}
			a.eventually("the prompts are given back", func() bool { return a.Memory.Used() < int64(len(large)) })
		}
		streaming.Release()
		if got := <-answer; strings.Contains(got.body, "[DONE]") == fails {
			t.Errorf("%d %v", got.status, got.err)
		}
		a.settled()
		if used := a.Memory.Used(); used != 0 {
			t.Errorf("%d bytes are still charged", used)
		}
		a.eventually("all slots are given back", func() bool { return a.counted() == "0" || a.counted() == "" })
	}
}
