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
		"decode": phases.DecodeParams{}} {
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

// withProbe is the annotated file with the steps in it that are commented out there.
func withProbe() []byte {
	var lines []string
	for line := range strings.Lines(string(conf.Annotated)) {
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
	cfg, err := conf.Parse("coordinator.toml", withProbe(), environ)
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
	found := 0
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
		found++
		if setting.Origin != "environment "+variable {
			t.Errorf("%s %s is not set by %s, but by %s", step, name, variable, setting.Origin)
		}
	}
	if found != len(want) {
		t.Errorf("%d of %d keys are settings", found, len(want))
	}
}

// unquoted is a value of TOML as a variable has it.
func unquoted(value string) string {
	if text, err := strconv.Unquote(value); err == nil {
		return text
	}
	return strings.NewReplacer("[", "", "]", "", `"`, "").Replace(value)
}
