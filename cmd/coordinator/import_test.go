package main

import (
	"strings"
	"testing"
)

// TestImport: what it prints is a configuration that check takes.
func TestImport(t *testing.T) {
	const theirs = `server: {listen_addr: ":9000"}
extra: 1
pipeline:
  kv_connector: kv-nixl
  steps:
    - {type: replace-media-urls, params: {max_concurrent_downloads: 4}}
    - {type: render, params: {address: "http://render:8080"}}
    - {type: encode}
    - {type: prefill}
    - {type: decode}
`
	file := written(t, "llm-d.yaml", theirs)
	code, stdout, stderr := runCommand("import", file)
	if code != 0 || stderr != "warning: "+file+":2: extra: is not known; kept as a comment\n" {
		t.Errorf("exit %d: %s", code, stderr)
	}
	code, said, stderr := runCommand("check", "-config", written(t, "ours.toml", stdout))
	if code != 0 || !strings.Contains(said, "  2  render              at http://render:8080") || !strings.Contains(said, `":9000"`) {
		t.Errorf("exit %d\n%s%s\n%s", code, said, stderr, stdout)
	}
	// What is printed is not valid: it is printed all the same.
	for _, tt := range []struct{ text, want string }{
		{strings.Replace(theirs, "kv-nixl", "kv-sglang", 1), "the output is not valid: "},
		{strings.Replace(theirs, "    - {type: decode}\n", "", 1), "the output is not valid: pipeline: "},
		{"log_level: 9\n", "the output is not valid: output:5: log_level: must be from 1 to 5, got 9"},
	} {
		code, stdout, stderr := runCommand("import", written(t, "llm-d.yaml", tt.text))
		if code != 1 || !strings.Contains(stderr, tt.want) || !strings.Contains(stdout, "[pipeline]") {
			t.Errorf("exit %d: %s\n%s", code, stderr, stdout)
		}
	}
	if code, stdout, stderr := runCommand("import", written(t, "llm-d.yaml", "[")); code != 1 || stdout != "" || !strings.Contains(stderr, "llm-d.yaml: yaml: ") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	if code, _, stderr := runCommand("import"); code != 2 || !strings.Contains(stderr, "usage: coordinator import FILE") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}
