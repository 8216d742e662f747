package gateway

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-coordinator/coordinator/transport/metricstest"
)

// TestTakeOver: an upstream that takes the place of another knows what that knew,
// if its breaker would judge the same by the same rules.
func TestTakeOver(t *testing.T) {
	tests := []struct {
		name string
		edit func(*UpstreamSettings)
		kept bool
	}{
		{"nothing else", func(*UpstreamSettings) {}, true},
		{"another time-out", func(s *UpstreamSettings) { s.Timeout = time.Second }, true},
		{"more attempts", func(s *UpstreamSettings) { s.Retries.MaxAttempts = 3 }, true},
		{"another rule", func(s *UpstreamSettings) { s.Breaker.ConsecutiveFailures++ }, false},
		{"no breaker", func(s *UpstreamSettings) { s.Breaker.Enabled = false }, false},
		{"another name", func(s *UpstreamSettings) { s.Name = "decode" }, false},
		{"another profile", func(s *UpstreamSettings) { s.Profile = "decode" }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				old := dial(t, answering(t), tripAfter(1))
				old.call(leg("500"))
				fresh := see(t, old.origin, tripAfter(1), tt.edit)
				fresh.TakeOver(old.Upstream)
				if kept := fresh.BreakerState() == "open"; kept != tt.kept {
					t.Errorf("the breaker is %s", fresh.BreakerState())
				}
				if old.BreakerState() != "open" {
					t.Errorf("the old breaker is %s", old.BreakerState())
				}
			})
		})
	}
	t.Run("another address", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			old := dial(t, answering(t), tripAfter(1))
			old.call(leg("500"))
			o, err := NewOrigin(OriginSettings{Address: "http://another.test:8080"})
			if err != nil {
				t.Fatal(err)
			}
			fresh := see(t, o, tripAfter(1))
			fresh.TakeOver(old.Upstream)
			if fresh.BreakerState() != "closed" {
				t.Errorf("the breaker is %s", fresh.BreakerState())
			}
		})
	})
	t.Run("of nobody", func(t *testing.T) {
		see(t, &Origin{}, tripAfter(1)).TakeOver(nil)
	})
}

// TestMetricsShowTheBreakersThatAreInUse: those that are there now, and none twice.
func TestMetricsShowTheBreakersThatAreInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := dial(t, answering(t), tripAfter(1))
		old.call(leg("500"))
		if n := old.metric(`breaker_state{profile="prefill"}`); n != 2 {
			t.Errorf("open: %v", n)
		}
		of := func(name string, enabled bool) *Upstream {
			s := old.UpstreamSettings
			s.Name, s.Breaker.Enabled = name, enabled
			return NewUpstream(old.origin, s, old.metrics)
		}
		old.metrics.Show(of("prefill", true), of("decode", true), of("render", false), of("decode", true))
		found := metricstest.Of(t, old.reg, "breaker_state")
		if prefill, ok := found[`{profile="prefill"}`]; !ok || prefill != 0 || len(found) != 2 {
			t.Errorf("%v", found)
		}
		NewMetrics(prometheus.NewRegistry()).Show()
		NewMetrics(nil).Show(old.Upstream)
	})
}

// TestRetryBudgetThatIsSet anew counts on.
func TestRetryBudgetThatIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewRetryBudget(0, 3)
		for range 100 {
			b.leg()
		}
		b.take()
		for _, tt := range []struct {
			ratio       float64
			least, want int
		}{{0, 3, 2}, {0.2, 3, 19}, {0, 50, 49}, {0, 0, 0}} {
			b.Set(tt.ratio, tt.least)
			if n := b.Remaining(); n != tt.want {
				t.Errorf("%+v: %d remain", tt, n)
			}
		}
	})
}
