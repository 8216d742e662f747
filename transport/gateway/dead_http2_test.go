package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// frame is a frame of HTTP/2 (RFC 9113, section 4.1).
type frame struct {
	kind, flags byte
	stream      uint32
	payload     []byte
}

const (
	frameData, frameHeaders, frameReset, frameSettings, framePing, frameGoAway = 0, 1, 3, 4, 6, 7

	endStream, ack = 1, 1
)

func (c *conn) hearFrame() (f frame, ok bool) {
	head := make([]byte, 9)
	if _, err := io.ReadFull(c.in, head); err != nil {
		return f, false
	}
	f.kind, f.flags, f.stream = head[3], head[4], binary.BigEndian.Uint32(head[5:])
	f.payload = make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
	_, err := io.ReadFull(c.in, f.payload)
	return f, err == nil
}

func (c *conn) sayFrame(f frame) {
	n := len(f.payload)
	text := []byte{byte(n >> 16), byte(n >> 8), byte(n), f.kind, f.flags}
	c.Write(append(binary.BigEndian.AppendUint32(text, f.stream), f.payload...))
}

func (c *conn) goAway(last uint32, code byte) {
	c.sayFrame(frame{frameGoAway, 0, 0, append(binary.BigEndian.AppendUint32(nil, last), 0, 0, 0, code)})
}

func (c *conn) reset(stream uint32, code byte) {
	c.sayFrame(frame{frameReset, 0, stream, []byte{0, 0, 0, code}})
}

// hearLeg answers what keeps a connection going until a leg was read to its end.
func (c *conn) hearLeg() (stream uint32, ok bool) {
	for {
		f, ok := c.hearFrame()
		switch {
		case !ok:
			return 0, false
		case f.kind == frameSettings && f.flags&ack == 0:
			c.sayFrame(frame{frameSettings, ack, 0, nil})
		case f.kind == framePing && f.flags&ack == 0:
			c.sayFrame(frame{framePing, ack, 0, f.payload})
		case (f.kind == frameData || f.kind == frameHeaders) && f.flags&endStream != 0:
			return f.stream, true
		}
	}
}

// okay answers a leg with 200 and no body.
func (c *conn) okay(stream uint32) {
	c.sayFrame(frame{frameHeaders, 4 | endStream, stream, []byte{0x88}})
}

// http2 starts an upstream that speaks HTTP/2 without TLS and plays leg k of
// connection n, counted from 0; true keeps the connection.
func http2(t *testing.T, legs chan<- int, play func(n, k int, c *conn, stream uint32) bool) *rig {
	address := rawTCP(t, func(n int, c *conn) {
		io.ReadFull(c.in, make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")))
		c.sayFrame(frame{frameSettings, 0, 0, nil})
		for k := 0; ; k++ {
			stream, ok := c.hearLeg()
			if !ok {
				return
			}
			legs <- n
			if !play(n, k, c, stream) {
				return
			}
		}
	})
	r := to(t, OriginSettings{Address: "http://" + address, H2C: true})
	r.Retries.MaxAttempts = 4
	return r
}

// rawTCP is raw over TCP: two sides that both write would wait for each other
// on pipes, which have no buffer.
func rawTCP(t *testing.T, serve func(n int, c *conn)) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close()
				defer context.AfterFunc(t.Context(), func() { c.Close() })()
				serve(n, newConn(c))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	return l.Addr().String()
}

const (
	internalError = 2
	refusedStream = 7
	cancelled     = 8
)

// deathsOfHTTP2 are the ways in which a connection, or a leg of it, can end
// without an answer.
var deathsOfHTTP2 = []struct {
	name string
	die  func(c *conn, stream uint32) (kept bool)
	dead bool // and not only the leg
}{
	{"closed", func(*conn, uint32) bool { return false }, true},
	{"going away, closed", func(c *conn, stream uint32) bool { c.goAway(stream-1, 0); return false }, true},
	{"going away, kept", func(c *conn, stream uint32) bool { c.goAway(stream-1, 0); return true }, true},
	{"going away after this leg, closed", func(c *conn, stream uint32) bool { c.goAway(stream, 0); return false }, true},
	{"going away with an error", func(c *conn, stream uint32) bool { c.goAway(stream, internalError); return false }, true},
	{"refused", func(c *conn, stream uint32) bool { c.reset(stream, refusedStream); return true }, true},
	{"reset", func(c *conn, stream uint32) bool { c.reset(stream, internalError); return true }, false},
	{"cancelled", func(c *conn, stream uint32) bool { c.reset(stream, cancelled); return true }, false},
}

// TestDeadConnectionsOfHTTP2: what holds of a connection that carries one leg at
// a time holds of one that carries many. A reset ends a leg that a worker may be
// at, as an answer that breaks off would.
func TestDeadConnectionsOfHTTP2(t *testing.T) {
	for _, d := range deathsOfHTTP2 {
		for _, once := range []bool{false, true} {
			t.Run(d.name+map[bool]string{true: ", sent once"}[once], func(t *testing.T) {
				legs := make(chan int, 100)
				died := false
				r := http2(t, legs, func(n, k int, c *conn, stream uint32) bool {
					if n == 0 && k == 1 && !died {
						died = true
						return d.die(c, stream)
					}
					c.okay(stream)
					return true
				})
				if _, _, f := r.call(named()); f != nil {
					t.Fatal(f)
				}
				<-legs
				l := named()
				l.Header = map[string][]string{"Idempotency-Key": {"1"}}
				if once {
					l.Resend = ResendNever
				}
				_, sent, f := r.call(l)
				want := 1
				if d.dead && !once {
					want = 2
				}
				switch {
				case sent.Attempts != want || !sent.Reached || len(legs) != want:
					t.Errorf("%+v, %d legs, %v", sent, len(legs), f)
				case want == 2 && f != nil:
					t.Error(f)
				case want == 1 && (f == nil || f.Kind != wire.UpstreamFailed || errors.Is(f, ErrDeadConnection) != d.dead):
					t.Errorf("%v", f)
				}
				if _, _, f := r.call(named()); f != nil {
					t.Errorf("the next leg: %v", f)
				}
			})
		}
	}
}

// TestFreshConnectionOfHTTP2ThatEnds is not tried again.
func TestFreshConnectionOfHTTP2ThatEnds(t *testing.T) {
	for _, d := range deathsOfHTTP2 {
		t.Run(d.name, func(t *testing.T) {
			legs := make(chan int, 100)
			r := http2(t, legs, func(_, _ int, c *conn, stream uint32) bool { return d.die(c, stream) })
			_, sent, f := r.call(named())
			if f == nil || f.Kind != wire.UpstreamFailed || errors.Is(f, ErrDeadConnection) || !errors.Is(f, errNoAnswer) ||
				sent.Attempts != 1 || !sent.Reached || len(legs) != 1 {
				t.Errorf("%+v, %d legs, %v", sent, len(legs), f)
			}
		})
	}
}

// TestConnectionThatGoesAwayBetweenLegs is not used any more. A leg that is sent
// just before that is known finds it dead, and is sent again on a connection that
// serves nothing else; then the leg after it makes one too.
func TestConnectionThatGoesAwayBetweenLegs(t *testing.T) {
	legs := make(chan int, 100)
	r := http2(t, legs, func(n, _ int, c *conn, stream uint32) bool {
		c.okay(stream)
		if n == 0 {
			c.goAway(stream, 0)
		}
		return n > 0
	})
	attempts := 0
	for range 3 {
		_, sent, f := r.call(named())
		if f != nil {
			t.Fatal(f)
		}
		attempts += sent.Attempts
	}
	again := attempts - 3 // legs that were sent again
	// net/http may make a connection more than it uses.
	if first, then, last := <-legs, <-legs, <-legs; first != 0 || then == 0 || last == 0 || again > 1 || again == 0 && last != then {
		t.Errorf("by the connections %d, %d, %d, in %d attempts", first, then, last, attempts)
	}
}
