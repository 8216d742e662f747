package cluster

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
)

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestGateAtArrival(t *testing.T) {
	r := start(t, Options{})
	gate := r.Hold(Gate{Leg: Prefill})
	got := r.sendLater(t.Context(), call{leg: Prefill, body: prefillBody("p")})
	<-gate.Reached()
	if s := r.State(); s.HeldKV != 0 || s.InFlight[Prefill] != 1 {
		t.Errorf("work was done: %+v", s)
	}
	if legs := r.Legs("req"); len(legs) != 1 || legs[0].Status != 0 || string(legs[0].Body) != prefillBody("p") {
		t.Errorf("recorded %+v", legs)
	}
	// Other legs are not held.
	if a := r.send(call{leg: Render, body: chat("p", "")}); a.status != http.StatusOK {
		t.Errorf("render: %+v", a)
	}
	gate.Release()
	if a := <-got; a.status != http.StatusOK {
		t.Errorf("got %+v", a)
	}
	if a := r.send(call{leg: Prefill, body: prefillBody("p")}); a.status != http.StatusOK {
		t.Errorf("after the release: %+v", a)
	}
}

func TestGateAtHeaders(t *testing.T) {
	r := start(t, Options{})
	params := present(r.handoff("a", "p"))
	gate := r.Hold(Gate{Leg: Decode, RequestID: "a", At: AtHeaders})
	got := r.sendLater(t.Context(), decodeWith("a", "p", params, `,"stream":true`))
	<-gate.Reached()
	if s := r.State(); s.FetchedKV != 1 || r.Legs("a")[1].Status != 0 {
		t.Errorf("at the gate: %+v", s)
	}
	gate.Release()
	if a := <-got; said(t, a.body) != Reply("p") {
		t.Errorf("got %+v", a)
	}
}

func TestGateAtChunk(t *testing.T) {
	r := start(t, Options{})
	for n := range 4 {
		gate := r.Hold(Gate{Leg: Decode, At: AtChunk, Chunk: n})
		resp, err := r.client.Do(r.request(t.Context(), call{leg: Decode, body: chat("hi", `,"stream":true`)}))
		if err != nil {
			t.Fatal(err)
		}
		<-gate.Reached()
		body := bufio.NewReader(resp.Body)
		for range n { // what is before the gate is on the wire
			for range 2 {
				if _, err := body.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
			}
		}
		if body.Buffered() != 0 {
			t.Errorf("gate %d: more than %d chunks are out", n, n)
		}
		gate.Release()
		rest := new(strings.Builder)
		if _, err := body.WriteTo(rest); err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if left := len(events(rest.String())); n+left != 6 { // role, three words, finish, [DONE]
			t.Errorf("gate %d: %d chunks after it", n, left)
		}
	}
}

func TestGateLetsOneGo(t *testing.T) {
	r := start(t, Options{})
	gate := r.Hold(Gate{})
	got := make(chan answer)
	for range 3 {
		go func() { got <- r.send(call{leg: Render, body: chat("p", "")}) }()
	}
	if err := gate.WaitFor(within(t), 3); err != nil {
		t.Fatal(err)
	}
	gate.ReleaseOne()
	<-got
	if n := gate.Waiting(); n != 2 {
		t.Errorf("%d wait", n)
	}
	gate.ReleaseOne()
	gate.ReleaseOne()
	<-got
	<-got
	gate.ReleaseOne() // for the one to come
	if a := r.send(call{leg: Render, body: chat("p", "")}); a.status != http.StatusOK {
		t.Errorf("got %+v", a)
	}
	if s := r.State(); s.WaitingAtGates != 0 {
		t.Errorf("%+v", s)
	}
}

func TestGateTimesAndRetries(t *testing.T) {
	r := start(t, Options{})
	gate := r.Hold(Gate{Leg: Decode, RequestID: "a", Times: 2})
	first := r.sendLater(t.Context(), call{leg: Decode, id: "a", body: chat("p", "")})
	retry := r.sendLater(t.Context(), call{leg: Decode, id: "a-r1", body: chat("p", "")})
	if err := gate.WaitFor(within(t), 2); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "a-r", "a-r1x", "ab"} { // spent, or no retry of a
		if a := r.send(call{leg: Decode, id: id, body: chat("p", "")}); a.status != http.StatusOK {
			t.Errorf("%s: %+v", id, a)
		}
	}
	gate.Remove()
	<-first
	<-retry
	if n := len(r.Legs("a")); n != 3 {
		t.Errorf("%d legs of a", n)
	}
}

func TestCloseOpensGatesAndBreaksLegsOff(t *testing.T) {
	r := start(t, Options{TokenInterval: time.Hour})
	gate := r.Hold(Gate{Leg: Render})
	r.AddFault(Fault{Leg: Prefill, Hang: true})
	var got []<-chan answer
	for _, c := range []call{
		{leg: Render, body: chat("p", "")},
		{leg: Prefill, body: prefillBody("p")},
		{leg: Decode, body: chat("p", `,"stream":true`)},
	} {
		got = append(got, r.sendLater(t.Context(), c))
	}
	r.wait(func(s State) bool { return s.InFlight[Render]+s.InFlight[Prefill]+s.InFlight[Decode] == 3 })
	waited := make(chan error, 1)
	go func() { waited <- gate.WaitFor(t.Context(), 5) }()
	r.Close()
	for _, a := range got {
		if a := <-a; a.err == nil {
			t.Errorf("got a whole answer: %+v", a)
		}
	}
	if err := <-waited; !errors.Is(err, ErrClosed) {
		t.Errorf("WaitFor: %v", err)
	}
	if s := r.State(); !s.Idle() || s.WaitingAtGates != 0 {
		t.Errorf("%+v", s)
	}
	r.Close()
}

func TestGatesThatMakeNoSense(t *testing.T) {
	c := New(Options{})
	defer c.Close()
	for _, gate := range []Gate{{Leg: "x"}, {At: "x"}, {Times: -1}, {At: AtHeaders, Chunk: 1}, {At: AtChunk, Chunk: -1}} {
		if _, err := c.hold(gate); err == nil {
			t.Errorf("%+v was put up", gate)
		}
	}
}
