package assembly_test

import (
	"bufio"
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// redisProcess is a Redis of a test's own, which can be ended and begun again.
type redisProcess struct {
	t    testing.TB
	path string
	addr string
	dir  string
	args []string
	cmd  *exec.Cmd
	hold io.Closer      // it lives until this is closed, or the test's process is gone
	read sync.WaitGroup // its output
}

// startRedis starts one on a free port; nil: there is no redis-server.
func startRedis(t testing.TB, args ...string) *redisProcess {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &redisProcess{t: t, path: path, addr: l.Addr().String(), dir: t.TempDir(), args: args}
	l.Close()
	p.start()
	t.Cleanup(p.stop)
	return p
}

// start returns when it takes connections.
func (p *redisProcess) start() {
	p.t.Helper()
	_, port, _ := net.SplitHostPort(p.addr)
	p.cmd = exec.Command("sh", append([]string{"-c", `"$@" & read -r _; kill -9 $!; wait`, "sh", p.path, "--port", port, "--bind", "127.0.0.1", "--dir", p.dir, "--save", "", "--appendonly", "no",
		"--notify-keyspace-events", "Kl", "--maxclients", "4000"}, p.args...)...)
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if p.hold, err = p.cmd.StdinPipe(); err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	var said []string
	for lines := bufio.NewScanner(out); ; {
		if !lines.Scan() {
			p.t.Fatalf("redis-server ended: %q", said)
		}
		if said = append(said, lines.Text()); strings.Contains(lines.Text(), "Ready to accept connections") {
			break
		}
	}
	p.read.Go(func() { _, _ = io.Copy(io.Discard, out) })
}

// stop ends it, as a machine that goes down does, and returns when it is gone.
func (p *redisProcess) stop() {
	if p.cmd == nil {
		return
	}
	_ = p.hold.Close()
	p.read.Wait()
	_ = p.cmd.Wait() // it was killed
	p.cmd = nil
}

// redisClient is a test's own.
func redisClient(t testing.TB, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
	t.Cleanup(func() { c.Close() })
	return c
}

func z(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }

// line is the way from a coordinator to its Redis.
type line struct {
	net.Listener
	to string

	running sync.WaitGroup
	mu      sync.Mutex
	said    []byte // to Redis, the last of it
	conns   map[net.Conn]struct{}
	cut     bool
	flow    chan struct{} // closed unless what Redis says is held back
}

func newLine(t testing.TB, to string) *line {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &line{Listener: l, to: to, conns: map[net.Conn]struct{}{}, flow: make(chan struct{})}
	close(n.flow)
	n.running.Go(n.accept)
	t.Cleanup(func() {
		l.Close()
		n.down()
		n.resume()
		n.running.Wait()
	})
	return n
}

func (n *line) accept() {
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
		n.running.Go(func() { n.pump(c, s, func([]byte) { n.wait() }) })
	}
}

// keep notes two connections, unless the line is cut.
func (n *line) keep(c, s net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut {
		return false
	}
	n.conns[c], n.conns[s] = struct{}{}, struct{}{}
	return true
}

func (n *line) pump(to, from net.Conn, before func([]byte)) {
	buf := make([]byte, 16<<10)
	for {
		k, err := from.Read(buf)
		before(buf[:k])
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

func (n *line) note(text []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.said = append(n.said, text...)
	if more := len(n.said) - 64<<10; more > 0 {
		n.said = slices.Delete(n.said, 0, more)
	}
}

// greetings are of no request: a connection that waits for notifications is made,
// and kept alive, when it likes.
var greetings = strings.NewReplacer("*2\r\n$5\r\nhello\r\n$1\r\n2\r\n", "", "*1\r\n$4\r\nping\r\n", "")

// heard returns what Redis has been told since the last time, but for greetings.
func (n *line) heard() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	text := greetings.Replace(string(n.said))
	n.said = nil
	return text
}

func (n *line) wait() {
	n.mu.Lock()
	flow := n.flow
	n.mu.Unlock()
	<-flow
}

// down cuts all connections, and those that are made from now on.
func (n *line) down() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = true
	for c := range n.conns {
		c.Close()
	}
}

// up undoes down.
func (n *line) up() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = false
}

// stall holds back what Redis says, until resume.
func (n *line) stall() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.flow = make(chan struct{})
}

func (n *line) resume() {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.flow:
	default:
		close(n.flow)
	}
}
