package e2e_test

import (
	"net/http"
	"testing"
)

// TestARoutingLoopEndsAtOnce: a gateway that does not know the coordinators sends
// their legs back to them.
func TestARoutingLoopEndsAtOnce(t *testing.T) {
	behindEach(t, func(t *testing.T, g gateway) {
		f := startFleet(t, g, plan{steps: decodeStep, networks: "192.0.2.7/32"})
		for _, body := range []string{shortChat, shortChatStream} {
			if got := f.post(chatPath, body); got.status != http.StatusLoopDetected || codeOf(got.body) != "routing_loop" {
				t.Errorf("%d %v %s", got.status, got.err, got.body)
			}
		}
		f.settled()
		var requests, refused float64
		for _, r := range f.replicas {
			requests += f.metric(r, "request_total")
			refused += f.metrics(r).Values("request_error_total", "error_code")["routing_loop"]
		}
		if requests != 4 || refused != 2 {
			t.Errorf("the coordinators got %v requests, and refused %v legs that came back", requests, refused)
		}
	})
}
