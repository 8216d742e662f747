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
	"cmd/coordinator":   {"cmd/assembly", "cmd/explain", "cmd/migrate", "cmd/plan", "conf", "loadtest/broker", "loadtest/cluster", "loadtest/scrape", "transport/kwargs", "transport/server", "transport/wire"},
	"cmd/explain":       {"cmd/assembly", "conf", "loadtest/cluster", "phases", "transport/broker", "transport/server", "transport/wire"},
	"cmd/migrate":       {"conf", "phases"},
	"cmd/plan":          {"conf", "loadtest/scrape", "phases"},
	"cmd/docs":          {"conf"},
	"cmd/assembly":      {"actors", "conf", "phases", "transport/admin", "transport/broker", "transport/budget", "transport/engines", "transport/files", "transport/gateway", "transport/monitor", "transport/server", "transport/trace", "transport/wire"},
	"transport/budget":  {"transport/wire"},
	"transport/server":  {"phases", "transport/budget", "transport/journal", "transport/wire"}, // the engine is an interface to it
	"transport/admin":   {"transport/monitor"},                                                 // it shows views of requests, and nothing of a server's
	"transport/monitor": {"transport/journal", "transport/server"},                             // it keeps the server's records; the server knows nobody who is told
	"actors":            {"phases", "transport/wire"},
	"phases":            {"connectors/ec", "connectors/kv", "transport/broker", "transport/budget", "transport/gateway", "transport/journal", "transport/kwargs", "transport/media", "transport/wire"},
	"connectors":        {},
	"connectors/ec":     {"connectors", "transport/wire"},
	"connectors/kv":     {"connectors", "transport/wire"},
	"transport/gateway": {"transport/budget", "transport/files", "transport/journal", "transport/wire"},
	"transport/broker":  {"transport/gateway", "transport/wire"},
	"transport/engines": {"transport/wire"},
	"transport/files":   {},
	"transport/media":   {"transport/budget", "transport/wire"},
	"transport/wire":    {},
	"transport/journal": {},
	"transport/trace":   {"transport/journal", "transport/server", "transport/wire"},
	"transport/kwargs":  {},
	"conf":              {},
	"loadtest/broker":   {}, // it shares no code with transport/broker, so that both cannot share a misreading
	"loadtest/cluster":  {},
	"loadtest/floor":    {"actors", "phases"}, // only to tell what the actors cost
	"loadtest/load":     {},
	"loadtest/scrape":   {}, // it knows names of metrics only
	"loadtest/report":   {"loadtest/load", "loadtest/scrape"},
	"loadtest/run":      {"loadtest/load", "loadtest/report", "loadtest/scrape"},

	"e2e":                    {}, // tests only
	"loadtest/k6/enginetest": {}, // a module of its own
	"tools/release":          {}, // a module of its own

	"transport/wire/wiretest":     {},                     // for tests only
	"transport/metricstest":       {},                     // for tests only
	"transport/files/filestest":   {},                     // for tests only
	"transport/trace/tracetest":   {},                     // for tests only
	"transport/broker/redistest":  {"transport/porttest"}, // for tests only
	"transport/porttest":          {},                     // for tests only
	"transport/server/servertest": {"loadtest/cluster"},   // for tests only: a table of its faults
}

// kept are dependencies that only these packages may import.
var kept = map[string]string{
	"github.com/asynkron/protoactor-go":   "actors",
	"github.com/HdrHistogram":             "loadtest/load",
	"github.com/prometheus/common":        "loadtest/scrape",
	"github.com/sony/gobreaker":           "transport/gateway",
	"github.com/redis/go-redis":           "transport/broker loadtest/broker", // the two ends of one protocol
	"github.com/alicebob/miniredis":       "loadtest/broker",
	"github.com/BurntSushi/toml":          "conf",
	"github.com/vmihailenco/msgpack":      "transport/kwargs",
	"go.opentelemetry.io/otel":            "transport/trace",
	"go.opentelemetry.io/proto":           "transport/trace/tracetest",
	"github.com/go-json-experiment/json":  "",
	"go.yaml.in/yaml":                     "cmd/migrate", // reads what we do not write
	"github.com/chromedp":                 "",            // for a test only: drives the browser that looks at the operators' page
	"github.com/asynkron/protoactor-go/r": "",            // router
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
				if strings.HasPrefix(name, dep) && !slices.Contains(strings.Fields(only), dir) {
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

// TestEveryMetricIsInTheDocs, with its labels, and none that does not exist.
func TestEveryMetricIsInTheDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string][]string{}
	for line := range strings.Lines(string(page)) {
		cell, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		for _, m := range regexp.MustCompile("`([a-z_]+)(?:\\{([a-z_,]*)\\})?`").FindAllStringSubmatch(cell, -1) {
			if strings.HasPrefix(line, "| `") {
				listed[m[1]] = strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' })
			}
		}
	}
	known := metricLabels(t)
	for name, labels := range known {
		there, ok := listed[name]
		slices.Sort(labels)
		slices.Sort(there)
		if !ok || !slices.Equal(labels, there) {
			t.Errorf("%s has the labels %v, the page says %v (is there: %v)", name, labels, there, ok)
		}
	}
	for name := range listed {
		if _, ok := known[name]; !ok {
			t.Errorf("%s is on the page and nowhere else", name)
		}
	}
}
