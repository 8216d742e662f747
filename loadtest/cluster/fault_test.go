package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestFaultsThatAnswerInTheWorkersStead(t *testing.T) {
	for _, test := range []struct {
		name   string
		fault  Fault
		status int
		body   string
		header http.Header
	}{
		{"status", Fault{Status: 503}, 503,
			`{"error":{"message":"Service Unavailable","type":"Service Unavailable","param":null,"code":503}}`, nil},
		{"status 500", Fault{Status: 500}, 500,
			`{"error":{"message":"Internal server error","type":"InternalServerError","param":null,"code":500}}`, nil},
		{"status, body, headers",
			Fault{Status: 429, Body: "no", Headers: map[string]string{"Retry-After": "7", "x-llm-d-request-dropped-reason": "full"}},
			429, "no", http.Header{"Retry-After": {"7"}, "X-Llm-D-Request-Dropped-Reason": {"full"}}},
		{"no content", Fault{Status: 204}, 204, "", nil},
		{"redirect", Fault{Redirect: "http://elsewhere.test/"}, 307, "", http.Header{"Location": {"http://elsewhere.test/"}}},
		{"redirect with status", Fault{Redirect: "/x", Status: 302}, 302, "", http.Header{"Location": {"/x"}}},
		{"garbage", Fault{Garbage: true}, 200, "<html>this is not what you asked for", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := start(t, Options{})
			test.fault.Times = 1
			r.AddFault(test.fault)
			got := r.send(call{leg: Prefill, body: prefillBody("p")})
			if got.status != test.status || got.body != test.body || got.err != nil {
				t.Errorf("got %+v", got)
			}
			for name := range test.header {
				if got.header.Get(name) != test.header.Get(name) {
					t.Errorf("header %s is %q", name, got.header.Get(name))
				}
			}
			r.wait(State.Idle)
			if s := r.State(); s.FaultedLegs != 1 || s.HeldKV != 0 || r.Legs("")[0].Status != test.status {
				t.Errorf("%+v", s)
			}
			if got := r.send(call{leg: Prefill, body: prefillBody("p")}); got.status != 200 {
				t.Errorf("the fault is not spent: %+v", got)
			}
		})
	}
}

func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startPiped(t, Options{})
		r.AddFault(Fault{Delay: time.Hour, Status: 504})
		began := time.Now()
		if got := r.send(call{leg: Decode, body: chat("p", "")}); got.status != 504 || time.Since(began) != time.Hour {
			t.Errorf("got %+v after %v", got, time.Since(began))
		}
	})
}

func TestDrop(t *testing.T) {
	r := start(t, Options{})
	id := r.AddFault(Fault{Leg: Decode, Drop: true})
	got := r.send(call{leg: Decode, body: chat("p", "")})
	if !errors.Is(got.err, io.EOF) {
		t.Errorf("got %+v", got)
	}
	r.wait(State.Idle)
	if s := r.State(); s.Aborted[Decode] != 0 {
		t.Errorf("a drop is not the client's doing: %+v", s)
	}
	if !r.RemoveFault(id) || r.RemoveFault(id) {
		t.Error("the fault was not removed once")
	}
	if got := r.send(call{leg: Decode, body: chat("p", "")}); got.status != http.StatusOK {
		t.Errorf("got %+v", got)
	}
}

func TestDropOnlyReused(t *testing.T) {
	r := start(t, Options{})
	r.AddFault(Fault{Drop: true, OnlyReused: true, Times: 1})
	if got := r.send(call{leg: Decode, body: chat("p", "")}); got.status != http.StatusOK {
		t.Errorf("new connection: %+v", got)
	}
	if got := r.send(call{leg: Decode, body: chat("p", "")}); got.err == nil {
		t.Errorf("used connection: %+v", got)
	}
	if legs := r.Legs(""); legs[0].Reused || !legs[1].Reused {
		t.Errorf("recorded %+v", legs)
	}
}

func TestHangEndsWithTheClient(t *testing.T) {
	r := start(t, Options{})
	r.AddFault(Fault{Leg: Render, Hang: true, Times: 1})
	ctx, cancel := context.WithCancel(t.Context())
	got := r.sendLater(ctx, call{leg: Render, body: chat("p", "")})
	r.wait(func(s State) bool { return s.InFlight[Render] == 1 })
	cancel()
	<-got
	r.wait(func(s State) bool { return s.Aborted[Render] == 1 && s.Idle() })
}

func TestStreamFaults(t *testing.T) {
	failure := `{"error":{"message":"Internal server error","type":"InternalServerError","param":null,"code":500}}`
	for _, test := range []struct {
		name   string
		fault  Fault
		text   string
		last   string // event; "" if there is none
		broken bool
	}{
		{"break at once", Fault{BreakAfter: new(0)}, "", "", true},
		{"break", Fault{BreakAfter: new(3)}, "You said:", "content", true},
		{"break after all", Fault{BreakAfter: new(6)}, "You said: p", "[DONE]", true},
		{"error event at once", Fault{ErrorEventAfter: new(0)}, "", "[DONE]", false},
		{"error event", Fault{ErrorEventAfter: new(2)}, "You", "[DONE]", false},
		{"end at once", Fault{EndAfter: new(0)}, "", "", false},
		{"end", Fault{EndAfter: new(2)}, "You", "content", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := start(t, Options{})
			r.AddFault(test.fault)
			got := r.send(call{leg: Decode, body: chat("p", `,"stream":true`)})
			if got.status != http.StatusOK || errors.Is(got.err, io.ErrUnexpectedEOF) != test.broken {
				t.Fatalf("got %+v", got)
			}
			list := events(got.body)
			if test.fault.ErrorEventAfter != nil {
				if at := len(list) - 2; at != *test.fault.ErrorEventAfter || list[at] != failure {
					t.Errorf("events %q", list)
				}
			}
			if len(list) > 0 && said(t, got.body) != test.text {
				t.Errorf("body %q", got.body)
			}
			last := ""
			if len(list) > 0 {
				last = list[len(list)-1]
			}
			if !strings.Contains(last, test.last) || test.last == "" && last != "" {
				t.Errorf("events %q", list)
			}
			r.wait(State.Idle)
			if s := r.State(); s.Aborted[Decode] != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestBrokenWholeAnswer(t *testing.T) {
	r := start(t, Options{})
	r.AddFault(Fault{BreakAfter: new(0)})
	got := r.send(call{leg: Prefill, body: prefillBody("p")})
	if got.status != http.StatusOK || !errors.Is(got.err, io.ErrUnexpectedEOF) || got.body == "" || json.Valid([]byte(got.body)) {
		t.Errorf("got %+v", got)
	}
	r.wait(func(s State) bool { return s.InFlight[Prefill] == 0 })
	if s := r.State(); s.HeldKV != 1 { // nobody knows of it: it stays until its lease ends
		t.Errorf("%+v", s)
	}
}

func TestBadHandoff(t *testing.T) {
	r := start(t, Options{})
	for _, bad := range []string{`null`, `{"remote_engine_id":null}`, `[]`} {
		r.AddFault(Fault{Leg: Prefill, BadHandoff: json.RawMessage(bad), Times: 1})
		if got := r.handoff("a", "p"); got != bad {
			t.Errorf("got %s, want %s", got, bad)
		}
	}
	if s := r.State(); s.HeldKV != 0 {
		t.Errorf("%+v", s)
	}
}

func TestLoseKV(t *testing.T) {
	for _, leg := range []string{Prefill, Decode} {
		t.Run(leg, func(t *testing.T) {
			r := start(t, Options{})
			r.AddFault(Fault{Leg: leg, LoseKV: true, Times: 1})
			params := present(r.handoff("a", "p"))
			wantLoadFailure(t, r.send(decodeWith("a", "p", params, "")), false)
			wantLoadFailure(t, r.send(decodeWith("a", "p", params, `,"stream":true`)), true)
			if s := r.State(); s.HeldKV != 0 || s.FailedLoads != 2 || s.ViolationCount != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
	t.Run(KVSharedStorage, func(t *testing.T) {
		r := start(t, Options{KV: KVSharedStorage})
		r.AddFault(Fault{Leg: Prefill, LoseKV: true})
		r.handoff("a", "p")
		got := r.send(decodeWith("a", "p", `{"do_remote_decode":false,"do_remote_prefill":true}`, ""))
		if said(t, got.body) != Reply("p") || r.State().Recomputed != 1 {
			t.Errorf("got %+v", got)
		}
	})
}

func TestFaultMatching(t *testing.T) {
	r := start(t, Options{})
	r.AddFault(Fault{Leg: Decode, RequestID: "a", Status: 501})
	r.AddFault(Fault{Leg: Decode, Status: 502, Times: 2})
	for _, test := range []struct {
		leg, id string
		status  int
	}{
		{Render, "a", 200},
		{Decode, "a", 501},
		{Decode, "a-r12", 501},
		{Decode, "ab", 502},
		{Decode, "b", 502},
		{Decode, "b", 200},
		{Decode, "a", 501},
	} {
		if got := r.send(call{leg: test.leg, id: test.id, body: chat("p", "")}); got.status != test.status {
			t.Errorf("%+v: got %d", test, got.status)
		}
	}
	r.ClearFaults()
	if got := r.send(call{leg: Decode, id: "a", body: chat("p", "")}); got.status != 200 {
		t.Errorf("after ClearFaults: %+v", got)
	}
}

func TestFaultsThatMakeNoSense(t *testing.T) {
	c := New(Options{})
	defer c.Close()
	for _, fault := range []Fault{{Leg: "x"}, {Times: -1}, {Status: 100}, {Status: 1000}, {BadHandoff: json.RawMessage("{")}} {
		if _, err := c.addFault(fault); err == nil {
			t.Errorf("%+v was added", fault)
		}
	}
}
