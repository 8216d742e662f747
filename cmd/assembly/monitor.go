package assembly

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/admin"
	"github.com/llm-coordinator/coordinator/transport/files"
	"github.com/llm-coordinator/coordinator/transport/monitor"
)

// makeAdmin makes the operators' listener, and the monitor that it shows.
func (c *Coordinator) makeAdmin(cfg *conf.Config) error {
	var token func() string // nil: none is asked for
	if spec := string(cfg.Admin.Token); spec != "" {
		var err error
		if token, err = files.Secret(spec, c.options.LookupEnv, c.options.files(), checkedToken); err != nil {
			return cfg.Errorf("admin.token", "%v", err)
		}
	}
	host, _, _ := net.SplitHostPort(cfg.Admin.ListenAddr)
	if ip := net.ParseIP(host); token == nil && cfg.Admin.ListenAddr != "" && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		c.log.Warn("the operators' listener can be reached from other machines and asks for no token: set admin.token, or keep others away by the network",
			"address", cfg.Admin.ListenAddr)
	}
	seen := monitor.New()
	c.Server.Began = seen.Began
	s := admin.Settings{Gather: c.Registry, Monitor: seen, Token: token, Host: host, Log: c.log, Drain: c.Server.Drain,
		Status: func() monitor.Status { return c.view(seen) }, Config: c.settings}
	if c.options.Load != nil {
		s.Reload = func() (any, error) { return c.Reload() }
	}
	c.Admin = admin.New(s)
	return nil
}

func checkedToken(text string) (string, error) {
	if strings.TrimSpace(text) == "" {
		return "", errors.New("the token is empty")
	}
	return text, nil
}

// view is the state of the coordinator for operators.
func (c *Coordinator) view(seen *monitor.Monitor) monitor.Status {
	g, engine := c.current.Load(), c.Engine.Status()
	s := monitor.Status{Version: c.options.Version, Reason: c.Server.NotReady(), Draining: c.Server.Draining(), Inflight: engine.Inflight,
		Detached: engine.Detached, Pipeline: []monitor.Phase{}, Breakers: []monitor.Breaker{}}
	s.Ready = s.Reason == ""
	pools := map[string]monitor.Pool{}
	for _, p := range engine.Pools {
		pool := monitor.Pool{Name: p.Name, Size: p.Size, Busy: p.Busy, Queued: p.Queued, Queue: p.Queue}
		s.Pools, pools[p.Name] = append(s.Pools, pool), pool
	}
	for _, p := range g.pipeline.Phases() {
		phase := monitor.Phase{Name: p.Name()}
		if in, ok := p.(phases.Pooled); ok {
			of := pools[in.Pool()]
			phase.Pool, phase.Busy, phase.Queued, phase.Capacity = of.Name, of.Busy, of.Queued, of.Size
		}
		if d, ok := p.(fmt.Stringer); ok {
			phase.Description = d.String()
		}
		s.Pipeline = append(s.Pipeline, phase)
	}
	for _, u := range g.upstreams {
		s.Breakers = append(s.Breakers, monitor.Breaker{Profile: u.Name, State: u.BreakerState(), HalfOpenIn: u.HalfOpenIn().Seconds()})
	}
	if b, ok := g.pipeline.BrokerStatus(); ok {
		s.Queue = &monitor.Queue{Redis: b.Address, Reachable: b.Reachable, Breaker: b.Breaker, Wakeup: b.Wakeup,
			Waiting: engine.Aside, MostWaiting: engine.MaxAside, Watched: b.Watched}
	}
	seen.Fill(&s)
	return s
}

// settings are all keys of the configuration in force, with where they were set.
// Secrets show only where they come from.
func (c *Coordinator) settings() any {
	type setting struct {
		Key    string `json:"key"`
		Value  string `json:"value"`
		Origin string `json:"set_by"`
	}
	all := []setting{}
	for _, s := range c.Config().Settings() {
		all = append(all, setting{s.Key, s.Value, s.Origin})
	}
	return map[string]any{"settings": all}
}
