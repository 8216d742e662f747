package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// written writes a file for a test, and returns its path.
func written(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestExplain: what it says of requests is tested where it is done.
func TestExplain(t *testing.T) {
	config := written(t, "c.toml", "[gateway]\naddress = \"http://gateway.example\"\n[[pipeline.steps]]\ntype = \"prefill\"\n[[pipeline.steps]]\ntype = \"decode\"\n")
	body := written(t, "body.json", `{"model":"m","prompt":"Once"}`)
	code, stdout, stderr := runCommand("explain", "-config", config, "-route", "/v1/completions", "-header", "X-One: 1", "-header", "X-Two: 2", body)
	for _, want := range []string{"POST /v1/completions: accepted\n", "  2  decode   runs: ", "  POST http://gateway.example/v1/completions\n", "as the client sent them: X-One, X-Two\n"} {
		if code != 0 || stderr != "" || !strings.Contains(stdout, want) {
			t.Errorf("exit %d, want %q in\n%s%s", code, want, stdout, stderr)
		}
	}
	code, stdout, _ = runCommand("explain", "--json", "--config", config, body) // a completions body is no chat request
	var r struct {
		Accepted bool
		Refused  *struct{ Status int }
		Legs     []struct{ Name string }
	}
	if err := json.Unmarshal([]byte(stdout), &r); code != 0 || err != nil || !r.Accepted || len(r.Legs) != 2 {
		t.Errorf("exit %d, %v\n%s", code, err, stdout)
	}
	code, stdout, _ = runCommand("explain", "-config", config, written(t, "bad.json", "[]"))
	if code != 0 || !strings.Contains(stdout, "refused\n  400, type invalid_request_error, code invalid_json\n") {
		t.Errorf("exit %d\n%s", code, stdout)
	}
	for _, args := range [][]string{{"explain"}, {"explain", "a", "b"}} {
		if code, _, stderr := runCommand(args...); code != 2 || !strings.Contains(stderr, "usage: coordinator explain") {
			t.Errorf("exit %d: %s", code, stderr)
		}
	}
	code, _, stderr = runCommand("explain", "-config", config, "-header", "Authorization Bearer hunter2", body)
	if code != 1 || !strings.Contains(stderr, "want 'Name: value'") || strings.Contains(stderr, "hunter2") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}
