package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// deaths are the ways in which a kept-alive connection can turn out to be dead
// when a leg goes out on it.
var deaths = []struct {
	name string
	die  func(c *conn)
}{
	{"the leg was read", func(c *conn) { c.hear() }},
	{"a byte was read", func(c *conn) { c.in.ReadByte() }},
	{"the headers were read", func(c *conn) {
		for {
			if line, _ := c.in.ReadString('\n'); line == "\r\n" {
				return
			}
		}
	}},
}

// dying starts an upstream whose first so many connections answer one leg and
// die with the next. It tells of every leg that it heard to the end of its
// body.
func dying(t *testing.T, n int, die func(c *conn)) (r *rig, legs chan heard) {
	legs = make(chan heard, 100)
	r = dial(t, raw(t, func(i int, c *conn) {
		for k := 0; ; k++ {
			if i < n && k == 1 {
				die(c)
				return
			}
			h, ok := c.hear()
			if !ok {
				return
			}
			legs <- h
			c.say(good)
		}
	}), retrying(4))
	return r, legs
}

// named is a leg whose body says for which attempt it was built.
func named() Leg {
	return Leg{Path: "/", ID: "req", Resend: ResendDead, Body: func(id string) wire.Payload {
		return wire.NewPayload([]byte(`"` + id + strings.Repeat(" ", 5000) + `"`)) // more than the transport buffers
	}}
}

func TestLegOfADeadConnectionIsSentAgain(t *testing.T) {
	for _, d := range deaths {
		t.Run(d.name, func(t *testing.T) {
			r, legs := dying(t, 1, d.die)
			r.call(named())
			<-legs
			body, sent, f := r.call(named())
			if f != nil || body != "{}" || sent.Attempts != 2 || !sent.Reached {
				t.Fatalf("%q, %+v, %v", body, sent, f)
			}
			h := <-legs
			if id := h.values("X-Request-Id"); len(id) != 1 || id[0] != "req-r1" || !strings.HasPrefix(h.body, `"req-r1 `) {
				t.Errorf("sent again as %q with %.20q", id, h.body)
			}
			if n := r.metric(`retries_total{phase="prefill",reason="dead_connection"}`); n != 1 {
				t.Errorf("%v retries", n)
			}
		})
	}
}

// TestNetHTTPSendsNothingAgainByItself: it would if a client's header said that
// the request may be repeated.
func TestNetHTTPSendsNothingAgainByItself(t *testing.T) {
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		for _, d := range deaths {
			t.Run(name+"/"+d.name, func(t *testing.T) {
				r, legs := dying(t, 1, d.die)
				r.call(named())
				<-legs
				l := named()
				l.Resend, l.Header = ResendNever, http.Header{name: {"1"}}
				_, sent, f := r.call(l)
				if f == nil || f.Kind != wire.UpstreamFailed || !errors.Is(f, ErrDeadConnection) || sent.Attempts != 1 || !sent.Reached {
					t.Errorf("%+v, %+v", sent, f)
				}
				if len(legs) != 0 {
					t.Errorf("sent again: %+v", <-legs)
				}
				if n := r.metric(`retries_total{phase="prefill",reason="dead_connection"}`); n != 0 {
					t.Errorf("%v retries", n)
				}
			})
		}
	}
}

// TestFreshConnectionThatEndsIsNotTriedAgain by a leg that must not be done twice.
func TestFreshConnectionThatEndsIsNotTriedAgain(t *testing.T) {
	for _, d := range deaths {
		t.Run(d.name, func(t *testing.T) {
			conns := make(chan int, 10)
			r := dial(t, raw(t, func(n int, c *conn) {
				conns <- n
				d.die(c)
			}), retrying(4))
			_, sent, f := r.call(named())
			if f == nil || f.Kind != wire.UpstreamFailed || errors.Is(f, ErrDeadConnection) || !errors.Is(f, errNoAnswer) ||
				sent.Attempts != 1 || !sent.Reached || len(conns) != 1 {
				t.Errorf("%+v, %d connections, %v", sent, len(conns), f)
			}
		})
	}
}

// TestAnswerThatBreaksOnAReusedConnection is no dead connection: a worker was
// at work.
func TestAnswerThatBreaksOnAReusedConnection(t *testing.T) {
	r, _ := dying(t, 1, func(c *conn) {
		c.hear()
		c.say("HTTP/1.1 200 OK\r\nContent-")
	})
	r.call(named())
	if _, sent, f := r.call(named()); f == nil || errors.Is(f, ErrDeadConnection) || sent.Attempts != 1 {
		t.Errorf("%+v, %v", sent, f)
	}
}

// TestARestartOfTheGatewayIsFoundOutOnce: every connection of the pool is dead
// then, and one attempt is enough to know.
func TestARestartOfTheGatewayIsFoundOutOnce(t *testing.T) {
	const pool = 6
	arrived, answer := make(chan struct{}, 20), make(chan struct{})
	deaths := make(chan string, 20)
	r := dial(t, raw(t, func(_ int, c *conn) {
		if _, ok := c.hear(); !ok {
			return
		}
		arrived <- struct{}{}
		<-answer
		c.say(good)
		if h, ok := c.hear(); ok {
			deaths <- h.values("X-Request-Id")[0]
		}
	}), tripAfter(100), retrying(2))
	done := make(chan *wire.Fault)
	for range pool {
		go func() {
			_, _, f := r.call(leg("{}"))
			done <- f
		}()
	}
	for range pool {
		<-arrived
	}
	close(answer)
	for range pool {
		if f := <-done; f != nil {
			t.Fatal(f)
		}
	}
	_, sent, f := r.call(leg("{}"))
	if f != nil || sent.Attempts != 2 || !sent.Reached {
		t.Errorf("%+v, %v", sent, f)
	}
	if got := <-deaths; got != "req" || len(deaths) != 0 {
		t.Errorf("%q died, and %d others", got, len(deaths))
	}
	if got := r.breaker.cb.Counts().TotalFailures; got != 1 {
		t.Errorf("%d failures counted", got)
	}
}

// TestConnectionThatIsResetIsDead runs over TCP: pipes cannot be reset.
func TestConnectionThatIsResetIsDead(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for n := 0; ; n++ {
			accepted, err := l.Accept()
			if err != nil {
				return
			}
			c := newConn(accepted)
			for k := 0; ; k++ {
				if _, ok := c.hear(); !ok || n == 0 && k == 1 {
					break
				}
				c.say(good)
			}
			accepted.(*net.TCPConn).SetLinger(0)
			accepted.Close()
		}
	}()
	o, err := NewOrigin(OriginSettings{Address: "http://" + l.Addr().String(), MaxIdle: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := see(t, o, retrying(2))
	r.call(named())
	if _, sent, f := r.call(named()); f != nil || sent.Attempts != 2 {
		t.Errorf("%+v, %v", sent, f)
	}
	o.Close()
	l.Close()
	<-ended
}

// TestClientThatLeavesIsNotADeadConnection, though its connection is cut.
func TestClientThatLeavesIsNotADeadConnection(t *testing.T) {
	arrived := make(chan struct{})
	r, _ := dying(t, 1, func(c *conn) {
		c.hear()
		close(arrived)
		c.in.ReadByte() // until the client cuts it
	})
	r.call(named())
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	_, sent, err := r.Call(ctx, named())
	if f := faultOf(t, err); f == nil || f.Kind != wire.Canceled || sent.Attempts != 1 {
		t.Errorf("%+v, %v", sent, err)
	}
}
