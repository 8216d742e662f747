package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/llm-coordinator/coordinator/cmd/explain"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

const explainUsage = `usage: coordinator explain [flags] FILE

Says what would happen to a request and why: whether it is accepted, which phases
run, the legs that are sent, and the limits that apply. FILE (- is standard input)
is the body of the request. Nothing is called: what only upstreams could tell is
made up, and marked as such. The exit status is 0 if the request could be explained,
also if it would be refused.

`

// explainRequest says what would happen to a request.
func explainRequest(ctx context.Context, args, environ []string, stdout, stderr io.Writer) error {
	var f configFlags
	fs := flags("explain", stderr)
	fs.Usage = func() { fmt.Fprint(stderr, explainUsage); fs.PrintDefaults() }
	f.addTo(fs)
	var req explain.Request
	var headers []string
	fs.StringVar(&req.Route, "route", wire.Chat.Path, "`path` of the request, and its query")
	fs.Func("header", "a header of the request, `'Name: value'`; may be given again", func(line string) error {
		headers = append(headers, line) // judged later: package flag would repeat what is wrong, and it may be a credential
		return nil
	})
	asJSON := fs.Bool("json", false, "print JSON")
	file, err := parseFile(fs, args)
	if err != nil {
		return err
	}
	if req.Header, err = parseHeaders(headers); err != nil {
		return err
	}
	cfg, err := f.load(environ)
	if err != nil {
		return err
	}
	if req.Body, err = readInput(ctx, file); err != nil {
		return err
	}
	muzzle(slog.New(slog.DiscardHandler))
	report, err := explain.Explain(ctx, cfg, lookupIn(environ), req)
	if err != nil {
		return err
	}
	if *asJSON {
		return report.JSON(stdout)
	}
	return report.Text(stdout)
}

// parseHeaders reads headers that are given as lines of HTTP.
func parseHeaders(lines []string) (http.Header, error) {
	headers := http.Header{}
	for i, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if !ok || !wire.IsToken(name) {
			return nil, fmt.Errorf("-header, the one that is number %d: want 'Name: value'", i+1)
		}
		headers.Add(name, strings.TrimSpace(value))
	}
	return headers, nil
}
