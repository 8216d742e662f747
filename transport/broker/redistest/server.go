// Package redistest is for tests that need a Redis which fails: a redis-server of
// their own, which can be ended and begun again, and a way to it that breaks.
package redistest

import (
	"bufio"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/llm-coordinator/coordinator/transport/porttest"
)

// Server is a redis-server of a test's own. It sends notifications of lists, writes
// nothing to disk, and ends with the test, or with the test's process if that dies.
// Its methods are for one goroutine at a time.
type Server struct {
	Addr string

	t    testing.TB
	path string
	dir  string
	args []string
	cmd  *exec.Cmd      // nil: it does not run
	hold io.Closer      // it lives until this is closed, or the test's process is gone
	read sync.WaitGroup // its output
}

// Start starts one on a free port, with these arguments besides; nil: there is no
// redis-server.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil
	}
	s := &Server{Addr: porttest.FreeAddr(t), t: t, path: path, dir: t.TempDir(), args: args}
	s.Start()
	t.Cleanup(s.Stop)
	return s
}

// guard runs a command until its own input ends.
const guard = `"$@" & read -r _; kill -9 $!; wait`

// Start begins it again, on the same port, and returns when it takes connections.
func (s *Server) Start() {
	s.t.Helper()
	_, port, _ := net.SplitHostPort(s.Addr)
	args := []string{"-c", guard, "sh", s.path, "--port", port, "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendonly", "no",
		"--notify-keyspace-events", "Kl", "--maxclients", "4000"}
	s.cmd = exec.Command("sh", append(args, s.args...)...)
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if s.hold, err = s.cmd.StdinPipe(); err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	var said []string
	for lines := bufio.NewScanner(out); ; {
		if !lines.Scan() {
			s.t.Fatalf("redis-server ended:\n%s", strings.Join(said, "\n"))
		}
		if said = append(said, lines.Text()); strings.Contains(lines.Text(), "Ready to accept connections") {
			break
		}
	}
	s.read.Go(func() { _, _ = io.Copy(io.Discard, out) })
}

// Stop ends it, as a machine that goes down does, and returns when it is gone: what
// it knew is lost. One that does not run is left so.
func (s *Server) Stop() {
	if s.cmd == nil {
		return
	}
	_ = s.hold.Close()
	s.read.Wait()
	_ = s.cmd.Wait() // it was killed
	s.cmd = nil
}

// URL leads to its first database.
func (s *Server) URL() string { return "redis://" + s.Addr }
