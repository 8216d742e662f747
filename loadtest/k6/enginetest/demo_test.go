package enginetest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"
)

// demo is a coordinator demo that runs as a process of its own.
type demo struct{ url, cluster, admin string }

// command is the coordinator's, built from the module around this one.
var command = sync.OnceValues(func() (path string, err error) {
	path = filepath.Join(buildDir, "coordinator")
	if out, err := exec.Command("go", "build", "-C", "../../..", "-o", path, "./cmd/coordinator").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

// startDemo runs a demo, with tokens that take no time
// and breakers that are open for no time: the clock of the scripts is not its own.
func startDemo(t *testing.T) demo {
	t.Helper()
	bin, err := command()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, bin, "demo", "-addr", "127.0.0.1:0", "-admin", "127.0.0.1:0", "-token-interval", "0s")
	cmd.Env = append(os.Environ(), "COORDINATOR_GATEWAY_BREAKER_OPEN_TIMEOUT=1ms")
	var log bytes.Buffer
	cmd.Stderr = &log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	read := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		<-read
		_ = cmd.Wait() // its error is that it was ended
		if t.Failed() {
			t.Logf("the demo's log:\n%s", log.String())
		}
	})
	first, _ := lines.ReadString('\n')
	second, err := lines.ReadString('\n')
	go func() {
		defer close(read)
		_, _ = io.Copy(io.Discard, lines) // one line for each request
	}()
	urls := regexp.MustCompile(`http://[\d.]+:\d+`).FindAllString(first+second, 3)
	if err != nil || len(urls) != 3 {
		t.Fatalf("the demo did not start: %q %q %v", first, second, err)
	}
	return demo{url: urls[0], cluster: urls[1], admin: urls[2]}
}

// env are settings that make every script short.
func (d demo) env() map[string]string {
	return map[string]string{
		"LOAD_URL": d.url, "LOAD_CLUSTER": d.cluster, "LOAD_ADMIN": d.admin, "LOAD_PROMPT_WORDS": "20",
		"LOAD_RATE": "1", "LOAD_DURATION": "20s", "LOAD_WATCH_INTERVAL": "5s", "LOAD_VUS": "4",
		"LOAD_START_RATE": "1", "LOAD_STEP_RATE": "1", "LOAD_STEPS": "3", "LOAD_STEP_DURATION": "4s",
	}
}
