package gateway

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// TestSpareLegs: the answer of a worker that has seen one is not held against it,
// until somebody is to blame; all else counts as it does for other legs.
func TestSpareLegs(t *testing.T) {
	for _, tt := range []struct {
		name   string
		step   http.HandlerFunc
		check  error
		worker bool
		state  string // of a breaker that one failure opens
	}{
		{"500", status(500), nil, true, "closed"},
		{"502", status(502), nil, true, "closed"},
		{"400", status(400), nil, true, "closed"},
		{"an answer that cannot be used", status(200), errors.New("unusable"), true, "closed"},
		{"200", status(200), nil, false, "closed"},
		{"429", status(429), nil, false, "closed"},
		{"503 that says when to come again", status(503, "Retry-After", "1"), nil, false, "closed"},
		{"503 of the gateway", status(503, wire.HeaderDropReason, "queue"), nil, false, "open"},
		{"broken", cut, nil, false, "open"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, _ := script(t, tt.step)
				r := dial(t, l, func(s *UpstreamSettings) {
					s.Breaker = BreakerSettings{Enabled: true, ConsecutiveFailures: 1, Interval: time.Minute, OpenTimeout: time.Hour, HalfOpenRequests: 1}
				})
				leg := leg("{}")
				leg.Spare, leg.Check = true, func([]byte) error { return tt.check }
				_, sent, _ := r.call(leg)
				if sent.WorkerFailed() != tt.worker || r.BreakerState() != tt.state {
					t.Errorf("by a worker: %v, the breaker is %s", sent.WorkerFailed(), r.BreakerState())
				}
				r.Blame()
				if r.BreakerState() != "open" {
					t.Errorf("after the blame the breaker is %s", r.BreakerState())
				}
			})
		})
	}
}
