package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
)

func TestRecordKeepsTheNewest(t *testing.T) {
	r := start(t, Options{MaxRecorded: 3, OmitBodies: true})
	for i := range 5 {
		r.send(call{leg: Render, id: fmt.Sprint(i), body: chat("p", "")})
	}
	legs := r.Legs("")
	if len(legs) != 3 {
		t.Fatalf("recorded %+v", legs)
	}
	for i, leg := range legs {
		if leg.ID != i+3 || leg.RequestID != fmt.Sprint(i+2) || leg.Body != nil {
			t.Errorf("leg %d: %+v", i, leg)
		}
	}
	if r.Count(Render) != 5 {
		t.Errorf("counted %d", r.Count(Render))
	}
}

func TestLegsAreRecordedAsTheyCame(t *testing.T) {
	r := start(t, Options{})
	body := " {\n\"model\" : \"demo-model\", \"messages\":[{\"role\":\"user\",\"content\":\"\\u0068i\"}],\"seed\":9007199254740993}\n"
	req := r.request(t.Context(), call{leg: Decode, id: "x", body: body})
	req.URL.RawQuery = "a=1&b=%20"
	req.Header.Add("X-Twice", "1")
	req.Header.Add("X-Twice", "2")
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	readAll(t, resp)
	r.wait(State.Idle)
	leg := r.Legs("x")[0]
	if string(leg.Body) != body || leg.Query != "a=1&b=%20" || leg.Path != chatPath || leg.Method != "POST" ||
		len(leg.Header.Values("X-Twice")) != 2 || leg.Status != 200 || leg.Aborted || leg.Ended <= leg.Arrived {
		t.Errorf("recorded %+v", leg)
	}
}

func TestWait(t *testing.T) {
	c := New(Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Wait(ctx, func(State) bool { return true }); err != nil {
		t.Errorf("true at once: %v", err)
	}
	if err := c.Wait(ctx, func(State) bool { return false }); !errors.Is(err, context.Canceled) {
		t.Errorf("dead context: %v", err)
	}
	c.Close()
	if err := c.Wait(t.Context(), func(State) bool { return false }); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

func TestViolationsAreBounded(t *testing.T) {
	c := New(Options{})
	defer c.Close()
	for range maxViolations + 5 {
		c.violate(Decode, "x", "again")
	}
	if s := c.State(); len(s.Violations) != maxViolations || s.ViolationCount != maxViolations+5 || s.Violations[0] != "decode x: again" {
		t.Errorf("%d of %d", len(s.Violations), s.ViolationCount)
	}
}

func TestStartErrors(t *testing.T) {
	c := New(Options{})
	if c.URL() != "" || c.Start("nonsense") == nil || c.Start("256.0.0.1:0") == nil {
		t.Error("started on nonsense")
	}
	if err := c.Start("127.0.0.1:0"); err != nil {
		t.Error(err)
	}
	if c.Start(":0") == nil {
		t.Error("started twice")
	}
	c.Close()
	if c.Start(":0") == nil {
		t.Error("started after Close")
	}
}

// TestManyAtOnce is for the race detector, and for mixed-up answers.
func TestManyAtOnce(t *testing.T) {
	r := start(t, Options{MaxRecorded: 50})
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			id, prompt := fmt.Sprint("r", i), fmt.Sprintf("request number %d asks", i)
			r.send(call{leg: Render, id: id, body: chat(prompt, "")})
			params := present(r.handoff(id, prompt))
			got := r.send(decodeWith(id, prompt, params, `,"stream":true`))
			if text := said(t, got.body); text != Reply(prompt) {
				t.Errorf("got %q", text)
			}
			r.Legs(id)
		})
	}
	all.Wait()
	r.wait(State.Idle)
	if s := r.State(); s.FetchedKV != 100 || s.ReusedHandoffs != 0 {
		t.Errorf("%+v", s)
	}
	r.noViolations()
}
