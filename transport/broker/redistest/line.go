package redistest

import (
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Line is the way from a client to its Redis, which breaks when it is told to. Its
// methods may be called by many goroutines.
type Line struct {
	net.Listener
	to string

	running  sync.WaitGroup
	mu       sync.Mutex
	said     []byte // to Redis, the last of it
	conns    map[net.Conn]struct{}
	down     bool
	breaking bool          // the next that is said to Redis breaks its connection
	flow     chan struct{} // closed unless what Redis says is held back
}

// NewLine makes a line to an address. It ends with the test.
func NewLine(t testing.TB, to string) *Line {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &Line{Listener: l, to: to, conns: map[net.Conn]struct{}{}, flow: make(chan struct{})}
	close(n.flow)
	n.running.Go(n.accept)
	t.Cleanup(func() {
		l.Close()
		n.Down()
		n.Resume()
		n.running.Wait()
	})
	return n
}

// URL leads to the first database at its end.
func (n *Line) URL() string { return "redis://" + n.Addr().String() }

func (n *Line) accept() {
	for {
		c, err := n.Accept()
		if err != nil {
			return
		}
		s, err := net.Dial("tcp", n.to)
		if err != nil || !n.keep(c, s) {
			c.Close()
			if err == nil {
				s.Close()
			}
			continue
		}
		n.running.Go(func() { n.pump(s, c, n.note) })
		n.running.Go(func() { n.pump(c, s, n.wait) })
	}
}

// keep notes two connections, unless the line is down.
func (n *Line) keep(c, s net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		return false
	}
	n.conns[c], n.conns[s] = struct{}{}, struct{}{}
	return true
}

// pump passes on what arrives, as long as before says so.
func (n *Line) pump(to, from net.Conn, before func([]byte) bool) {
	buf := make([]byte, 16<<10)
	for {
		k, err := from.Read(buf)
		if !before(buf[:k]) {
			break
		}
		if k > 0 {
			if _, err := to.Write(buf[:k]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	to.Close()
	from.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, to)
	delete(n.conns, from)
}

func (n *Line) note(text []byte) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.breaking && len(text) > 0 {
		n.breaking = false
		return false
	}
	n.said = append(n.said, text...)
	if more := len(n.said) - 64<<10; more > 0 {
		n.said = slices.Delete(n.said, 0, more)
	}
	return true
}

func (n *Line) wait([]byte) bool {
	n.mu.Lock()
	flow := n.flow
	n.mu.Unlock()
	<-flow
	return true
}

// greetings are of no request: a connection that waits for notifications is made,
// and kept alive, when it likes.
var greetings = strings.NewReplacer("*2\r\n$5\r\nhello\r\n$1\r\n2\r\n", "", "*1\r\n$4\r\nping\r\n", "")

// Heard returns what Redis has been told since the last time, but for greetings.
func (n *Line) Heard() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	text := greetings.Replace(string(n.said))
	n.said = nil
	return text
}

// Conns is how many connections there are, counting both ends, and a goroutine of
// the line's for each.
func (n *Line) Conns() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.conns)
}

// Cut breaks all connections.
func (n *Line) Cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		c.Close()
	}
}

// Down breaks all connections, and those that are made from now on.
func (n *Line) Down() {
	n.mu.Lock()
	n.down = true
	n.mu.Unlock()
	n.Cut()
}

// Up undoes Down.
func (n *Line) Up() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = false
}

// BreakNext breaks the connection on which Redis is told something next, and does
// not pass that on.
func (n *Line) BreakNext() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.breaking = true
}

// Stall holds back what Redis says, until Resume.
func (n *Line) Stall() {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.flow:
		n.flow = make(chan struct{})
	default: // it is held back already
	}
}

// Resume passes on what was held back.
func (n *Line) Resume() {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.flow:
	default:
		close(n.flow)
	}
}
