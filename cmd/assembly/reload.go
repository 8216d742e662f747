package assembly

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/llm-coordinator/coordinator/conf"
)

// Why there is no reload, whatever the configuration says.
var (
	ErrDraining = errors.New("the coordinator is draining")
	ErrNoSource = errors.New("there is no file that the configuration could be read from again")
)

// Results of reloads, as the metric has them.
const (
	reloadOK        = "ok"
	reloadUnchanged = "unchanged"
	reloadFailed    = "failed"
)

// Reloaded is what came of a reload. It has keys and no values, which may be
// credentials.
type Reloaded struct {
	// Applied are the keys that are in force with another value than before.
	Applied []string `json:"applied"`
	// Restart are the keys that have another value than the process was started
	// with, and keep the old one until it is started again.
	Restart []string `json:"needs_restart"`
}

// Unchanged reports that the configuration is what it was.
func (r Reloaded) Unchanged() bool { return len(r.Applied) == 0 && len(r.Restart) == 0 }

// applicable are the keys that a reload puts in force; what ends with a dot is a
// table. All others need a restart, also one that is new and was forgotten here.
var applicable = []string{
	"log_level", "server.read_timeout", "server.write_timeout", "server.shutdown_timeout", "server.drain_delay",
	"server.max_request_body_size", "server.passthrough_routes", "server.tenant_header", "gateway.", "actors.", "pipeline.",
}

// halfApplicable is a key of which a part needs a restart: bodies are read under
// the new value, headers under that of the start.
const halfApplicable = "server.read_timeout"

func isApplicable(key string) bool {
	return slices.ContainsFunc(applicable, func(a string) bool {
		return key == a || strings.HasSuffix(a, ".") && strings.HasPrefix(key, a)
	})
}

func needsRestart(key string) bool { return !isApplicable(key) || key == halfApplicable }

// Reload reads the configuration again and puts it in force, at once for all
// requests that come from then on. Those that are running, and what they leave
// behind, end as they began; then what only they used is closed. An error means
// that nothing has changed, and says why; it is logged, as is what was changed.
//
// It may be called by many goroutines, and does one reload at a time.
func (c *Coordinator) Reload() (Reloaded, error) {
	c.reloading.Lock()
	defer c.reloading.Unlock()
	done, err := c.reload()
	switch {
	case err != nil:
		c.reloads.WithLabelValues(reloadFailed).Inc()
		c.log.Error("the configuration was not reloaded: the old one stays in force", "error", err)
	case done.Unchanged():
		c.reloads.WithLabelValues(reloadUnchanged).Inc()
		c.log.Info("configuration reloaded: nothing changed")
	default:
		c.reloads.WithLabelValues(reloadOK).Inc()
		level := slog.LevelInfo
		if len(done.Restart) > 0 {
			level = slog.LevelWarn
		}
		c.log.Log(context.Background(), level, "configuration reloaded", "applied", done.Applied, "needs_restart", done.Restart,
			"pipeline", c.Stages())
	}
	return done, err
}

// reload is one reload. The caller holds reloading.
func (c *Coordinator) reload() (Reloaded, error) {
	switch {
	case c.options.Load == nil:
		return Reloaded{}, ErrNoSource
	case c.isDraining():
		return Reloaded{}, ErrDraining
	}
	cfg, err := c.options.Load()
	if err != nil {
		return Reloaded{}, fmt.Errorf("reading the configuration again: %w", err)
	}
	before := c.current.Load()
	next, err := c.build(cfg, before)
	if err != nil {
		return Reloaded{}, fmt.Errorf("building what the configuration asks for: %w", err)
	}
	done := c.differences(cfg, before.config) // not before: params are decoded by their phases
	if key := next.renewedURL(before); key != "" && !slices.Contains(done.Applied, key) {
		done.Applied = append(done.Applied, key)
		slices.Sort(done.Applied)
	}
	err = c.checkRestart(cfg, done.Restart)
	if err == nil && len(done.Applied) == 0 {
		next.close()
		return done, nil
	}
	if err == nil {
		err = c.put(next)
	}
	if err != nil {
		next.close()
		return Reloaded{}, err
	}
	return done, nil
}

// differences sorts what is different into what can be applied and what cannot.
func (c *Coordinator) differences(cfg, before *conf.Config) Reloaded {
	done := Reloaded{Applied: []string{}, Restart: []string{}}
	for _, key := range cfg.Differences(before) {
		if isApplicable(key) {
			done.Applied = append(done.Applied, key)
		}
	}
	for _, key := range cfg.Differences(c.started) {
		if needsRestart(key) {
			done.Restart = append(done.Restart, key)
		}
	}
	return done
}

// checkRestart refuses a configuration with which the restart that it needs would
// fail.
func (c *Coordinator) checkRestart(cfg *conf.Config, restart []string) error {
	if !slices.ContainsFunc(restart, func(key string) bool { return strings.HasPrefix(key, "server.tls.") }) {
		return nil
	}
	_, err := serverTLS(cfg, c.options)
	return err
}

// put puts a generation in the place of the current one, which is closed when
// nobody uses it any more. If there is an error it is not.
func (c *Coordinator) put(next *generation) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		return ErrDraining
	}
	if err := c.Engine.Apply(next.engineSettings()); err != nil {
		return fmt.Errorf("changing the pools: %w", err)
	}
	cfg := next.config
	c.Memory.SetLimit(cfg.Actors.MaxInflightBytes())
	c.retries.Set(cfg.Gateway.Retry.BudgetRatio, cfg.Gateway.Retry.MinRetries)
	c.gatewayMetrics.Show(next.upstreams...)
	old := c.current.Swap(next)
	main, passed := c.Engine.Swap(next.pipeline), c.passing.Swap(next.passthrough)
	queued := c.queued.Swap(next.queued)
	c.Server.Apply(c.serverSettings(next))
	c.retired.Go(func() {
		<-main
		<-passed
		<-queued
		old.close()
	})
	if c.options.Applied != nil {
		c.options.Applied(cfg, next.pipeline.Kept())
	}
	return nil
}

func (c *Coordinator) isDraining() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.draining
}

// refuseReloads has no generation be put in the place of the current one any
// more: the coordinator ends with it.
func (c *Coordinator) refuseReloads() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draining = true
}
