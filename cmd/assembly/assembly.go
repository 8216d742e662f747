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
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/llm-coordinator/coordinator/actors"
	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/admin"
	"github.com/llm-coordinator/coordinator/transport/broker"
	"github.com/llm-coordinator/coordinator/transport/budget"
	"github.com/llm-coordinator/coordinator/transport/engines"
	"github.com/llm-coordinator/coordinator/transport/files"
	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/server"
	"github.com/llm-coordinator/coordinator/transport/trace"
)

// Coordinator is a whole coordinator, not yet listening. It must be closed, or
// run, which closes it.
type Coordinator struct {
	Engine   *actors.Engine
	Server   *server.Server
	Admin    *admin.Server
	Registry *prometheus.Registry
	// Memory is the budget of what requests hold.
	Memory *budget.Budget

	options Options
	log     *slog.Logger
	retries *gateway.RetryBudget
	passing *actors.Line // of what is passed through
	queued  *actors.Line // of calls about queued requests
	origins origins
	brokers brokers
	started *conf.Config // that it was started with
	current atomic.Pointer[generation]
	retired sync.WaitGroup // of generations that are still used, or being closed

	traces         *trace.Exporter // nil: none are exported
	gatewayMetrics *gateway.Metrics
	phaseMetrics   *phases.Metrics
	engines        phases.Engines
	brokerMetrics  *broker.Metrics
	reloads        *prometheus.CounterVec

	reloading sync.Mutex // held by the reload that is under way

	// mu is held while a generation is put in the place of another, and guards
	// draining: from then on none is.
	mu       sync.Mutex
	draining bool
}

// Config returns the configuration that is in force. It must not be changed.
func (c *Coordinator) Config() *conf.Config { return c.current.Load().config }

// Pipeline returns the pipeline of requests that come now.
func (c *Coordinator) Pipeline() *phases.Pipeline { return c.current.Load().pipeline }

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
	// Engines knows the ids of prefill workers' engines; nil asks the workers.
	Engines phases.Engines
	// OpenBroker opens the broker of an async-broker step; nil is broker.Open.
	OpenBroker func(context.Context, broker.Settings, *slog.Logger, *broker.Metrics) (OpenedBroker, error)
	// FilesEvery is how often certificates and credentials are looked at, as
	// files.Options.Every.
	FilesEvery time.Duration
	// Load reads the configuration again, from where New's came from; nil: there is
	// nothing to reload.
	Load func() (*conf.Config, error)
	// Applied, if set, is told of each configuration that a reload has put in force,
	// and how many bytes its pipeline keeps: log_level, and the memory limit of the
	// process, are not the coordinator's own to set.
	Applied func(cfg *conf.Config, kept int64)
}

func (o Options) files() files.Options { return files.Options{Log: o.Log, Every: o.FilesEvery} }

// New builds a coordinator. It calls no upstream, but for Redis if there is an
// async-broker step: that must be there.
func New(cfg *conf.Config, o Options) (*Coordinator, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if o.LookupEnv == nil {
		o.LookupEnv = os.LookupEnv
	}
	c := &Coordinator{started: cfg, options: o, log: o.Log, Registry: prometheus.NewRegistry()}
	c.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	c.registerVersion(o.Version)
	c.Memory = budget.New(cfg.Actors.MaxInflightBytes())
	c.registerMemory()
	c.registerRetries(cfg.Gateway.Retry)
	c.registerReloads()
	c.gatewayMetrics, c.phaseMetrics = gateway.NewMetrics(c.Registry), phases.NewMetrics(c.Registry)
	if c.engines = o.Engines; c.engines == nil {
		c.engines = engines.New(o.Dial)
	}
	c.brokerMetrics = broker.NewMetrics(c.Registry, c.gatewayMetrics)
	secure, err := serverTLS(cfg, o)
	if err != nil {
		return nil, err
	}
	g, err := c.build(cfg, nil)
	if err != nil {
		return nil, err
	}
	if err := c.makeTraces(); err != nil {
		g.close()
		return nil, err
	}
	c.current.Store(g)
	c.gatewayMetrics.Show(g.upstreams...)
	c.Engine = actors.NewEngine(g.engineSettings(), g.pipeline, o.Log, actors.NewMetrics(c.Registry))
	c.passing = c.Engine.Line(g.passthrough)
	c.queued = c.Engine.Line(g.queued)
	settings := c.serverSettings(g)
	settings.TLS = secure
	c.Server = server.New(settings, c.Engine, o.Log, server.NewMetrics(c.Registry))
	if c.traces != nil {
		c.OnFinished(c.traces.Finished)
	}
	if err := c.makeAdmin(cfg); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// serverSettings are those of the clients' listener, but for its TLS.
func (c *Coordinator) serverSettings(g *generation) server.Settings {
	cfg := g.config
	s := server.Settings{
		ReadTimeout: cfg.Server.ReadTimeout, WriteTimeout: cfg.Server.WriteTimeout, IdleTimeout: cfg.Server.IdleTimeout,
		Memory: c.Memory, Passthrough: cfg.Server.PassthroughRoutes, PassthroughEngine: c.passing,
		MaxBody: cfg.Server.MaxRequestBytes(), MaxBatch: cfg.Pipeline.MaxBatchSize, ProfileHeader: cfg.Gateway.ProfileHeader,
		Forwarded:    g.forward,
		TenantHeader: cfg.Server.TenantHeader, RequestTimeout: cfg.Pipeline.RequestTimeout, Unready: c.unready,
		Tracing: c.traces.Sampler(),
		Waits:   g.pipeline.Waits(), Responses: g.pipeline.Responses(),
	}
	if _, ok := g.pipeline.BrokerStatus(); ok {
		s.QueuedEngine = c.queued
	}
	return s
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

// registerRetries makes the budget of the process.
func (c *Coordinator) registerRetries(r conf.Retry) {
	c.retries = gateway.NewRetryBudget(r.BudgetRatio, r.MinRetries)
	c.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "llm_d_coordinator", Name: "retry_budget_remaining",
		Help: "Retries that are left now, of the legs of the last 10 s."},
		func() float64 { return float64(c.retries.Remaining()) }))
}

func (c *Coordinator) registerReloads() {
	c.reloads = prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "llm_d_coordinator", Name: "reloads_total",
		Help: "Reloads of the configuration, by result: ok, unchanged, failed."}, []string{"result"})
	for _, result := range []string{reloadOK, reloadUnchanged, reloadFailed} {
		c.reloads.WithLabelValues(result) // so that it is there before the first
	}
	c.Registry.MustRegister(c.reloads)
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
