package assembly

import (
	"time"

	"github.com/llm-coordinator/coordinator/actors"
	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/gateway"
)

func (g *generation) engineSettings() actors.Settings {
	cfg := g.config
	of := cfg.Actors.Pools
	pools := map[string]actors.PoolSettings{}
	for name, b := range map[string]conf.Pool{phases.PoolMedia: of.Media, phases.PoolRender: of.Render,
		phases.PoolEncode: of.Encode, phases.PoolPrefill: of.Prefill,
		phases.PoolDecode: of.Decode, phases.PoolPassthrough: of.Passthrough, phases.PoolRelease: of.Release, phases.PoolBroker: of.Broker} {
		pools[name] = actors.PoolSettings{Size: b.Size, Queue: b.Queue}
	}
	return actors.Settings{QueueTimeout: cfg.Actors.QueueTimeout, MaxInflight: cfg.Actors.Inflight(), MaxAside: cfg.Actors.MaxWaitingRequests, Pools: pools,
		Watchdog: watchdog(cfg, g.upstreams, g.pipeline.Patience())}
}

// watchdog returns how long nothing can happen to a request if all is well: it
// waits in a queue, for all attempts of the slowest leg or for what a phase waits
// for, for the next event of a stream, and for a client that takes nothing, one
// after the other. 0 is for ever, for a stream may fall silent for ever.
func watchdog(cfg *conf.Config, upstreams []*gateway.Upstream, slowest time.Duration) time.Duration {
	if cfg.Gateway.StreamIdleTimeout <= 0 {
		return 0
	}
	for _, u := range upstreams {
		attempts := time.Duration(max(1, u.Retries.MaxAttempts))
		slowest = max(slowest, attempts*(u.Timeout+u.Retries.MaxDelay))
	}
	return cfg.Actors.QueueTimeout + slowest + cfg.Gateway.StreamIdleTimeout + cfg.Server.WriteTimeout + time.Minute
}
