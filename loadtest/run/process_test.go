package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

// played returns processes that this test's program plays.
func played(t *testing.T, part string) *processes {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(playing, part)
	t.Setenv("GORACE", "atexit_sleep_ms=0") // else each takes a second to end
	return &processes{floorPath: self, coordinatorPath: self, dir: t.TempDir()}
}

// TestProcessesServeAndEnd: each is there once it was started, and gone once it
// was stopped.
func TestProcessesServeAndEnd(t *testing.T) {
	p := played(t, "server")
	for name, start := range map[string]func() (*server, error){
		"backend":     func() (*server, error) { return p.backend(t.Context(), time.Second) },
		"relay":       func() (*server, error) { return p.relay(t.Context(), "http://127.0.0.1:1", "-contract") },
		"coordinator": func() (*server, error) { return p.coordinator(t.Context(), "http://127.0.0.1:1", true) },
	} {
		s, err := start()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := get(t.Context(), s.url+"/healthz"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if args, err := os.ReadFile("/proc/" + itoa(s.pid) + "/cmdline"); err != nil || name == "relay" && !strings.HasSuffix(string(args), "\x00-contract\x00") {
			t.Errorf("%s: %q, %v", name, args, err)
		}
		s.stop()
		if _, err := os.Stat("/proc/" + itoa(s.pid)); err == nil {
			t.Errorf("%s: the process is still there", name)
		}
	}
}

func TestProcessesThatDoNotStart(t *testing.T) {
	p := played(t, "broken")
	if _, err := p.relay(t.Context(), ""); err == nil {
		t.Error("a floor that ends has started")
	}
	if _, err := p.coordinator(t.Context(), "", true); err == nil || !strings.Contains(err.Error(), "it ended; its log ends with: \ntwo: no such thing") {
		t.Error(err)
	}
	p.floorPath, p.coordinatorPath = "/nonexistent", "/nonexistent"
	if _, err := p.relay(t.Context(), ""); err == nil {
		t.Error("a floor that does not exist has started")
	}
	if _, err := p.coordinator(t.Context(), "", true); err == nil {
		t.Error("a coordinator that does not exist has started")
	}
}

// TestProcessesEndWithTheirContext: nobody has to stop them after an interrupt.
func TestProcessesEndWithTheirContext(t *testing.T) {
	p := played(t, "server")
	ctx, cancel := context.WithCancel(t.Context())
	s, err := p.coordinator(ctx, "http://127.0.0.1:1", false)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	s.stop() // waits only
	text, err := os.ReadFile(p.dir + "/coordinator-1.toml")
	if err != nil || !strings.Contains(string(text), "use_openai_format = false") || !strings.Contains(string(text), `address = "http://127.0.0.1:1"`) {
		t.Errorf("%v\n%s", err, text)
	}
}
