package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/llm-coordinator/coordinator/loadtest/load"
	"github.com/llm-coordinator/coordinator/loadtest/report"
	"github.com/llm-coordinator/coordinator/loadtest/scrape"
)

// headers is a flag that may be given more than once.
type headers http.Header

// String implements flag.Value.
func (h headers) String() string { return "" }

// Set implements flag.Value.
func (h headers) Set(line string) error {
	name, value, ok := strings.Cut(line, ":")
	if !ok || strings.TrimSpace(name) == "" {
		return errors.New("want name: value")
	}
	http.Header(h).Add(strings.TrimSpace(name), strings.TrimSpace(value))
	return nil
}

// addTarget adds the flags of where requests go and of what they are.
func addTarget(fs *flag.FlagSet, t *load.Target, r *load.Request) {
	t.Header = http.Header{}
	fs.StringVar(&t.URL, "url", "http://127.0.0.1:8080", "base `URL` of the coordinator")
	fs.IntVar(&t.PID, "pid", 0, "`process` of this machine to watch: its CPU time and memory")
	fs.Var(headers(t.Header), "H", "`header` to add, as name: value; may be repeated; is not in the report")
	fs.Func("kind", "chat (the default), completions or generate", func(s string) error { r.Kind = load.Kind(s); return nil })
	fs.StringVar(&r.Model, "model", "demo-model", "`name` of the model that is asked for")
	fs.IntVar(&r.MaxTokens, "max-tokens", 64, "max_tokens of each request")
	fs.IntVar(&r.PromptBytes, "prompt", 1024, "`bytes` of the prompt")
	fs.IntVar(&r.Images, "images", 0, "images of a chat request, inlined")
	fs.IntVar(&r.ImageBytes, "image-bytes", 12_000, "`bytes` of an image as base64")
}

// generate makes requests.
func generate(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("run", flag.ContinueOnError)
	fs.SetOutput(stderr)
	var o load.Options
	addTarget(fs, &o.Target, &o.Request)
	fs.BoolVar(&o.Request.Stream, "stream", false, "ask for streams")
	mix := fs.String("mix", "", "several `kinds` of requests with weights: chat=3,chat-stream=4,images-stream=1,completions=1,generate=1; instead of -kind and -stream")
	fs.IntVar(&o.Clients, "c", 0, "`clients` of a closed loop")
	fs.Float64Var(&o.Rate, "rate", 0, "`requests` that begin each second, for an open loop")
	fs.IntVar(&o.MaxInFlight, "max-in-flight", 0, "`requests` of an open loop under way; those beyond are missed (default 1000)")
	fs.Int64Var(&o.Count, "n", 10_000, "`requests` at most")
	fs.DurationVar(&o.Duration, "d", 30*time.Second, "how long requests begin at most")
	fs.DurationVar(&o.Grace, "grace", 30*time.Second, "how long those that have begun may go on then")
	fs.DurationVar(&o.Timeout, "timeout", 0, "how long one request may take (default: no limit)")
	file := fs.String("o", "", "`file` for the report, as JSON")
	page := fs.String("report", "", "`file` for the report, as a page of HTML with plots")
	metrics := fs.String("metrics", "", "`URL` of the coordinator's metrics, to be read each second: http://127.0.0.1:9090/metrics")
	comparing := fs.Bool("compare", false, "make no requests, but compare two reports that -o has written: -compare a.json b.json")
	files, err := parseMixed(fs, args)
	if err != nil {
		return err
	}
	if *comparing {
		return compareFiles(files, *page, stdout, stderr)
	}
	if len(files) > 0 {
		fmt.Fprintf(stderr, "unexpected argument %q\n", files[0])
		return errUsage
	}
	if *mix != "" {
		if o.Mix, err = load.ParseMix(o.Request, *mix); err != nil {
			return err
		}
		o.Request.Images, o.Request.Stream = 0, false // those of the mix
	}
	o.Progress = func(p load.Progress) {
		c := p.Counts
		fmt.Fprintf(stderr, "%4.0f s: %d ok (%.0f/s), %d failed, %d missed, %d in flight\n",
			p.Elapsed.Seconds(), c.OK, p.PerSecond, c.Failed, c.Missed, p.InFlight)
	}
	r, err := watched(ctx, o, *metrics)
	if err != nil {
		return err
	}
	err = errors.Join(r.WriteText(stdout), save(*file, r), savePage(*page, func(w io.Writer) error { return report.WritePage(w, r) }))
	if err != nil {
		return err
	}
	if c := r.Counts; c.Failed+c.Missed > 0 {
		return fmt.Errorf("%d requests failed, %d were missed", c.Failed, c.Missed)
	}
	return nil
}

// watched makes requests while the coordinator's metrics are read, if they are at a
// URL.
func watched(ctx context.Context, o load.Options, url string) (*report.File, error) {
	if url == "" {
		r, err := load.Run(ctx, o)
		return &report.File{Report: r}, err
	}
	watch, err := scrape.Begin(ctx, url, time.Second)
	if err != nil {
		return nil, fmt.Errorf("-metrics: %w", err)
	}
	r, err := load.Run(ctx, o)
	return &report.File{Report: r, Coordinator: watch.Stop()}, err
}

// hold holds streams open.
func hold(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("run hold", flag.ContinueOnError)
	fs.SetOutput(stderr)
	var o load.HoldOptions
	addTarget(fs, &o.Target, &o.Request)
	fs.Lookup("max-tokens").DefValue = "1000000"
	o.Request.MaxTokens = 1_000_000 // so that the answer takes longer than it is held
	fs.IntVar(&o.Streams, "streams", 1000, "`streams` to hold")
	fs.IntVar(&o.Opening, "opening", 64, "`streams` that are opened at a time")
	fs.DurationVar(&o.OpenWithin, "open-within", time.Minute, "how long opening them may take")
	fs.DurationVar(&o.For, "d", 5*time.Second, "how long they are held")
	file := fs.String("o", "", "`file` for the report, as JSON")
	if err := parse(fs, args); err != nil {
		return err
	}
	o.Opened = func() { fmt.Fprintf(stderr, "streams are open, and held for %v\n", o.For) }
	r, err := load.Hold(ctx, o)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%d streams open, %d missing, %d broken; %d events in %.1f s (%.0f/s)\n",
		r.Open, r.Missing, r.Broken, r.Events, r.HeldSeconds, float64(r.Events)/r.HeldSeconds)
	if r.Process != nil {
		fmt.Fprintf(stdout, "process %d: %.1f KB of memory for each stream, %.1f µs of CPU for each event\n",
			r.Process.PID, r.BytesPerStream/1024, r.CPUPerEvent)
	}
	if err := save(*file, r); err != nil {
		return err
	}
	if r.Missing+r.Broken > 0 {
		return fmt.Errorf("%d streams are missing, %d broke", r.Missing, r.Broken)
	}
	return nil
}
