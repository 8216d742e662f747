package cluster

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// steer calls the control route and returns the answer's body.
func (r *rig) steer(method, path, body string, status int) string {
	r.t.Helper()
	req, err := http.NewRequest(method, r.URL()+"/_cluster/"+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	got := readAll(r.t, resp)
	if resp.StatusCode != status {
		r.t.Errorf("%s %s: %d %s, want %d", method, path, resp.StatusCode, got, status)
	}
	return got
}

func idOf(t *testing.T, body string) string {
	t.Helper()
	var answer struct{ ID string }
	if err := json.Unmarshal([]byte(body), &answer); err != nil || answer.ID == "" {
		t.Fatalf("%v in %q", err, body)
	}
	return answer.ID
}

func TestControlFaults(t *testing.T) {
	r := start(t, Options{})
	decode := call{leg: Decode, body: chat("p", `,"stream":true`)}
	id := idOf(t, r.steer("POST", "faults", `{"leg":"decode","delay":"1us","error_event_after":0,"headers":{"X-A":"b"}}`, 201))
	if got := r.send(decode); len(events(got.body)) != 2 || got.header.Get("X-A") != "b" {
		t.Errorf("got %+v", got)
	}
	r.steer("DELETE", "faults/"+id, "", 204)
	r.steer("DELETE", "faults/"+id, "", 404)
	r.steer("POST", "faults", `{"status":500}`, 201)
	r.steer("DELETE", "faults", "", 204)
	if got := r.send(decode); said(t, got.body) != Reply("p") {
		t.Errorf("got %+v", got)
	}
	r.steer("POST", "faults", `{"leg":"prefill","bad_handoff":null}`, 201)
	if got := r.handoff("a", "p"); got != "null" || r.State().HeldKV != 0 {
		t.Errorf("got %s", got)
	}
}

func TestControlGates(t *testing.T) {
	r := start(t, Options{})
	id := idOf(t, r.steer("POST", "gates", `{"leg":"decode","at":"headers"}`, 201))
	var got []<-chan answer
	for range 2 {
		got = append(got, r.sendLater(t.Context(), call{leg: Decode, body: chat("p", "")}))
	}
	r.wait(func(s State) bool { return s.WaitingAtGates == 2 })
	want := `{"id":"` + id + `","gate":{"leg":"decode","at":"headers"},"waiting":2,"reached":2,"released":false}`
	if status := r.steer("GET", "gates/"+id, "", 200); status != want {
		t.Errorf("got %s, want %s", status, want)
	}
	r.steer("POST", "gates/"+id+"/release?one=true", "", 204)
	r.wait(func(s State) bool { return s.WaitingAtGates == 1 })
	r.steer("POST", "gates/"+id+"/release", "", 204)
	for _, a := range got {
		if a := <-a; a.status != 200 {
			t.Errorf("got %+v", a)
		}
	}
	if status := r.steer("GET", "gates/"+id, "", 200); !strings.Contains(status, `"released":true`) {
		t.Errorf("got %s", status)
	}
	r.steer("DELETE", "gates/"+id, "", 204)
	r.steer("GET", "gates/"+id, "", 404)
	r.steer("POST", "gates/"+id+"/release", "", 404)
}

func TestControlStateLegsAndReset(t *testing.T) {
	r := start(t, Options{})
	r.handoff("a", "p")
	r.send(call{leg: Decode, id: "b", body: "\xff"})
	r.wait(func(s State) bool { return s.InFlight[Prefill]+s.InFlight[Decode] == 0 })

	var state State
	if err := json.Unmarshal([]byte(r.steer("GET", "state", "", 200)), &state); err != nil || state.HeldKV != 1 || state.Legs[Decode] != 1 {
		t.Errorf("%v: %+v", err, state)
	}
	var legs []struct {
		Name, Method, Path, Body string
		Header                   http.Header
		Status, Arrived, Ended   int
		RequestID                string `json:"request_id"`
		BodyBase64               string `json:"body_base64"`
	}
	if err := json.Unmarshal([]byte(r.steer("GET", "legs", "", 200)), &legs); err != nil || len(legs) != 2 {
		t.Fatalf("%v: %+v", err, legs)
	}
	first, second := legs[0], legs[1]
	if first.Name != Prefill || first.Body != prefillBody("p") || first.Status != 200 || first.Header.Get("EPP-Profile") != Prefill {
		t.Errorf("first %+v", first)
	}
	if second.Body != "" || second.BodyBase64 != "/w==" || second.Status != 400 || second.Arrived < first.Ended {
		t.Errorf("second %+v", second)
	}
	if got := r.steer("GET", "legs?request_id=a", "", 200); strings.Count(got, `"request_id"`) != 1 {
		t.Errorf("legs of a: %s", got)
	}

	gate := r.Hold(Gate{Leg: Render})
	r.AddFault(Fault{Status: 500})
	waiting := r.sendLater(t.Context(), call{leg: Render, id: "c", body: chat("p", "")})
	<-gate.Reached()
	r.steer("POST", "reset", "", 204)
	<-waiting
	r.wait(State.Idle)
	if s := r.State(); s.HeldKV != 0 || s.FaultedLegs != 0 || s.Legs[Prefill] != 0 || len(r.Legs("")) != 0 {
		t.Errorf("after reset: %+v", s)
	}
	if got := r.send(call{leg: Render, body: chat("p", "")}); got.status != 200 || r.Legs("")[0].ID != 1 {
		t.Errorf("after reset: %+v", got)
	}
}

func TestControlIsStrict(t *testing.T) {
	r := start(t, Options{})
	for _, test := range []struct{ path, body string }{
		{"faults", `{"statsu":500}`},
		{"faults", `{"delay":"soon"}`},
		{"faults", `{"leg":"tea"}`},
		{"faults", `{} {}`},
		{"faults", ``},
		{"gates", `{"at":"end"}`},
		{"gates", `{"legs":"decode"}`},
	} {
		if got := r.steer("POST", test.path, test.body, 400); !strings.HasPrefix(got, `{"detail":"`) {
			t.Errorf("%+v: %s", test, got)
		}
	}
	r.steer("GET", "faults/x/y", "", 404)
	r.steer("PUT", "state", "", 405)
	if n := len(r.Legs("")); n != 0 {
		t.Errorf("%d legs recorded", n)
	}
}
