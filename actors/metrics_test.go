package actors

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/metricstest"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// counter returns the value of a counter or gauge, or the count of a histogram; 0 if
// there is none. Labels are names and values in turn.
func counter(t testing.TB, reg *prometheus.Registry, name string, labels ...string) float64 {
	t.Helper()
	var pairs []string
	for pair := range slices.Chunk(labels, 2) {
		pairs = append(pairs, strings.Join(pair, "="))
	}
	sum, _ := metricstest.Sum(t, reg, name, pairs...)
	return sum
}

func TestMetricsTellTheTruth(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := newSlow()
	rg := setup{pools: map[string]PoolSettings{"a": {2, 1}}, metrics: NewMetrics(reg)}.engine(t, one("a", s.run))
	want := func(value float64, name string, labels ...string) {
		t.Helper()
		if got := counter(t, reg, "llm_d_coordinator_"+name, labels...); got != value {
			t.Errorf("%s%v is %v, want %v", name, labels, got, value)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cut := rg.begin(ctx)
	all := []*phases.Request{rg.begin(t.Context()), rg.begin(t.Context())}
	take(t, s.began, "a task")
	take(t, s.began, "a task")
	wantKind(t, rg.do(), wire.QueueFull)
	want(2, "pool_size", "pool", "a")
	want(2, "pool_busy", "pool", "a")
	want(1, "pool_queue_depth", "pool", "a")
	want(3, "step_running", "step", "a")
	want(1, "shed_total", "reason", "queue_full")
	cancel()
	wantKind(t, rg.outcome(cut), wire.Canceled)
	want(2, "step_running", "step", "a")
	want(1, "disconnect_total", "phase", "a")
	close(s.let)
	for _, r := range all {
		if err := rg.outcome(r); err != nil {
			t.Error(err)
		}
	}
	rg.Swap(phases.PipelineOf(one("a", func(context.Context) (phases.Result, error) {
		return nil, wire.Faultf(wire.UpstreamTimeout, "slow")
	})))
	_ = rg.do()
	want(0, "pool_busy", "pool", "a")
	want(0, "pool_queue_depth", "pool", "a")
	want(0, "step_running", "step", "a")
	want(5, "step_duration_seconds", "step", "a")
	want(4, "pool_wait_seconds", "pool", "a")
	want(1, "step_errors_total", "step", "a", "error_code", "upstream_timeout")
	want(1, "step_errors_total", "step", "a", "error_code", "queue_full")
	want(1, "step_errors_total", "step", "a", "error_code", "client_closed_request")
	want(0, "step_errors_total", "step", "a", "error_code", "internal")
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "llm_d_coordinator_") {
			t.Errorf("a metric is named %s", f.GetName())
		}
	}
}
