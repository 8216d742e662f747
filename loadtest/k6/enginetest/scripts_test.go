package enginetest

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const scriptsDir = ".."

// mayFail are the scripts that bring failures about themselves, and judge them.
var mayFail = []string{"chaos.js"}

func scripts(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(scriptsDir, "*.js"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for i, file := range files {
		files[i] = filepath.Base(file)
	}
	return files
}

// TestScripts runs each script against a demo, from init to summary.
func TestScripts(t *testing.T) {
	d := startDemo(t)
	for _, name := range scripts(t) {
		t.Run(name, func(t *testing.T) {
			e, err := Run(t.Context(), scriptsDir, name, d.env())
			if err != nil {
				t.Fatal(err)
			}
			for _, problem := range problems(e, name) {
				t.Error(problem)
			}
			if name == "chaos.js" {
				for _, problem := range chaosProblems(e) {
					t.Error(problem)
				}
			}
			t.Logf("%d requests, %d checks\n%s", len(e.Requests), len(e.Checks), e.Summary["stdout"])
		})
	}
}

// problems is what is wrong with a run.
func problems(e *Engine, script string) (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	sent := 0
	bodies := map[string]bool{}
	for _, r := range e.Requests {
		if r.Tags["kind"] != "" {
			sent++
			bodies[r.Body] = true
		}
		if (r.Status < 200 || r.Status > 299) && !slices.Contains(mayFail, script) {
			add("%s %s: %d", r.Method, r.URL, r.Status)
		}
	}
	answered, good := len(e.metrics.samples["coordinator_answers"]), len(e.metrics.samples["coordinator_total"])
	if sent == 0 || answered != sent || good == 0 || good < sent && !slices.Contains(mayFail, script) {
		add("%d requests, %d answers measured, %d good ones", sent, answered, good)
	}
	if len(bodies) < sent {
		add("only %d different bodies in %d requests", len(bodies), sent)
	}
	for name, c := range e.Checks {
		if c.Failed > 0 {
			add("check %q: %d of %d failed", name, c.Failed, c.Failed+c.Passed)
		}
	}
	return append(all, summaryProblems(e, script, sent)...)
}

// summaryProblems is what is wrong with the text and the file at the end.
func summaryProblems(e *Engine, script string, sent int) (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	var report struct {
		Script     string         `json:"script"`
		Answers    map[string]int `json:"answers"`
		Tokens     int            `json:"output_tokens"`
		Thresholds []struct {
			Metric, Bound string
			OK            bool
		} `json:"thresholds"`
	}
	if err := json.Unmarshal([]byte(e.Summary["summary.json"]), &report); err != nil {
		add("summary.json: %v", err)
	}
	counted := 0
	for _, n := range report.Answers {
		counted += n
	}
	if report.Script != script || counted != sent || report.Tokens == 0 {
		add("summary.json: script %q, %d of %d answers, %d tokens", report.Script, counted, sent, report.Tokens)
	}
	if len(report.Thresholds) == 0 {
		add("no thresholds in summary.json")
	}
	for _, bound := range report.Thresholds {
		if !bound.OK && !(slices.Contains(mayFail, script) && bound.Metric == "coordinator_not_ok") {
			add("threshold not met: %s %s", bound.Metric, bound.Bound)
		}
	}
	if text := e.Summary["stdout"]; !strings.Contains(text, script) || strings.Contains(text, "NaN") || strings.Contains(text, "undefined") {
		add("text summary: %s", text)
	}
	return all
}

// chaosProblems are, beyond those of any script, faults that were not set or not
// cleared, and a chaos that no client noticed.
func chaosProblems(e *Engine) (all []string) {
	var set, cleared, failed int
	for _, r := range e.Requests {
		switch {
		case r.Method == "POST" && strings.HasSuffix(r.URL, "/_cluster/faults") && r.Status == 201:
			set++
		case r.Method == "DELETE" && strings.Contains(r.URL, "/_cluster/faults/"):
			cleared++
		case r.Tags["kind"] != "" && r.Status != 200:
			failed++
		}
	}
	judged := len(e.metrics.samples["coordinator_unexpected"])
	if set < 5 || set != cleared || failed == 0 || judged == 0 {
		all = append(all, fmt.Sprintf("%d faults set, %d cleared, %d requests failed, %d were judged", set, cleared, failed, judged))
	}
	return all
}
