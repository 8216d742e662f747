package load

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestClosedLoopEndsByItsCount(t *testing.T) {
	var inFlight, most atomic.Int64
	target := serve(t, func(w http.ResponseWriter, r *http.Request) {
		now := inFlight.Add(1)
		for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
		}
		defer inFlight.Add(-1)
		whole(w, r)
	})
	r := mustRun(t, options(target, 100))
	if c := r.Counts; c.Begun != 100 || c.OK != 100 || c.Failed != 0 || c.Cut != 0 || c.BytesRead != 200 {
		t.Errorf("%+v", c)
	}
	if r.Statuses["200"] != 100 || r.Total.Count != 100 || r.FirstEvent.Count != 100 || r.Gap.Count != 0 {
		t.Errorf("%+v", r)
	}
	if n := most.Load(); n > 4 {
		t.Errorf("%d requests at a time", n)
	}
}

func TestStreamsAreTimedByTheirEvents(t *testing.T) {
	if r := mustRun(t, options(serve(t, stream(5)), 20)); r.Counts.OK != 20 || r.Counts.Events != 20*6 || r.FirstEvent.Count != 20 {
		t.Errorf("%+v %v %v", r.Counts, r.Codes, r.Transport)
	}
	synctest.Test(t, func(t *testing.T) {
		o := options(Target{URL: "http://server.test", Transport: roundTripper(func(*http.Request) (*http.Response, error) {
			a := answer(200, "")
			a.Header.Set("Content-Type", "text/event-stream")
			a.Body = slowly("data: 1\n\n", "data: 2\n", "\ndata: 3\n\n", "data: [DONE]\n\n")
			return a, nil
		})}, 8)
		r := mustRun(t, o) // an event at 1, 3 (two of them) and 4 s
		if c := r.Counts; c.OK != 8 || c.Events != 8*4 {
			t.Errorf("%+v", c)
		}
		near := func(us int64, s float64) bool { return float64(us) > s*999e3 && float64(us) < s*1001e3 }
		if g := r.Gap; g.Count != 16 || !near(g.P50, 1) || !near(g.P90, 2) || r.FirstEvent.Count != 8 || !near(r.FirstEvent.Max, 1) || !near(r.Total.P50, 4) {
			t.Errorf("%+v %+v %+v", r.FirstEvent, r.Gap, r.Total)
		}
	})
}

// slowly is a body whose pieces arrive a second after one another.
func slowly(pieces ...string) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		for _, p := range pieces {
			time.Sleep(time.Second) // of the bubble
			io.WriteString(w, p)
		}
		w.Close()
	}()
	return r
}

// TestClosedLoopEndsByItsTime: requests that are under way then have the grace.
func TestClosedLoopEndsByItsTime(t *testing.T) {
	for grace, want := range map[time.Duration]Counts{
		time.Second:            {Begun: 8, OK: 8, BytesRead: 16}, // at 0 and 2 s, four clients
		400 * time.Millisecond: {Begun: 8, OK: 4, Cut: 4, BytesRead: 8},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := options(Target{URL: "http://server.test", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				return after(r, 2*time.Second)
			})}, 1000)
			o.Duration, o.Grace = 3500*time.Millisecond, grace
			if r := mustRun(t, o); r.Counts != want || r.DurationSeconds != min(4, (o.Duration+grace).Seconds()) {
				t.Errorf("%v: %+v in %v s", grace, r.Counts, r.DurationSeconds)
			}
		})
	}
}

// TestCancellationEndsEverything that is under way, and tells so.
func TestCancellationEndsEverything(t *testing.T) {
	for name, set := range map[string]func(*Options){
		"closed": func(o *Options) { o.Clients = 8 },
		"open":   func(o *Options) { o.Clients, o.Rate, o.MaxInFlight = 0, 1e6, 8 },
	} {
		arrived := make(chan struct{}, 1000)
		target := serve(t, func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			arrived <- struct{}{}
			<-r.Context().Done()
		})
		o := options(target, 1e9)
		o.Grace = time.Hour
		set(&o)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for range 8 {
				<-arrived
			}
			cancel()
		}()
		r, err := Run(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		if c := r.Counts; c.Begun < 8 || c.Cut != c.Begun || c.OK != 0 || c.Failed != 0 || len(r.Transport) != 0 {
			t.Errorf("%s: %+v %v", name, c, r.Transport)
		}
	}
}

func TestProgressComesEachSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []Progress
		o := options(Target{URL: "http://server.test", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			return after(r, 300*time.Millisecond)
		})}, 28)
		o.Progress = func(p Progress) { seen = append(seen, p) }
		mustRun(t, o) // 28 requests of 4 clients: 2.1 s
		if len(seen) != 2 || seen[0].Elapsed != time.Second || seen[0].Counts.OK != 12 || seen[0].InFlight != 4 ||
			seen[0].PerSecond != 12 || seen[1].PerSecond != 12 || seen[1].Counts.OK != 24 {
			t.Errorf("%+v", seen)
		}
	})
}

// after answers after a while, or when the request ends.
func after(r *http.Request, d time.Duration) (*http.Response, error) {
	select {
	case <-time.After(d):
		return answer(200, "{}"), nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}
