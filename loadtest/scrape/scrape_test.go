package scrape

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// page is what a coordinator says after so many requests, each of which took half a
// second to prefill.
func page(requests int, started, busy float64) string {
	return fmt.Sprintf(`# HELP llm_d_coordinator_pool_size x
# TYPE llm_d_coordinator_pool_size gauge
llm_d_coordinator_pool_size{pool="decode"} 10
llm_d_coordinator_pool_size{pool="prefill"} 4
# TYPE llm_d_coordinator_pool_busy gauge
llm_d_coordinator_pool_busy{pool="decode"} %[3]g
# TYPE llm_d_coordinator_breaker_state gauge
llm_d_coordinator_breaker_state{profile="decode"} %[4]d
llm_d_coordinator_breaker_state{profile="prefill"} 0
# TYPE llm_d_coordinator_request_total counter
llm_d_coordinator_request_total{model_name="a"} %[1]d
llm_d_coordinator_request_total{model_name="b"} %[1]d
# TYPE llm_d_coordinator_shed_total counter
llm_d_coordinator_shed_total{reason="queue_full"} 7
# TYPE llm_d_coordinator_step_duration_seconds histogram
llm_d_coordinator_step_duration_seconds_bucket{step="prefill",le="0.25"} 0
llm_d_coordinator_step_duration_seconds_bucket{step="prefill",le="0.5"} %[1]d
llm_d_coordinator_step_duration_seconds_bucket{step="prefill",le="+Inf"} %[1]d
llm_d_coordinator_step_duration_seconds_sum{step="prefill"} %[2]g
llm_d_coordinator_step_duration_seconds_count{step="prefill"} %[1]d
# TYPE process_start_time_seconds gauge
process_start_time_seconds %[5]g
`, requests, float64(requests)/2, busy, min(2, int(busy)-1), started)
}

func parse(t *testing.T, text string) *Snapshot {
	t.Helper()
	s, err := Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestBetweenTwoReadings(t *testing.T) {
	first, last := parse(t, page(10, 1, 3)), parse(t, page(30, 1, 3))
	f := Between(first, last)
	if f.Mix.Requests != 40 || f.Sizes["prefill"] != 4 || f.Restarted {
		t.Errorf("%+v", f)
	}
	want := Timing{Count: 20, Sum: 10, Mean: .5, P50: .375, P99: .4975}
	if got := f.Steps["prefill"]; got.Count != want.Count || got.Sum != want.Sum || got.Mean != want.Mean ||
		math.Abs(got.P50-want.P50) > 1e-9 || math.Abs(got.P99-want.P99) > 1e-9 {
		t.Errorf("%+v, want %+v", got, want)
	}
	if len(f.Shed) != 0 { // it has not grown
		t.Errorf("%v", f.Shed)
	}
	if f := Between(nil, last); f.Mix.Requests != 60 || f.Shed["queue_full"] != 7 || f.Seconds != 0 {
		t.Errorf("since the start: %+v", f)
	}
	if f := Between(last, parse(t, page(5, 2, 3))); !f.Restarted || f.Mix.Requests != 10 || f.Steps["prefill"].Count != 5 {
		t.Errorf("after a restart: %+v", f)
	}
}

// TestRequestsWithSeveralTypesOfMedia are one each, if the coordinator says how many
// requests had any.
func TestRequestsWithSeveralTypesOfMedia(t *testing.T) {
	// Three requests have two images each, two of them a piece of audio beside.
	text := page(5, 1, 2) + `# TYPE llm_d_coordinator_media_items histogram
llm_d_coordinator_media_items_bucket{media_type="image",le="+Inf"} 3
llm_d_coordinator_media_items_sum{media_type="image"} 6
llm_d_coordinator_media_items_count{media_type="image"} 3
llm_d_coordinator_media_items_bucket{media_type="audio",le="+Inf"} 2
llm_d_coordinator_media_items_sum{media_type="audio"} 2
llm_d_coordinator_media_items_count{media_type="audio"} 2
`
	if m := Between(nil, parse(t, text)).Mix; m.WithImages != 5 || m.Images != 8 {
		t.Errorf("an older coordinator: %+v", m)
	}
	text += "# TYPE llm_d_coordinator_request_media_total counter\nllm_d_coordinator_request_media_total 3\n"
	if m := Between(nil, parse(t, text)).Mix; m.WithImages != 3 || m.Images != 8 {
		t.Errorf("%+v", m)
	}
}

func TestPercentilesAboveAllBuckets(t *testing.T) {
	h := &histogram{count: 4, sum: 40, bounds: []float64{1, 2}, counts: []float64{0, 1, 3}}
	if got := h.timing(); got.Mean != 10 || got.P50 != 2 || got.P99 != 2 {
		t.Errorf("%+v", got)
	}
}

// TestWatch reads until it is stopped, and the last reading is the end's.
func TestWatch(t *testing.T) {
	var reading atomic.Int64
	read := make(chan int64, 1000)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := reading.Add(1)
		if n == 2 {
			w.WriteHeader(500)
		} else {
			fmt.Fprint(w, page(int(n), 1, float64(n)))
		}
		read <- n
	}))
	defer s.Close()
	watch, err := Begin(t.Context(), s.URL+"/metrics", time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		<-read
	}
	f := watch.Stop()
	decode := f.Series.Pools["decode"]
	n := int(decode.Busy.Max) // the last that counts
	if begun := int(reading.Load()); begun != n && begun != n+1 {
		t.Errorf("%d readings were begun, the last that counts is the %dth", begun, n) // Stop may interrupt one, which comes late
	}
	points := len(f.Series.At) // the reading that Stop interrupts is not among them
	if points < 4 || points > n-1 || f.Series.Missed != 1 || f.Mix.Requests != float64(2*(n-1)) || f.Seconds <= 0 {
		t.Errorf("%d readings: %+v", n, f)
	}
	if len(decode.Busy.Values) != points || decode.Busy.Values[0] != 1 || decode.Size.Mean != 10 {
		t.Errorf("%+v", decode)
	}
	if _, closed := f.Series.Breakers["prefill"]; closed || f.Series.Breakers["decode"].Max != 2 {
		t.Errorf("%+v", f.Series.Breakers)
	}
}

// TestSeriesOfALongRun: there are never more values than there may be, and they are
// means of what they stand for.
func TestSeriesOfALongRun(t *testing.T) {
	var p points
	const readings = 5003
	for i := range readings {
		breaker := 0.0
		if i == 1000 {
			breaker = 2
		}
		p.add(float64(i), map[string]float64{kindSize + "a": 5, kindBusy + "a": float64(i % 2), kindBreaker + "b": breaker})
	}
	s := p.series()
	a := s.Pools["a"]
	if len(s.At) > maxPoints || len(s.At) < maxPoints/2 || len(a.Busy.Values) != len(s.At) {
		t.Fatalf("%d points", len(s.At))
	}
	if math.Abs(a.Busy.Mean-0.5) > 0.001 || a.Busy.Max != 1 || a.Busy.Values[7] != 0.5 || a.Size.Mean != 5 || s.Breakers["b"].Max != 2 {
		t.Errorf("%v %v %v", a.Busy.Mean, a.Busy.Max, a.Busy.Values[7])
	}
	for i := 1; i < len(s.At); i++ {
		if s.At[i] <= s.At[i-1] || s.At[i] >= readings {
			t.Fatalf("at %v, then %v", s.At[i-1], s.At[i])
		}
	}
}

func TestPagesThatAreNone(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "no metrics of a coordinator",
		"<html>":                  "no metrics in Prometheus' text format",
		"go_goroutines 7\n":       "no metrics of a coordinator",
		"llm_d_coordinator_x 1 2": "no metrics",
	} {
		if _, err := Parse(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password == "right" {
			fmt.Fprint(w, page(1, 1, 1))
			return
		}
		w.WriteHeader(401)
	}))
	defer s.Close()
	with := func(user string) string { return strings.Replace(s.URL, "http://", "http://"+user, 1) }
	if _, err := Begin(t.Context(), with("x:wrong@"), time.Hour); err == nil || strings.Contains(err.Error(), "wrong") || !strings.Contains(err.Error(), "admin.token") {
		t.Error(err)
	}
	if _, err := Begin(t.Context(), with("x:wro/ng@"), time.Hour); err == nil || strings.Contains(err.Error(), "wro") {
		t.Error(err)
	}
	w, err := Begin(t.Context(), with("x:right@"), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if f := w.Stop(); len(f.Series.At) != 2 {
		t.Errorf("%+v", f.Series)
	}
	s.Close()
	if _, err := Begin(t.Context(), with("x:secret@"), time.Hour); err == nil || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

// FuzzParse: whatever a page says, figures of it are finite and can be made of any
// two.
func FuzzParse(f *testing.F) {
	f.Add(page(1, 1, 1), page(2, 1, 1))
	f.Add(page(9, 1, 1), "llm_d_coordinator_pool_size NaN\n# TYPE llm_d_coordinator_step_duration_seconds histogram\n"+
		"llm_d_coordinator_step_duration_seconds_bucket{step=\"prefill\",le=\"7\"} 3\nllm_d_coordinator_step_duration_seconds_sum{step=\"prefill\"} +Inf\n")
	f.Fuzz(func(t *testing.T, a, b string) {
		first, err := Parse(strings.NewReader(a))
		if err != nil {
			return
		}
		last, err := Parse(strings.NewReader(b))
		if err != nil {
			last = first
		}
		figures := Between(first, last)
		for name, s := range figures.Steps {
			if math.IsNaN(s.Mean) || s.Count <= 0 || math.IsNaN(s.P99) || s.P99 < s.P50 {
				t.Errorf("%s: %+v", name, s)
			}
		}
		var p points
		p.add(0, gauges(first))
		p.add(1, gauges(last))
		p.series()
	})
}
