package cluster

import (
	"context"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// startPiped is start over in-memory pipes: call it in a synctest bubble.
func startPiped(t *testing.T, options Options) *rig {
	t.Helper()
	c := New(options)
	listener := NewPipeListener()
	if err := c.StartOn(listener); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: listener.DialContext}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		c.Close()
	})
	return &rig{Cluster: c, t: t, client: &http.Client{Transport: transport}}
}

func TestStreamKeepsItsPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startPiped(t, Options{TokenInterval: time.Second, RenderDelay: 10 * time.Second, PrefillDelay: time.Minute})
		took := func(c call) time.Duration {
			began := time.Now()
			if got := r.send(c); got.status != http.StatusOK || got.err != nil {
				t.Errorf("got %+v", got)
			}
			return time.Since(began)
		}
		if d := took(call{leg: Render, body: chat("hi", "")}); d != 10*time.Second {
			t.Errorf("render took %v", d)
		}
		if d := took(call{leg: Prefill, body: chat("hi", `,"max_tokens":1,"ignore_eos":true`)}); d != time.Minute {
			t.Errorf("prefill took %v", d)
		}
		for _, more := range []string{"", `,"stream":true`, `,"stream":true,"n":2`} {
			if d := took(call{leg: Decode, body: chat("hi", more)}); d != 3*time.Second {
				t.Errorf("three tokens (%s) took %v", more, d)
			}
		}
		r.noViolations()
	})
}

func TestHandlerInAnotherServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{})
		listener := NewPipeListener()
		server := &http.Server{Handler: c.Handler(), ConnContext: ConnContext}
		served := make(chan error, 1)
		go func() { served <- server.Serve(listener) }()
		transport := &http.Transport{DialContext: listener.DialContext}
		client := &http.Client{Transport: transport}
		for range 2 {
			resp, err := client.Get("http://any.test/v1/models")
			if err != nil {
				t.Fatal(err)
			}
			readAll(t, resp)
		}
		transport.CloseIdleConnections()
		server.Close()
		if err := <-served; err != http.ErrServerClosed {
			t.Error(err)
		}
		c.Close()
	})
}

func TestClientLeavingMidStreamIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startPiped(t, Options{TokenInterval: time.Hour})
		params := present(r.handoff("a", "p"))
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := r.client.Do(r.request(ctx, decodeWith("a", "p", params, `,"stream":true`)))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s := r.State(); s.InFlight[Decode] != 1 || s.HeldKV != 0 {
			t.Errorf("streaming: %+v", s)
		}
		cancel()
		resp.Body.Close()
		synctest.Wait()
		if s := r.State(); s.Aborted[Decode] != 1 || !s.Idle() {
			t.Errorf("left: %+v", s)
		}
		if leg := r.Legs("a")[1]; !leg.Aborted || leg.Status != 200 || leg.Ended == 0 {
			t.Errorf("recorded %+v", leg)
		}
	})
}

func TestPipeListenerEnds(t *testing.T) {
	l := NewPipeListener()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.DialContext(ctx, "", ""); err != context.Canceled {
		t.Errorf("dial with a dead context: %v", err)
	}
	l.Close()
	l.Close()
	if _, err := l.DialContext(t.Context(), "", ""); err == nil {
		t.Error("dialed a closed listener")
	}
	if _, err := l.Accept(); err != net.ErrClosed {
		t.Errorf("accept: %v", err)
	}
}
