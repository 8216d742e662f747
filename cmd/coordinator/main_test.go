package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func runCommand(args ...string) (code int, stdout, stderr string) {
	var out, errOut bytes.Buffer
	code = run(args, nil, &out, &errOut)
	return code, out.String(), errOut.String()
}

func TestCommands(t *testing.T) {
	tests := []struct {
		name   string
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{"version", []string{"version"}, 0, "coordinator ", ""},
		{"unknown", []string{"sreve"}, 2, "", "coordinator [serve]"},
		{"help", []string{"check", "-h"}, 0, "", "-config file"},
		{"wrong flag", []string{"check", "-confg", "x"}, 2, "", "flag provided but not defined: -confg"},
		{"argument", []string{"check", "x"}, 2, "", `unexpected argument "x"`},
		{"no file", []string{"check", "-config", "nowhere.toml"}, 1, "", "nowhere.toml"},
		{"cluster of no kind", []string{"cluster", "-kv", "kv-x"}, 1, "", "kv-x"},
		{"check", []string{"check", "-config", "../../conf/coordinator.toml"}, 0, "pipeline\n  1  replace-media-urls", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := runCommand(tt.args...)
			if code != tt.code || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) {
				t.Errorf("exit %d\n%s\n%s", code, stdout, stderr)
			}
		})
	}
}

// TestCheckNamesAMisspeltKeyAndItsLine, and what is set and by whom.
func TestCheckNamesAMisspeltKeyAndItsLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.toml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("[server]\n\nlisten_adr = \":1\"\n[[pipeline.steps]]\ntype = \"decode\"\n")
	if code, _, stderr := runCommand("check", "-config", file); code != 1 ||
		!strings.Contains(stderr, "c.toml:3: server.listen_adr: unknown key (did you mean listen_addr?)") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	write("[server]\nlisten_addr = \":1\"\n[[pipeline.steps]]\ntype = \"decode\"\n")
	code, stdout, stderr := runCommand("check", "-config", file, "-v", "4")
	for _, want := range []string{`pipeline\n +1 +decode +kv connector kv-shared-storage`, `log_level +4 +flag -v`, `server.listen_addr +":1" +\S*c.toml:2`, `decode +1024 +256`, `prefill +1m0s +opens after 10 failures`} {
		if code != 0 || !regexp.MustCompile(want).MatchString(stdout) {
			t.Errorf("want %s in\n%s%s", want, stdout, stderr)
		}
	}
}

// binary builds the command once for the tests that need a process.
func binary(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("!!! LEFT OUT: builds the binary and runs it as a process (not with -short)")
	}
	bin := filepath.Join(t.TempDir(), "coordinator")
	if out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// process is a command that runs, and the lines that it prints.
type process struct {
	*exec.Cmd
	lines *bufio.Scanner
}

func start(t *testing.T, bin string, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	p := &process{Cmd: exec.CommandContext(ctx, bin, args...)}
	p.Stderr = os.Stderr
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(out)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Process.Kill(); p.Wait() })
	return p
}

// until returns the lines up to the one that contains word.
func (p *process) until(t *testing.T, word string) (lines []string) {
	t.Helper()
	for p.lines.Scan() {
		lines = append(lines, p.lines.Text())
		if strings.Contains(p.lines.Text(), word) {
			return lines
		}
	}
	t.Fatalf("no line with %q in %q", word, lines)
	return nil
}

// TestDemo takes the commands that the demo prints at their word, and ends it
// as a user does.
func TestDemo(t *testing.T) {
	p := start(t, binary(t), "demo", "-addr", "127.0.0.1:0", "-admin", "127.0.0.1:0", "-token-interval", "1ms")
	welcome := strings.Join(p.until(t, "One line for each request"), "\n")
	if !strings.Contains(welcome, "model: demo-model") {
		t.Errorf("%s", welcome)
	}
	curls := regexp.MustCompile(`(?m)^curl -sN (\S+) -H 'Content-Type: application/json' -d '(.*)'$`).FindAllStringSubmatch(welcome, -1)
	if len(curls) != 4 {
		t.Fatalf("want 4 commands, got %q", curls)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	page := regexp.MustCompile(`operators' page on (http://\S+),`).FindStringSubmatch(welcome)
	if page == nil {
		t.Fatalf("no page in %s", welcome)
	}
	if resp, err := client.Get(page[1]); err != nil || resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
		t.Errorf("the operators' page: %v %v", resp, err)
	} else {
		resp.Body.Close()
	}
	for i, want := range []string{"You said: Why is the sky blue?", "data: [DONE]\n\n", "You said: Once upon a time", "data: [DONE]\n\n"} {
		resp, err := client.Post(curls[i][1], "application/json", strings.NewReader(curls[i][2]))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 200 || err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%d %v %s", resp.StatusCode, err, text)
		}
		line := p.until(t, " 200 ")[0]
		if !regexp.MustCompile(`^\d\d:\d\d:\d\d 200 (chat|chat streamed|completions): (replace-media-urls [\d.]+ms > )?render [\d.]+ms > (encode [\d.]+ms > )?prefill [\d.]+ms > decode [\d.]+ms; first byte`).MatchString(line) {
			t.Errorf("line %q", line)
		}
	}
	p.Process.Signal(os.Interrupt)
	if err := p.Wait(); err != nil {
		t.Errorf("SIGINT: %v", err)
	}
}

// TestDemoOfSGLang has both legs sent at once.
func TestDemoOfSGLang(t *testing.T) {
	p := start(t, binary(t), "demo", "-kv", "kv-sglang", "-addr", "127.0.0.1:0", "-admin", "127.0.0.1:0", "-token-interval", "1ms")
	welcome := strings.Join(p.until(t, "One line for each request"), "\n")
	curls := regexp.MustCompile(`(?m)^curl -sN (\S+) -H 'Content-Type: application/json' -d '(.*)'$`).FindAllStringSubmatch(welcome, -1)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, c := range curls {
		resp, err := client.Post(c[1], "application/json", strings.NewReader(c[2]))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 200 || err != nil {
			t.Errorf("%d %v %s", resp.StatusCode, err, text)
		}
		if line := p.until(t, " 200 ")[0]; !strings.Contains(line, "prefill-decode ") {
			t.Errorf("line %q", line)
		}
	}
	p.Process.Signal(os.Interrupt)
	if err := p.Wait(); err != nil || len(curls) != 4 {
		t.Errorf("SIGINT: %v, after %d requests", err, len(curls))
	}
}

// TestServeWithAClusterOfItsOwn runs the two as an operator does, and ends both
// by SIGTERM.
func TestServeWithAClusterOfItsOwn(t *testing.T) {
	bin := binary(t)
	cl := start(t, bin, "cluster", "-addr", "127.0.0.1:0", "-token-interval", "0s")
	addr := regexp.MustCompile(`http://[\d.:]+`).FindString(cl.until(t, "simulated cluster on ")[0])
	file := filepath.Join(t.TempDir(), "c.toml")
	text := "[server]\nlisten_addr = \"127.0.0.1:0\"\n[admin]\nlisten_addr = \"\"\n[gateway]\naddress = \"" + addr + "\"\n" +
		"[pipeline]\nkv_connector = \"kv-nixl\"\n[[pipeline.steps]]\ntype = \"render\"\nparams = { address = \"" + addr + "\" }\n" +
		"[[pipeline.steps]]\ntype = \"prefill\"\n[[pipeline.steps]]\ntype = \"decode\"\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	srv := exec.CommandContext(ctx, bin, "-config", file)
	logs, err := srv.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: srv, lines: bufio.NewScanner(logs)}
	own := regexp.MustCompile(`"address":"([^"]+)"`).FindStringSubmatch(last(p.until(t, `"serving"`)))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Post("http://"+own[1]+"/v1/chat/completions", "application/json",
		strings.NewReader(`{"model":"demo-model","messages":[{"role":"user","content":"hello there"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	answer, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != 200 || !strings.Contains(string(answer), "You said: hello there") {
		t.Errorf("%d %s", resp.StatusCode, answer)
	}
	srv.Process.Signal(syscall.SIGTERM)
	p.until(t, `"stopped"`)
	if err := srv.Wait(); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	cl.Process.Signal(syscall.SIGTERM)
	if err := cl.Wait(); err != nil {
		t.Errorf("SIGTERM to the cluster: %v", err)
	}
}

func last(lines []string) string { return lines[len(lines)-1] }
