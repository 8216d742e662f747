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
	file     string // its configuration
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
	s := &serving{process: &process{Cmd: cmd, lines: bufio.NewScanner(logs)}, file: file}
	line := last(s.until(t, `"serving"`))
	s.base = "http://" + regexp.MustCompile(`"address":"([^"]+)"`).FindStringSubmatch(line)[1]
	if !strings.Contains(line, `"pipeline":[{"step":"decode","with":"kv connector kv-shared-storage","pool":"decode","at_work":1024,"waiting":256}]`) {
		t.Errorf("what is served is not said: %s", line)
	}
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

// edit changes the configuration, and has the process read it again.
func (s *serving) edit(t *testing.T, old, new string) {
	t.Helper()
	text, err := os.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.file, []byte(strings.Replace(string(text), old, new, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Process.Signal(syscall.SIGHUP)
}

// TestHangupReloads: SIGHUP has the file read again, and never ends the process.
func TestHangupReloads(t *testing.T) {
	workers := cluster.New(cluster.Options{KV: cluster.KVSharedStorage})
	if err := workers.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	defer workers.Close()
	s := startServing(t, binary(t), workers.URL(), "10m")
	s.ask(t, workers)
	log := func(word string, want ...string) {
		t.Helper()
		line := last(s.until(t, word))
		for _, w := range want {
			if !strings.Contains(line, w) {
				t.Errorf("want %s in %s", w, line)
			}
		}
	}
	s.edit(t, "", "")
	log("nothing changed", `"level":"INFO"`)
	s.edit(t, "[server]", "log_level = 4\n[server]\nidle_timeout = \"9s\"")
	log(`"configuration reloaded"`, `"applied":["log_level"]`, `"needs_restart":["server.idle_timeout"]`)
	s.edit(t, `"decode"`, `"decodee"`)
	log("not reloaded", `"level":"ERROR"`, "unknown step type: decodee")
	s.edit(t, `"decodee"`, "1")
	log("not reloaded", "c.toml:11: pipeline.steps[1].type: want the name of a phase")
	if err := os.Remove(s.file); err != nil {
		t.Fatal(err)
	}
	s.Process.Signal(syscall.SIGHUP)
	log("not reloaded", "c.toml", "no such file")

	s.Process.Signal(syscall.SIGTERM)
	log(`"draining"`, `"requests":1`)
	s.Process.Signal(syscall.SIGHUP)
	log("not reloaded", "draining")
	s.Process.Signal(os.Interrupt)
	if code, _ := s.wait(t); code != 1 {
		t.Errorf("exit %d", code)
	}
}
