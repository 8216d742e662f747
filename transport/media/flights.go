package media

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/llm-coordinator/coordinator/transport/budget"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// FlightSettings say what is kept of downloads.
type FlightSettings struct {
	// CacheSize is how many bytes are kept of images for later requests, and
	// CacheTTL how long each. A size of 0 keeps none.
	CacheSize int64
	CacheTTL  time.Duration
	// Memory is charged for images as their bytes arrive, and while requests hold
	// them; nil charges nothing.
	Memory *budget.Budget
	// Landed, if set, is told of each download at its end, and how long it took.
	Landed func(wire.Modality, time.Duration, error)
}

// Flights are the downloads that are under way, by URL, and the images that are
// kept of earlier ones. Requests that want one URL at the same time share one
// flight: each has a seat in it.
//
// The first to join a flight leads it, which means that it brings a worker: the
// download runs while that worker is in [Seat.Run]. It is no property of the
// leader though. It ends early only when nobody has a seat any more; if the
// leader leaves and others are there it goes on as a stray, without a worker.
// There are at most maxStrays of those; while there are as many, a leader's
// worker stays until the download is over, as if its request had. So no more
// downloads run at a time than there are workers, and maxStrays.
//
// Who does not lead holds nothing but its seat. All methods of Flights and Seat
// may be called by any goroutine, and none but Run and Close blocks.
type Flights struct {
	fetch    func(ctx context.Context, m wire.Modality, url string, memory *budget.Account) (fetched, error)
	memory   *budget.Budget
	patience time.Duration // that a stray may wait to begin
	landed   func(wire.Modality, time.Duration, error)
	strays   chan struct{} // holds a value for each stray
	running  sync.WaitGroup

	mu     sync.Mutex
	cache  *cache             // nil keeps nothing
	byURL  map[string]*flight // by [keyOf]
	closed bool
}

// maxStrays bounds the downloads that go on though the request that brought
// their worker has ended. They are the exception: clients leave seldom.
const maxStrays = 16

// flight is one download and those that wait for it. What comes after mu is
// guarded by the flights' lock.
type flight struct {
	modality wire.Modality
	url, key string
	ctx      context.Context // ends when nobody waits
	cancel   context.CancelCauseFunc

	// Written before done is closed.
	uri  []byte
	err  error
	done chan struct{}

	// account is charged for the bytes that arrive.
	account *budget.Account

	seats  map[*Seat]struct{}
	begun  bool
	landed bool
	stray  bool // it holds a value in strays
}

// errNobodyWaits ends a download. It is the fault of a request whose client has
// left, for those that it could be the fault of are of that kind.
var errNobodyWaits = wire.Faultf(wire.Canceled, "the client left")

var errClosed = wire.Faultf(wire.ShuttingDown, "the coordinator is shutting down")

// NewFlights makes flights of a fetcher's downloads. They must be closed.
func NewFlights(f *Fetcher, s FlightSettings) *Flights {
	fs := &Flights{fetch: f.fetch, memory: s.Memory, patience: f.timeout, landed: s.Landed,
		strays: make(chan struct{}, maxStrays), byURL: map[string]*flight{}}
	if s.CacheSize > 0 {
		fs.cache = newCache(s.CacheSize, s.CacheTTL)
	}
	if fs.landed == nil {
		fs.landed = func(wire.Modality, time.Duration, error) {}
	}
	return fs
}

// Close ends the downloads that are left, if any, and returns when they have
// ended.
func (fs *Flights) Close() {
	var wakes []func()
	fs.mu.Lock()
	fs.closed = true
	for _, f := range fs.byURL {
		f.cancel(errClosed)
		if !f.begun {
			f.begun = true
			wakes = append(wakes, fs.land(f, nil, errClosed, false)...)
		}
	}
	fs.mu.Unlock()
	for _, wake := range wakes {
		wake()
	}
	fs.running.Wait()
}

// begin starts a flight's download, unless it has begun. The lock is held.
func (fs *Flights) begin(f *flight, stray bool) {
	if !f.begun {
		f.begun = true
		fs.running.Go(func() { fs.fly(f, stray) })
	}
}

// fly downloads and tells everyone.
func (fs *Flights) fly(f *flight, stray bool) {
	var got fetched
	var err error
	if stray {
		err = fs.goAstray(f)
	}
	if err == nil {
		got, err = fs.download(f)
	}
	keep := err == nil && got.public && fs.cache != nil
	if keep {
		loose := cap(got.uri)
		got.uri = compact(got.uri)
		f.account.Refund(int64(loose - cap(got.uri)))
	}
	fs.mu.Lock()
	wakes := fs.land(f, got.uri, err, keep)
	stray = f.stray
	fs.mu.Unlock()
	if stray {
		<-fs.strays
	}
	for _, wake := range wakes {
		wake()
	}
}

// land ends a flight, keeps its image for later requests if so, and returns what is to be called when the lock, which is
// held, is not.
func (fs *Flights) land(f *flight, uri []byte, err error, keep bool) (wakes []func()) {
	f.uri, f.err, f.landed = uri, err, true
	fs.forget(f)
	var pic *picture
	if err == nil {
		pic = newPicture(uri, f.account, len(f.seats))
	} else {
		f.account.Close()
	}
	if keep {
		fs.cache.put(f.key, pic)
	}
	for s := range f.seats {
		s.settle(pic, err)
		if wake := s.wake; wake != nil {
			wakes = append(wakes, func() { wake(uri, err) })
			s.wake = nil
		}
	}
	f.seats = nil
	f.cancel(nil)
	close(f.done)
	return wakes
}

// forget has those who come from now on begin a flight of their own. The lock
// is held.
func (fs *Flights) forget(f *flight) {
	if fs.byURL[f.key] == f {
		delete(fs.byURL, f.key)
	}
}

// download fetches. A panic fails those that wait, and nobody else: here is no
// worker whose supervision would see to it.
func (fs *Flights) download(f *flight) (got fetched, err error) {
	began := time.Now()
	defer func() {
		if cause := recover(); cause != nil {
			got, err = fetched{}, crashed(cause)
		}
		fs.landed(f.modality, time.Since(began), err)
	}()
	return fs.fetch(f.ctx, f.modality, f.url, f.account)
}

// crashed is the fault of a download that panicked. Its cause, which is logged,
// holds nothing that a client or an origin has sent.
func crashed(cause any) error {
	text := fmt.Sprintf("a value of type %T", cause)
	if err, ok := cause.(runtime.Error); ok {
		text = err.Error()
	}
	return wire.Faultf(wire.Internal, "internal error").Because(fmt.Errorf("a download panicked: %s\n%s", text, debug.Stack()))
}

// goAstray waits until a flight that has lost its leader before it began may
// begin without.
func (fs *Flights) goAstray(f *flight) error {
	t := time.NewTimer(fs.patience)
	defer t.Stop()
	select {
	case fs.strays <- struct{}{}:
		fs.astray(f)
		return nil
	case <-f.ctx.Done():
		return context.Cause(f.ctx)
	case <-t.C:
		fault := wire.Faultf(wire.QueueFull, "waited too long for a download to begin")
		fault.RetryAfter = "1"
		return fault
	}
}

// linger keeps the worker of a leader that has left until the download does
// without it, or has ended.
func (fs *Flights) linger(f *flight) {
	fs.mu.Lock()
	wanted := len(f.seats) > 0
	fs.mu.Unlock()
	if !wanted {
		<-f.done // it has been cancelled
		return
	}
	select {
	case fs.strays <- struct{}{}:
		fs.astray(f)
	case <-f.done:
	}
}

// astray gives a flight the value that has been put in strays.
func (fs *Flights) astray(f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f.landed {
		<-fs.strays
		return
	}
	f.stray = true
}
