// Package metricstest reads metrics for tests.
package metricstest

import (
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Prefix is what the names of all our metrics begin with.
const Prefix = "llm_d_coordinator_"

// All returns what a registry tells: values by their series, named without Prefix as
// name or name{a="b",c="d"}. A histogram's value is its count. It may be called by
// many goroutines, though a test fails at once only in its own.
func All(t testing.TB, from prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			all[strings.TrimPrefix(f.GetName(), Prefix)+labels(m)] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}

// labels are those of a series, as they stand behind its name.
func labels(m *dto.Metric) string {
	var all []string
	for _, l := range m.GetLabel() {
		all = append(all, l.GetName()+"="+strconv.Quote(l.GetValue()))
	}
	if len(all) == 0 {
		return ""
	}
	return "{" + strings.Join(all, ",") + "}"
}

// Of returns the series of one metric, named with Prefix or without, by their labels:
// {a="b",c="d"}, or "".
func Of(t testing.TB, from prometheus.Gatherer, name string) map[string]float64 {
	t.Helper()
	name, series := strings.TrimPrefix(name, Prefix), map[string]float64{}
	for key, value := range All(t, from) {
		if rest, ours := strings.CutPrefix(key, name); ours && (rest == "" || rest[0] == '{') {
			series[rest] = value
		}
	}
	return series
}

// Sum adds up the series of a metric that have all of these labels, each as
// name=value; ok is false if the metric has no series at all.
func Sum(t testing.TB, from prometheus.Gatherer, name string, labels ...string) (sum float64, ok bool) {
	t.Helper()
	series := Of(t, from, name)
	for has, value := range series {
		if hasAll(has, labels) {
			sum += value
		}
	}
	return sum, len(series) > 0
}

func hasAll(has string, labels []string) bool {
	for _, want := range labels {
		name, value, _ := strings.Cut(want, "=")
		label := name + "=" + strconv.Quote(value)
		if !strings.Contains(has, "{"+label) && !strings.Contains(has, ","+label) {
			return false
		}
	}
	return true
}
