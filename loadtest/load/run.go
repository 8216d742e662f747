package load

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// run is what the goroutines of a run share.
type run struct {
	options   Options
	recorder  *recorder
	shares    *shares
	transport http.RoundTripper
	began     time.Time
}

// sender makes requests one after the other, those of each share by a client of its
// own. It belongs to one goroutine.
type sender struct {
	run     *run
	byShare []*client // nil until there is a request of that share
}

func (r *run) sender() *sender { return &sender{run: r, byShare: make([]*client, len(r.shares.all))} }

// next returns who makes the next request.
func (s *sender) next() *client {
	i := s.run.shares.pick()
	if s.byShare[i] == nil {
		s.byShare[i] = s.run.client(i)
	}
	return s.byShare[i]
}

func (r *run) client(share int) *client {
	c, err := newClient(r.options.Target, r.shares.all[share].Request, r.shares.bodies[share], r.transport)
	if err != nil {
		panic("load: " + err.Error()) // the URL was checked
	}
	c.timeout = r.options.Timeout
	c.onGap = r.recorder.recordGap
	return c
}

// do makes a request that should have begun at a time.
func (r *run) do(ctx context.Context, s *sender, at time.Time) {
	r.recorder.begin(time.Since(at))
	r.recorder.end(s.next().do(ctx, at))
}

// closed has clients make requests, each of which has one under way.
func (r *run) closed(ctx context.Context) {
	var clients sync.WaitGroup
	var taken atomic.Int64
	end := r.began.Add(r.options.Duration)
	for range r.options.Clients {
		clients.Go(func() {
			c := r.sender()
			for ctx.Err() == nil {
				now := time.Now()
				if !now.Before(end) || taken.Add(1) > r.options.Count {
					return
				}
				r.do(ctx, c, now)
			}
		})
	}
	clients.Wait()
}

// open has requests begin on schedule. Clients are made as they are needed, up to
// as many as may be in flight.
func (r *run) open(ctx context.Context) {
	due := make(chan time.Time, r.options.MaxInFlight) // a send never waits: there are no more than these
	var clients sync.WaitGroup
	var inFlight atomic.Int64
	defer clients.Wait()
	defer close(due)
	made := int64(0)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := range r.options.Count {
		after := r.schedule(i)
		if after >= r.options.Duration {
			return
		}
		at := r.began.Add(after)
		if !waitUntil(ctx, timer, at) {
			return
		}
		if inFlight.Load() >= int64(r.options.MaxInFlight) {
			r.recorder.miss()
			continue
		}
		if now := inFlight.Add(1); made < now {
			made++
			clients.Go(func() {
				c := r.sender()
				for at := range due {
					r.do(ctx, c, at)
					inFlight.Add(-1)
				}
			})
		}
		due <- at
	}
}

// schedule is when a request begins, from the beginning of the run on. It is not
// the sum of pauses, which would add up their errors.
func (r *run) schedule(i int64) time.Duration {
	return time.Duration(float64(i) / r.options.Rate * float64(time.Second))
}

// waitUntil waits for a time; false if ctx ends first. A time that has passed is
// not waited for: what is late begins at once.
func waitUntil(ctx context.Context, timer *time.Timer, at time.Time) bool {
	pause := time.Until(at)
	if pause <= 0 {
		return ctx.Err() == nil
	}
	timer.Reset(pause)
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// watch tells Options.Progress how far the run is until the function that it
// returns is called, which waits for the last call's end.
func (r *run) watch() (stop func()) {
	if r.options.Progress == nil {
		return func() {}
	}
	var watching sync.WaitGroup
	done := make(chan struct{})
	watching.Go(func() {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		last, lastOK := r.began, int64(0)
		for {
			select {
			case <-done:
				return
			case now := <-ticker.C:
				c := r.recorder.soFar()
				r.options.Progress(Progress{Elapsed: now.Sub(r.began), Counts: c,
					PerSecond: float64(c.OK-lastOK) / now.Sub(last).Seconds(),
					InFlight:  c.Begun - c.OK - c.Failed - c.Cut})
				last, lastOK = now, c.OK
			}
		}
	})
	return func() {
		close(done)
		watching.Wait()
	}
}

func (r *run) report(took time.Duration, before, after *Sample) *Report {
	rec := r.recorder
	rec.mu.Lock()
	defer rec.mu.Unlock()
	seconds := took.Seconds()
	report := &Report{
		Settings: r.options, Began: r.began, DurationSeconds: seconds, Counts: rec.counts,
		Rates:      Rates{OK: float64(rec.counts.OK) / seconds, Events: float64(rec.counts.Events) / seconds},
		FirstEvent: rec.first.summary(), Gap: rec.gap.summary(), Total: rec.total.summary(), Delay: rec.delay.summary(),
		Windows:  rec.windows.report(took),
		Statuses: rec.statuses, Codes: rec.codes, Transport: rec.failures,
	}
	report.Settings.Target.Transport, report.Settings.Header, report.Settings.Progress = nil, nil, nil
	if after != nil {
		report.Process = usage(*before, *after, rec.counts.Begun, r.options.PID)
	}
	return report
}
