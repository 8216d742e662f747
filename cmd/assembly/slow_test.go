package assembly_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/monitor"
)

// TestWhatMadeARequestSlow: if encode takes some seconds, the log line, the page and
// the metrics name encode. (What its trace says, trace_test.go holds.)
func TestWhatMadeARequestSlow(t *testing.T) {
	t.Parallel()
	const slow = 6 * time.Second
	r := newRig(t, setup{steps: wholeSteps})
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Encode, Delay: slow, Times: 1})
	body := fmt.Sprintf(`{"model":"demo-model","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":%q}}]}]}`, dataURI(picture(1, 500)))
	if got := r.post(chatPath, body, "X-Request-Id", "the-id"); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	rec := <-r.finished
	if rec.Overhead >= slow || rec.Total < slow || rec.Path != "encode-prefill-decode" {
		t.Errorf("overhead %v of %v, path %s", rec.Overhead, rec.Total, rec.Path)
	}
	line := ""
	for l := range strings.Lines(r.logs.String()) {
		if strings.Contains(l, "msg=request ") {
			line = l
		}
	}
	for _, want := range []string{"request_id=the-id", "encode.ran=", "encode.attempts=1", "path=encode-prefill-decode", "tokens_in="} {
		if !strings.Contains(line, want) {
			t.Errorf("no %s in %s", want, line)
		}
	}
	w := httptest.NewRecorder()
	r.Admin.Handler().ServeHTTP(w, httptest.NewRequest("GET", "http://127.0.0.1/requests/"+rec.Serial, nil))
	var v monitor.View
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	longest := monitor.Bar{}
	for _, b := range v.Bars {
		if b.Until-b.From > longest.Until-longest.From {
			longest = b
		}
	}
	if longest.Kind != "encode" || longest.Until-longest.From < ms(slow) {
		t.Errorf("the longest bar is %+v", longest)
	}
	w = httptest.NewRecorder()
	r.Admin.Handler().ServeHTTP(w, httptest.NewRequest("GET", "http://127.0.0.1/metrics", nil))
	took := func(step string) (seconds float64) {
		_, text, found := strings.Cut(w.Body.String(), fmt.Sprintf(`step_duration_seconds_sum{step=%q} `, step))
		if _, err := fmt.Sscan(text, &seconds); !found || err != nil {
			t.Errorf("no time of %s in the metrics: %v", step, err)
		}
		return seconds
	}
	if encode, prefill := took("encode"), took("prefill"); encode < slow.Seconds() || encode <= prefill {
		t.Errorf("encode took %v s, prefill %v s", encode, prefill)
	}
	for _, want := range []string{`execution_path_total{model_name="demo-model",path="encode-prefill-decode"} 1`, "encode_subrequests_sum 1", `media_items_sum{media_type="image"} 1`} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
	w = httptest.NewRecorder()
	r.Admin.Handler().ServeHTTP(w, httptest.NewRequest("GET", "http://127.0.0.1/status", nil))
	var status monitor.Status
	if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil {
		t.Fatal(err)
	}
	for _, p := range status.Pipeline {
		if p.Pool == "" || p.Capacity == 0 {
			t.Errorf("%s has no pool: %+v", p.Name, p)
		}
		if (p.P99 >= ms(slow)) != (p.Name == "encode") {
			t.Errorf("%+v", p)
		}
	}
}

func ms(d time.Duration) float64 { return float64(d.Milliseconds()) }
