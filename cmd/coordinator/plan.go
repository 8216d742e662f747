package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/llm-coordinator/coordinator/cmd/plan"
	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/loadtest/scrape"
)

const planUsage = `usage: coordinator plan -rate 200 [flags]

Prints how large the pools have to be for so many requests a second, as TOML for
[actors] and [actors.pools], and what would fill up first if there were more. How
long work takes is measured (-from a report of loadtest/run, or -metrics of a
coordinator that has served), given (-times), or assumed; the output says which. So
is what a request is, unless -prompt, -output and -images say so: times that were
measured are then scaled. The pools are those of the pipeline in -config; without
it, of one with all steps but conditional-decode.

`

// planFlags are the flags of plan.
type planFlags struct {
	question              plan.Question
	config, from, metrics string
}

func (f *planFlags) addTo(fs *flag.FlagSet) {
	q := &f.question
	fs.Float64Var(&q.Rate, "rate", 0, "`requests` each second, to all replicas together; required")
	fs.IntVar(&q.Replicas, "replicas", 1, "`replicas` that share them; one less than there are, if one may be gone")
	numbers := func(into **float64, name, usage string) {
		fs.Func(name, usage, func(text string) error {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return errors.New("want a number")
			}
			*into = &v
			return nil
		})
	}
	numbers(&q.Prompt, "prompt", "`tokens` of a prompt, on average (else measured, or 1024)")
	numbers(&q.Output, "output", "`tokens` of an answer, on average (else measured, or 256)")
	numbers(&q.Images, "images", "`images` of a request, on average: 0.3 (else measured, or 0); audio and video count as images")
	numbers(&q.ImageBytes, "image-bytes", "`bytes` of an image (else 300000)")
	numbers(&q.TensorBytes, "tensor-bytes", "`bytes` of an image's rendered tensor, where legs carry them (else 1 MB)")
	numbers(&q.ByURL, "by-url", "`part` of images that are named by URL, 0 to 1 (else measured, or 1)")
	numbers(&q.Cached, "cached", "`part` of requests that a conditional decode serves, 0 to 1 (else measured, or 0)")
	fs.Func("times", "`times` of work: render=5ms,prefill=200ms,encode=80ms,decode=6s; also media and probe (a conditional decode)", func(text string) (err error) {
		q.Times, err = parseTimes(text)
		return err
	})
	fs.Float64Var(&q.Sigmas, "sigmas", 3, "room for chance, in standard `deviations`")
	fs.Float64Var(&q.Margin, "margin", 1.15, "what sizes are multiplied by, for load that is not spread evenly")
	fs.DurationVar(&q.Wait, "wait", 2*time.Second, "how much of what comes a queue takes")
	fs.StringVar(&f.config, "config", "", "configuration `file` whose pipeline is planned for")
	fs.StringVar(&f.from, "from", "", "`file` of a report that loadtest/run -metrics wrote: what was measured")
	fs.StringVar(&f.metrics, "metrics", "", "`URL` of a coordinator's metrics, http://127.0.0.1:9090/metrics: measured since it started")
}

// parseTimes reads name=duration, separated by commas.
func parseTimes(text string) (map[string]time.Duration, error) {
	times := map[string]time.Duration{}
	for entry := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(entry), "=")
		d, err := time.ParseDuration(value)
		if !ok || err != nil {
			return nil, fmt.Errorf("want name=time, as in decode=6s, got %q", entry)
		}
		if _, twice := times[name]; twice {
			return nil, fmt.Errorf("%s is there twice", name)
		}
		times[name] = d
	}
	return times, nil
}

// planSizes prints the sizes that a rate of requests takes.
func planSizes(ctx context.Context, args, environ []string, stdout, stderr io.Writer) error {
	var f planFlags
	fs := flags("plan", stderr)
	fs.Usage = func() { fmt.Fprint(stderr, planUsage); fs.PrintDefaults() }
	f.addTo(fs)
	if err := parse(fs, args); err != nil {
		return err
	}
	if err := f.question.Validate(); err != nil {
		return err
	}
	cfg := plan.DefaultConfig()
	if f.config != "" {
		var err error
		if cfg, err = conf.Load(f.config, environ); err != nil {
			return err
		}
	}
	seen, err := f.measured(ctx)
	if err != nil {
		return err
	}
	p, err := plan.Make(f.question, cfg, f.config, seen)
	if err != nil {
		return err
	}
	return p.Write(stdout)
}

// measured reads what was measured; nil if nothing was.
func (f *planFlags) measured(ctx context.Context) (*plan.Measured, error) {
	switch {
	case f.from != "" && f.metrics != "":
		return nil, errors.New("want -from or -metrics, not both")
	case f.from != "":
		text, err := readInput(ctx, f.from)
		if err != nil {
			return nil, err
		}
		return plan.FromReport(filepath.Base(f.from), text)
	case f.metrics != "":
		client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{}}
		defer client.CloseIdleConnections()
		s, err := scrape.Get(ctx, client, f.metrics)
		if err != nil {
			return nil, fmt.Errorf("-metrics: %w", err)
		}
		source := "a coordinator, since it started"
		if u, err := url.Parse(f.metrics); err == nil {
			source = u.Redacted() + ", since it started"
		}
		return plan.FromMetrics(source, s)
	}
	return nil, nil
}
