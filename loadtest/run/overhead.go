package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/llm-coordinator/coordinator/loadtest/load"
)

// effort is how much is measured.
type effort struct {
	turns     int           // of each row
	turn      time.Duration // one measurement
	warm      time.Duration // before the first turn of a row
	heldTurns int           // of the rows with processes of their own
	held      time.Duration // how long streams are held
	streams   int           // of the rows of held streams
	growth    []int         // streams, of the table of growth
	count     int64         // requests of one measurement, at most
	peak      int64         // requests of the row of peak memory
}

var (
	whole = effort{turns: 5, turn: 1200 * time.Millisecond, warm: 700 * time.Millisecond, heldTurns: 3, held: 3 * time.Second,
		streams: 2000, growth: []int{10, 500, 5000}, count: 1 << 40, peak: 48}
	quick = effort{turns: 3, turn: 500 * time.Millisecond, warm: 300 * time.Millisecond, heldTurns: 1, held: 2 * time.Second,
		streams: 2000, growth: []int{10, 500, 5000}, count: 1 << 40, peak: 16}
)

// bench measures a coordinator beside a floor.
type bench struct {
	servers
	effort
	log    io.Writer // what is being done
	rows   []row
	shares []share
	lines  []growth
}

// overhead measures everything and prints the tables.
func overhead(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("run overhead", flag.ContinueOnError)
	fs.SetOutput(stderr)
	coordinator := fs.String("coordinator", "bin/coordinator", "`path` of the coordinator")
	floor := fs.String("floor", "bin/floor", "`path` of the floor")
	short := fs.Bool("quick", false, "less of everything: about a minute; figures are less sure")
	check := fs.Bool("check", false, "fail if a bound is not met")
	file := fs.String("o", "", "`file` for the rows, as JSON")
	if err := parse(fs, args); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "overhead-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{servers: &processes{floorPath: *floor, coordinatorPath: *coordinator, dir: dir, stderr: stderr}, effort: whole, log: stderr}
	if *short {
		b.effort = quick
	}
	began, others := time.Now(), loadAverage()
	if err := b.all(ctx); err != nil {
		return err
	}
	writeRows(stdout, b.rows)
	writeShares(stdout, b.shares)
	writeGrowth(stdout, b.lines)
	fmt.Fprintf(stdout, "\nTook %v, on %d CPUs; the load average before was %s.\n", time.Since(began).Round(time.Second), runtime.NumCPU(), others)
	if err := save(*file, map[string]any{"rows": b.rows, "shares": b.shares, "growth": b.lines}); err != nil {
		return err
	}
	if *check {
		return b.unmet()
	}
	return nil
}

// loadAverage is how busy the machine is (with others' work, before a measurement
// begins): how many processes wanted to run, over the last minute.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	last, _, _ := strings.Cut(string(text), " ")
	return last
}

// all makes every measurement.
func (b *bench) all(ctx context.Context) error {
	for _, part := range []func(context.Context) error{b.requests, b.holding, b.peakMemory, b.growing} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) unmet() (err error) {
	for _, r := range b.rows {
		if !r.Met() {
			err = errors.Join(err, fmt.Errorf("not met: %s", r.Name))
		}
	}
	return err
}

// stage is a backend with floors and coordinators in front of it.
type stage struct {
	backend, floor, coordinator *server
	// contract is a floor that keeps the contract, actors one whose legs are made by
	// actors besides.
	contract, actors *server
	tokensIn         *server // the coordinator with use_openai_format = false
}

// stage starts one. Beside floor and coordinator there is nothing unless all are
// asked for.
func (b *bench) stage(ctx context.Context, interval time.Duration, all bool) (s *stage, stop func(), err error) {
	s = &stage{}
	var started []*server
	stop = func() {
		for i := len(started) - 1; i >= 0; i-- {
			started[i].stop()
		}
	}
	start := func(to **server, f func() (*server, error)) {
		if err != nil {
			return
		}
		if *to, err = f(); err == nil {
			started = append(started, *to)
		}
	}
	start(&s.backend, func() (*server, error) { return b.servers.backend(ctx, interval) })
	start(&s.floor, func() (*server, error) { return b.servers.relay(ctx, s.backend.url) })
	start(&s.coordinator, func() (*server, error) { return b.servers.coordinator(ctx, s.backend.url, true) })
	if all {
		start(&s.contract, func() (*server, error) { return b.servers.relay(ctx, s.backend.url, "-contract") })
		start(&s.actors, func() (*server, error) { return b.servers.relay(ctx, s.backend.url, "-contract", "-actors") })
		start(&s.tokensIn, func() (*server, error) { return b.servers.coordinator(ctx, s.backend.url, false) })
	}
	if err != nil {
		stop()
		return nil, nil, err
	}
	return s, stop, nil
}

// measure has clients make requests for a while. All must succeed: errors are
// cheap, and would flatter.
func measure(ctx context.Context, s *server, r load.Request, clients int, count int64, d time.Duration) (*load.Report, error) {
	report, err := load.Run(ctx, load.Options{Target: load.Target{URL: s.url, PID: s.pid}, Request: r,
		Clients: clients, Count: count, Duration: d, Grace: time.Minute})
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if c := report.Counts; c.OK != c.Begun || c.OK == 0 {
		return nil, fmt.Errorf("of %d requests %d went well: codes %v, transport %v", c.Begun, c.OK, report.Codes, report.Transport)
	}
	return report, nil
}

func (b *bench) note(format string, args ...any) { fmt.Fprintf(b.log, format+"\n", args...) }
