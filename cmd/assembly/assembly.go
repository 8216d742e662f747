// Package assembly puts the parts of a coordinator together, as its
// configuration says, and runs them from the first request to the last. The
// command uses it, and so does every test that wants a whole coordinator.
package assembly

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/llm-coordinator/coordinator/actors"
	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/admin"
	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/server"
)

// Coordinator is a whole coordinator, not yet listening. It must be closed, or
// run, which closes it.
type Coordinator struct {
	Config   *conf.Config
	Engine   *actors.Engine
	Server   *server.Server
	Admin    *admin.Server
	Registry *prometheus.Registry
	Pipeline *phases.Pipeline

	log       *slog.Logger
	closers   []func()
	upstreams []*gateway.Upstream
}

// Options are what a coordinator's surroundings give it.
type Options struct {
	// Log, or nil for none.
	Log *slog.Logger
	// Version is shown in status and metrics.
	Version string
	// Dial makes connections to upstreams; nil dials TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// New builds a coordinator. It calls no upstream.
func New(cfg *conf.Config, o Options) (*Coordinator, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	c := &Coordinator{Config: cfg, log: o.Log, Registry: prometheus.NewRegistry()}
	c.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	c.registerVersion(o.Version)
	if err := c.buildPipeline(o); err != nil {
		return nil, err
	}
	c.Engine = actors.NewEngine(engineSettings(cfg), c.Pipeline, o.Log, actors.NewMetrics(c.Registry))
	c.Server = server.New(server.Settings{
		ReadTimeout: cfg.Server.ReadTimeout, WriteTimeout: cfg.Server.WriteTimeout, IdleTimeout: cfg.Server.IdleTimeout,
		MaxBody: cfg.Server.MaxRequestBytes(), ProfileHeader: cfg.Gateway.ProfileHeader,
	}, c.Engine, o.Log, server.NewMetrics(c.Registry))
	c.Admin = admin.New(c.Registry, func() any { return c.Status(o.Version) }, o.Log)
	return c, nil
}

// buildPipeline makes the upstreams and the phases that call them.
func (c *Coordinator) buildPipeline(o Options) error {
	metrics := gateway.NewMetrics(c.Registry)
	origin := func(s gateway.OriginSettings) (*gateway.Origin, error) {
		s.Dial = o.Dial
		made, err := gateway.NewOrigin(s)
		if err == nil {
			c.closers = append(c.closers, made.Close)
		}
		return made, err
	}
	upstream := func(at *gateway.Origin, s gateway.UpstreamSettings) *gateway.Upstream {
		s.IdleTimeout = c.Config.Gateway.StreamIdleTimeout
		s.Breaker = breakerSettings(c.Config.Gateway.BreakerOf(s.Name))
		made := gateway.NewUpstream(at, s, metrics)
		c.upstreams = append(c.upstreams, made)
		return made
	}
	g := c.Config.Gateway
	at, err := origin(gateway.OriginSettings{Address: g.Address, MaxIdle: c.Config.GatewayIdleConns(), IdleTimeout: g.IdleConnTimeout})
	if err != nil {
		return fmt.Errorf("gateway.address: %w", err)
	}
	profile := func(name string) *gateway.Upstream {
		return upstream(at, gateway.UpstreamSettings{Name: name, ProfileHeader: g.ProfileHeader, Profile: name, Timeout: g.TimeoutOf(name)})
	}
	deps := phases.Deps{
		Encode: profile("encode"), Prefill: profile("prefill"), Decode: profile("decode"),
		NewUpstream: func(os gateway.OriginSettings, us gateway.UpstreamSettings) (*gateway.Upstream, error) {
			own, err := origin(os)
			if err != nil {
				return nil, err
			}
			return upstream(own, us), nil
		},
		KVConnector:     c.Config.Pipeline.KVConnector,
		ECConnector:     c.Config.Pipeline.ECConnector,
		UseOpenAIFormat: c.Config.Pipeline.UseOpenAIFormat,
		OnClose:         func(f func()) { c.closers = append(c.closers, f) },
		Metrics:         phases.NewMetrics(c.Registry),
	}
	steps := make([]phases.Step, len(c.Config.Pipeline.Steps))
	for i, s := range c.Config.Pipeline.Steps {
		steps[i] = phases.Step{Type: s.Type, Params: s.Params}
	}
	c.Pipeline, err = phases.NewPipeline(steps, deps)
	return err
}

func breakerSettings(b conf.Breaker) gateway.BreakerSettings {
	return gateway.BreakerSettings{
		Enabled: b.Enabled, ConsecutiveFailures: uint32(b.ConsecutiveFailures), FailureRatio: b.FailureRatio,
		MinRequests: uint32(b.MinRequests), Interval: b.Interval, OpenTimeout: b.OpenTimeout, HalfOpenRequests: uint32(b.HalfOpenRequests),
	}
}

func engineSettings(cfg *conf.Config) actors.Settings {
	p := cfg.Actors.Pools
	pools := map[string]actors.PoolSettings{}
	for name, b := range map[string]conf.Pool{phases.PoolMedia: p.Media, phases.PoolRender: p.Render,
		phases.PoolEncode: p.Encode, phases.PoolPrefill: p.Prefill,
		phases.PoolDecode: p.Decode, phases.PoolRelease: p.Release} {
		pools[name] = actors.PoolSettings{Size: b.Size, Queue: b.Queue}
	}
	return actors.Settings{QueueTimeout: cfg.Actors.QueueTimeout, MaxInflight: cfg.Actors.Inflight(), Pools: pools}
}

func (c *Coordinator) registerVersion(version string) {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "llm_d_coordinator", Name: "build_info",
		Help: "1, with the version of the binary as a label."}, []string{"version"})
	g.WithLabelValues(version).Set(1)
	c.Registry.MustRegister(g)
}
