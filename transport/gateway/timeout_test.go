package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// timed is a rig in a bubble. The upstream plays a script on its first
// connection once it has heard the leg, and then waits until it is cut off.
func timed(t *testing.T, script func(c *conn), edit ...func(*UpstreamSettings)) *rig {
	return dial(t, raw(t, func(_ int, c *conn) {
		c.hear()
		script(c)
		c.in.ReadByte()
	}), append([]func(*UpstreamSettings){tripAfter(1)}, edit...)...)
}

func idleAfter(d time.Duration) func(*UpstreamSettings) {
	return func(s *UpstreamSettings) { s.IdleTimeout = d }
}

const (
	sized   = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"
	endless = "HTTP/1.1 200 OK\r\n\r\n" // until the connection ends
)

func wait(d time.Duration) { <-time.After(d) }

func TestTimeoutOfAParsedLeg(t *testing.T) {
	tests := []struct {
		name    string
		script  func(c *conn)
		took    time.Duration
		timeout bool
	}{
		{"no answer", func(*conn) {}, time.Minute, true},
		{"headers that do not end", func(c *conn) { c.say("HTTP/1.1 200 OK\r\n") }, time.Minute, true},
		{"no body", func(c *conn) { c.say(sized) }, time.Minute, true},
		{"a body that trickles in", func(c *conn) {
			c.say(sized)
			for range 3 {
				wait(25 * time.Second)
				c.say("x")
			}
		}, time.Minute, true},
		{"in time", func(c *conn) {
			wait(50 * time.Second)
			c.say(sized)
			wait(9 * time.Second)
			c.say("1234")
		}, 59 * time.Second, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := timed(t, tt.script)
				began := time.Now()
				body, sent, f := r.call(leg("{}"))
				if took := time.Since(began); took != tt.took || sent.Attempts != 1 || !sent.Reached {
					t.Errorf("took %v, %+v", took, sent)
				}
				if !tt.timeout {
					if f != nil || body != "1234" || r.BreakerState() != "closed" {
						t.Errorf("%q, %v, breaker %s", body, f, r.BreakerState())
					}
					return
				}
				if f == nil || f.Kind != wire.UpstreamTimeout || f.Error() != "prefill took too long" || r.BreakerState() != "open" {
					t.Errorf("%v, breaker %s", f, r.BreakerState())
				}
			})
		})
	}
}

// TestErrorBodyDoesNotHoldALegUp: its status is known.
func TestErrorBodyDoesNotHoldALegUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := timed(t, func(c *conn) { c.say("HTTP/1.1 404 No\r\nContent-Length: 4\r\n\r\n") })
		began := time.Now()
		_, _, f := r.call(leg("{}"))
		if f == nil || f.Kind != wire.UpstreamRejected || f.Status != 404 || time.Since(began) > time.Minute || r.BreakerState() != "closed" {
			t.Errorf("%v after %v, breaker %s", f, time.Since(began), r.BreakerState())
		}
	})
}

func TestTimeoutOfADial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{}) // net/http lets a dial go on for whoever comes next
		defer close(over)
		o, err := NewOrigin(OriginSettings{Address: "http://upstream.test",
			Dial: func(context.Context, string, string) (net.Conn, error) {
				<-over
				return nil, net.ErrClosed
			}})
		if err != nil {
			t.Fatal(err)
		}
		r := see(t, o)
		_, sent, f := r.call(leg("{}"))
		if f == nil || f.Kind != wire.UpstreamTimeout || sent.Attempts != 1 || sent.Reached {
			t.Errorf("%+v, %v", sent, f)
		}
	})
}

// TestTimeoutsOfAStream reads a stream to its end, however that comes.
func TestTimeoutsOfAStream(t *testing.T) {
	tests := []struct {
		name   string
		script func(c *conn)
		idle   time.Duration
		pause  time.Duration // of the reader, after each piece
		body   string
		took   time.Duration
		broken bool // else the stream ends well
	}{
		{
			name:   "no first byte",
			script: func(c *conn) { c.say(sized) },
			idle:   time.Second, took: time.Minute, broken: true,
		}, {
			name: "headers late, first byte late, together in time; idle is not yet asked",
			script: func(c *conn) {
				wait(30 * time.Second)
				c.say(sized)
				wait(29 * time.Second)
				c.say("1234")
			},
			idle: time.Second, body: "1234", took: 59 * time.Second,
		}, {
			name: "a pause",
			script: func(c *conn) {
				c.say(sized + "1")
				wait(9 * time.Second)
				c.say("2")
			},
			idle: 10 * time.Second, body: "12", took: 19 * time.Second, broken: true,
		}, {
			name: "longer than the time-out, with short pauses",
			script: func(c *conn) {
				c.say(sized)
				for _, piece := range []string{"1", "2", "3", "4"} {
					wait(50 * time.Second)
					c.say(piece)
				}
			},
			idle: 51 * time.Second, body: "1234", took: 200 * time.Second,
		}, {
			name: "a reader that is slower than the idle time-out",
			script: func(c *conn) {
				c.say(sized)
				for _, piece := range []string{"1", "2", "3", "4"} {
					c.say(piece)
				}
			},
			idle: 10 * time.Second, pause: time.Hour, body: "1234", took: 4 * time.Hour,
		}, {
			name: "no idle time-out",
			script: func(c *conn) {
				c.say(sized + "1")
				wait(24 * time.Hour)
				c.say("234")
			},
			body: "1234", took: 24 * time.Hour,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := timed(t, tt.script, idleAfter(tt.idle))
				began := time.Now()
				a, _, err := r.Open(t.Context(), leg("{}"))
				if err != nil {
					t.Fatal(err)
				}
				defer a.Close()
				a.PassOn()
				body, err := drain(a, tt.pause)
				if took := time.Since(began); body != tt.body || took != tt.took {
					t.Errorf("%q after %v", body, took)
				}
				if !tt.broken {
					if err != io.EOF || r.BreakerState() != "closed" {
						t.Errorf("%v, breaker %s", err, r.BreakerState())
					}
					return
				}
				f := faultOf(t, err)
				if f == nil || f.Kind != wire.UpstreamTimeout || r.BreakerState() != "open" {
					t.Errorf("%v, breaker %s", err, r.BreakerState())
				}
				if n := r.metric(`stream_broken_total{cause="idle"}`); n != 1 {
					t.Errorf("%v counted", n)
				}
			})
		})
	}
}

// drain reads a stream slowly.
func drain(a *Answer, pause time.Duration) (body string, err error) {
	buf := make([]byte, 1)
	for {
		var n int
		n, err = a.Read(buf)
		body += string(buf[:n])
		if n > 0 && pause > 0 {
			wait(pause)
		}
		if err != nil {
			return body, err
		}
	}
}

// TestSlowReaderIsNotTheWorkersFault: while nobody reads no clock runs, also
// with the connection broken at last.
func TestSlowReaderIsNotTheWorkersFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := timed(t, func(c *conn) {
			c.say(endless + "1")
			wait(time.Hour)
			c.say("2")
			c.Close()
		}, idleAfter(10*time.Second))
		a, _, err := r.Open(t.Context(), leg("{}"))
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		one := make([]byte, 1)
		if n, err := a.Read(one); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		wait(2 * time.Hour)
		if rest, err := io.ReadAll(a); string(rest) != "2" || err != nil {
			t.Errorf("%q, %v", rest, err)
		}
	})
}

func TestStreamThatBreaks(t *testing.T) {
	r := dial(t, raw(t, func(_ int, c *conn) {
		c.hear()
		c.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n" + secret + "\r\n")
	}), tripAfter(2))
	for _, passed := range []bool{true, false} {
		if r.BreakerState() != "closed" {
			t.Error("one break tripped it")
		}
		a, _, err := r.Open(t.Context(), leg("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if passed {
			a.PassOn()
		}
		body, err := io.ReadAll(a)
		f := faultOf(t, err)
		if string(body) != "abc" || f == nil || f.Kind != wire.UpstreamFailed {
			t.Errorf("%q, %v", body, err)
		}
		if want := "prefill could not be reached or broke off: the answer could not be read"; f.Error() != want {
			t.Errorf("%q, want %q", f, want)
		}
		a.Close()
	}
	if n := r.metric(`stream_broken_total{cause="upstream"}`); n != 1 {
		t.Errorf("%v counted, of one that a client had some of", n)
	}
	// Each good head stands between two failures: they are not consecutive.
	if c := r.breaker.cb.Counts(); c.TotalSuccesses != 2 || c.TotalFailures != 2 {
		t.Errorf("%+v", c)
	}
}

// TestCloseCutsAStreamOff tells the worker to stop.
func TestCloseCutsAStreamOff(t *testing.T) {
	cut := make(chan error, 1)
	r := dial(t, raw(t, func(_ int, c *conn) {
		c.hear()
		c.say(endless + "1")
		_, err := c.in.ReadByte()
		cut <- err
	}), tripAfter(1))
	a, _, err := r.Open(t.Context(), leg("{}"))
	if err != nil {
		t.Fatal(err)
	}
	a.Read(make([]byte, 1))
	a.Close()
	if err := <-cut; err != io.EOF {
		t.Error(err)
	}
	if r.BreakerState() != "closed" {
		t.Error("a client that has enough is no failure")
	}
}

// TestCancel ends a leg wherever it is.
func TestCancel(t *testing.T) {
	shutdown := wire.Faultf(wire.ShuttingDown, "bye")
	for _, cause := range []error{nil, shutdown, errors.New("any")} {
		kind := wire.Canceled
		if cause == shutdown {
			kind = wire.ShuttingDown
		}
		for _, tt := range []struct{ name, said string }{{"before the headers", ""}, {"in the headers", "HTTP/1.1 2"}, {"in the body", sized + "1"}} {
			t.Run(kind.String()+"/"+tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := timed(t, func(c *conn) { c.say(tt.said) })
					ctx, cancel := context.WithCancelCause(t.Context())
					time.AfterFunc(time.Second, func() { cancel(cause) })
					_, _, err := r.Call(ctx, leg("{}"))
					if f := faultOf(t, err); f == nil || f.Kind != kind || r.BreakerState() != "closed" {
						t.Errorf("%v, breaker %s", err, r.BreakerState())
					}
				})
			})
		}
	}
}

func TestCancelOfAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := timed(t, func(c *conn) { c.say(sized + "1") })
		ctx, cancel := context.WithCancel(t.Context())
		a, _, err := r.Open(ctx, leg("{}"))
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		a.PassOn()
		time.AfterFunc(time.Second, cancel)
		body, err := drain(a, 0)
		if f := faultOf(t, err); f == nil || f.Kind != wire.Canceled || body != "1" || r.BreakerState() != "closed" {
			t.Errorf("%q, %v, breaker %s", body, err, r.BreakerState())
		}
		if n := r.metric(`stream_broken_total{cause="upstream"}`); n != 0 {
			t.Errorf("%v counted", n)
		}
	})
}
