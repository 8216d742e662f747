package phases

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// Response is the way out of one request: a bounded stream of a head, then
// chunks, then the end. Decode's task writes it, the server reads it, and the
// supervisor finishes it when the last writer is gone. What is still to come of
// an answer can be handed over as its [Rest].
type Response struct {
	items chan Item
	done  chan struct{}
	err   error // written before done is closed
	stop  func(error)

	state  atomic.Int32 // waiting, begun or expired
	active atomic.Int64 // when something was sent last, in Unix nanoseconds
}

// The states of a response.
const (
	waiting int32 = iota
	begun
	expired
)

// ErrExpired refuses the head of an answer that comes too late.
var ErrExpired = wire.Faultf(wire.UpstreamTimeout, "the request took too long to be answered")

// depth is how many items may wait for a client that reads slowly.
const depth = 4

// NewResponse makes an empty response.
func NewResponse() *Response {
	return &Response{items: make(chan Item, depth), done: make(chan struct{})}
}

// NewSmallResponse makes one for an answer that goes out in one item.
func NewSmallResponse() *Response {
	return &Response{items: make(chan Item, 1), done: make(chan struct{})}
}

// Item is what goes out next: a head, a chunk, the rest of the answer, or
// several of them, in this order; or, instead of all, an error.
type Item struct {
	Head  *Head
	Chunk *Chunk
	Rest  *Rest
	// Fault is an answer that is an error, and as good as any: its request has not
	// failed.
	Fault *wire.Fault
	// Wrote, if set, is called once the item has been written and flushed, as far
	// as the client's connection will tell. It must not block.
	Wrote func()
}

// Free gives up an item that does not go out.
func (it Item) Free() {
	if it.Chunk != nil {
		it.Chunk.Free()
	}
}

// Head is the beginning of an answer.
type Head struct {
	Status int
	Header http.Header // without what may not go to a client
}

// Chunk is a piece of an answer's body. Whoever has it last frees it.
type Chunk struct {
	n   int
	buf []byte
	own bool // buf belongs to no pool
}

// What one read from upstream takes in at most. A stream that waits for its next
// event keeps a chunk meanwhile, so that is a small one, which most events fit in,
// unless the last pieces came at once.
const (
	smallChunk = 1 << 10
	largeChunk = 16 << 10
)

var (
	smallChunks = sync.Pool{New: func() any { return &Chunk{buf: make([]byte, smallChunk)} }}
	largeChunks = sync.Pool{New: func() any { return &Chunk{buf: make([]byte, largeChunk)} }}
)

// NewChunk returns an empty chunk.
func NewChunk() *Chunk { return smallChunks.Get().(*Chunk) }

// chunkOf returns a chunk that holds a whole text, which must not be changed.
func chunkOf(text []byte) *Chunk { return &Chunk{n: len(text), buf: text, own: true} }

// newLargeChunk returns one for what comes fast.
func newLargeChunk() *Chunk { return largeChunks.Get().(*Chunk) }

// Bytes returns what the chunk holds, until it is freed.
func (c *Chunk) Bytes() []byte { return c.buf[:c.n] }

// Fill reads into the chunk once.
func (c *Chunk) Fill(read func([]byte) (int, error)) (err error) {
	c.n, err = read(c.buf)
	return err
}

// FillUp reads until the chunk is full, or there is an error.
func (c *Chunk) FillUp(read func([]byte) (int, error)) (err error) {
	for c.n = 0; err == nil && c.n < len(c.buf); {
		var n int
		n, err = read(c.buf[c.n:])
		c.n += n
	}
	return err
}

// Set fills the chunk with the beginning of text, and returns how much of it.
func (c *Chunk) Set(text []byte) int {
	c.n = copy(c.buf, text)
	return c.n
}

// add adds the beginning of text to what the chunk holds, and returns how much of it.
func (c *Chunk) add(text []byte) int {
	n := copy(c.buf[c.n:], text)
	c.n += n
	return n
}

// Free returns the chunk for use by others.
func (c *Chunk) Free() {
	switch {
	case c.own:
	case len(c.buf) == smallChunk:
		smallChunks.Put(c)
	default:
		largeChunks.Put(c)
	}
}

// StopBy says how the request is ended from outside: the engine does, before
// anybody else has the response.
func (o *Response) StopBy(stop func(error)) { o.stop = stop }

// Stop ends the request, if it has begun: whoever reads takes nothing any more.
func (o *Response) Stop(cause error) {
	if o != nil && o.stop != nil {
		o.stop(cause)
	}
}

// Begun reports whether the client has got its head, or is about to.
func (o *Response) Begun() bool { return o.state.Load() == begun }

// Expire forbids that an answer begins. It reports false if one has begun.
func (o *Response) Expire() bool {
	return o.state.CompareAndSwap(waiting, expired) || o.state.Load() == expired
}

func (o *Response) sent(now time.Time) { o.active.Store(now.UnixNano()) }

// Active returns when something was sent last; zero if nothing was.
func (o *Response) Active() time.Time {
	if at := o.active.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// Send puts an item on the stream. It blocks while the stream is full, under
// ctx, and frees the chunk of an item that it could not send. A head is refused
// with ErrExpired once the response has expired.
func (o *Response) Send(ctx context.Context, it Item) error {
	if (it.Head != nil || it.Fault != nil) && !o.state.CompareAndSwap(waiting, begun) && o.state.Load() == expired {
		it.Free()
		return ErrExpired
	}
	select {
	case o.items <- it:
		o.sent(time.Now())
		return nil
	case <-ctx.Done():
		it.Free()
		return context.Cause(ctx)
	}
}

// Items is the stream of what has been sent. It is never closed.
func (o *Response) Items() <-chan Item { return o.items }

// Finish ends the stream with the outcome of the request. The supervisor calls
// it once, when nobody sends any more.
func (o *Response) Finish(err error) {
	o.err = err
	close(o.done)
}

// Done is closed when the stream has ended: then everything that was sent is in
// Items, and Err is the outcome.
func (o *Response) Done() <-chan struct{} { return o.done }

// Err returns the outcome of the request once Done is closed.
func (o *Response) Err() error { return o.err }
