package assembly

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/llm-coordinator/coordinator/actors"
	"github.com/llm-coordinator/coordinator/phases"
)

// Status is what the operators' listener shows.
type Status struct {
	Version  string   `json:"version"`
	Pipeline []string `json:"pipeline"`
	actors.Status
	// Breakers are the states of the profiles' circuit breakers.
	Breakers map[string]string `json:"breakers"`
}

// Status returns the state of the coordinator.
func (c *Coordinator) Status(version string) Status {
	g := c.current.Load()
	s := Status{Version: version, Status: c.Engine.Status(), Breakers: map[string]string{}}
	for _, p := range g.pipeline.Phases() {
		s.Pipeline = append(s.Pipeline, p.Name())
	}
	for _, u := range g.upstreams {
		s.Breakers[u.Name] = u.BreakerState()
	}
	return s
}

// Stage is a step of the pipeline as it is in force.
type Stage struct {
	Step string `json:"step"`
	// With is what the step was built with, in words.
	With string `json:"with,omitempty"`
	// Pool is where its work is done, AtWork and Waiting how many requests may be
	// at work and waiting there: other steps may share it. It is empty for a step
	// whose work is done in no pool, or in several.
	Pool    string `json:"pool,omitempty"`
	AtWork  int    `json:"at_work,omitempty"`
	Waiting int    `json:"waiting,omitempty"`
}

// Stages returns the pipeline that requests which come now run through.
func (c *Coordinator) Stages() []Stage {
	pools := map[string]actors.PoolStatus{}
	for _, p := range c.Engine.Status().Pools {
		pools[p.Name] = p
	}
	all := []Stage{}
	for _, p := range c.Pipeline().Phases() {
		stage := Stage{Step: p.Name()}
		if d, ok := p.(fmt.Stringer); ok {
			stage.With = d.String()
		}
		if in, ok := p.(phases.Pooled); ok {
			pool := pools[in.Pool()]
			stage.Pool, stage.AtWork, stage.Waiting = pool.Name, pool.Size, pool.Queue
		}
		all = append(all, stage)
	}
	return all
}

// Describe prints what the configuration amounts to: the steps, the bounds, and
// every value that is not a default, with where it came from.
func (c *Coordinator) Describe(to io.Writer) error {
	g, w := c.current.Load(), tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "pipeline")
	for i, s := range c.Stages() {
		fmt.Fprintf(w, "  %d\t%s\t%s\n", i+1, s.Step, s.With)
	}
	fmt.Fprintln(w, "\npools\tat work\twaiting")
	for _, p := range c.Engine.Status().Pools {
		fmt.Fprintf(w, "  %s\t%d\t%d\n", p.Name, p.Size, p.Queue)
	}
	fmt.Fprintln(w, "\nupstreams\ttime-out\tbreaker")
	for _, u := range g.upstreams {
		b := "disabled"
		if s := u.Breaker; s.Enabled {
			b = fmt.Sprintf("opens after %d failures in a row, or %g of at least %d within %v; for %v, then %d trials",
				s.ConsecutiveFailures, s.FailureRatio, s.MinRequests, s.Interval, s.OpenTimeout, s.HalfOpenRequests)
		}
		fmt.Fprintf(w, "  %s\t%v\t%s\n", u.Name, u.Timeout, b)
	}
	fmt.Fprintln(w, "\nset\tvalue\tby")
	for _, ch := range g.config.Changes() {
		fmt.Fprintf(w, "  %s\t%s\t%s\n", ch.Key, ch.Value, ch.Origin)
	}
	return w.Flush()
}
