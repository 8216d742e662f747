package main

import (
	"context"
	"io"
	"log/slog"

	"github.com/llm-coordinator/coordinator/cmd/assembly"
)

// check validates a configuration, builds everything that it asks for, and
// prints it. Live, it also tries the routes that the pipeline calls.
func check(ctx context.Context, args, environ []string, stdout, stderr io.Writer) error {
	var f configFlags
	fs := flags("check", stderr)
	f.addTo(fs)
	live := fs.Bool("live", false, "also try the routes of workers and render service, with requests that compute nothing")
	if err := parse(fs, args); err != nil {
		return err
	}
	cfg, err := f.load(environ)
	if err != nil {
		return err
	}
	o := assembly.Options{Version: version(), LookupEnv: lookupIn(environ)}
	if !*live {
		o.OpenBroker = assembly.Unopened
	}
	c, err := assembly.New(cfg, o)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Describe(stdout); err != nil || !*live {
		return err
	}
	muzzle(slog.New(slog.DiscardHandler))
	return c.TryRoutes(ctx, stdout)
}
