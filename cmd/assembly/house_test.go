package assembly_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/llm-coordinator/coordinator/"

// mayImport is the direction of imports: what a package may use of ours.
var mayImport = map[string][]string{
	"cmd/coordinator":   {"cmd/assembly", "conf", "loadtest/cluster", "transport/kwargs", "transport/server", "transport/wire"},
	"cmd/assembly":      {"actors", "conf", "phases", "transport/admin", "transport/budget", "transport/files", "transport/gateway", "transport/server", "transport/wire"},
	"transport/budget":  {"transport/wire"},
	"transport/server":  {"phases", "transport/budget", "transport/wire"}, // the engine is an interface to it
	"transport/admin":   {},
	"actors":            {"phases", "transport/wire"},
	"phases":            {"connectors/ec", "connectors/kv", "transport/budget", "transport/gateway", "transport/media", "transport/wire"},
	"connectors":        {},
	"connectors/ec":     {"connectors", "transport/wire"},
	"connectors/kv":     {"connectors", "transport/wire"},
	"transport/gateway": {"transport/budget", "transport/files", "transport/wire"},
	"transport/files":   {},
	"transport/media":   {"transport/budget", "transport/wire"},
	"transport/wire":    {},
	"transport/kwargs":  {},
	"conf":              {},
	"loadtest/cluster":  {},
	"loadtest/floor":    {},
	"loadtest/load":     {},
	"loadtest/run":      {"loadtest/load"},

	"transport/wire/wiretest":   {}, // for tests only
	"transport/files/filestest": {}, // for tests only
}

// kept are dependencies that only one package may import.
var kept = map[string]string{
	"github.com/asynkron/protoactor-go":   "actors",
	"github.com/HdrHistogram":             "loadtest/load",
	"github.com/sony/gobreaker":           "transport/gateway",
	"github.com/BurntSushi/toml":          "conf",
	"github.com/vmihailenco/msgpack":      "transport/kwargs",
	"github.com/go-json-experiment/json":  "",
	"github.com/asynkron/protoactor-go/r": "", // router
}

func TestImportsGoOneWay(t *testing.T) {
	root := "../.."
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		dir := path.Dir(filepath.ToSlash(rel))
		allowed, known := mayImport[dir]
		if !known {
			t.Errorf("%s: package %s has no place in the house", rel, dir)
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range parsed.Imports {
			name := strings.Trim(spec.Path.Value, `"`)
			if own, ok := strings.CutPrefix(name, module); ok && !slices.Contains(allowed, own) {
				t.Errorf("%s: %s may not import %s", rel, dir, own)
			}
			for dep, only := range kept {
				if strings.HasPrefix(name, dep) && dir != only {
					t.Errorf("%s: only %q may import %s", rel, only, name)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestEveryMetricIsInTheDocs, and none that does not exist.
func TestEveryMetricIsInTheDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## Metrics")
	section, _, _ = strings.Cut(section, "## Logs")
	var listed []string
	for line := range strings.Lines(section) {
		cell, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		for _, m := range regexp.MustCompile("`([a-z_]+)(?:\\{[a-z_,]*\\})?`").FindAllStringSubmatch(cell, -1) {
			if strings.HasPrefix(line, "| `") {
				listed = append(listed, m[1])
			}
		}
	}
	slices.Sort(listed)
	if got := metricNames(t); !slices.Equal(got, listed) {
		t.Errorf("registered: %v\nlisted:     %v", got, listed)
	}
}

// metricNames reads the names from the sources: a vector without values is not
// gathered.
func metricNames(t *testing.T) (names []string) {
	t.Helper()
	patterns := []*regexp.Regexp{
		regexp.MustCompile(`Name: "([a-z_]+)"`), regexp.MustCompile(`(?:counters?|histogram)\("([a-z_]+)"`),
		regexp.MustCompile(`namespace\+"_([a-z_]+)"`),
	}
	for _, dir := range []string{"../../actors", "../../phases", "../../transport/server", "../../transport/gateway", "."} {
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range patterns {
				for _, m := range p.FindAllStringSubmatch(string(text), -1) {
					names = append(names, m[1])
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
