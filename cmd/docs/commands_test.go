package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// runnable is the info string of a block whose commands are run; writes begins that
// of a block that is a file's content: "toml file=my.toml".
const (
	runnable = "sh run"
	writes   = " file="
)

// The addresses that pages show for the demo, as its defaults are.
const (
	shownPublic = "127.0.0.1:8080"
	shownAdmin  = "127.0.0.1:9090"
)

// perBlock bounds the commands of one block.
const perBlock = time.Minute

// TestCommandsOfThePages runs all that is marked as runnable, in a directory that
// looks like the repository after make build, beside a running demo.
func TestCommandsOfThePages(t *testing.T) {
	for _, program := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("!!! LEFT OUT: the commands of the handbook. They need %s.", program)
		}
	}
	pages, err := readPages(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := workplace(t)
	public, admin := startDemo(t, dir)
	found := 0
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		for _, b := range pages[name].Blocks {
			if _, file, ok := strings.Cut(b.Info, writes); ok {
				put(t, filepath.Join(dir, file), []byte(b.Text))
			}
			if b.Info != runnable {
				continue
			}
			found++
			t.Run(fmt.Sprintf("%s:%d", name, b.Line), func(t *testing.T) {
				if host := elsewhere(b.Text); host != "" {
					t.Fatalf("calls %s: only the demo, at %s and %s, may be called", host, shownPublic, shownAdmin)
				}
				text := strings.NewReplacer(shownPublic, public, shownAdmin, admin).Replace(b.Text)
				ctx, cancel := context.WithTimeout(t.Context(), perBlock)
				defer cancel()
				output, err := runBlock(ctx, dir, text)
				if err != nil {
					t.Errorf("%v\n%s\n%s", err, text, output)
				}
			})
		}
	}
	if found < 8 {
		t.Errorf("only %d blocks are marked as runnable", found)
	}
}

// workplace makes a directory with the binary and the files that commands name.
func workplace(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", filepath.Join(dir, "bin", "coordinator"), "./cmd/coordinator")
	build.Dir = root
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	for _, name := range []string{"conf", "docs", "deploy"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(root, name))); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func put(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// startDemo starts a demo, to be ended with the test, and returns its addresses.
func startDemo(t *testing.T, dir string) (public, admin string) {
	t.Helper()
	demo := exec.Command(filepath.Join(dir, "bin", "coordinator"), "demo", "-addr", "127.0.0.1:0", "-admin", "127.0.0.1:0", "-token-interval", "1ms")
	demo.Dir = dir
	stdout, err := demo.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := demo.Start(); err != nil {
		t.Fatal(err)
	}
	welcome := make(chan string, 1)
	var reading sync.WaitGroup
	reading.Go(func() {
		lines := bufio.NewReader(stdout)
		var text strings.Builder
		for line, err := lines.ReadString('\n'); err == nil && !strings.HasPrefix(line, "model: "); line, err = lines.ReadString('\n') {
			text.WriteString(line)
		}
		welcome <- text.String()
		io.Copy(io.Discard, lines)
	})
	t.Cleanup(func() {
		demo.Process.Signal(syscall.SIGINT)
		reading.Wait()
		demo.Wait() // what a demo cuts is no failure
	})
	at := regexp.MustCompile(`(?s)coordinator on http://(\S+), .*page on http://([^/]+)/`).FindStringSubmatch(<-welcome)
	if at == nil {
		t.Fatal("the demo does not say where it is")
	}
	return at[1], at[2]
}

var (
	hostInURL    = regexp.MustCompile(`https?://([^/\s"'$]+)`)
	originHeader = regexp.MustCompile(`'Origin: [^']*'`) // which names a host, and calls none
)

// elsewhere returns a host in commands that is not this machine's, or "".
func elsewhere(commands string) string {
	commands = strings.ReplaceAll(commands, "\\\n", " ")
	for line := range strings.Lines(commands) {
		if !strings.Contains(line, "curl") {
			continue
		}
		line = originHeader.ReplaceAllString(line, "")
		for _, m := range hostInURL.FindAllStringSubmatch(line, -1) {
			if m[1] != shownPublic && m[1] != shownAdmin {
				return m[1]
			}
		}
	}
	return ""
}

// runBlock runs commands as a reader would paste them, but that the first that
// fails ends them. They inherit nothing from the environment but where programs
// are. When ctx ends, or the last command has, all that they have started does.
func runBlock(ctx context.Context, dir, commands string) (output string, err error) {
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LC_ALL=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// To a file: of a pipe Wait would wait for what the shell has left behind, too.
	said, err := os.CreateTemp(dir, "said-")
	if err != nil {
		return "", err
	}
	defer said.Close()
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		return "", err
	}
	all := func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	stop := context.AfterFunc(ctx, all)
	err = cmd.Wait()
	stop()
	all()
	text, readErr := os.ReadFile(said.Name())
	return string(text), errors.Join(err, readErr)
}

// TestCommandsThatFailAreFound.
func TestCommandsThatFailAreFound(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("!!! LEFT OUT: the check of the runner of the handbook's commands. It needs bash.")
	}
	dir := t.TempDir()
	for _, tt := range []struct {
		commands string
		fails    bool
	}{
		{"true", false},
		{"false", true},
		{"false\ntrue", true},
		{"false | cat", true},
		{"no-such-program-as-this", true},
		{"echo $NO_SUCH_VARIABLE", true},
		{"! grep -q x <<< y\necho done", false},
	} {
		if output, err := runBlock(t.Context(), dir, tt.commands); (err != nil) != tt.fails {
			t.Errorf("%s: %v %s", tt.commands, err, output)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	began := filepath.Join(dir, "began")
	if err := syscall.Mkfifo(began, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		os.ReadFile(began) // until they run
		cancel()
	}()
	if _, err := runBlock(ctx, dir, "sleep 1000 & echo > began; wait"); err == nil {
		t.Error("commands outlive their time")
	}
	held, gone := filepath.Join(dir, "held"), make(chan error)
	if err := syscall.Mkfifo(held, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := os.ReadFile(held) // until nobody can write any more
		gone <- err
	}()
	if output, err := runBlock(t.Context(), dir, "exec 4> held; sleep 1000 & exec 4>&-"); err != nil {
		t.Errorf("%v %s", err, output)
	}
	if err := <-gone; err != nil { // else the sleep is left behind, and this waits for it
		t.Error(err)
	}
	for commands, want := range map[string]string{
		"curl http://127.0.0.1:8080/x":                    "",
		"curl -s http://example.com/x":                    "example.com",
		"curl http://127.0.0.1:9090/\ncurl https://b.c:1": "b.c:1",
		"curl -sf \\\n  https://example.com/x":            "example.com",
	} {
		if got := elsewhere(commands); got != want {
			t.Errorf("%s: calls %q, want %q", commands, got, want)
		}
	}
}
