package load

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestPercentilesOfKnownInputs(t *testing.T) {
	h := newHistogram()
	if s := h.summary(); s != (Summary{}) {
		t.Errorf("of nothing: %+v", s)
	}
	for us := 1; us <= 1000; us++ { // small numbers are exact
		h.record(time.Duration(us) * time.Microsecond)
	}
	if s, want := h.summary(), (Summary{Count: 1000, Mean: 500.5, Min: 1, P50: 500, P90: 900, P99: 990, P999: 999, Max: 1000}); s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
	h = newHistogram()
	for range 99 {
		h.record(-time.Second) // a clock that was set back
	}
	h.record(100 * time.Hour)
	if s := h.summary(); s.P50 != 0 || s.P99 != 0 || s.P999 < longest.Microseconds() || s.Max < longest.Microseconds() {
		t.Errorf("%+v", s)
	}
}

// TestReportInJSON: nothing of it is lost, and its names stay.
func TestReportInJSON(t *testing.T) {
	o := options(serve(t, stream(3)), 10)
	o.PID = os.Getpid()
	o.Header = map[string][]string{"Authorization": {"secret"}}
	report := mustRun(t, o)
	report.Began = report.Began.Round(0) // without the monotonic clock
	report.Codes["queue_full"] = 3
	text, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	var again Report
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	again.Began = report.Began
	if !reflect.DeepEqual(report, &again) {
		t.Errorf("%+v\n%+v", report, &again)
	}
	for _, name := range []string{`"settings":{"url":`, `"pid":`, `"request":{"kind":"chat","model":"demo-model","stream":false,"max_tokens":64,"prompt_bytes":1024,"images":0,"image_bytes":0}`,
		`"clients":4`, `"count":10`, `"duration_ns":`, `"grace_ns":`, `"timeout_ns":`, `"began":`, `"duration_seconds":`, `"counts":{"begun":10,"ok":10,"failed":0,"cut":0,"missed":0,"events":40,"bytes_read":`,
		`"rates":{"ok":`, `"first_event":{"count":10,"mean_us":`, `"min_us":`, `"p50_us":`, `"p90_us":`, `"p99_us":`, `"p999_us":`, `"max_us":`,
		`"gap":{`, `"total":{`, `"delay":{`, `"statuses":{"200":10}`, `"codes":{"queue_full":3}`, `"transport":{}`,
		`"process":{"pid":`, `"user_seconds":`, `"system_seconds":`, `"cpu_us_per_request":`, `"rss_before_bytes":`, `"rss_after_bytes":`, `"peak_rss_bytes":`} {
		if !strings.Contains(string(text), name) {
			t.Errorf("no %s in %s", name, text)
		}
	}
	if strings.Contains(string(text), "secret") {
		t.Error("a header is in the report")
	}
}

func TestReportAsText(t *testing.T) {
	r := Report{DurationSeconds: 2, Counts: Counts{Begun: 10, OK: 7, Failed: 3}, Rates: Rates{OK: 3.5},
		Total: Summary{Count: 7, P50: 1500}, Statuses: map[string]int64{"429": 3, "200": 7}, Codes: map[string]int64{"queue_full": 3},
		Process: &Process{PID: 7, CPUPerRequest: 210}}
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"10 begun in 2.0 s: 7 ok (3.5/s), 3 failed", "1.50", "status 200: 7\nstatus 429: 3\n", "error code queue_full: 3", "process 7: 210 µs of CPU"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
