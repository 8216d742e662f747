package media

import (
	"context"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// Found is how a request comes by an image.
type Found string

// The ways to come by an image.
const (
	Hit     Found = "hit"     // it is kept
	Shared  Found = "shared"  // another request's download is under way
	Miss    Found = "miss"    // the request leads a download of its own
	Expired Found = "expired" // likewise: what was kept was too old
	Nowhere Found = ""        // there is none, and the request did not want to lead
)

// Seat is a request's share in a download, and then in what the image is charged
// with. Whoever has one leaves it.
type Seat struct {
	flights  *Flights
	modality wire.Modality
	url, key string

	// Guarded by the flights' lock.
	flight  *flight // while it is under way
	leads   bool
	expired bool // something was kept and too old
	left    bool
	settled bool
	picture *picture // that it came for, and holds until it is left
	err     error
	wake    func([]byte, error)
}

// Seats are all of a request.
type Seats []*Seat

// Leave leaves each of them.
func (all Seats) Leave() {
	for _, s := range all {
		s.Leave()
	}
}

// Seat makes a seat for a medium by its URL, which is told apart from others as it
// is written. It has not joined a flight.
func (fs *Flights) Seat(m wire.Modality, url string) *Seat {
	return &Seat{flights: fs, modality: m, url: url, key: keyOf(m, url)}
}

// Modality returns the modality of the medium.
func (s *Seat) Modality() wire.Modality { return s.modality }

// keyOf tells downloads apart: what is a good image is no video, whatever its
// URL. An image's is the URL itself.
func keyOf(m wire.Modality, url string) string {
	if m == wire.Image {
		return url
	}
	return m.String() + " " + url
}

// Join finds the image among those that are kept, or takes its place in a flight
// that is under way. If there is neither, it begins one if it may lead: then
// Run must be called soon, for others may wait, or the seat left.
//
// It may be called again if there was neither.
func (s *Seat) Join(mayLead bool) Found {
	fs := s.flights
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if s.left {
		return Nowhere
	}
	if fs.closed {
		s.settle(nil, errClosed)
		return Shared
	}
	if fs.cache != nil {
		pic, found := fs.cache.get(s.key)
		if found == Hit {
			s.settle(pic, pic.hold(fs.memory))
			return Hit
		}
		s.expired = s.expired || found == Expired
	}
	if f := fs.byURL[s.key]; f != nil {
		f.seats[s], s.flight = struct{}{}, f
		return Shared
	}
	if !mayLead {
		return Nowhere
	}
	f := &flight{modality: s.modality, url: s.url, key: s.key, account: fs.memory.Open(), done: make(chan struct{}), seats: map[*Seat]struct{}{s: {}}}
	f.ctx, f.cancel = context.WithCancelCause(context.Background())
	fs.byURL[s.key] = f
	s.flight, s.leads = f, true
	if s.expired {
		return Expired
	}
	return Miss
}

// settle gives a seat what it was taken for. The lock is held.
func (s *Seat) settle(pic *picture, err error) {
	s.flight, s.settled, s.err = nil, true, err
	if err == nil {
		s.picture = pic
	}
}

// got returns what a settled seat was taken for. The lock is held.
func (s *Seat) got() ([]byte, error) {
	switch {
	case s.err != nil:
		return nil, s.err
	case s.picture == nil:
		return nil, errNobodyWaits // it has been left
	}
	return s.picture.uri, nil
}

// Run downloads, for one who leads, until the image is there, or ctx ends: then
// the seat is left. It returns the image as [Fetcher.Fetch] does.
func (s *Seat) Run(ctx context.Context) ([]byte, error) {
	fs := s.flights
	fs.mu.Lock()
	f := s.flight
	if f != nil {
		fs.begin(f, false)
	}
	settled := s.settled
	uri, err := s.got()
	fs.mu.Unlock()
	switch {
	case settled:
		return uri, err
	case f == nil:
		return nil, canceled(ctx)
	}
	select {
	case <-f.done:
		return f.uri, f.err
	case <-ctx.Done():
		s.Leave()
		fs.linger(f)
		return nil, canceled(ctx)
	}
}

// Await has wake called once with the image, as [Fetcher.Fetch] returns it,
// unless the seat is left before: at once, or by the goroutine of the download.
func (s *Seat) Await(wake func(uri []byte, err error)) {
	s.flights.mu.Lock()
	settled := s.settled
	uri, err := s.got()
	if !settled && !s.left {
		s.wake = wake
	}
	s.flights.mu.Unlock()
	if settled {
		wake(uri, err)
	}
}

// Leave gives the seat up. The last to leave a flight ends its download. One
// that leads and leaves before its download has begun has it begin without a
// worker if others wait. The last to leave when the image is there gives back
// what it was charged with. It may be called more than once.
func (s *Seat) Leave() {
	fs := s.flights
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := s.flight
	s.flight, s.left, s.wake = nil, true, nil
	if s.picture != nil {
		s.picture.drop()
		s.picture = nil
	}
	if f == nil {
		return
	}
	delete(f.seats, s)
	switch {
	case len(f.seats) == 0:
		fs.forget(f)
		f.cancel(errNobodyWaits)
	case s.leads:
		fs.begin(f, true)
	}
}
