package assembly

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-coordinator/coordinator/transport/server"
	"github.com/llm-coordinator/coordinator/transport/trace"
)

// makeTraces makes the exporter of traces, if the environment asks for one. It is
// not the configuration's: all programs of a cluster are told of the receiver in
// the same way.
func (c *Coordinator) makeTraces() (err error) {
	c.traces, err = trace.New(c.options.LookupEnv, c.options.Version, c.log)
	c.Registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "llm_d_coordinator", Name: "spans_dropped_total",
		Help: "Spans of traces that did not reach their receiver."}, func() float64 { return float64(c.traces.Dropped()) }))
	return err
}

// OnFinished has f told of each request that has ended, after those who are told
// already. It must be called before the server is used.
func (c *Coordinator) OnFinished(f func(server.Record)) {
	before := c.Server.Finished
	if before == nil {
		c.Server.Finished = f
		return
	}
	c.Server.Finished = func(rec server.Record) {
		before(rec)
		f(rec)
	}
}
