package cluster

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// present turns what prefill gave out into what decode shows.
func present(params string) string {
	return strings.Replace(params, `"do_remote_prefill":true,"do_remote_decode":false`, `"do_remote_decode":false,"do_remote_prefill":true`, 1)
}

func decodeWith(id, prompt, params, more string) call {
	return call{leg: Decode, id: id, body: chat(prompt, `,"kv_transfer_params":`+params+more)}
}

func TestHandoffIsReadOnce(t *testing.T) {
	r := start(t, Options{})
	params := r.handoff("a", "alpha beta")
	if s := r.State(); s.HeldKV != 1 || s.Legs[Prefill] != 1 {
		t.Fatalf("after prefill: %+v", s)
	}
	if leg := r.Legs("a")[0]; string(leg.Handoff) != params {
		t.Errorf("recorded %s, answered %s", leg.Handoff, params)
	}
	for _, want := range []string{`"x_opaque":{"z":9007199254740993,"a":1.0}`, `"remote_block_ids":[[`, `"remote_num_tokens":6`} {
		if !strings.Contains(params, want) {
			t.Errorf("%s has no %s", params, want)
		}
	}
	r.handoff("b", "gamma")
	for _, stream := range []string{"", `,"stream":true`} {
		got := r.send(decodeWith("a", "alpha beta", present(params), stream))
		want := Reply("alpha beta")
		if stream != "" {
			want = Reply("gamma") // the second use
		}
		if got.status != http.StatusOK || said(t, got.body) != want {
			t.Errorf("got %+v, want %q", got, want)
		}
	}
	if s := r.State(); s.HeldKV != 1 || s.FetchedKV != 1 || s.ReusedHandoffs != 1 || s.Recomputed != 0 {
		t.Errorf("%+v", s)
	}
	r.noViolations()
}

func TestSecondUseWithNoOtherRequest(t *testing.T) {
	r := start(t, Options{})
	params := present(r.handoff("a", "alpha"))
	r.send(decodeWith("a", "alpha", params, ""))
	if got := r.send(decodeWith("a", "alpha", params, "")); said(t, got.body) != "text of another request" {
		t.Errorf("got %+v", got)
	}
}

// TestHandoffMustComeBackWhole alters what prefill gave out in each way that a
// careless coordinator would.
func TestHandoffMustComeBackWhole(t *testing.T) {
	r := start(t, Options{})
	for _, test := range []struct{ name, prompt, old, new string }{
		{"flag not flipped", "p", `"do_remote_decode":false`, `"do_remote_decode":true`},
		{"field lost", "p", `"tp_size":1,`, ``},
		{"null lost", "p", `"remote_blocks_expiry_time":null,`, ``},
		{"opaque field lost", "p", `,"x_opaque":{"z":9007199254740993,"a":1.0}`, ``},
		{"large number rounded", "p", `9007199254740993`, `9007199254740992`},
		{"number respelt", "p", `1.0`, `1`},
		{"field added", "p", `"tp_size":1`, `"tp_size":1,"more":1`},
		{"other prompt", "q", ``, ``},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprint(test.name, stream), func(t *testing.T) {
				r.Reset()
				params := strings.Replace(present(r.handoff("a", "p")), test.old, test.new, 1)
				more := fmt.Sprintf(`,"stream":%t`, stream)
				got := r.send(decodeWith("a", test.prompt, params, more))
				wantLoadFailure(t, got, stream)
				if s := r.State(); s.ViolationCount != 1 || s.FailedLoads != 1 || s.HeldKV != 1 {
					t.Errorf("state %+v", s)
				}
			})
		}
	}
}

func wantLoadFailure(t *testing.T, got answer, stream bool) {
	t.Helper()
	body := `{"error":{"message":"Internal server error","type":"InternalServerError","param":null,"code":500}}`
	status := http.StatusInternalServerError
	if stream {
		status, body = http.StatusOK, "data: "+body+"\n\ndata: [DONE]\n\n"
	}
	if got.status != status || got.body != body {
		t.Errorf("got %+v", got)
	}
}

func TestKeyOrderAndSpaceOfHandoffAreFree(t *testing.T) {
	r := start(t, Options{})
	params := present(r.handoff("a", "p"))
	params = strings.Replace(strings.Replace(params, `"tp_size":1,`, ``, 1), `{`, `{ "tp_size": 1, `, 1)
	if got := r.send(decodeWith("a", "p", params, "")); said(t, got.body) != Reply("p") {
		t.Errorf("got %+v", got)
	}
	r.noViolations()
}

func TestCompletionsHandoff(t *testing.T) {
	r := start(t, Options{})
	ids := jsonText(r.TokenIDs("one two"))
	got := r.send(call{leg: Prefill, path: completionsPath, body: `{"prompt":` + ids + `,"max_tokens":1,"ignore_eos":true,"kv_transfer_params":` + nixlAsk + `}`})
	_, params, ok := strings.Cut(strings.TrimSuffix(got.body, "}"), `"kv_transfer_params":`)
	if !ok || said(t, got.body) != "You" {
		t.Fatalf("prefill: %+v", got)
	}
	got = r.send(call{leg: Decode, path: completionsPath, body: `{"prompt":` + ids + `,"kv_transfer_params":` + present(params) + `}`})
	if said(t, got.body) != Reply("one two") {
		t.Errorf("got %+v", got)
	}
	if s := r.State(); s.FetchedKV != 1 || s.HeldKV != 0 {
		t.Errorf("%+v", s)
	}
	r.noViolations()
}

func TestPrefillThatIsNotAskedForHandoff(t *testing.T) {
	r := start(t, Options{})
	for _, params := range []string{"null", "{}", `{"do_remote_decode":true}`, `{"do_remote_decode":false,"do_remote_prefill":true}`, "7"} {
		got := r.send(call{leg: Prefill, body: chat("p", `,"max_tokens":1,"ignore_eos":true,"kv_transfer_params":`+params)})
		if got.status != http.StatusOK || !strings.HasSuffix(got.body, `"kv_transfer_params":null}`) {
			t.Errorf("%s: %+v", params, got)
		}
	}
	if s := r.State(); s.HeldKV != 0 {
		t.Errorf("%+v", s)
	}
}

func TestUnknownHandoff(t *testing.T) {
	r := start(t, Options{})
	got := r.send(decodeWith("a", "p", `{"do_remote_prefill":true,"remote_request_id":"x"}`, ""))
	wantLoadFailure(t, got, false)
	r.noViolations() // it may have been forgotten
	got = r.send(decodeWith("a", "p", nixlAsk, ""))
	if r.State().ViolationCount != 1 {
		t.Errorf("got %+v", got)
	}
	got = r.send(decodeWith("a", "p", `{"do_remote_decode":false,"do_remote_prefill":true,"remote_request_id":null}`, ""))
	wantLoadFailure(t, got, false)
	if r.State().ViolationCount != 2 {
		t.Errorf("got %+v", got)
	}
}

func TestSharedStorage(t *testing.T) {
	r := start(t, Options{KV: KVSharedStorage})
	const fetch = `{"do_remote_decode":false,"do_remote_prefill":true}`
	if params := r.handoff("a", "p"); params != "null" {
		t.Errorf("prefill gave out %s", params)
	}
	for range 2 { // stored KV can be read again
		if got := r.send(decodeWith("a", "p", fetch, "")); said(t, got.body) != Reply("p") {
			t.Errorf("got %+v", got)
		}
	}
	r.send(decodeWith("a", "never seen", fetch, ""))
	r.send(call{leg: Decode, body: chat("p", "")})
	if s := r.State(); s.FetchedKV != 2 || s.Recomputed != 2 || s.HeldKV != 0 || s.ViolationCount != 0 {
		t.Errorf("%+v", s)
	}
	got := r.send(decodeWith("a", "p", `{"do_remote_decode":false,"do_remote_prefill":true,"remote_host":null}`, ""))
	if got.status != http.StatusInternalServerError || r.State().ViolationCount != 1 {
		t.Errorf("got %+v", got)
	}
}

// TestLeasesEndedByHand are gone as if their time had come; what was read before is not
// counted.
func TestLeasesEndedByHand(t *testing.T) {
	r := start(t, Options{Lease: time.Hour})
	params, read := present(r.handoff("a", "p")), present(r.handoff("b", "q"))
	r.send(decodeWith("b", "q", read, ""))
	r.EndLeases()
	r.EndLeases()
	if s := r.State(); s.HeldKV != 0 || s.ExpiredLeases != 1 || s.FetchedKV != 1 {
		t.Errorf("%+v", s)
	}
	wantLoadFailure(t, r.send(decodeWith("a", "p", params, "")), false)
}

func TestLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startPiped(t, Options{Lease: 3 * time.Second})
		params := present(r.handoff("a", "p"))
		inTime := present(r.handoff("b", "q"))
		<-time.After(3*time.Second - 1) // fake time
		if got := r.send(decodeWith("b", "q", inTime, "")); said(t, got.body) != Reply("q") {
			t.Errorf("got %+v", got)
		}
		if s := r.State(); s.HeldKV != 1 || s.ExpiredLeases != 0 {
			t.Errorf("before: %+v", s)
		}
		if err := r.Wait(t.Context(), func(s State) bool { return s.ExpiredLeases == 1 }); err != nil {
			t.Fatal(err)
		}
		if s := r.State(); s.HeldKV != 0 {
			t.Errorf("after: %+v", s)
		}
		wantLoadFailure(t, r.send(decodeWith("a", "p", params, "")), false)
		wantLoadFailure(t, r.send(decodeWith("a", "p", params, `,"stream":true`)), true)
		r.handoff("c", "held at Close")
	})
}

// TestDecodeThatDoesNotReadItsKV: a worker that refuses a request, or whose
// client leaves, tells prefill to free the KV.
func TestDecodeThatDoesNotReadItsKV(t *testing.T) {
	r := start(t, Options{})
	params := present(r.handoff("a", "p"))
	if got := r.send(decodeWith("a", "p", params, `,"n":9`)); got.status != http.StatusBadRequest {
		t.Errorf("got %+v", got)
	}
	if s := r.State(); s.HeldKV != 0 || s.FreedKV != 1 {
		t.Errorf("after the refusal: %+v", s)
	}

	params = present(r.handoff("b", "p"))
	gate := r.Hold(Gate{Leg: Decode})
	ctx, cancel := context.WithCancel(t.Context())
	left := r.sendLater(ctx, decodeWith("b", "p", params, ""))
	<-gate.Reached()
	if s := r.State(); s.HeldKV != 1 || s.WaitingAtGates != 1 {
		t.Errorf("at the gate: %+v", s)
	}
	cancel()
	<-left
	r.wait(State.Idle)
	if s := r.State(); s.FreedKV != 2 || s.Aborted[Decode] != 1 || s.WaitingAtGates != 0 || s.FetchedKV != 0 {
		t.Errorf("after the client left: %+v", s)
	}
}

// TestGatewayRefusalKeepsKV: a decode that reached no worker frees nothing.
func TestGatewayRefusalKeepsKV(t *testing.T) {
	r := start(t, Options{})
	params := present(r.handoff("a", "p"))
	r.AddFault(Fault{Leg: Decode, Status: 503, Times: 1})
	if got := r.send(decodeWith("a", "p", params, "")); got.status != 503 || r.State().HeldKV != 1 {
		t.Errorf("got %+v, state %+v", got, r.State())
	}
	if got := r.send(decodeWith("a-r1", "p", params, "")); said(t, got.body) != Reply("p") || r.State().HeldKV != 0 {
		t.Errorf("got %+v, state %+v", got, r.State())
	}
}

func TestPrefillAbortedWhileItWorksFreesItsKV(t *testing.T) {
	r := start(t, Options{})
	gate := r.Hold(Gate{Leg: Prefill, At: AtHeaders})
	ctx, cancel := context.WithCancel(t.Context())
	left := r.sendLater(ctx, call{leg: Prefill, body: prefillBody("p")})
	<-gate.Reached()
	if s := r.State(); s.HeldKV != 1 {
		t.Errorf("at the gate: %+v", s)
	}
	cancel()
	<-left
	r.wait(State.Idle)
	if s := r.State(); s.FreedKV != 1 || s.Aborted[Prefill] != 1 {
		t.Errorf("%+v", s)
	}
}

func TestSpentHandoffsAreForgotten(t *testing.T) {
	r := start(t, Options{MaxRecorded: 2})
	var params []string
	for range 4 {
		p := present(r.handoff("a", "p"))
		params = append(params, p)
		r.send(decodeWith("a", "p", p, ""))
	}
	wantLoadFailure(t, r.send(decodeWith("a", "p", params[0], "")), false)
	if got := r.send(decodeWith("a", "p", params[3], "")); got.status != http.StatusOK {
		t.Errorf("got %+v", got)
	}
	if n := len(r.kv.byID); n != 2 {
		t.Errorf("%d hand-offs remembered", n)
	}
}
