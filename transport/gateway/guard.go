package gateway

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Guard is for what is called without HTTP, such as Redis: it has the breaker
// and the figures of an upstream. It may be used by several goroutines.
type Guard struct {
	breaker  *breaker
	metrics  *Metrics
	requests prometheus.Counter
	duration prometheus.Observer
}

// NewGuard makes a guard whose series have this name for their upstream and
// their profile. It is to be closed. Of several guards of a name, the metrics
// tell the state of the last that is open: while a configuration is replaced
// there are two, and either may be the one that stays.
func NewGuard(name string, s BreakerSettings, m *Metrics) *Guard {
	g := &Guard{
		breaker:  newBreaker(name, s, m),
		metrics:  m,
		requests: m.requests.WithLabelValues(name),
		duration: m.duration.WithLabelValues(name),
	}
	if g.breaker != nil {
		m.breakers.guard(g.breaker)
	}
	return g
}

// Close has the metrics tell the breaker's state no more, but that of the last
// guard of the name that is still open. It may be called more than once.
func (g *Guard) Close() {
	if g.breaker != nil {
		g.metrics.breakers.unguard(g.breaker)
	}
}

// Begin takes the right to make one call, and counts it. The permit is to be
// settled when the call has ended. ok is false if the breaker lets nothing pass.
func (g *Guard) Begin() (p *Permit, ok bool) {
	p, err := g.breaker.permit(nil)
	if err != nil {
		return nil, false
	}
	g.requests.Inc()
	p.Sent()
	return p, true
}

// Took notes how long a call took.
func (g *Guard) Took(d time.Duration) { g.duration.Observe(d.Seconds()) }

// State is closed, half-open, open or disabled.
func (g *Guard) State() string { return g.breaker.state() }
