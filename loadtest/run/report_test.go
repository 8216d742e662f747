package main

import (
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/report"
)

// serving answers requests, and /metrics as a coordinator with two pools does.
func serving(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/metrics" {
		answer(w, r)
		return
	}
	io.WriteString(w, `# TYPE llm_d_coordinator_pool_size gauge
llm_d_coordinator_pool_size{pool="decode"} 7
# TYPE llm_d_coordinator_pool_busy gauge
llm_d_coordinator_pool_busy{pool="decode"} 3
`)
}

// TestReports: a run writes its report as JSON and as a page, and two of them can be
// compared.
func TestReports(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	url := start(t, serving)
	for _, name := range []string{"a", "b"} {
		err := run(t.Context(), []string{"-url", url, "-c", "2", "-n", "20", "-stream", "-metrics", url + "/metrics",
			"-o", file(name + ".json"), "-report", file(name + ".html")}, io.Discard, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		r, err := report.Read(file(name + ".json"))
		if err != nil {
			t.Fatal(err)
		}
		ok := int64(0)
		for _, w := range r.Windows {
			ok += w.OK
		}
		if ok != 20 || r.Coordinator.Series.Pools["decode"].Busy.Mean != 3 {
			t.Errorf("%+v", r)
		}
		contains(t, file(name+".html"), "<td>ok</td><td>20</td>", "<h3>Pool decode</h3>")
	}
	for _, args := range [][]string{
		{"compare", file("a.json"), file("b.json"), "-report", file("ab.html")},
		{"compare", "-report", file("ab.html"), file("a.json"), file("b.json")},
		{"-compare", file("a.json"), file("b.json"), "-report", file("ab.html")},
		{"-report", file("ab.html"), "--compare", file("a.json"), file("b.json")},
	} {
		os.Remove(file("ab.html"))
		var out strings.Builder
		if err := run(t.Context(), args, &out, io.Discard); err != nil {
			t.Errorf("%v: %v", args, err)
		}
		if !strings.Contains(out.String(), "a:\n") || !strings.Contains(out.String(), "ended well") {
			t.Error(out.String())
		}
		contains(t, file("ab.html"), "Two load tests: a and b", "<th>a</th><th>b</th>")
	}
}

func contains(t *testing.T, file string, want ...string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
	}
	for _, w := range want {
		if !strings.Contains(string(text), w) {
			t.Errorf("%s: no %s", file, w)
		}
	}
}

func TestReportsThatCannotBe(t *testing.T) {
	url := start(t, serving)
	if err := run(t.Context(), []string{"-url", url, "-c", "1", "-n", "1", "-metrics", url + "/x"}, io.Discard, io.Discard); err == nil || !strings.HasPrefix(err.Error(), "-metrics: ") {
		t.Error(err)
	}
	if err := run(t.Context(), []string{"-url", url, "-c", "1", "-n", "1", "-report", "/nonexistent/x.html"}, io.Discard, io.Discard); err == nil {
		t.Error("a page was written where none can be")
	}
	for _, args := range []string{"compare", "compare a.json", "-compare a b c", "compare -x"} {
		if err := run(t.Context(), strings.Fields(args), io.Discard, io.Discard); !errors.Is(err, errUsage) {
			t.Errorf("%s: %v", args, err)
		}
	}
	if err := run(t.Context(), []string{"compare", "nowhere.json", "nowhere.json"}, io.Discard, io.Discard); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestNamesOfReports(t *testing.T) {
	for _, tt := range [][4]string{
		{"x/a.json", "y/b.json", "a", "b"}, {"x/r.json", "y/r.json", "x/r.json", "y/r.json"}, {"r.json", "r.json", "r.json", "r.json (again)"},
	} {
		if got := shortened(tt[0], tt[1]); got != [2]string{tt[2], tt[3]} {
			t.Errorf("%v: %v", tt, got)
		}
	}
}

// TestSweep: reports of what was varied, as a table and as a drawing.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	url := start(t, serving)
	var points []string
	for _, at := range []string{"16", "8"} {
		if err := run(t.Context(), []string{"-url", url, "-c", "1", "-n", "5", "-o", file(at)}, io.Discard, io.Discard); err != nil {
			t.Fatal(err)
		}
		points = append(points, at+"="+file(at))
	}
	var out strings.Builder
	if err := run(t.Context(), append([]string{"sweep", "-along", "decode <places>", "-svg", file("x.svg")}, points...), &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || !strings.HasPrefix(strings.TrimSpace(lines[1]), "8 ") || !strings.HasPrefix(strings.TrimSpace(lines[2]), "16 ") {
		t.Errorf("got\n%s", out.String())
	}
	contains(t, file("x.svg"), "decode &lt;places&gt;", ">served</text>", ">15</text>")
	drawing, err := os.ReadFile(file("x.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(string(drawing))); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains(string(drawing), "NaN") {
		t.Error("there is a NaN in it")
	}
	for _, wrong := range [][]string{{"sweep"}, {"sweep", "x=" + file("8")}, {"sweep", "8"}, {"sweep", "8="}} {
		if err := run(t.Context(), wrong, io.Discard, io.Discard); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	if err := run(t.Context(), []string{"sweep", "-svg", file("y.svg"), points[0]}, io.Discard, io.Discard); err == nil {
		t.Error("one run is drawn")
	}
}
