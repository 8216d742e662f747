package main

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// serving is a coordinator in a process of its own.
type serving struct {
	*process // the lines are those of its log
	base     string
}

// startServing starts a coordinator that only decodes, at a gateway.
func startServing(t *testing.T, bin, gateway, shutdownTimeout string) *serving {
	t.Helper()
	file := filepath.Join(t.TempDir(), "c.toml")
	text := "[server]\nlisten_addr = \"127.0.0.1:0\"\nshutdown_timeout = \"" + shutdownTimeout + "\"\n[admin]\nlisten_addr = \"\"\n" +
		"[gateway]\naddress = \"" + gateway + "\"\n[[pipeline.steps]]\ntype = \"decode\"\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, bin, "-config", file)
	logs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	s := &serving{process: &process{Cmd: cmd, lines: bufio.NewScanner(logs)}}
	s.base = "http://" + regexp.MustCompile(`"address":"([^"]+)"`).FindStringSubmatch(last(s.until(t, `"serving"`)))[1]
	return s
}

// ask sends a request, and returns when it is at a worker, which does not answer
// it before the test ends.
func (s *serving) ask(t *testing.T, workers *cluster.Cluster) {
	t.Helper()
	gate := workers.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtHeaders})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var asking sync.WaitGroup
	asking.Go(func() {
		resp, err := client.Post(s.base+"/v1/chat/completions", "application/json",
			strings.NewReader(`{"model":"demo-model","messages":[{"role":"user","content":"hello there"}]}`))
		if err == nil { // what becomes of it is told elsewhere
			resp.Body.Close()
		}
	})
	t.Cleanup(func() {
		gate.Release()
		s.Process.Kill()
		asking.Wait()
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := gate.WaitFor(ctx, 1); err != nil {
		t.Fatal(err)
	}
}

// wait returns the exit status, and what was logged last.
func (s *serving) wait(t *testing.T) (code int, rest string) {
	t.Helper()
	var lines []string
	for s.lines.Scan() {
		lines = append(lines, s.lines.Text())
	}
	s.Wait()
	return s.ProcessState.ExitCode(), strings.Join(lines, "\n")
}

// TestSignalsWhileARequestRuns: the first begins a drain, which waits for the
// request only so long, and a second one does not wait at all.
func TestSignalsWhileARequestRuns(t *testing.T) {
	bin := binary(t)
	workers := cluster.New(cluster.Options{KV: cluster.KVSharedStorage})
	if err := workers.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	defer workers.Close()

	t.Run("none runs", func(t *testing.T) {
		s := startServing(t, bin, workers.URL(), "10m")
		s.Process.Signal(syscall.SIGTERM)
		if code, rest := s.wait(t); code != 0 || !strings.Contains(rest, `"stopped","cut":0`) {
			t.Errorf("exit %d\n%s", code, rest)
		}
	})
	t.Run("cut", func(t *testing.T) {
		s := startServing(t, bin, workers.URL(), "100ms")
		s.ask(t, workers)
		s.Process.Signal(syscall.SIGTERM)
		if code, rest := s.wait(t); code != 1 || !strings.Contains(rest, "coordinator: 1 requests were cut: they did not end within server.shutdown_timeout (100ms)") {
			t.Errorf("exit %d\n%s", code, rest)
		}
	})
	for _, second := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		t.Run("second "+second.String(), func(t *testing.T) {
			s := startServing(t, bin, workers.URL(), "10m")
			s.ask(t, workers)
			s.Process.Signal(syscall.SIGTERM)
			if line := last(s.until(t, `"draining"`)); !strings.Contains(line, `"requests":1`) {
				t.Errorf("%s", line)
			}
			s.Process.Signal(second)
			if code, rest := s.wait(t); code != 1 || rest != "coordinator: "+second.String()+" again: ended at once" {
				t.Errorf("exit %d\n%s", code, rest)
			}
		})
	}
}
