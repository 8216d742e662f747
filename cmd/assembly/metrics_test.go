package assembly_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/llm-coordinator/coordinator/transport/metricstest"
)

// TestMetricsLint: what a coordinator that has served and refused says of itself
// is as Prometheus would have it, but for the "_d_" of the prefix, which the lint
// takes for a unit.
func TestMetricsLint(t *testing.T) {
	r := newRig(t, setup{steps: mediaStep + renderStep + encodeStep + prefillStep + decodeStep})
	if got := r.post(chatPath, chatBody("hi", true)); got.status != http.StatusOK {
		t.Fatalf("got %d %s", got.status, got.body)
	}
	r.post(chatPath, "{")
	r.settled()
	families, err := r.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if len(families) < 50 {
		t.Errorf("only %d families", len(families))
	}
	for _, f := range families {
		if name, ours := strings.CutPrefix(f.GetName(), metricPrefix); ours {
			f.Name = &name
		}
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestGarbageNamesOfModels: 10,000 names that nobody serves take no place among
// the labels from one that somebody does.
func TestGarbageNamesOfModels(t *testing.T) {
	r := newRig(t, setup{})
	const garbage, clients = 10_000, 8
	names := make(chan int)
	var asking sync.WaitGroup
	for range clients {
		asking.Go(func() {
			for i := range names {
				body := strings.Replace(chatBody("hi", false), "demo-model", fmt.Sprint("garbage-", i), 1)
				if got := r.post(chatPath, body); got.status != http.StatusNotFound {
					t.Errorf("got %d %s", got.status, got.body)
				}
			}
		})
	}
	for i := range garbage {
		names <- i
	}
	close(names)
	asking.Wait()
	if got := r.post(chatPath, chatBody("hi", false)); got.status != http.StatusOK {
		t.Fatalf("got %d %s", got.status, got.body)
	}
	r.settled()
	series := map[string]int{}
	for key := range metricstest.All(t, r.Registry) {
		name, _, _ := strings.Cut(key, "{")
		series[name]++
	}
	for name, n := range series {
		if n > 200 {
			t.Errorf("%s has %d series", name, n)
		}
	}
	counts := metricstest.Of(t, r.Registry, "request_total")
	if len(counts) != 2 || counts[`{model_name="demo-model"}`] != 1 || counts[`{model_name="other"}`] != garbage {
		t.Errorf("%v", counts)
	}
}
