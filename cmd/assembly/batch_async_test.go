package assembly_test

import (
	"net/http"
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
