package gateway

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// answering starts an upstream that answers with the status in the leg's body,
// "drop" breaks the connection.
func answering(t *testing.T) *cluster.PipeListener {
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		status, err := strconv.Atoi(string(body))
		switch {
		case string(body) == "503 later":
			w.Header().Set("Retry-After", "1")
			status = 503
		case err != nil:
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(status)
	})
}

// refused reports whether the breaker refuses a leg, which an open one does
// without sending it.
func (r *rig) refused(body string) bool {
	r.t.Helper()
	_, sent, f := r.call(leg(body))
	refused := f != nil && f.Kind == wire.Unavailable
	if refused && (sent.Attempts != 0 || sent.Reached || f.RetryAfter == "") {
		r.t.Errorf("refused, but %+v and Retry-After %q", sent, f.RetryAfter)
	}
	return refused
}

func TestWhatIsAFailure(t *testing.T) {
	tests := map[string]bool{
		"200": false, "204": false, "302": false, "400": false, "404": false, "412": false, "429": false, "503 later": false,
		"500": true, "502": true, "503": true, "504": true, "599": true, "drop": true,
	}
	for body, failure := range tests {
		t.Run(body, func(t *testing.T) {
			r := dial(t, answering(t), tripAfter(1))
			r.call(leg(body))
			c := r.breaker.cb.Counts()
			if open := r.BreakerState() == "open"; open != failure || !failure && c.TotalSuccesses != 1 {
				t.Errorf("open %t, %+v", open, c)
			}
			r = dial(t, answering(t), tripAfter(1))
			if a, _, err := r.Open(t.Context(), leg(body)); err == nil {
				a.Close()
			}
			if open := r.BreakerState() == "open"; open != failure {
				t.Errorf("Open: open %t", open)
			}
		})
	}
}

func TestTripsOnFailuresInARow(t *testing.T) {
	r := dial(t, answering(t), tripAfter(3))
	for i, body := range []string{"500", "500", "200", "500", "500", "500"} {
		if r.refused(body) {
			t.Errorf("leg %d was refused", i)
		}
	}
	if !r.refused("200") || r.BreakerState() != "open" {
		t.Errorf("breaker is %s", r.BreakerState())
	}
}

func TestTripsOnRatio(t *testing.T) {
	ratio := func(s *UpstreamSettings) {
		tripAfter(100)(s)
		s.Breaker.FailureRatio, s.Breaker.MinRequests = 0.5, 10
	}
	tests := []struct {
		name string
		legs []string // sent over and over
		pace time.Duration
		trip int // after so many legs; 0 is never
	}{
		{"half", []string{"500", "200"}, 0, 11}, // a success trips nothing
		{"all", []string{"500"}, 0, 10},
		{"a third", []string{"200", "500", "200"}, 0, 0},
		{"too few in the window", []string{"500", "200"}, 2 * time.Second, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := dial(t, answering(t), ratio)
				trip := 0
				for i := range 60 {
					if trip == 0 && r.refused(tt.legs[i%len(tt.legs)]) {
						trip = i
					}
					wait(tt.pace)
				}
				if trip != tt.trip {
					t.Errorf("tripped after %d legs, want %d", trip, tt.trip)
				}
			})
		})
	}
}

// TestTimeoutsTripAlsoIfTheyTakeLongerThanTheWindow: gobreaker forgets a
// request that began before its window, so what hung a minute never counted.
func TestTimeoutsTripAlsoIfTheyTakeLongerThanTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := dial(t, raw(t, func(_ int, c *conn) {
			c.hear()
			c.in.ReadByte() // until the client gives up
		}), tripAfter(3))
		var running sync.WaitGroup
		for range 3 {
			running.Go(func() {
				if _, _, f := r.call(leg("{}")); f == nil || f.Kind != wire.UpstreamTimeout {
					t.Error(f)
				}
			})
		}
		running.Wait()
		if r.BreakerState() != "open" {
			t.Errorf("three time-outs of a minute each leave the breaker %s", r.BreakerState())
		}
	})
}

// TestOldNewsDoNotTrip: a leg sent before an outage says nothing of the time
// after it.
func TestOldNewsDoNotTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := dial(t, answering(t), tripAfter(1))
		old, err := r.Permit(nil)
		if err != nil {
			t.Fatal(err)
		}
		r.call(leg("500"))
		wait(6 * time.Second)
		for range 3 {
			r.call(leg("200"))
		}
		if r.BreakerState() != "closed" {
			t.Fatalf("breaker is %s", r.BreakerState())
		}
		old.Fail()
		if r.BreakerState() != "closed" {
			t.Error("old news tripped it")
		}
	})
}

func TestOpenThenHalfOpenThenClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := dial(t, answering(t), tripAfter(1))
		check := func(when, state string, gauge float64, ready bool) {
			t.Helper()
			if r.BreakerState() != state || r.metric(`breaker_state{profile="prefill"}`) != gauge || (r.Ready() == nil) != ready {
				t.Errorf("%s: %s, gauge %v, ready: %v", when, r.BreakerState(), r.metric(`breaker_state{profile="prefill"}`), r.Ready())
			}
		}
		check("new", "closed", 0, true)
		r.call(leg("500"))
		check("tripped", "open", 2, false)
		wait(4 * time.Second)
		check("later", "open", 2, false)
		wait(2 * time.Second)
		check("half open", "half-open", 1, true)
		r.call(leg("500"))
		check("failed again", "open", 2, false)
		wait(6 * time.Second)
		for range 3 {
			check("trying", "half-open", 1, true)
			r.call(leg("200"))
		}
		check("recovered", "closed", 0, true)
		for series, want := range map[string]float64{
			`breaker_transitions_total{from="closed",profile="prefill",to="open"}`:      1,
			`breaker_transitions_total{from="open",profile="prefill",to="half-open"}`:   2,
			`breaker_transitions_total{from="half-open",profile="prefill",to="open"}`:   1,
			`breaker_transitions_total{from="half-open",profile="prefill",to="closed"}`: 1,
			`breaker_rejected_total{profile="prefill"}`:                                 3,
		} {
			if got := r.metric(series); got < want || got > want && series != `breaker_rejected_total{profile="prefill"}` {
				t.Errorf("%s is %v, want %v", series, got, want)
			}
		}
	})
}

// halfOpen returns a rig whose breaker has just become half open.
func halfOpen(t *testing.T, l *cluster.PipeListener) *rig {
	r := dial(t, l, tripAfter(1))
	p, err := r.Permit(nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Fail()
	wait(6 * time.Second)
	return r
}

func mustPermit(t *testing.T, r *rig) *Permit {
	t.Helper()
	p, err := r.Permit(nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPermitsOfAHalfOpenBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := halfOpen(t, answering(t))
		var permits []*Permit
		for i := range 3 {
			if r.Ready() != nil {
				t.Errorf("not ready for permit %d", i)
			}
			permits = append(permits, mustPermit(t, r))
		}
		_, err := r.Permit(nil)
		if f := faultOf(t, err); f == nil || f.Kind != wire.Unavailable || f.RetryAfter != "1" {
			t.Errorf("a fourth permit: %v", err)
		}
		if f := faultOf(t, r.Ready()); f == nil || f.Kind != wire.Unavailable {
			t.Errorf("ready: %v", f)
		}

		// One that was not used can be had again, and given back twice is given
		// back once.
		permits[0].GiveBack()
		permits[0].GiveBack()
		if r.Ready() != nil {
			t.Error("the permit did not come back")
		}
		permits[0] = mustPermit(t, r)
		if r.Ready() == nil {
			t.Error("the permit came back twice")
		}

		// Three successes close it; settling one of them again is no further one.
		permits[0].Succeed()
		permits[0].Succeed()
		permits[0].Fail()
		permits[1].Succeed()
		permits[1].GiveBack()
		if r.BreakerState() != "half-open" {
			t.Errorf("%s after two successes", r.BreakerState())
		}
		permits[2].Succeed()
		if r.BreakerState() != "closed" {
			t.Errorf("%s after three successes", r.BreakerState())
		}
	})
}

func TestPermitTakenAheadIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := halfOpen(t, answering(t))
		l := leg("500")
		l.Permit = mustPermit(t, r)
		mustPermit(t, r)
		mustPermit(t, r)
		if _, sent, f := r.call(l); sent.Attempts != 1 || f.Message != "prefill answered 500" {
			t.Errorf("%+v, %v", sent, f)
		}
		if r.BreakerState() != "open" {
			t.Errorf("its failure left the breaker %s", r.BreakerState())
		}
	})
}

// TestPermitOfABodyThatPanics: a half-open breaker would miss it for ever.
func TestPermitOfABodyThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := halfOpen(t, answering(t))
		for range 5 {
			func() {
				defer func() { recover() }()
				l := leg("")
				l.Body = func(string) wire.Payload { panic("a connector's bug") }
				r.Call(t.Context(), l)
			}()
		}
		if r.Ready() != nil || r.BreakerState() != "half-open" {
			t.Errorf("%v, breaker %s", r.Ready(), r.BreakerState())
		}
	})
}

// TestClientsThatLeaveTripNothing: with gobreaker's defaults they would.
func TestClientsThatLeaveTripNothing(t *testing.T) {
	for _, half := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := raw(t, func(_ int, c *conn) {
				c.hear()
				c.in.ReadByte()
			})
			r := dial(t, l, tripAfter(3))
			if half {
				r = halfOpen(t, l)
			}
			before := r.BreakerState()
			for range 20 {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				if _, _, err := r.Call(ctx, leg("{}")); faultOf(t, err).Kind != wire.Canceled {
					t.Error(err)
				}
			}
			if r.BreakerState() != before || r.Ready() != nil {
				t.Errorf("breaker is %s, was %s; ready: %v", r.BreakerState(), before, r.Ready())
			}
		})
	}
}

// breaking is an upstream whose answers begin well and then break.
func breaking(t *testing.T) *cluster.PipeListener {
	return raw(t, func(_ int, c *conn) {
		c.hear()
		c.say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
	})
}

func TestStreamThatBreaksLaterIsOneMoreFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := halfOpen(t, breaking(t))
		a, _, err := r.Open(t.Context(), leg("{}"))
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		if r.BreakerState() != "half-open" {
			t.Errorf("the head left the breaker %s", r.BreakerState())
		}
		mustPermit(t, r) // the others are out: nothing more is let through
		mustPermit(t, r)
		io.ReadAll(a)
		if r.BreakerState() != "open" {
			t.Errorf("the break left the breaker %s", r.BreakerState())
		}
	})
}

// TestUnjudgedLegs pass an open breaker, and it does not hear of them.
func TestUnjudgedLegs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good, bad := answering(t), breaking(t)
		unjudged := leg("500")
		unjudged.Unjudged = true
		for _, l := range []*cluster.PipeListener{good, bad} {
			r := dial(t, l, tripAfter(1))
			r.call(unjudged)
			if a, _, err := r.Open(t.Context(), unjudged); err == nil {
				io.ReadAll(a)
				a.Close()
			}
			if r.BreakerState() != "closed" {
				t.Error("it was judged")
			}
			p := mustPermit(t, r)
			p.Fail()
			if _, sent, _ := r.call(unjudged); sent.Attempts != 1 {
				t.Error("it was refused")
			}
		}
	})
}

func TestDisabledBreaker(t *testing.T) {
	r := dial(t, answering(t))
	for range 50 {
		if r.refused("500") {
			t.Fatal("refused")
		}
	}
	p := mustPermit(t, r)
	p.Fail()
	(*Permit)(nil).GiveBack()
	if r.BreakerState() != "disabled" || r.Ready() != nil {
		t.Errorf("%s, %v", r.BreakerState(), r.Ready())
	}
}

// TestBreakerUnderLoad is for the race detector and for locks: everything that
// can be asked of a breaker is, while it goes through its states.
func TestBreakerUnderLoad(t *testing.T) {
	r := dial(t, answering(t), func(s *UpstreamSettings) {
		s.Breaker = BreakerSettings{Enabled: true, ConsecutiveFailures: 2, FailureRatio: 0.9, MinRequests: 5,
			Interval: 10 * time.Millisecond, OpenTimeout: time.Microsecond, HalfOpenRequests: 2}
	})
	var sent atomic.Int64
	var running sync.WaitGroup
	for i := range 8 {
		running.Go(func() {
			for k := range 100 {
				switch (i + k) % 5 {
				case 0:
					if p, err := r.Permit(nil); err == nil {
						running.Go(p.GiveBack)
						p.Fail()
					}
				case 1:
					r.Ready()
					r.BreakerState()
					r.metric(`breaker_state{profile="prefill"}`)
				case 2:
					r.breaker.broke(uint64(k))
				default:
					_, s, _ := r.Call(t.Context(), leg(strconv.Itoa(200+300*(k%2))))
					sent.Add(int64(s.Attempts))
				}
			}
		})
	}
	running.Wait()
	if n := r.metric(`upstream_request_total{upstream="prefill"}`); n != float64(sent.Load()) {
		t.Errorf("%v legs counted, %d sent", n, sent.Load())
	}
}

// TestRetryAfterOfAnOpenBreaker is when it lets some try.
func TestRetryAfterOfAnOpenBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := dial(t, answering(t), tripAfter(1))
		r.call(leg("500"))
		for i := range 5 {
			if f := faultOf(t, r.Ready()); f == nil || f.RetryAfter != strconv.Itoa(5-i) {
				t.Errorf("after %d s: %+v", i, f)
			}
			wait(time.Second)
		}
	})
}

// TestSlowTrialsKeepNobodyOut: one that is not answered within a second frees its
// permit, and is judged all the same when it is.
func TestSlowTrialsKeepNobodyOut(t *testing.T) {
	for _, outcome := range []string{"200", "500"} {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			l := serve(t, func(w http.ResponseWriter, req *http.Request) {
				body, _ := io.ReadAll(req.Body)
				<-release
				code, _ := strconv.Atoi(string(body))
				w.WriteHeader(code)
			})
			r := halfOpen(t, l)
			var running sync.WaitGroup
			for range 3 {
				running.Go(func() { r.call(leg(outcome)) })
			}
			wait(900 * time.Millisecond)
			if r.Ready() == nil {
				t.Error("a fourth trial would be let through")
			}
			wait(200 * time.Millisecond)
			if r.Ready() != nil || r.BreakerState() != "half-open" {
				t.Errorf("%s, %v when the trials have taken longer than a second", r.BreakerState(), r.Ready())
			}
			close(release)
			running.Wait()
			if want := map[string]string{"200": "closed", "500": "open"}[outcome]; r.BreakerState() != want {
				t.Errorf("%s after three %s, want %s", r.BreakerState(), outcome, want)
			}
		})
	}
}

// TestHeldAnswersAreJudgedByTheirReader, and broken off one is a failure once.
func TestHeldAnswersAreJudgedByTheirReader(t *testing.T) {
	for name, tt := range map[string]struct {
		judge    func(*Answer)
		failures uint32
		judged   uint32
	}{
		"succeeds":          {(*Answer).Succeed, 0, 1},
		"fails":             {(*Answer).Fail, 1, 1},
		"succeeds, breaks":  {func(a *Answer) { a.Succeed(); a.Fail() }, 1, 2},
		"fails twice":       {func(a *Answer) { a.Fail(); a.Succeed() }, 1, 1},
		"nobody judges":     {func(*Answer) {}, 0, 0},
		"breaks being read": {func(a *Answer) { io.Copy(io.Discard, a) }, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := dial(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					w.(http.Flusher).Flush()
					panic(http.ErrAbortHandler)
				}), tripAfter(100))
				held := leg("{}")
				held.Hold = true
				answer, _, err := r.Open(t.Context(), held)
				if err != nil {
					t.Fatal(err)
				}
				if c := r.breaker.cb.Counts(); c.TotalFailures+c.TotalSuccesses != 0 {
					t.Errorf("judged before it was read: %+v", c)
				}
				tt.judge(answer)
				answer.Close()
				if c := r.breaker.cb.Counts(); c.TotalFailures != tt.failures || c.TotalFailures+c.TotalSuccesses != tt.judged {
					t.Errorf("%+v", c)
				}
			})
		})
	}
}

// TestTrialsOfOneRequest: if one of its legs may try, those beside it may too, and
// nobody else. They are judged, and what they say counts.
func TestTrialsOfOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := halfOpen(t, answering(t))
		var trials Trials
		permits := make([]*Permit, 8)
		var asking sync.WaitGroup
		for i := range permits {
			asking.Go(func() {
				var err error
				if permits[i], err = r.Permit(&trials); err != nil {
					t.Errorf("permit %d: %v", i, err)
				}
			})
		}
		asking.Wait()
		for _, other := range []*Trials{nil, {}} {
			if _, err := r.Permit(other); err == nil {
				t.Error("another request may try besides")
			}
		}
		permits[7].Fail() // one that holds none of the breaker's own
		if r.BreakerState() != "open" {
			t.Errorf("after a failure: %s", r.BreakerState())
		}
		wait(6 * time.Second)
		if _, err := r.Permit(nil); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			mustPermit(t, r)
		}
		if _, err := r.Permit(&trials); err == nil {
			t.Error("what it was given before the breaker opened again counts")
		}
	})
}
