// Package assembly puts the parts of a coordinator together, as its
// configuration says, and runs them from the first request to the last. The
// command uses it, and so does every test that wants a whole coordinator.
package assembly

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/llm-coordinator/coordinator/actors"
	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/admin"
	"github.com/llm-coordinator/coordinator/transport/budget"
	"github.com/llm-coordinator/coordinator/transport/files"
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
	// Memory is the budget of what requests hold.
	Memory *budget.Budget

	passthrough *phases.Pipeline

	log       *slog.Logger
	retries   *gateway.RetryBudget
	closers   []func()
	upstreams []*gateway.Upstream
	needed    []*gateway.Upstream // by every request
}

// Options are what a coordinator's surroundings give it.
type Options struct {
	// Log, or nil for none.
	Log *slog.Logger
	// Version is shown in status and metrics.
	Version string
	// Dial makes connections to upstreams; nil dials TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// LookupEnv finds the variables that headers are taken from; nil is
	// os.LookupEnv.
	LookupEnv func(name string) (string, bool)
	// FilesEvery is how often certificates and credentials are looked at, as
	// files.Options.Every.
	FilesEvery time.Duration
}

func (o Options) files() files.Options { return files.Options{Log: o.Log, Every: o.FilesEvery} }

// New builds a coordinator. It calls no upstream.
func New(cfg *conf.Config, o Options) (*Coordinator, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	c := &Coordinator{Config: cfg, log: o.Log, Registry: prometheus.NewRegistry()}
	c.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	c.registerVersion(o.Version)
	c.Memory = budget.New(cfg.Actors.MaxInflightBytes())
	c.registerMemory()
	c.registerRetries(cfg.Gateway.Retry)
	if err := c.buildPipeline(o); err != nil {
		return nil, err
	}
	c.needed = neededOf(c.Pipeline, c.upstreams)
	secure, err := serverTLS(cfg, o)
	if err != nil {
		return nil, err
	}
	c.Engine = actors.NewEngine(engineSettings(cfg, c.Pipeline, c.upstreams), c.Pipeline, o.Log, actors.NewMetrics(c.Registry))
	c.Server = server.New(server.Settings{
		ReadTimeout: cfg.Server.ReadTimeout, WriteTimeout: cfg.Server.WriteTimeout, IdleTimeout: cfg.Server.IdleTimeout,
		Memory: c.Memory, Passthrough: cfg.Server.PassthroughRoutes, PassthroughEngine: c.Engine.Line(c.passthrough),
		MaxBody: cfg.Server.MaxRequestBytes(), ProfileHeader: cfg.Gateway.ProfileHeader, TLS: secure,
		TenantHeader: cfg.Server.TenantHeader, RequestTimeout: cfg.Pipeline.RequestTimeout, Unready: c.unready,
	}, c.Engine, o.Log, server.NewMetrics(c.Registry))
	c.Admin = admin.New(c.Registry, func() any { return c.Status(o.Version) }, o.Log)
	return c, nil
}

// buildPipeline makes the upstreams and the phases that call them.
func (c *Coordinator) buildPipeline(o Options) error {
	metrics := gateway.NewMetrics(c.Registry)
	origin := func(s gateway.OriginSettings) (*gateway.Origin, error) {
		s.Dial, s.ProfileHeader, s.LookupEnv, s.Files = o.Dial, c.Config.Gateway.ProfileHeader, o.LookupEnv, o.files()
		made, err := gateway.NewOrigin(s)
		if err == nil {
			c.closers = append(c.closers, made.Close)
		}
		return made, err
	}
	upstream := func(at *gateway.Origin, s gateway.UpstreamSettings) *gateway.Upstream {
		s.IdleTimeout, s.Log = c.Config.Gateway.StreamIdleTimeout, c.log
		s.Breaker = breakerSettings(c.Config.Gateway.BreakerOf(s.Name))
		s.Retries, s.Budget = retrySettings(c.Config.Gateway.RetryOf(s.Name)), c.retries
		made := gateway.NewUpstream(at, s, metrics)
		c.upstreams = append(c.upstreams, made)
		return made
	}
	g := c.Config.Gateway
	at, err := origin(gateway.OriginSettings{Address: g.Address, MaxIdle: c.Config.GatewayIdleConns(), IdleTimeout: g.IdleConnTimeout,
		TLS: gateway.TLS(g.TLS), H2C: g.H2C, Headers: g.Headers})
	if bad := (*gateway.SettingError)(nil); errors.As(err, &bad) {
		return c.Config.Errorf("gateway."+bad.Key, "%v", bad.Err)
	}
	if err != nil {
		return err
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
		KVLease:         c.Config.Pipeline.KVLease,
		Memory:          c.Memory,
		OnClose:         func(f func()) { c.closers = append(c.closers, f) },
		Metrics:         phases.NewMetrics(c.Registry),
		Log:             c.log,
	}
	steps := make([]phases.Step, len(c.Config.Pipeline.Steps))
	for i, s := range c.Config.Pipeline.Steps {
		steps[i] = phases.Step{Type: s.Type, Params: s.Params}
	}
	c.passthrough = phases.NewPassthrough(deps)
	c.Pipeline, err = phases.NewPipeline(steps, deps)
	return err
}

// serverTLS returns the TLS of the clients' listener, nil if it has none.
func serverTLS(cfg *conf.Config, o Options) (*tls.Config, error) {
	s := cfg.Server.TLS
	versions := map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}
	made, err := files.ServerTLS{CertFile: s.CertFile, KeyFile: s.KeyFile, ClientCAFile: s.ClientCAFile,
		MinVersion: versions[s.MinVersion]}.Config(o.files())
	if bad := (*files.KeyError)(nil); errors.As(err, &bad) {
		return nil, cfg.Errorf("server.tls."+bad.Key, "%v", bad.Err)
	}
	return made, err
}

func breakerSettings(b conf.Breaker) gateway.BreakerSettings {
	return gateway.BreakerSettings{
		Enabled: b.Enabled, ConsecutiveFailures: uint32(b.ConsecutiveFailures), FailureRatio: b.FailureRatio,
		MinRequests: uint32(b.MinRequests), Interval: b.Interval, OpenTimeout: b.OpenTimeout, HalfOpenRequests: uint32(b.HalfOpenRequests),
	}
}

func retrySettings(r conf.Retry) gateway.RetrySettings {
	return gateway.RetrySettings{MaxAttempts: r.MaxAttempts, BaseDelay: r.BaseDelay, MaxDelay: r.MaxDelay}
}

// registerRetries makes the budget of the process.
func (c *Coordinator) registerRetries(r conf.Retry) {
	c.retries = gateway.NewRetryBudget(r.BudgetRatio, r.MinRetries)
	c.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "llm_d_coordinator", Name: "retry_budget_remaining",
		Help: "Retries that are left now, of the legs of the last 10 s."},
		func() float64 { return float64(c.retries.Remaining()) }))
}

func (c *Coordinator) registerVersion(version string) {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "llm_d_coordinator", Name: "build_info",
		Help: "1, with the version of the binary as a label."}, []string{"version"})
	g.WithLabelValues(version).Set(1)
	c.Registry.MustRegister(g)
}

func (c *Coordinator) registerMemory() {
	const ns = "llm_d_coordinator"
	c.Registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: ns, Name: "inflight_bytes",
			Help: "Bytes of request bodies, images and rendered tensors that are held now."},
			func() float64 { return float64(c.Memory.Used()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: ns, Name: "inflight_bytes_refused_total",
			Help: "Times that a request was refused because too many bytes were in flight."},
			func() float64 { return float64(c.Memory.Refused()) }))
}
