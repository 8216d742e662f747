package gateway

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestGuard trips, refuses, tries and closes again, and its figures are those
// of an upstream, until it is closed.
func TestGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, reg: prometheus.NewRegistry()}
		m := NewMetrics(r.reg)
		g := NewGuard("redis", BreakerSettings{Enabled: true, ConsecutiveFailures: 2, Interval: 10 * time.Second,
			OpenTimeout: time.Second, HalfOpenRequests: 1}, m)
		call := func(end func(*Permit)) bool {
			p, ok := g.Begin()
			if ok {
				end(p)
				g.Took(time.Millisecond)
			}
			return ok
		}
		for _, end := range []func(*Permit){(*Permit).Succeed, (*Permit).Fail, (*Permit).GiveBack, (*Permit).Fail} {
			if !call(end) {
				t.Fatal("refused too early")
			}
		}
		if call((*Permit).Succeed) || g.State() != "open" {
			t.Errorf("after two failures the breaker is %s", g.State())
		}
		for series, want := range map[string]float64{
			`upstream_request_total{upstream="redis"}`:            4,
			`upstream_request_duration_seconds{upstream="redis"}`: 4,
			`breaker_rejected_total{profile="redis"}`:             1,
			`breaker_state{profile="redis"}`:                      2,
		} {
			if got := r.metric(series); got != want {
				t.Errorf("%s = %v, want %v", series, got, want)
			}
		}
		time.Sleep(time.Second + 1)
		if !call((*Permit).Succeed) || g.State() != "closed" {
			t.Errorf("after a success the breaker is %s", g.State())
		}

		newer := NewGuard("redis", BreakerSettings{Enabled: true, ConsecutiveFailures: 1, OpenTimeout: time.Second, HalfOpenRequests: 1}, m)
		p, _ := newer.Begin()
		p.Fail()
		g.Close()
		if got := r.metric(`breaker_state{profile="redis"}`); got != 2 {
			t.Errorf("closing the older guard left the state %v", got)
		}
		newer.Close()
		if got := r.metric(`breaker_state{profile="redis"}`); got != 0 {
			t.Errorf("a closed guard tells %v", got)
		}
	})
}

// TestGuardThatOutlivesANewerOne is told of again: a configuration that was built
// was not put in force.
func TestGuardThatOutlivesANewerOne(t *testing.T) {
	r := &rig{t: t, reg: prometheus.NewRegistry()}
	m := NewMetrics(r.reg)
	s := BreakerSettings{Enabled: true, ConsecutiveFailures: 1, OpenTimeout: time.Hour, HalfOpenRequests: 1}
	stays, other := NewGuard("redis", s, m), NewGuard("other", s, m)
	p, _ := stays.Begin()
	p.Fail()
	for range 2 {
		newer := NewGuard("redis", s, m)
		if got := r.metric(`breaker_state{profile="redis"}`); got != 0 {
			t.Errorf("beside a newer one that is closed the state is %v", got)
		}
		newer.Close()
		newer.Close()
		if got := r.metric(`breaker_state{profile="redis"}`); got != 2 {
			t.Errorf("after the newer one has gone the state is %v", got)
		}
	}
	other.Close()
	stays.Close()
	if got := r.metric(`breaker_state{profile="redis"}`); got != 0 {
		t.Errorf("a closed guard tells %v", got)
	}
}

// TestGuardWithoutBreaker lets everything pass.
func TestGuardWithoutBreaker(t *testing.T) {
	g := NewGuard("redis", BreakerSettings{}, NewMetrics(nil))
	defer g.Close()
	p, ok := g.Begin()
	if !ok || g.State() != "disabled" {
		t.Errorf("passed: %v, state %s", ok, g.State())
	}
	p.Fail()
}
