package media

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-coordinator/coordinator/transport/budget"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// airport are flights whose downloads the test ends.
type airport struct {
	*Flights
	t *testing.T

	mu      sync.Mutex
	begun   []string         // URLs, in order
	under   map[string]*held // way, by URL
	aborted int
	results []error // that Landed was told of
}

// held is a download that waits for its end.
type held struct {
	ctx context.Context
	end chan outcome
}

type outcome struct {
	got fetched
	err error
}

// newAirport opens one, for use in a bubble.
func newAirport(t *testing.T, s FlightSettings) *airport {
	a := &airport{t: t, under: map[string]*held{}}
	s.Landed = func(_ wire.Modality, _ time.Duration, err error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.results = append(a.results, err)
	}
	a.Flights = NewFlights(&Fetcher{timeout: 10 * time.Second}, s)
	a.fetch = func(ctx context.Context, _ wire.Modality, url string, _ *budget.Account) (fetched, error) {
		return a.await(ctx, url)
	}
	t.Cleanup(a.Close)
	return a
}

func (a *airport) await(ctx context.Context, url string) (fetched, error) {
	d := &held{ctx, make(chan outcome)}
	a.mu.Lock()
	a.begun = append(a.begun, url)
	if other := a.under[url]; other != nil && other.ctx.Err() == nil {
		a.t.Errorf("%s is downloaded twice at a time", url)
	}
	a.under[url] = d
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.under[url] == d {
			delete(a.under, url)
		}
	}()
	select {
	case o := <-d.end:
		return o.got, o.err
	case <-ctx.Done():
		a.mu.Lock()
		defer a.mu.Unlock()
		a.aborted++
		return fetched{}, canceled(ctx)
	}
}

// land ends the download of a URL.
func (a *airport) land(url string, o outcome) {
	a.t.Helper()
	synctest.Wait()
	a.mu.Lock()
	d := a.under[url]
	a.mu.Unlock()
	if d == nil {
		a.t.Fatalf("%s is not under way", url)
	}
	d.end <- o
	synctest.Wait()
}

// want fails the test unless so many downloads have begun, are under way and
// were aborted.
func (a *airport) want(begun, under, aborted int) {
	a.t.Helper()
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.begun) != begun || len(a.under) != under || a.aborted != aborted {
		a.t.Errorf("%d downloads have begun, %d are under way, %d aborted; want %d, %d, %d", len(a.begun), len(a.under), a.aborted, begun, under, aborted)
	}
}

// wantEmpty fails the test unless nothing is under way.
func (a *airport) wantEmpty() {
	a.t.Helper()
	synctest.Wait()
	a.Flights.mu.Lock()
	defer a.Flights.mu.Unlock()
	if len(a.byURL) != 0 || len(a.strays) != 0 {
		a.t.Errorf("left: %d flights, %d strays", len(a.byURL), len(a.strays))
	}
}

// passenger is a request with a seat.
type passenger struct {
	*Seat
	found Found
	leave context.CancelFunc
	// ran gets a leader's result, woken a follower's.
	ran, woken chan outcome
}

// book takes a seat. A leader does not run yet.
func (a *airport) book(url string) *passenger {
	p := &passenger{Seat: a.Seat(wire.Image, url), ran: make(chan outcome, 1), woken: make(chan outcome, 9)}
	if p.found = p.Join(true); p.found == Hit || p.found == Shared {
		p.Await(func(uri []byte, err error) { p.woken <- outcome{fetched{uri: uri}, err} })
	}
	return p
}

// fly takes a seat and runs if it leads.
func (a *airport) fly(url string) *passenger {
	p := a.book(url)
	if p.found == Miss || p.found == Expired {
		p.run()
	}
	return p
}

func (p *passenger) run() {
	var ctx context.Context
	ctx, p.leave = context.WithCancel(context.Background())
	go func() {
		uri, err := p.Run(ctx)
		p.ran <- outcome{fetched{uri: uri}, err}
	}()
}

// arrived returns what a passenger has got.
func (p *passenger) arrived(t *testing.T) outcome {
	t.Helper()
	synctest.Wait()
	select {
	case o := <-p.ran:
		return o
	case o := <-p.woken:
		return o
	default:
		t.Error("somebody has not arrived")
		return outcome{}
	}
}

// waits fails the test if somebody has arrived.
func (p *passenger) waits(t *testing.T) {
	t.Helper()
	synctest.Wait()
	if len(p.ran)+len(p.woken) != 0 {
		t.Error("somebody has arrived")
	}
}

const url1, url2 = "http://img.test/1", "http://img.test/2"

func img(text string) outcome { return outcome{got: fetched{uri: []byte(text), public: true}} }

func bubble(t *testing.T, s FlightSettings, f func(t *testing.T, a *airport)) {
	synctest.Test(t, func(t *testing.T) { f(t, newAirport(t, s)) })
}

func TestOneDownloadForAll(t *testing.T) {
	bubble(t, FlightSettings{}, func(t *testing.T, a *airport) {
		all := []*passenger{a.fly(url1)}
		for range 100 {
			all = append(all, a.fly(url1))
		}
		other := a.fly(url2)
		query := a.fly(url1 + "?x")
		if all[0].found != Miss || all[1].found != Shared || all[100].found != Shared || other.found != Miss || query.found != Miss {
			t.Errorf("found %q, %q, %q, %q", all[0].found, all[1].found, other.found, query.found)
		}
		a.want(3, 3, 0)
		a.land(url1, img("one"))
		for _, p := range all {
			if o := p.arrived(t); string(o.got.uri) != "one" || o.err != nil {
				t.Errorf("got %s, %v", o.got.uri, o.err)
			}
		}
		other.waits(t)
		a.land(url1+"?x", img("query"))
		a.land(url2, img("two"))
		if o, q := other.arrived(t), query.arrived(t); string(o.got.uri) != "two" || string(q.got.uri) != "query" {
			t.Errorf("got %s and %s", o.got.uri, q.got.uri)
		}
		if later := a.fly(url1); later.found != Miss { // nothing is kept
			t.Errorf("found %q", later.found)
		}
		a.land(url1, img("again"))
		a.wantEmpty()
		if len(a.results) != 4 {
			t.Errorf("told of %d downloads", len(a.results))
		}
	})
}

func TestFailureIsThatOfAllWhoWait(t *testing.T) {
	bubble(t, FlightSettings{CacheSize: 1 << 20, CacheTTL: time.Hour}, func(t *testing.T, a *airport) {
		fault := wire.Faultf(wire.UpstreamFailed, "oops")
		one, two := a.fly(url1), a.fly(url1)
		a.land(url1, outcome{err: fault})
		if e1, e2 := one.arrived(t).err, two.arrived(t).err; e1 != error(fault) || e2 != error(fault) {
			t.Errorf("got %v and %v", e1, e2)
		}
		if three := a.fly(url1); three.found != Miss {
			t.Errorf("a failure was kept: %q", three.found)
		}
		a.land(url1, img("one"))
	})
}

// TestLeaderLeaves: the download goes on for those who wait, the leader's worker
// does not.
func TestLeaderLeaves(t *testing.T) {
	bubble(t, FlightSettings{}, func(t *testing.T, a *airport) {
		leader, follower := a.fly(url1), a.fly(url1)
		a.want(1, 1, 0)
		leader.leave()
		wantFault(t, leader.arrived(t).err, wire.Canceled, "client_closed_request")
		a.want(1, 1, 0)
		late := a.fly(url1)
		a.land(url1, img("one"))
		if o, l := follower.arrived(t), late.arrived(t); string(o.got.uri) != "one" || string(l.got.uri) != "one" || late.found != Shared {
			t.Errorf("got %v and %v", o, l)
		}
		a.want(1, 0, 0)
		a.wantEmpty()
	})
}

// TestLeaderLeavesBeforeItsTurn: it never got a worker.
func TestLeaderLeavesBeforeItsTurn(t *testing.T) {
	bubble(t, FlightSettings{}, func(t *testing.T, a *airport) {
		leader, follower := a.book(url1), a.book(url1)
		a.want(0, 0, 0)
		leader.Leave()
		leader.Leave()
		a.want(1, 1, 0)
		leader.run() // its worker came in the same moment
		wantFault(t, leader.arrived(t).err, wire.Canceled, "client_closed_request")
		a.land(url1, img("one"))
		if o := follower.arrived(t); string(o.got.uri) != "one" {
			t.Errorf("got %v", o)
		}
		alone := a.book(url1)
		alone.Leave()
		a.want(1, 0, 0)
		a.wantEmpty()
	})
}

func TestFollowerLeaves(t *testing.T) {
	bubble(t, FlightSettings{}, func(t *testing.T, a *airport) {
		leader, one, two := a.fly(url1), a.fly(url1), a.fly(url1)
		one.Leave()
		a.want(1, 1, 0)
		if n := len(a.byURL[url1].seats); n != 2 {
			t.Errorf("%d seats are taken", n)
		}
		a.land(url1, img("one"))
		leader.arrived(t)
		two.arrived(t)
		one.waits(t)
		one.Await(func([]byte, error) { t.Error("woken after it left") })
		if found := one.Join(true); found != Nowhere {
			t.Errorf("joined after it left: %q", found)
		}
	})
}

// TestAllLeave in every order: only the last ends the download, at once, and
// who comes then begins another.
func TestAllLeave(t *testing.T) {
	for _, last := range []string{"leader", "follower"} {
		bubble(t, FlightSettings{}, func(t *testing.T, a *airport) {
			leader, follower := a.fly(url1), a.fly(url1)
			a.want(1, 1, 0)
			if last == "leader" {
				follower.Leave()
				a.want(1, 1, 0)
				leader.leave()
				a.want(1, 0, 1)
			} else {
				leader.leave()
				a.want(1, 1, 0)
				follower.Leave()
			}
			next := a.fly(url1) // before the first has noticed
			if next.found != Miss {
				t.Fatalf("found %q", next.found)
			}
			wantFault(t, leader.arrived(t).err, wire.Canceled, "client_closed_request")
			follower.waits(t)
			a.want(2, 1, 1)
			a.land(url1, img("again"))
			if o := next.arrived(t); string(o.got.uri) != "again" {
				t.Errorf("got %v", o)
			}
			a.wantEmpty()
		})
	}
}

// TestStraysAreBounded: beyond, the worker of a leader that has left stays, and
// a flight without a worker waits.
func TestStraysAreBounded(t *testing.T) {
	bubble(t, FlightSettings{}, func(t *testing.T, a *airport) {
		url := func(i int) string { return fmt.Sprint("http://strays.test/", i) }
		var leaders, followers []*passenger
		for i := range maxStrays + 2 {
			leaders, followers = append(leaders, a.fly(url(i))), append(followers, a.fly(url(i)))
			synctest.Wait()
			leaders[i].leave()
		}
		for _, p := range leaders[:maxStrays] {
			p.arrived(t)
		}
		leaders[maxStrays].waits(t)
		leaders[maxStrays+1].waits(t)
		unbegun, waiter := a.book(url1), a.book(url1)
		unbegun.Leave()
		a.want(maxStrays+2, maxStrays+2, 0) // not begun

		followers[maxStrays].Leave() // nobody waits any more
		leaders[maxStrays].arrived(t)
		a.want(maxStrays+2, maxStrays+1, 1)

		a.land(url(0), img("0")) // its place goes to one of the two
		a.land(url(1), img("1")) // and to the other
		leaders[maxStrays+1].arrived(t)
		a.land(url1, img("one"))
		if o := waiter.arrived(t); string(o.got.uri) != "one" {
			t.Errorf("got %v", o)
		}
		for i := 2; i < maxStrays+2; i++ {
			if i != maxStrays {
				a.land(url(i), img("x"))
			}
		}
		a.wantEmpty()
	})
}

func TestStrayThatCannotBegin(t *testing.T) {
	bubble(t, FlightSettings{}, func(t *testing.T, a *airport) {
		for range maxStrays {
			a.strays <- struct{}{}
		}
		leader, follower := a.book(url1), a.book(url1)
		leader.Leave()
		_, another := a.book(url2), a.book(url2)
		synctest.Wait()
		time.Sleep(10 * time.Second) // of the bubble
		wantFault(t, follower.arrived(t).err, wire.QueueFull, "queue_full")
		another.waits(t)

		three, four := a.book(url1), a.book(url1)
		three.Leave()
		synctest.Wait()
		four.Leave() // while it waits
		synctest.Wait()
		a.want(0, 0, 0)
		for range maxStrays {
			<-a.strays
		}
	})
}

func TestDownloadThatPanics(t *testing.T) {
	for _, cause := range []any{secret, errors.New(secret), "index"} {
		bubble(t, FlightSettings{}, func(t *testing.T, a *airport) {
			a.fetch = func(context.Context, wire.Modality, string, *budget.Account) (fetched, error) {
				if cause == "index" {
					cause = []int{}[len(cause.(string))-len("index")]
				}
				panic(cause)
			}
			one, two := a.book(url1), a.book(url1)
			one.run()
			for _, p := range []*passenger{one, two} {
				err := p.arrived(t).err
				wantFault(t, err, wire.Internal, "internal")
				if text := err.Error(); !strings.Contains(text, "flights_test.go") || cause == "index" && !strings.Contains(text, "out of range") {
					t.Errorf("no cause: %s", text)
				}
			}
			a.wantEmpty()
		})
	}
}

func TestCloseEndsWhatIsLeft(t *testing.T) {
	bubble(t, FlightSettings{}, func(t *testing.T, a *airport) {
		running, queued, follower := a.fly(url1), a.book(url2), a.book(url2)
		synctest.Wait()
		a.Close()
		a.want(1, 0, 1)
		queued.run()
		after := a.book(url1)
		for _, p := range []*passenger{running, queued, follower, after} {
			wantFault(t, p.arrived(t).err, wire.ShuttingDown, "shutting_down")
		}
		a.Close()
		a.wantEmpty()
	})
}

// TestWhoMayNotLead looks again later.
func TestWhoMayNotLead(t *testing.T) {
	bubble(t, FlightSettings{CacheSize: 1 << 20, CacheTTL: time.Minute}, func(t *testing.T, a *airport) {
		s := a.Seat(wire.Image, url1)
		if found := s.Join(false); found != Nowhere {
			t.Errorf("found %q", found)
		}
		a.fly(url1)
		if found := s.Join(false); found != Shared {
			t.Errorf("found %q", found)
		}
		a.land(url1, img("one"))
		time.Sleep(time.Minute)
		s = a.Seat(wire.Image, url1)
		if found := s.Join(false); found != Nowhere {
			t.Errorf("found %q", found)
		}
		if found := s.Join(true); found != Expired { // though it was dropped before
			t.Errorf("found %q", found)
		}
		s.Leave()
		a.wantEmpty()
	})
}

// TestFlightsUnderFire: many requests for few URLs come, wait, leave and fail at
// random. Whoever stays gets the image of its own URL or its failure, no URL is
// downloaded twice at a time, and nothing is left.
func TestFlightsUnderFire(t *testing.T) {
	var mu sync.Mutex
	under := map[string]context.Context{}
	charged := budget.New(1 << 20)
	fs := NewFlights(&Fetcher{timeout: 10 * time.Second}, FlightSettings{CacheSize: 2000, CacheTTL: time.Millisecond, Memory: charged})
	fs.fetch = func(ctx context.Context, _ wire.Modality, url string, memory *budget.Account) (got fetched, err error) {
		memory.Charge(int64(len(url)))
		mu.Lock()
		if ctx.Err() != nil { // it was left before it came this far
			mu.Unlock()
			return got, canceled(ctx)
		}
		if other := under[url]; other != nil && other.Err() == nil {
			t.Errorf("%s is downloaded twice at a time", url)
		}
		under[url] = ctx
		mu.Unlock()
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			if under[url] == ctx {
				delete(under, url)
			}
		}()
		ended, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(200))*time.Microsecond)
		defer cancel()
		<-ended.Done()
		switch {
		case ctx.Err() != nil:
			return got, canceled(ctx)
		case rand.IntN(5) == 0:
			return got, wire.Faultf(wire.UpstreamFailed, "%s", url)
		}
		return fetched{uri: []byte(url), public: rand.IntN(2) == 0}, nil
	}
	workers := make(chan struct{}, 8)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 300 {
				url := fmt.Sprint("http://img.test/", rand.IntN(12))
				ctx, leave := context.WithCancel(context.Background())
				s := fs.Seat(wire.Image, url)
				stop := context.AfterFunc(ctx, s.Leave)
				found := s.Join(rand.IntN(3) > 0)
				leaves := rand.IntN(3) == 0
				if leaves {
					time.AfterFunc(time.Duration(rand.IntN(200))*time.Microsecond, leave)
				}
				var uri []byte
				var err error
				switch found {
				case Nowhere:
					err = canceled(ctx)
				case Hit, Shared:
					got := make(chan outcome, 1)
					s.Await(func(uri []byte, err error) { got <- outcome{fetched{uri: uri}, err} })
					select {
					case o := <-got:
						uri, err = o.got.uri, o.err
					case <-ctx.Done():
						err = canceled(ctx)
					}
				default:
					select {
					case workers <- struct{}{}:
						uri, err = s.Run(ctx)
						<-workers
					case <-ctx.Done():
						err = canceled(ctx)
					}
				}
				if err == nil && string(uri) != url {
					t.Errorf("%s: got %s", url, uri)
				}
				if err != nil && !leaves && found != Nowhere {
					if f := wire.FaultOf(err); f.Kind != wire.UpstreamFailed || f.Message != url {
						t.Errorf("%s: failed with %v", url, err)
					}
				}
				stop()
				leave()
				s.Leave()
			}
		})
	}
	all.Wait()
	fs.Close()
	if len(fs.byURL) != 0 || len(fs.strays) != 0 || len(under) != 0 {
		t.Errorf("left: %d flights, %d strays, %d downloads", len(fs.byURL), len(fs.strays), len(under))
	}
	if n := charged.Used(); n != 0 {
		t.Errorf("%d bytes are still charged", n)
	}
	if fs.cache.size > fs.cache.limit || fs.cache.order.Len() != len(fs.cache.byURL) {
		t.Errorf("the cache has %d bytes, %d and %d images", fs.cache.size, fs.cache.order.Len(), len(fs.cache.byURL))
	}
}

// TestOriginSeesTheAbort when the last of those who wait has left, not before.
func TestOriginSeesTheAbort(t *testing.T) {
	for name, world := range stalls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, url := world(t)
				fs := NewFlights(w.fetcher(t), FlightSettings{})
				defer fs.Close()
				a := &airport{Flights: fs, t: t}
				leader, follower := a.fly(url), a.fly(url)
				synctest.Wait()
				began, open := time.Now(), 0
				if name != "look-up" { // holds the world's lock
					open = w.connections()
				}
				leader.leave()
				wantFault(t, leader.arrived(t).err, wire.Canceled, "client_closed_request")
				if open > 0 && w.connections() != open {
					t.Errorf("%d connections are open, %d were", w.connections(), open)
				}
				follower.Leave()
				synctest.Wait()
				if n := w.connections(); n != 0 || time.Since(began) != 0 {
					t.Errorf("%d connections are open after %v", n, time.Since(began))
				}
				a.wantEmpty()
			})
		})
	}
}
