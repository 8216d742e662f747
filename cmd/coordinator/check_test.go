package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// TestCheckLive tries routes only if it is asked to, and tells by the exit status
// what came of it.
func TestCheckLive(t *testing.T) {
	workers := cluster.New(cluster.Options{})
	defer workers.Close()
	if err := workers.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "c.toml")
	text := "[gateway]\naddress = \"" + workers.URL() + "\"\n[[pipeline.steps]]\ntype = \"decode\"\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := runCommand("check", "-config", file); code != 0 || strings.Contains(stdout, "routes") || len(workers.Legs("")) != 0 {
		t.Errorf("exit %d, %d legs\n%s%s", code, len(workers.Legs("")), stdout, stderr)
	}
	const want = `
routes
  decode   /v1/chat/completions         ok: answered 400
  decode   /v1/completions              ok: answered 400
  decode   /inference/v1/generate       ok: answered 400
`
	code, stdout, stderr := runCommand("check", "--live", "-config", file)
	if code != 0 || stderr != "" || !strings.HasPrefix(stdout, "pipeline\n") || !strings.HasSuffix(stdout, want) {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	workers.AddFault(cluster.Fault{Status: 500})
	code, stdout, stderr = runCommand("check", "--live", "-config", file)
	if code != 1 || stderr != "coordinator: 2 of 3 routes cannot be used\n" || strings.Count(stdout, "FAILED: answered 500") != 2 {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
}
