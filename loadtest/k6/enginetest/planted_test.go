package enginetest

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// copyScripts copies the scripts and their modules.
func copyScripts(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "lib"), 0o700); err != nil {
		t.Fatal(err)
	}
	names := scripts(t)
	modules, err := filepath.Glob(filepath.Join(scriptsDir, "lib", "*.js"))
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range modules {
		names = append(names, filepath.Join("lib", filepath.Base(module)))
	}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(scriptsDir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// replace replaces a text that is in a file.
func replace(t *testing.T, dir, file, before, after string) {
	t.Helper()
	path := filepath.Join(dir, file)
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), before) {
		t.Fatalf("%s has no %q: %v", file, before, err)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(text), before, after)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestPlantedMistakesAreFound: each row is a mistake in a copy of the scripts.
func TestPlantedMistakesAreFound(t *testing.T) {
	d := startDemo(t)
	for _, test := range []struct{ name, script, file, before, after, want string }{
		{"wrong path", "text.js", "lib/bodies.js", "'/v1/completions'", "'/v1/completion'", "/v1/completion: 404"},
		{"wrong body", "text.js", "lib/bodies.js", "max_tokens: s.maxTokens", "max_tokens: -s.maxTokens", "400"},
		{"streams that are not", "stream.js", "lib/bodies.js", "stream: kind.stream,", "", "400"},
		{"no such module", "text.js", "text.js", "'./lib/steady.js'", "'./lib/stedy.js'", "no such module: ./lib/stedy.js"},
		{"a remote module", "text.js", "text.js", "'./lib/steady.js'", "'https://127.0.0.1/x.js'", "no such module: https://"},
		{"no such name", "smoke.js", "smoke.js", "import exec from", "import { instnce } from", "instnce"},
		{"option of http", "text.js", "lib/requests.js", "timeout: s", "timeOut: s", `option "timeOut"`},
		{"tag of http", "text.js", "lib/requests.js", "name: path, ...own", "name: path, n: 1, ...own", "no string"},
		{"scenario", "text.js", "lib/load.js", "maxVUs:", "maxVus:", "no maxVUs"},
		{"no end", "text.js", "lib/load.js", "duration: seconds(s.duration),", "", "no duration"},
		{"executor", "text.js", "lib/load.js", "'constant-arrival-rate'", "'constant-rate'", `executor "constant-rate"`},
		{"exec", "chaos.js", "chaos.js", "exec: 'faults'", "exec: 'fault'", "exports no fault"},
		{"metric of a threshold", "text.js", "lib/load.js", "coordinator_not_ok:", "coordinator_notok:", "no such metric"},
		{"threshold", "text.js", "lib/load.js", "`rate<=", "`p(99)<=", "none for a rate"},
		{"threshold that is not met", "text.js", "lib/load.js", "'count<1'", "'count>1'", "not met: dropped_iterations"},
		{"measuring nothing", "text.js", "lib/requests.js", "timings.waiting", "timings.waitin", "coordinator_first_byte.add(NaN)"},
		{"check", "text.js", "lib/requests.js", "a.status < 300", "a.status < 200", "check \"chat: status is 2xx\""},
		{"metric made late", "smoke.js", "smoke.js", "export default function (model) {", "import { Rate } from 'k6/metrics';\nexport default function (model) {\n  new Rate('x_y');", "cannot be made"},
		{"equal bodies", "text.js", "lib/bodies.js", "Math.random()", "0", "different bodies"},
		{"summary", "text.js", "lib/summary.js", "JSON.stringify(report, null, 2)", "report", "summary.json:"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := copyScripts(t)
			replace(t, dir, test.file, test.before, test.after)
			wantProblem(t, dir, test.script, d.env(), test.want)
		})
	}
}

// TestChaosFindsWhatAClientMustNotSee: it is not so forgiving that nothing fails.
func TestChaosFindsWhatAClientMustNotSee(t *testing.T) {
	d := startDemo(t)
	env := d.env()
	maps.Copy(env, map[string]string{"LOAD_WAVE": "3s", "LOAD_QUIET": "2s", "LOAD_RECOVERY": "1s"})
	dir := copyScripts(t)
	replace(t, dir, "lib/waves.js", "allows: decodeFailing", "allows: nothing")
	replace(t, dir, "chaos.js", "tries < 40", "tries < 0") // leases of KV are no matter here
	wantProblem(t, dir, "chaos.js", env, `check "a client sees what it may see"`)
}

// wantProblem runs a script, which must fail with a text.
func wantProblem(t *testing.T, dir, script string, env map[string]string, want string) {
	t.Helper()
	e, err := Run(t.Context(), dir, script, env)
	var found []string
	if err != nil {
		found = []string{err.Error()}
	} else {
		found = problems(e, script)
	}
	if all := strings.Join(found, "\n"); !strings.Contains(all, want) {
		t.Errorf("found %q, want %q", all, want)
	}
}
