package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckShowsNoCredential, and says what is missing.
func TestCheckShowsNoCredential(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.toml")
	text := "[gateway.headers]\nAuthorization = \"env:TOKEN\"\nX-Api-Key = \"hunter2\"\n[[pipeline.steps]]\ntype = \"decode\"\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	if code := run([]string{"check", "-config", file, "-v", "5"}, []string{"TOKEN=old", "XTOKEN=x", "TOKEN=Bearer hunter2"}, &out, &errOut); code != 0 {
		t.Errorf("exit %d: %s", code, &errOut)
	}
	for _, want := range []string{`gateway.headers.Authorization "env:TOKEN" ` + file + ":2", "gateway.headers.X-Api-Key (set) " + file + ":3"} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if all := out.String() + errOut.String(); strings.Contains(all, "hunter2") {
		t.Errorf("tells what it must not:\n%s", all)
	}
	if code, _, stderr := runCommand("check", "-config", file); code != 1 ||
		stderr != "coordinator: "+file+":2: gateway.headers.Authorization: there is no environment variable \"TOKEN\"\n" {
		t.Errorf("exit %d: %s", code, stderr)
	}
}
