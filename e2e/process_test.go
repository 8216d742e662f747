package e2e_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// process is a program that a test has started. It is ended, and waited for,
// before the test is.
type process struct {
	name  string
	cmd   *exec.Cmd
	log   string // file of all that it says
	ended chan struct{}
}

// startProcess starts a program whose working directory is dir.
func startProcess(t *testing.T, dir, name string, env []string, program string, args ...string) *process {
	t.Helper()
	p := &process{name: name, cmd: exec.Command(program, args...), log: filepath.Join(dir, name+".log"), ended: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600) // a second process of the name goes on with it
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() // the process has its own
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, log, log
	p.cmd.Env = append(os.Environ(), env...)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // the state says how it ended
	}()
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("the log of %s ends with\n%s", name, p.lastLines(40))
		}
	})
	return p
}

// stop ends a process, by force if it does not end by itself.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // an error says that it has ended
	last := time.AfterFunc(20*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer last.Stop()
	<-p.ended
}

// kill ends a process as a failing machine does.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	<-p.ended
}

func (p *process) lastLines(n int) string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// awaitOK waits until a URL is answered with 200.
func awaitOK(ctx context.Context, t *testing.T, client *http.Client, url string, p *process) {
	t.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		if status, _, err := get(ctx, client, url); err == nil && status == http.StatusOK {
			return
		}
		select {
		case <-again.C:
		case <-p.ended:
			t.Fatalf("%s has ended", p.name)
		case <-ctx.Done():
			t.Fatalf("%s did not answer in time", url)
		}
	}
}
