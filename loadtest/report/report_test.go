package report

import (
	"encoding/json"
	"encoding/xml"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/loadtest/load"
	"github.com/llm-coordinator/coordinator/loadtest/scrape"
)

// sample is the report of a run of four seconds, in the last of which requests were
// refused. Its numbers are scaled, so that two differ.
func sample(scale float64) *File {
	r := &load.Report{Began: time.Unix(1e9, 0).UTC(), DurationSeconds: 4, Rates: load.Rates{OK: 7.5 * scale},
		Counts: load.Counts{Begun: 40, OK: 30, Failed: 10}, Codes: map[string]int64{"queue_full": 9}, Transport: map[string]int64{"reset": 1}}
	r.Settings.URL, r.Settings.Rate = "http://127.0.0.1:1/<script>", 10
	r.Settings.Request = load.Request{Kind: load.Chat, Stream: true, PromptBytes: 1024, MaxTokens: 64, Images: 2, ImageBytes: 400}
	r.Total = load.Summary{Count: 30, P50: int64(123_000 * scale), P99: int64(456_000 * scale)}
	for i := range 4 {
		w := load.Window{At: float64(i), Seconds: 1, Begun: 10, OK: 10, Total: load.Spread{P50: int64(1000 * scale), P90: 2000, P99: 90_000}}
		if i == 3 {
			w = load.Window{At: 3, Seconds: 1, Begun: 10, Failed: 10, Errors: map[string]int64{"queue_full": 9, "reset": 1}}
		}
		r.Windows = append(r.Windows, w)
	}
	at := []float64{0, 1, 2, 3}
	gauge := func(values ...float64) scrape.Gauge {
		return scrape.Gauge{Values: values, Mean: values[0], Max: slices.Max(values)}
	}
	return &File{Report: r, Coordinator: &scrape.Figures{
		Mix:   scrape.Mix{Requests: 40, Images: 80},
		Steps: map[string]scrape.Timing{"decode": {Count: 30, Mean: .1, P99: .4}, "render": {Count: 30, Mean: .0125 * scale}},
		Shed:  map[string]float64{"queue_full": 9},
		Series: &scrape.Series{At: at, Missed: 1, Running: gauge(1, 2, 3, 4), Bytes: gauge(1<<20, 0, 0, 0),
			Pools: map[string]scrape.Pool{
				"decode": {Size: gauge(10, 10, 10, 10), Busy: gauge(1, 5, 10, 10), Queue: gauge(0, 0, 3, 4)},
				"media":  {Size: gauge(64, 64, 64, 64), Busy: gauge(0, 0, 0, 0), Queue: gauge(0, 0, 0, 0)}},
			Breakers: map[string]scrape.Gauge{"prefill": gauge(0, 0, 2, 1)}},
	}}
}

// page returns a page, which must be well-formed and need nothing from elsewhere.
func written(t *testing.T, write func(w io.Writer) error) string {
	t.Helper()
	var b strings.Builder
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	d := xml.NewDecoder(strings.NewReader(strings.TrimPrefix(text, "<!DOCTYPE html>")))
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("%v at %d\n%s", err, d.InputOffset(), text)
		}
		if e, ok := token.(xml.StartElement); ok {
			for _, a := range e.Attr {
				if slices.Contains([]string{"src", "href", "srcset", "data", "action"}, a.Name.Local) || e.Name.Local == "script" || e.Name.Local == "link" {
					t.Errorf("<%s %s=%q>", e.Name.Local, a.Name.Local, a.Value)
				}
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") || strings.Contains(a.Value, "%!") {
					t.Errorf("<%s %s=%q>", e.Name.Local, a.Name.Local, a.Value)
				}
			}
		}
	}
	for _, bad := range []string{"url(", "@import", "<script>", "%!", "ZgotmplZ"} {
		if strings.Contains(text, bad) {
			t.Errorf("%q is in the page", bad)
		}
	}
	return text
}

func TestPage(t *testing.T) {
	text := written(t, func(w io.Writer) error { return WritePage(w, sample(1)) })
	for _, want := range []string{
		"Load test of http://127.0.0.1:1/&lt;script&gt;", "10 requests a second, whatever the server does", "2 images of 400 bytes",
		"<td>total, p99</td><td>456 ms</td>", "<td>ended well</td><td>7.50/s</td>", "<td>render, mean</td><td>12.50 ms</td>",
		"<h3>Throughput</h3>", "<h3>Time to the end of the answer</h3>", "ms; each line of the grid is ten times", "<h3>Pool decode</h3>", "<h3>Circuit breakers</h3>",
		"seconds since the run began", "<tr><th>s</th><th>size</th><th>busy</th><th>waiting</th></tr>", "<tr><td>2</td><td>10</td><td>10</td><td>3</td></tr>",
		"<td>queue_full</td><td>9</td>", "1 readings of /metrics failed", "prefers-color-scheme: dark", `name="viewport"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, "Pool media") {
		t.Error("a pool without work is drawn")
	}
}

func TestPageOfLittle(t *testing.T) {
	f := &File{Report: &load.Report{DurationSeconds: 1}}
	text := written(t, func(w io.Writer) error { return WritePage(w, f) })
	if !strings.Contains(text, "The report has no windows") || !strings.Contains(text, "run with -metrics") {
		t.Error(text)
	}
	f.Windows = []load.Window{{Seconds: 0.001, OK: 1}}
	f.Counts.OK = 1
	written(t, func(w io.Writer) error { return WritePage(w, f) })
}

func TestComparison(t *testing.T) {
	a, b := Named{"before", sample(1)}, Named{"after", sample(2)}
	delete(b.Codes, "queue_full")
	b.Coordinator.Steps["encode"] = scrape.Timing{Count: 1}
	var out strings.Builder
	if err := WriteComparison(&out, a, b); err != nil {
		t.Fatal(err)
	}
	squeezed := regexp.MustCompile(` +`).ReplaceAllString(out.String(), " ")
	for _, want := range []string{
		"before:\n", "\n before after difference \n", " ended well 7.50/s 15/s +7.50/s +100.0%\n", " total, p50 123 ms 246 ms +123 ms +100.0%\n",
		" queue_full 9 – – –\n", " begun 40 40 0 +0.0%\n", " render, mean 12.50 ms 25 ms +12.50 ms +100.0%\n", " encode, times – 1 – –\n",
	} {
		if !strings.Contains(squeezed, want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	text := written(t, func(w io.Writer) error { return WriteComparisonPage(w, a, b) })
	for _, want := range []string{"Two load tests: before and after", "before: ended well</li>", "after: ended well</li>", `<path class="s1 dash" d="M`,
		"<th>before</th><th>after</th><th>difference</th>", "<td>15/s</td><td>&#43;7.50/s</td>"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

// TestLines: values are drawn where the axes say, and what is not there is a gap.
func TestLines(t *testing.T) {
	c := chart{lines: []line{{name: "a", color: 1, x: []float64{0, 5, 10, 15, 20}, y: []float64{0, 100, math.NaN(), 50, math.NaN()}}}}
	x, y := c.axes()
	if x.high != 20 || y.high != 100 || len(y.ticks) != 6 {
		t.Errorf("%+v %+v", x, y)
	}
	if got, want := c.lines[0].draw(x, y), `<path class="s1" d="M52.0 206.0L156.0 14.0M364.0 110.0h.1"/>`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	c = chart{far: true, lines: []line{{x: []float64{1, 2}, y: []float64{3, 4000}}}}
	if _, y := c.axes(); !y.log || !slices.Equal(y.ticks, []float64{1, 10, 100, 1000, 10000}) || y.at(100) != (bottom+top)/2 || y.at(0) != bottom {
		t.Errorf("%+v", y)
	}
}

func TestTablesAreBounded(t *testing.T) {
	var l line
	for i := range 600 {
		l.x, l.y = append(l.x, float64(i)), append(l.y, float64(i))
	}
	if table := (chart{lines: []line{l}}).Table(); len(table.Rows) != maxRows || table.Rows[1][0] != "10" || !strings.Contains(table.Note, "One of each 10") {
		t.Errorf("%d rows, %v", len(table.Rows), table.Note)
	}
}

func TestReading(t *testing.T) {
	name := filepath.Join(t.TempDir(), "r.json")
	want := sample(1)
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ text, wrong string }{
		{string(text), ""}, {"{}", "is no report of a load test"}, {"{", "is no report of a load test"}, {`{"rows":[]}`, "is no report"},
	} {
		if err := os.WriteFile(name, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Read(name)
		if tt.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("%s: %v", tt.text, err)
			}
			continue
		}
		if err != nil || len(f.Windows) != 4 || f.Windows[3].Errors["queue_full"] != 9 || f.Coordinator.Series.Pools["decode"].Busy.Max != 10 {
			t.Errorf("%v %+v", err, f)
		}
	}
	if _, err := Read(name + "x"); err == nil {
		t.Error("a file that is not there was read")
	}
	for _, member := range []string{`"windows":[{"at_seconds":0,"seconds":1,"begun":10,"ok":10,"failed":0,"cut":0,"missed":0,"events":0,"first_event":{"p50_us":0,"p90_us":0,"p99_us":0},"total":{`,
		`"coordinator":{"seconds":0,"mix":{"requests":40,`, `"steps":{"decode":{"count":30,"sum_seconds":0,"mean_seconds":0.1,"p50_seconds":0,"p99_seconds":0.4}`,
		`"series":{"at_seconds":[0,1,2,3],"missed":1,"pools":{"decode":{"size":{"values":[10,10,10,10],"mean":10,"max":10},"busy":`,
		`"running":{`, `"inflight_bytes":{`, `"breakers":{"prefill":`, `"pool_waits":`, `"upstreams":`, `"media_downloads":`, `"orchestration_overhead":`} {
		if !strings.Contains(string(text), member) {
			t.Errorf("no %s in %s", member, text)
		}
	}
}
