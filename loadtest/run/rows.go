package main

import (
	"context"
	"time"

	"github.com/llm-coordinator/coordinator/loadtest/load"
)

// MB and KB are sizes of bodies.
const (
	kb = 1000
	mb = 1000 * kb
)

var (
	text       = load.Request{PromptBytes: 1024, MaxTokens: 64}
	streamed   = load.Request{PromptBytes: 1024, MaxTokens: 64, Stream: true}
	oneImage   = load.Request{PromptBytes: 1024, MaxTokens: 64, Images: 1, ImageBytes: 12 * kb}
	fourImages = load.Request{PromptBytes: 1024, MaxTokens: 64, Images: 4, ImageBytes: 400 * kb}
	heldText   = load.Request{PromptBytes: 1024, MaxTokens: 1_000_000, Stream: true}
	heavy      = load.Request{PromptBytes: 1024, MaxTokens: 64, Images: 4, ImageBytes: 5 * mb}
)

// requests measures the CPU time of requests, and how long one alone takes.
func (b *bench) requests(ctx context.Context) error {
	s, stop, err := b.stage(ctx, 0, true)
	if err != nil {
		return err
	}
	defer stop()
	for _, r := range []struct {
		name    string
		request load.Request
		clients int
		bound   float64
		tokens  float64 // the bound with token ids in place of messages, if that is measured
		shares  bool    // floors that do more are measured too
	}{
		{name: "text, 1 KB prompt, 512 token ids, 32 clients", request: text, clients: 32, bound: 1.30, shares: true},
		{name: "streamed, 64 chunks, 32 clients", request: streamed, clients: 32, bound: 1.25, shares: true},
		{name: "one 12 KB image, tensor of 1 MB, 4 clients", request: oneImage, clients: 4, bound: 1.6},
		{name: "four 400 KB images, tensors of 1 MB, 4 clients", request: fourImages, clients: 4, bound: 1.6, tokens: 2.5},
	} {
		targets := []*server{s.floor, s.coordinator}
		if r.shares {
			targets = append(targets, s.contract, s.actors)
		}
		if r.tokens > 0 {
			targets = append(targets, s.tokensIn)
		}
		reports, err := b.inTurn(ctx, r.name, targets, r.request, r.clients)
		if err != nil {
			return err
		}
		floor := each(reports[0], cpu)
		b.rows = append(b.rows, ratio(r.name, "µs", floor, each(reports[1], cpu), r.bound))
		if r.tokens > 0 {
			b.rows = append(b.rows, ratio("the same, use_openai_format = false", "µs", floor, each(reports[len(reports)-1], cpu), r.tokens))
		}
		if r.shares {
			b.shares = append(b.shares, share{r.name, "µs", median(floor), median(each(reports[2], cpu)),
				median(each(reports[3], cpu)), median(each(reports[1], cpu))})
		}
	}
	const alone = "added latency (p50), one text request at a time"
	reports, err := b.inTurn(ctx, alone, []*server{s.floor, s.coordinator}, text, 1)
	if err != nil {
		return err
	}
	b.rows = append(b.rows, difference(alone, "µs", each(reports[0], latency), each(reports[1], latency), 150))
	return nil
}

func cpu(r *load.Report) float64     { return r.Process.CPUPerRequest }
func latency(r *load.Report) float64 { return float64(r.Total.P50) }

func each[R any](reports []R, value func(R) float64) (values []float64) {
	for _, r := range reports {
		values = append(values, value(r))
	}
	return values
}

// inTurn measures the targets, one after the other, turn by turn: what changes
// on the machine meanwhile meets them all. It returns the reports of each.
func (b *bench) inTurn(ctx context.Context, name string, targets []*server, r load.Request, clients int) ([][]*load.Report, error) {
	b.note("%s", name)
	reports := make([][]*load.Report, len(targets))
	for _, t := range targets {
		if _, err := measure(ctx, t, r, clients, b.effort.count, b.warm); err != nil {
			return nil, err
		}
	}
	for range b.turns {
		for i, t := range targets {
			report, err := measure(ctx, t, r, clients, b.effort.count, b.turn)
			if err != nil {
				return nil, err
			}
			reports[i] = append(reports[i], report)
		}
	}
	return reports, nil
}

// holding measures what streams cost that are held open.
func (b *bench) holding(ctx context.Context) error {
	var floor, ours []*load.HoldReport
	for range b.heldTurns {
		f, c, err := b.held(ctx, b.streams)
		if err != nil {
			return err
		}
		floor, ours = append(floor, f), append(ours, c)
	}
	memory := func(r *load.HoldReport) float64 { return r.BytesPerStream / 1024 }
	chunk := func(r *load.HoldReport) float64 { return r.CPUPerEvent }
	b.rows = append(b.rows,
		amount("2,000 held streams: memory of each", "KB", each(floor, memory), each(ours, memory), 80),
		difference("2,000 held streams: CPU of a relayed chunk above the floor", "µs", each(floor, chunk), each(ours, chunk), 10))
	return nil
}

// chunkRate is how many chunks come each second however many streams there are.
const chunkRate = 4000

// held holds streams through fresh processes, the floor's first.
func (b *bench) held(ctx context.Context, streams int) (floor, ours *load.HoldReport, err error) {
	b.note("%d streams held", streams)
	s, stop, err := b.stage(ctx, time.Second*time.Duration(streams)/chunkRate, false)
	if err != nil {
		return nil, nil, err
	}
	defer stop()
	hold := func(t *server) (*load.HoldReport, error) {
		if _, err := measure(ctx, t, text, 4, 64, time.Minute); err != nil { // a process that is in use
			return nil, err
		}
		r, err := load.Hold(ctx, load.HoldOptions{Target: load.Target{URL: t.url, PID: t.pid}, Request: heldText,
			Streams: streams, OpenWithin: time.Minute, For: b.effort.held})
		if err == nil && r.Missing+r.Broken > 0 {
			b.note("of %d streams %d are missing and %d broke", streams, r.Missing, r.Broken)
		}
		return r, err
	}
	if floor, err = hold(s.floor); err != nil {
		return nil, nil, err
	}
	ours, err = hold(s.coordinator)
	return floor, ours, err
}
