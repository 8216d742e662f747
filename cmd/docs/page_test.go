package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/cmd/assembly"
	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/phases"
)

// TestConfigurationPageIsUpToDate with the annotated file.
func TestConfigurationPageIsUpToDate(t *testing.T) {
	want, err := configuration(root)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, configurationPage))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what conf/coordinator.toml says: run make docs", configurationPage)
	}
}

// annotatedSections are those of the file.
func annotatedSections(t *testing.T) []section {
	t.Helper()
	sections, err := parseAnnotated(string(conf.Annotated))
	if err != nil {
		t.Fatal(err)
	}
	return sections
}

// TestPageHasEveryKey of the configuration and of the steps, and no other.
func TestPageHasEveryKey(t *testing.T) {
	var got []string
	for _, s := range annotatedSections(t) {
		for _, k := range s.Keys {
			if name, _, inTable := strings.Cut(k.Name, ".headers."); inTable {
				k.Name = name + ".headers"
			}
			if s.Step != "" {
				k.Name = s.Step + " " + k.Name
			}
			got = append(got, k.Name)
		}
	}
	want := conf.Keys(conf.Config{})
	for step, params := range map[string]any{"async-broker": phases.AsyncBrokerParams{}, "replace-media-urls": phases.MediaParams{}, "render": phases.RenderParams{},
		"conditional-decode": phases.ConditionalParams{}, "encode": phases.EncodeParams{}, "prefill": phases.PrefillParams{},
		"decode": phases.DecodeParams{}, "prefill-decode": phases.PrefillDecodeParams{}} {
		for _, key := range conf.Keys(params) {
			want = append(want, step+" "+key)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the page has\n%v\nwant\n%v", got, want)
	}
}

// pairBegins is where the annotated file tells of the step that may be there instead
// of prefill and decode.
const pairBegins = "# For workers of which neither answers"

// withAll is the annotated file with the steps in it that are commented out there:
// with prefill and decode, or with the step for both of them.
func withAll(t *testing.T, pair bool) []byte {
	t.Helper()
	two, one, ok := strings.Cut(string(conf.Annotated), pairBegins)
	if !ok {
		t.Fatalf("coordinator.toml does not say %q", pairBegins)
	}
	if pair {
		before, _, _ := strings.Cut(two, "[[pipeline.steps]]\ntype = \"prefill\"")
		two = before + "#" + one
	}
	var lines []string
	for line := range strings.Lines(two) {
		if example, ok := strings.CutPrefix(line, "#   "); ok {
			line = example
		}
		lines = append(lines, line)
	}
	return []byte(strings.Join(lines, ""))
}

// TestEveryVariableIsReadForItsKey: each is set to what the page calls the default.
func TestEveryVariableIsReadForItsKey(t *testing.T) {
	var environ []string
	want := map[string]string{} // the variable of a key
	for _, s := range annotatedSections(t) {
		for _, k := range s.Keys {
			if k.Variable != "" {
				environ = append(environ, k.Variable+"="+unquoted(k.Default))
				want[s.Step+" "+k.Name] = k.Variable
			}
		}
	}
	read := map[string]bool{}
	for _, pair := range []bool{false, true} {
		readFrom(t, withAll(t, pair), environ, want, read)
	}
	if len(read) != len(want) {
		t.Errorf("%d of %d keys are settings", len(read), len(want))
	}
}

// readFrom loads a file with variables, and notes the keys that these are read for.
func readFrom(t *testing.T, file []byte, environ []string, want map[string]string, read map[string]bool) {
	t.Helper()
	cfg, err := conf.Parse("coordinator.toml", file, environ)
	if err != nil {
		t.Fatal(err)
	}
	c, err := assembly.New(cfg, assembly.Options{OpenBroker: assembly.Unopened, // the phases read their params
		LookupEnv: func(name string) (string, bool) {
			url := map[string]string{"REDIS_URL": "redis://redis:6379/0"}[name]
			return url, url != ""
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, setting := range cfg.Settings() {
		step, name := "", setting.Key
		if rest, ok := strings.CutPrefix(name, "pipeline.steps["); ok {
			number, param, _ := strings.Cut(rest, "].")
			n, err := strconv.Atoi(number)
			if err != nil {
				t.Fatal(err)
			}
			step, name = cfg.Pipeline.Steps[n-1].Type, param
		}
		variable, ok := want[step+" "+name]
		if !ok {
			continue // a step's type
		}
		read[step+" "+name] = true
		if setting.Origin != "environment "+variable {
			t.Errorf("%s %s is not set by %s, but by %s", step, name, variable, setting.Origin)
		}
	}
}

// unquoted is a value of TOML as a variable has it.
func unquoted(value string) string {
	if text, err := strconv.Unquote(value); err == nil {
		return text
	}
	return strings.NewReplacer("[", "", "]", "", `"`, "").Replace(value)
}
