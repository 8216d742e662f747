package assembly

import (
	"errors"

	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/gateway"
)

// generation is what is built of one configuration. A reload puts another in its
// place; requests that began with it end with it.
type generation struct {
	config      *conf.Config
	pipeline    *phases.Pipeline
	passthrough *phases.Pipeline
	forward     []string         // headers that go from answers to later legs
	queued      *phases.Pipeline // of calls about queued requests
	upstreams   []*gateway.Upstream
	needed      []*gateway.Upstream // by every request
	redisURL    string              // of the broker, as it was read; "" if there is none
	closers     []func()
}

// close frees what the generation holds. Nobody may use it any more.
func (g *generation) close() {
	for _, f := range g.closers {
		f()
	}
	g.closers = nil
}

// upstream returns the upstream of a profile, or nil. A nil generation has none.
func (g *generation) upstream(name string) *gateway.Upstream {
	if g == nil {
		return nil
	}
	for _, u := range g.upstreams {
		if u.Name == name {
			return u
		}
	}
	return nil
}

// build builds what a configuration asks for. Connections and breakers of the
// generation before it, nil at the start, are used further where nothing that
// concerns them is different. Nothing is in force yet.
func (c *Coordinator) build(cfg *conf.Config, before *generation) (*generation, error) {
	b := &builder{c: c, g: &generation{config: cfg}, before: before}
	if err := b.build(); err != nil {
		b.g.close()
		return nil, err
	}
	b.g.needed = neededOf(b.g.pipeline, b.g.upstreams)
	return b.g, nil
}

// builder builds one generation.
type builder struct {
	c         *Coordinator
	g, before *generation
}

// build makes the upstreams and the phases that call them.
func (b *builder) build() (err error) {
	cfg := b.g.config
	gw, p := cfg.Gateway, cfg.Pipeline
	at, err := b.origin("gateway", gateway.OriginSettings{Address: gw.Address, MaxIdle: cfg.GatewayIdleConns(), IdleTimeout: gw.IdleConnTimeout,
		TLS: gateway.TLS(gw.TLS), H2C: gw.H2C, Headers: gw.Headers})
	if bad := (*gateway.SettingError)(nil); errors.As(err, &bad) {
		return cfg.Errorf("gateway."+bad.Key, "%v", bad.Err)
	}
	if err != nil {
		return err
	}
	forward, err := forwardedHeaders(cfg)
	if err != nil {
		return err
	}
	profile := func(name string) *gateway.Upstream {
		return b.upstream(at, gateway.UpstreamSettings{Name: name, ProfileHeader: gw.ProfileHeader, Profile: name, Timeout: gw.TimeoutOf(name)})
	}
	deps := phases.Deps{
		Encode: profile(stepEncode), Prefill: profile(stepPrefill), Decode: profile(stepDecode),
		NewUpstream: func(os gateway.OriginSettings, us gateway.UpstreamSettings) (*gateway.Upstream, error) {
			own, err := b.origin(us.Name, os)
			if err != nil {
				return nil, err
			}
			return b.upstream(own, us), nil
		},
		NewBroker:      b.broker,
		ForwardHeaders: forward,
		KVConnector:    p.KVConnector, ECConnector: p.ECConnector, UseOpenAIFormat: p.UseOpenAIFormat, KVLease: p.KVLease,
		Engines:   b.c.engines,
		LookupEnv: b.c.options.LookupEnv,
		Memory:    b.c.Memory,
		OnClose:   func(f func()) { b.g.closers = append(b.g.closers, f) },
		Metrics:   b.c.phaseMetrics,
		Log:       b.c.log,
	}
	steps := make([]phases.Step, len(p.Steps))
	for i, s := range p.Steps {
		steps[i] = phases.Step{Type: s.Type, Params: s.Params}
	}
	b.g.forward = forward
	b.g.passthrough = phases.NewPassthrough(deps)
	if b.g.pipeline, err = phases.NewPipeline(steps, deps); err != nil {
		return err
	}
	b.g.queued = b.g.pipeline.QueuedCalls()
	return nil
}

// origin makes an origin, or takes the one that the same caller has with the same
// settings already.
func (b *builder) origin(caller string, s gateway.OriginSettings) (*gateway.Origin, error) {
	s.ProfileHeader = b.g.config.Gateway.ProfileHeader
	o, giveBack, err := b.c.origins.take(caller, s, func() (*gateway.Origin, error) {
		made := s
		made.Dial, made.LookupEnv, made.Files = b.c.options.Dial, b.c.options.LookupEnv, b.c.options.files()
		return gateway.NewOrigin(made)
	})
	if err == nil {
		b.g.closers = append(b.g.closers, giveBack)
	}
	return o, err
}

func (b *builder) upstream(at *gateway.Origin, s gateway.UpstreamSettings) *gateway.Upstream {
	gw := b.g.config.Gateway
	s.IdleTimeout, s.Log = gw.StreamIdleTimeout, b.c.log
	s.Breaker = breakerSettings(gw.BreakerOf(s.Name))
	s.Retries, s.Budget = retrySettings(gw.RetryOf(s.Name)), b.c.retries
	made := gateway.NewUpstream(at, s, b.c.gatewayMetrics)
	made.TakeOver(b.before.upstream(s.Name))
	b.g.upstreams = append(b.g.upstreams, made)
	return made
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
