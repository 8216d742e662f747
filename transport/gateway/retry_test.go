package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// script is an upstream that answers each attempt as told, and 200 behind its
// end.
func script(t *testing.T, steps ...http.HandlerFunc) (l *cluster.PipeListener, ids func() []string) {
	var mu sync.Mutex
	var seen []string
	l = serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // else nobody hears that a client leaves
		mu.Lock()
		seen = append(seen, r.Header.Get("X-Request-Id"))
		n := len(seen) - 1
		mu.Unlock()
		if n < len(steps) {
			steps[n](w, r)
			return
		}
		io.WriteString(w, "{}")
	})
	return l, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}

func status(code int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		io.WriteString(w, secret)
	}
}

func cut(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func halfAnAnswer(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "100")
	io.WriteString(w, "{")
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

func silence(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// TestWhatIsSentAgain, by what happened to the first attempt and by what a leg
// allows.
func TestWhatIsSentAgain(t *testing.T) {
	dropped := []string{"X-Llm-D-Request-Dropped-Reason", "queue"}
	for _, tt := range []struct {
		name                        string
		step                        http.HandlerFunc
		reason                      string
		any, dead, unreached, never bool
	}{
		{"502", status(502), "502", true, false, false, false},
		{"503", status(503), "503", true, false, false, false},
		{"504", status(504), "504", true, false, false, false},
		{"503, dropped by the gateway", status(503, dropped...), "503", true, true, true, false},
		{"429, dropped by the gateway", status(429, dropped...), "", false, false, false, false},
		{"a fresh connection ends", cut, "broken", true, false, false, false},
		{"time-out", silence, "timeout", true, false, false, false},
		{"500", status(500), "", false, false, false, false},
		{"400", status(400), "", false, false, false, false},
		{"307", status(307, "Location", "/"), "", false, false, false, false},
	} {
		for resend, again := range map[Resend]bool{ResendAny: tt.any, ResendDead: tt.dead, ResendUnreached: tt.unreached, ResendNever: tt.never} {
			t.Run(fmt.Sprintf("%s/%d", tt.name, resend), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l, ids := script(t, tt.step)
					r := dial(t, l, retrying(3))
					leg := leg("{}")
					leg.Resend = resend
					_, sent, f := r.call(leg)
					want := []string{"req"}
					if again {
						want = append(want, "req-r1")
					}
					if got := ids(); !slices.Equal(got, want) || (f == nil) != again || sent.Attempts != len(want) {
						t.Errorf("sent as %v, %v", got, f)
					}
					if n := r.metric(`retries_total{phase="prefill",reason="` + tt.reason + `"}`); (n == 1) != again {
						t.Errorf("%v retries for %s", n, tt.reason)
					}
					if !again && sent.Reason() != tt.reason {
						t.Errorf("the reason is %q", sent.Reason())
					}
				})
			})
		}
	}
}

// TestAnAnswerThatBreaksIsAskedForAgain where it is read whole; one that makes no
// sense is not.
func TestAnAnswerThatBreaksIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ids := script(t, halfAnAnswer, cut)
		r := dial(t, l, retrying(3))
		if body, _, f := r.call(leg("{}")); f != nil || body != "{}" || !slices.Equal(ids(), []string{"req", "req-r1", "req-r2"}) {
			t.Errorf("%q, %v, %v", body, ids(), f)
		}
		l, ids = script(t, status(200))
		r = dial(t, l, retrying(3))
		odd := leg("{}")
		odd.Check = func([]byte) error { return errors.New("odd") }
		if _, _, f := r.call(odd); f == nil || len(ids()) != 1 {
			t.Errorf("%v, %v", ids(), f)
		}
	})
}

// TestAttemptsAreUsedUp: the last failure is the leg's.
func TestAttemptsAreUsedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ids := script(t, cut, status(502), status(503, "Retry-After", "0", "X-Llm-D-Request-Dropped-Reason", "full"))
		r := dial(t, l, retrying(3))
		_, sent, f := r.call(leg("{}"))
		if f == nil || f.Kind != wire.UpstreamFailed || f.RetryAfter != "0" || f.DropReason != "full" || sent.Attempts != 3 || len(ids()) != 3 {
			t.Errorf("%+v, %v", sent, f)
		}
		if !sent.Reached {
			t.Error("the second reached the gateway at least")
		}
	})
}

// TestWaitsBetweenAttempts are at random up to a bound that doubles, or what the
// upstream asks for, unless that is too long.
func TestWaitsBetweenAttempts(t *testing.T) {
	u := &Upstream{UpstreamSettings: UpstreamSettings{Retries: RetrySettings{BaseDelay: 50 * time.Millisecond, MaxDelay: 2 * time.Second}}}
	for attempts, most := range map[int]time.Duration{1: 50 * time.Millisecond, 2: 100 * time.Millisecond, 3: 200 * time.Millisecond, 7: 2 * time.Second, 99: 2 * time.Second} {
		var longest time.Duration
		for range 2000 {
			d, ok := u.delay(attempts, "")
			if !ok || d < 0 || d > most {
				t.Fatalf("waits %v before attempt %d", d, attempts+1)
			}
			longest = max(longest, d)
		}
		if longest < most*8/10 {
			t.Errorf("never waits more than %v of %v", longest, most)
		}
	}
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	for after, want := range map[string]bool{"0": true, "1": true, "2": true, "3": false, "99999": false, in(time.Hour): false, in(-time.Hour): true, "soon": true, "-1": true} {
		d, ok := u.delay(1, after)
		if seconds, err := strconv.Atoi(after); ok != want || ok && err == nil && d < time.Duration(seconds)*time.Second || d > 2*time.Second {
			t.Errorf("Retry-After %q: %v, %v", after, d, ok)
		}
	}
}

func TestNoRetryPastADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ids := script(t, status(503, "Retry-After", "1"), status(503, "Retry-After", "1"))
		r := dial(t, l, retrying(5), func(s *UpstreamSettings) { s.Retries.MaxDelay = 2 * time.Second })
		leg := leg("{}")
		leg.Deadline = time.Now().Add(1500 * time.Millisecond)
		if _, _, f := r.call(leg); f == nil || len(ids()) > 2 || time.Now().After(leg.Deadline) {
			t.Errorf("%v at %v", ids(), time.Now())
		}
	})
}

// TestClientThatLeavesInAPause is let go at once.
func TestClientThatLeavesInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ids := script(t, status(503, "Retry-After", "60"))
		r := dial(t, l, retrying(5), func(s *UpstreamSettings) { s.Retries.MaxDelay = time.Hour })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, _, err := r.Call(ctx, leg("{}"))
		if f := faultOf(t, err); f == nil || f.Kind != wire.Canceled || len(ids()) != 1 || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestRetryBudget is that of the process: a part of the legs of the last 10 s,
// and some in any case.
func TestRetryBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewRetryBudget(0.2, 3)
		taken := func() (n int) {
			for b.take() {
				n++
			}
			return n
		}
		if n := taken(); n != 3 {
			t.Errorf("%d without a leg", n)
		}
		for range 100 {
			b.leg()
		}
		if n := b.Remaining(); n != 17 {
			t.Errorf("%d remain", n)
		}
		if n := taken(); n != 17 {
			t.Errorf("%d more with 100 legs", n)
		}
		time.Sleep(5 * time.Second)
		if n := taken(); n != 0 {
			t.Errorf("%d after 5 s", n)
		}
		time.Sleep(5 * time.Second)
		if n := taken(); n != 3 {
			t.Errorf("%d after 10 s", n)
		}
	})
}

// TestBudgetThatIsUsedUp lets the first failure be the leg's, and is counted.
func TestBudgetThatIsUsedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := serve(t, status(502))
		r := dial(t, l, retrying(3), func(s *UpstreamSettings) { s.Budget = NewRetryBudget(0, 3) })
		attempts := 0
		for range 4 {
			_, sent, _ := r.call(leg("{}"))
			attempts += sent.Attempts
		}
		if n := r.metric(`retries_refused_total{phase="prefill"}`); attempts != 4+3 || n != 3 {
			t.Errorf("%d attempts, %v refused", attempts, n)
		}
	})
}

// TestBreakerThatOpensBetweenAttempts ends them, with the failure that there was.
func TestBreakerThatOpensBetweenAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ids := script(t, status(502), status(502), status(502))
		r := dial(t, l, retrying(5), tripAfter(2))
		if _, sent, f := r.call(leg("{}")); f == nil || f.Kind != wire.UpstreamFailed || sent.Attempts != 2 || len(ids()) != 2 {
			t.Errorf("%+v, %v", sent, f)
		}
		if _, sent, f := r.call(leg("{}")); f == nil || f.Kind != wire.Unavailable || sent.Attempts != 0 || f.RetryAfter != "5" {
			t.Errorf("%+v, %v", sent, f)
		}
	})
}

// TestStaleLegIsNotSent: it is asked before each attempt.
func TestStaleLegIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ids := script(t, status(502))
		r := dial(t, l, retrying(5))
		stale := wire.Faultf(wire.UpstreamTimeout, "stale")
		asked := 0
		leg := leg("{}")
		leg.Fresh = func() error {
			if asked++; asked > 1 {
				return stale
			}
			return nil
		}
		if _, sent, f := r.call(leg); f != stale || sent.Attempts != 1 || len(ids()) != 1 {
			t.Errorf("%+v, %v", sent, f)
		}
	})
}

// TestAnswersOfLegsThatAreStreamed: what could be sent again but is not goes to
// the client as it is.
func TestAnswersOfLegsThatAreStreamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ids := script(t, status(503, "X-Llm-D-Request-Dropped-Reason", "full"), status(503))
		r := dial(t, l, retrying(3))
		leg := leg("{}")
		leg.Resend = ResendUnreached
		answer, sent, err := r.Open(t.Context(), leg)
		if err != nil || answer.Status != 503 || sent.Attempts != 2 || sent.Reason() != "503" || !sent.Reached {
			t.Fatalf("%+v, %v", sent, err)
		}
		if text, err := io.ReadAll(answer); string(text) != secret || err != nil {
			t.Errorf("%q, %v", text, err)
		}
		answer.Close()
		if len(ids()) != 2 {
			t.Error(ids())
		}
	})
}

// TestStalledRefusalDoesNotHoldUpTheNextAttempt: its body is not waited for.
func TestStalledRefusalDoesNotHoldUpTheNextAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ids := script(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Llm-D-Request-Dropped-Reason", "full")
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(http.StatusServiceUnavailable)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})
		r := dial(t, l, retrying(2))
		leg := leg("{}")
		leg.Resend = ResendUnreached
		began := time.Now()
		answer, sent, err := r.Open(t.Context(), leg)
		if err != nil || answer.Status != http.StatusOK || sent.Attempts != 2 || time.Since(began) > discardPatience || len(ids()) != 2 {
			t.Fatalf("%+v, %v after %v", sent, err, time.Since(began))
		}
		answer.Close()
	})
}
