package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/llm-coordinator/coordinator/cmd/assembly"
	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

const defaultConfig = "conf/coordinator.toml"

// configFlags are the flags of the commands that read a configuration.
type configFlags struct {
	path  string
	level int
}

func (f *configFlags) addTo(fs *flag.FlagSet) {
	fs.StringVar(&f.path, "config", defaultConfig, "configuration `file`")
	fs.IntVar(&f.level, "v", 0, "log level, 1 to 5; overrides the configuration")
}

func (f configFlags) load(environ []string) (*conf.Config, error) {
	cfg, err := conf.Load(f.path, environ)
	if err != nil {
		return nil, err
	}
	if f.level != 0 {
		err = cfg.Override("log_level", strconv.Itoa(f.level), "flag -v")
	}
	return cfg, err
}

// serve runs a coordinator.
func serve(ctx context.Context, args, environ []string, _, stderr io.Writer) error {
	var f configFlags
	fs := flags("serve", stderr)
	f.addTo(fs)
	if err := parse(fs, args); err != nil {
		return err
	}
	cfg, err := f.load(environ)
	if err != nil {
		return err
	}
	hangups, stop := onHangup()
	defer stop()
	log, level := logger(cfg, stderr)
	muzzle(log)
	apply := func(cfg *conf.Config, kept int64) {
		level.Set(levels[cfg.LogLevel])
		limitMemory(cfg.Actors.MaxInflightBytes(), kept, environ, log)
	}
	c, err := assembly.New(cfg, assembly.Options{Log: log, Version: version(), LookupEnv: lookupIn(environ),
		Load: func() (*conf.Config, error) { return f.load(environ) }, Applied: apply})
	if err != nil {
		return err
	}
	apply(cfg, c.Pipeline().Kept())
	paceCollector(environ)
	public, ops, err := listen(cfg)
	if err != nil {
		c.Close()
		return err
	}
	log.Info("serving", "version", version(), "address", public.Addr().String(), "pipeline", c.Stages(),
		"gateway", cfg.Gateway.Address)
	reloading := reloadAt(hangups, func() { c.Reload() }) // says by itself what came of it
	cut, err := c.Run(ctx, public, ops)
	reloading()
	if err == nil && cut > 0 {
		err = fmt.Errorf("%d requests were cut: they did not end within server.shutdown_timeout (%v)", cut, c.Config().Server.ShutdownTimeout)
	}
	log.Info("stopped", "cut", cut)
	return err
}

// lookupIn returns os.LookupEnv for an environment like os.Environ's.
func lookupIn(environ []string) func(name string) (string, bool) {
	return func(name string) (string, bool) {
		for _, entry := range slices.Backward(environ) {
			if value, ok := strings.CutPrefix(entry, name+"="); ok {
				return value, true
			}
		}
		return "", false
	}
}

// listen opens the listeners that the configuration names. The second is nil if
// there is none for operators.
func listen(cfg *conf.Config) (public, ops net.Listener, err error) {
	if public, err = net.Listen("tcp", cfg.Server.ListenAddr); err != nil {
		return nil, nil, fmt.Errorf("server.listen_addr: %w", err)
	}
	if cfg.Admin.ListenAddr == "" {
		return public, nil, nil
	}
	if ops, err = net.Listen("tcp", cfg.Admin.ListenAddr); err != nil {
		public.Close()
		return nil, nil, fmt.Errorf("admin.listen_addr: %w", err)
	}
	return public, ops, nil
}

// levels are the log levels of the configuration: verbose is between info and
// debug, trace is below debug.
var levels = map[int]slog.Level{1: slog.LevelWarn, 2: slog.LevelInfo, 3: slog.LevelInfo - 2, 4: slog.LevelDebug, 5: wire.LevelTrace}

// logger makes the log of a configuration, and what sets its level.
func logger(cfg *conf.Config, to io.Writer) (*slog.Logger, *slog.LevelVar) {
	level := &slog.LevelVar{}
	level.Set(levels[cfg.LogLevel])
	o := &slog.HandlerOptions{Level: level}
	if cfg.LogFormat == "text" {
		return slog.New(slog.NewTextHandler(to, o)), level
	}
	return slog.New(slog.NewJSONHandler(to, o)), level
}

// muzzle keeps what libraries print by the log package out of the log: net/http
// quotes there what an upstream sends beyond its answer, which may be anything.
func muzzle(to *slog.Logger) {
	stdlog.SetFlags(0)
	stdlog.SetOutput(muzzled{to})
}

type muzzled struct{ to *slog.Logger }

func (m muzzled) Write(p []byte) (int, error) {
	m.to.Debug("a library's message was left out: it may quote an upstream", "bytes", len(p))
	return len(p), nil
}
