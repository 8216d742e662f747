package assembly_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// TestOneBadImageDoesNotOpenEncodesBreaker: encodes that are cancelled because
// one beside them was refused say nothing of the workers. They counted as
// failures once, and three bad requests shut out everybody.
func TestOneBadImageDoesNotOpenEncodesBreaker(t *testing.T) {
	r := newRig(t, setup{ec: cluster.ECNixl, steps: wholeSteps})
	var parts []string
	for i := range 8 {
		parts = append(parts, fmt.Sprintf(`{"type":"image_url","image_url":{"url":%q}}`, dataURI(picture(byte(i), 100+i))))
	}
	body := `{"model":"demo-model","messages":[{"role":"user","content":[` + strings.Join(parts, ",") + `]}]}`
	for i := range 3 {
		id := fmt.Sprintf("id-%d", i)
		// One is refused; the others answer nobody until they are cancelled.
		r.cluster.AddFault(cluster.Fault{Leg: cluster.Encode, RequestID: id, Status: 400, Times: 1})
		r.cluster.AddFault(cluster.Fault{Leg: cluster.Encode, RequestID: id, Hang: true, Times: 7})
		got := r.post(chatPath, body, "X-Request-Id", id)
		if got.status != http.StatusBadRequest {
			t.Errorf("got %d %s", got.status, got.body)
		}
	}
	r.settled()
	if s := r.Status("").Breakers["encode"]; s != "closed" {
		t.Errorf("encode's breaker is %s", s)
	}
	if got := r.post(chatPath, body); got.status != http.StatusOK {
		t.Errorf("an innocent request: %d %s", got.status, got.body)
	}
}

// TestProbeMissesKeepTheirConnection: misses are the common case, and cost a
// connection each once.
func TestProbeMissesKeepTheirConnection(t *testing.T) {
	r := newRig(t, setup{steps: conditionalStep + decodeStep})
	for range 5 {
		if got := r.post(chatPath, chatBody("hi", false)); got.status != http.StatusOK {
			t.Fatalf("got %d %s", got.status, got.body)
		}
	}
	for _, leg := range r.cluster.Legs("")[1:] {
		if !leg.Reused {
			t.Errorf("%s made a connection of its own", leg.Name)
		}
	}
	r.settled()
}

// TestDecodeOverSharedStorageIsNotRunAgainFromPrefill: its KV can be read twice,
// so only the leg is sent again, and no id twice.
func TestDecodeOverSharedStorageIsNotRunAgainFromPrefill(t *testing.T) {
	r := newRig(t, setup{kv: cluster.KVSharedStorage})
	for range 6 { // as many pooled connections as the request will find dead
		r.post(chatPath, chatBody("warm", false))
	}
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Decode, RequestID: "id", Drop: true})
	got := r.post(chatPath, chatBody("hi", false), "X-Request-Id", "id")
	if got.status != http.StatusBadGateway {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if n := len(slices.DeleteFunc(r.legs("id"), func(l string) bool { return l != "prefill" })); n != 1 {
		t.Errorf("%d prefills", n)
	}
	ids := map[string]bool{}
	for _, leg := range r.cluster.Legs("id") {
		if leg.Name == cluster.Decode && ids[leg.RequestID] {
			t.Errorf("decode %s was sent twice", leg.RequestID)
		}
		ids[leg.RequestID] = leg.Name == cluster.Decode
	}
	r.settled()
}
