// Package scrape reads what a coordinator says of itself at /metrics: once, or each
// second while a load test lasts. It makes of it what happened between two readings
// (see [Figures]): how often, how long, and how full the pools were.
//
// It knows names of metrics and no code of the coordinator, as any reader of
// docs/metrics.md would.
package scrape

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// namespace begins the names of a coordinator's own metrics.
const namespace = "llm_d_coordinator_"

// maxPage is how much of a page is read; a coordinator's is below 1 MB.
const maxPage = 32 << 20

// Snapshot is what a page said. It is not changed.
type Snapshot struct {
	// At is when it was read.
	At       time.Time
	families map[string]*dto.MetricFamily
}

// Parse reads a page in Prometheus' text format.
func Parse(page io.Reader) (*Snapshot, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(page, maxPage))
	if err != nil {
		return nil, fmt.Errorf("no metrics in Prometheus' text format: %w", err)
	}
	s := &Snapshot{At: time.Now(), families: families}
	if s.family("pool_size") == nil {
		return nil, errors.New("no metrics of a coordinator: " + namespace + "pool_size is not among them")
	}
	return s, nil
}

// Get reads the page at a URL, which may hold user and password.
func Get(ctx context.Context, client *http.Client, url string) (*Snapshot, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil { // it quotes the URL, which may hold a token
		return nil, errors.New("no URL as in http://127.0.0.1:9090/metrics; in a token / is written %2F, ? %3F and # %23")
	}
	r.Header.Set("Accept", "text/plain;version=0.0.4")
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		hint := ""
		if answer.StatusCode == http.StatusUnauthorized {
			hint = ": it asks for admin.token; give it as http://x:TOKEN@host:port/metrics"
		}
		return nil, fmt.Errorf("%s answered %d%s", r.URL.Redacted(), answer.StatusCode, hint)
	}
	s, err := Parse(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.URL.Redacted(), err)
	}
	return s, nil
}

// family returns a metric of the coordinator's own, or nil.
func (s *Snapshot) family(name string) *dto.MetricFamily {
	if s == nil {
		return nil
	}
	return s.families[namespace+name]
}

// Values returns the values of one of the coordinator's own counters or gauges, whose
// name is given without the llm_d_coordinator_ of all, by one of its labels; those
// that differ in others only are added up. With a label of "" all are, and are at "".
// What is not on the page has no values.
func (s *Snapshot) Values(name, label string) map[string]float64 {
	all := map[string]float64{}
	for _, m := range s.family(name).GetMetric() {
		if v := number(m); !math.IsNaN(v) && !math.IsInf(v, 0) {
			all[labelOf(m, label)] += v
		}
	}
	return all
}

func number(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	}
	return m.GetUntyped().GetValue()
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.Label {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// histogram is one of the page's. Its buckets are not cumulative.
type histogram struct {
	count  float64
	sum    float64
	bounds []float64 // upper ones, rising
	counts []float64 // one more: what is above all bounds
}

// histograms returns a histogram by one of its labels, as Values does.
func (s *Snapshot) histograms(name, label string) map[string]*histogram {
	all := map[string]*histogram{}
	for _, m := range s.family(name).GetMetric() {
		h := newHistogram(m.GetHistogram())
		if h == nil {
			continue
		}
		key := labelOf(m, label)
		if all[key] == nil {
			all[key] = h
		} else {
			all[key].add(h, 1)
		}
	}
	return all
}

func newHistogram(from *dto.Histogram) *histogram {
	if from == nil || math.IsNaN(from.GetSampleSum()) || math.IsInf(from.GetSampleSum(), 0) {
		return nil
	}
	h := &histogram{count: float64(from.GetSampleCount()), sum: from.GetSampleSum()}
	below := 0.0
	for _, b := range from.Bucket {
		if math.IsInf(b.GetUpperBound(), 1) {
			break
		}
		n := float64(b.GetCumulativeCount())
		h.bounds = append(h.bounds, b.GetUpperBound())
		h.counts = append(h.counts, max(0, n-below))
		below = n
	}
	h.counts = append(h.counts, max(0, h.count-below))
	return h
}

// add adds another, so many times; with -1 what is left is what came since.
func (h *histogram) add(o *histogram, times float64) {
	h.count += times * o.count
	h.sum += times * o.sum
	if len(o.counts) != len(h.counts) {
		return // of another version of the coordinator: count and sum will do
	}
	for i, n := range o.counts {
		h.counts[i] += times * n
	}
}
