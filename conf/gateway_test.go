package conf

import (
	"testing"
	"time"
)

func TestProfilesInherit(t *testing.T) {
	c := mustParse(t, `[gateway.profiles.prefill]
breaker = { enabled = false, min_requests = 1 }
[gateway.profiles.render.breaker]
failure_ratio = 0
[gateway]
timeout = "7s"
[gateway.breaker]
min_requests = 99
open_timeout = "9s"
`+oneStep, "COORDINATOR_GATEWAY_BREAKER_INTERVAL=11s")
	all := Breaker{true, 10, 0.5, 99, 11 * time.Second, 9 * time.Second, 3}
	prefill, render := all, all
	prefill.Enabled, prefill.MinRequests = false, 1
	render.FailureRatio = 0
	for profile, want := range map[string]Breaker{"prefill": prefill, "decode": all, "render": render, "other": all} {
		if got := c.Gateway.BreakerOf(profile); got != want {
			t.Errorf("%s: got %+v, want %+v", profile, got, want)
		}
	}
	for profile, want := range map[string]time.Duration{"prefill": 7 * time.Second, "decode": 10 * time.Minute, "other": 7 * time.Second} {
		if got := c.Gateway.TimeoutOf(profile); got != want {
			t.Errorf("%s: got %s, want %s", profile, got, want)
		}
	}
}

// A wrong value is reported where it was written, not for each profile that inherits it.
func TestInheritedFaultIsReportedOnce(t *testing.T) {
	_, err := Parse("test.toml", []byte("gateway.breaker.min_requests = 0"+oneStep), nil)
	wantError(t, err, "test.toml:1: gateway.breaker.min_requests: must be from 1 to 1000000, got 0")
}

func TestResolvedZeros(t *testing.T) {
	c := Default()
	if got := c.Actors.Inflight(); got != 1024+256 {
		t.Errorf("in flight: %d", got)
	}
	if got := c.GatewayIdleConns(); got != 128+256+1024+256+64 {
		t.Errorf("idle connections: %d", got)
	}
	if got := c.Server.MaxRequestBytes(); got != 67_108_864 {
		t.Errorf("bytes: %d", got)
	}
	c.Actors.MaxInflightRequests, c.Gateway.MaxIdleConnsPerHost = 5, 6
	if c.Actors.Inflight() != 5 || c.GatewayIdleConns() != 6 {
		t.Errorf("got %d and %d", c.Actors.Inflight(), c.GatewayIdleConns())
	}
}
