package media

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-coordinator/coordinator/transport/budget"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// charging opens an airport whose images take 100 bytes each of 250.
func charging(t *testing.T, s FlightSettings, f func(t *testing.T, a *airport, used func() int64)) {
	synctest.Test(t, func(t *testing.T) {
		s.Memory = budget.New(250)
		a := newAirport(t, s)
		a.fetch = func(ctx context.Context, _ wire.Modality, url string, memory *budget.Account) (fetched, error) {
			if err := memory.Charge(100); err != nil {
				return fetched{}, err
			}
			return a.await(ctx, url)
		}
		f(t, a, func() int64 { synctest.Wait(); return s.Memory.Used() })
	})
}

func hundred() outcome {
	return outcome{got: fetched{uri: make([]byte, 100), public: true}}
}

// TestSharedImagesAreChargedOnce while they arrive and while anybody has them.
func TestSharedImagesAreChargedOnce(t *testing.T) {
	charging(t, FlightSettings{}, func(t *testing.T, a *airport, used func() int64) {
		one, two, other := a.fly(url1), a.fly(url1), a.fly(url2)
		if n := used(); n != 200 {
			t.Errorf("%d bytes while two are under way", n)
		}
		third := a.fly("http://img.test/3") // there is no room for it
		wantFault(t, third.arrived(t).err, wire.QueueFull, "queue_full")
		third.Leave()
		a.land(url1, hundred())
		a.land(url2, outcome{err: wire.Faultf(wire.UpstreamFailed, "broke")})
		one.arrived(t)
		two.arrived(t)
		if n := used(); n != 100 {
			t.Errorf("%d bytes when one has landed and one failed", n)
		}
		other.Leave()
		one.Leave()
		one.Leave()
		if n := used(); n != 100 {
			t.Errorf("%d bytes while one is left that has it", n)
		}
		two.Leave()
		if n := used(); n != 0 {
			t.Errorf("%d bytes at the end", n)
		}
	})
}

// TestImagesThatNobodyWaitsForAreNotCharged: their downloads were cut, or never
// begun.
func TestImagesThatNobodyWaitsForAreNotCharged(t *testing.T) {
	charging(t, FlightSettings{}, func(t *testing.T, a *airport, used func() int64) {
		led, booked := a.fly(url1), a.book(url2)
		if n := used(); n != 100 {
			t.Errorf("%d bytes", n)
		}
		led.Leave()
		booked.Leave()
		if n := used(); n != 0 {
			t.Errorf("%d bytes at the end", n)
		}
	})
}

// TestKeptImagesAreChargedWhileTheyAreHeld: the cache has a limit of its own.
func TestKeptImagesAreChargedWhileTheyAreHeld(t *testing.T) {
	charging(t, FlightSettings{CacheSize: 1 << 20, CacheTTL: time.Hour}, func(t *testing.T, a *airport, used func() int64) {
		first := a.fly(url1)
		a.land(url1, hundred())
		first.Leave()
		if n := used(); n != 0 {
			t.Errorf("%d bytes while nobody has it", n)
		}
		hits := []*passenger{a.fly(url1), a.fly(url1)}
		if n := used(); n != 100 || hits[1].found != Hit {
			t.Errorf("%q, %d bytes", hits[1].found, n)
		}
		for _, p := range hits {
			if got := p.arrived(t); got.err != nil || len(got.got.uri) != 100 {
				t.Error(got)
			}
			p.Leave()
		}
		full := []*passenger{a.fly(url2), a.fly("http://img.test/3")}
		used() // when both are under way
		refused := a.fly(url1)
		wantFault(t, refused.arrived(t).err, wire.QueueFull, "queue_full")
		for _, p := range append(full, refused) {
			p.Leave()
		}
		if n := used(); n != 0 {
			t.Errorf("%d bytes at the end", n)
		}
	})
}

// TestDownloadsAreChargedAsTheyArrive, whatever an origin promises, and refused
// when there is no room for more.
func TestDownloadsAreChargedAsTheyArrive(t *testing.T) {
	png := image(6 << 20)
	for _, promised := range []bool{true, false} {
		t.Run(fmt.Sprint("promised=", promised), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				more := make(chan bool)
				origin := serve(t, func(w http.ResponseWriter, r *http.Request) {
					if promised {
						w.Header().Set("Content-Length", fmt.Sprint(len(png)))
					}
					w.Write(png[:1000])
					w.(http.Flusher).Flush()
					<-more
					w.Write(png[1000:])
				})
				defer close(more)
				f := hosting(origin).fetcher(t, func(s *Settings) { s.Allowed[wire.Image].MaxSize = 8 << 20 })
				memory := budget.New(5 << 20)
				account := memory.Open()
				done := make(chan error, 1)
				go func() {
					_, err := f.fetch(t.Context(), wire.Image, "http://img.test/", account)
					done <- err
				}()
				synctest.Wait()
				if n := memory.Used(); n < 1 || n > 1<<20 {
					t.Errorf("%d bytes are charged for 1000 that have arrived", n)
				}
				more <- true
				wantFault(t, <-done, wire.QueueFull, "queue_full")
				account.Close()
				if n := memory.Used(); n != 0 {
					t.Errorf("%d bytes are left", n)
				}
			})
		})
	}
}
