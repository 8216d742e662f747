package main

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/load"
)

func itoa(n int) string { return strconv.Itoa(n) }

// start starts a server within this process and returns its URL.
func start(t *testing.T, h http.HandlerFunc) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// TestRun: flags are what the report says, on paper and in the file.
func TestRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	var out strings.Builder
	err := run(t.Context(), []string{"-url", start(t, answer), "-pid", itoa(os.Getpid()), "-c", "2", "-n", "20", "-stream", "-kind", "completions",
		"-prompt", "2000", "-max-tokens", "3", "-H", "x-tenant: a:b", "-o", file}, &out, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r load.Report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	want := load.Request{Kind: load.Completions, Model: "demo-model", Stream: true, MaxTokens: 3, PromptBytes: 2000, ImageBytes: 12000}
	if r.Counts.OK != 20 || r.Counts.Events != 40 || r.Settings.Request != want || r.Process == nil {
		t.Errorf("%s", text)
	}
	if !strings.Contains(out.String(), "20 begun in ") || !strings.Contains(out.String(), "µs of CPU") {
		t.Error(out.String())
	}
}

func TestRunThatFails(t *testing.T) {
	url := start(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(429)
		io.WriteString(w, `{"error":{"code":"queue_full"}}`)
	})
	var out strings.Builder
	err := run(t.Context(), []string{"-url", url, "-rate", "1e6", "-n", "5"}, &out, io.Discard)
	if err == nil || err.Error() != "5 requests failed, 0 were missed" || !strings.Contains(out.String(), "error code queue_full: 5") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestHold(t *testing.T) {
	var out strings.Builder
	args := []string{"hold", "-url", start(t, answer), "-pid", itoa(os.Getpid()), "-streams", "10", "-d", "1ms"}
	if err := run(t.Context(), args, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "10 streams open, 0 missing, 0 broken") || !strings.Contains(out.String(), "KB of memory for each stream") {
		t.Error(out.String())
	}
	url := start(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) })
	if err := run(t.Context(), []string{"hold", "-url", url, "-streams", "2", "-d", "1ms"}, io.Discard, io.Discard); err == nil || err.Error() != "2 streams are missing, 0 broke" {
		t.Error(err)
	}
}

func TestWrongUsage(t *testing.T) {
	for _, args := range []string{"x", "-x", "-c 1 x", "hold -x", "overhead x", "-H x", "-c x"} {
		if err := run(t.Context(), strings.Fields(args), io.Discard, io.Discard); !errors.Is(err, errUsage) {
			t.Errorf("%s: %v", args, err)
		}
	}
	if err := run(t.Context(), []string{"-h"}, io.Discard, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Error(err)
	}
	if err := run(t.Context(), nil, io.Discard, io.Discard); err == nil {
		t.Error("neither clients nor a rate")
	}
	if err := run(t.Context(), []string{"overhead", "-floor", "/nonexistent"}, io.Discard, io.Discard); err == nil {
		t.Error("there is no floor")
	}
}
