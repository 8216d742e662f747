package phases

import (
	"context"
	"io"
	"runtime"
	"sync"
	"time"
)

// Rest is what is still to come of an answer. The task that has the answer hands
// it over to who writes to the client, and ends with it: the bytes of a long
// stream need no goroutine of their own, nor one between reader and writer, and a
// client that reads slowly slows the worker by itself.
type Rest struct {
	way    wayOut
	watch  *answerWatch
	fast   bool   // the next piece is expected at once, and read into a large chunk
	result Result // of the task
	done   func(Result, error)

	mu     sync.Mutex  // held while something is sent or read
	over   bool        // nobody may read any more
	unhook func() bool // from the end of the request's context
}

// handOver sends an item with the rest of an answer, which it closes in the end. The
// task does not end before the item is sent, or is not: another would send its own.
func (r *Rest) handOver(ctx context.Context, it Item) Later {
	return func(done func(Result, error)) {
		r.done = done
		it.Rest = r
		r.mu.Lock()
		r.unhook = context.AfterFunc(ctx, func() { r.end(context.Cause(ctx)) })
		err := r.way.out.Send(ctx, it)
		r.mu.Unlock()
		if err != nil {
			r.end(err)
		}
	}
}

// Relay reads what comes and passes each piece on as it comes, with the time of
// its arrival, until the answer ends or its request does: how it ended is the
// outcome of the request, which comes by the Response. The error is write's; then
// the rest is left unread, and the request's context must be ended. The bytes are
// write's until it returns. Relay is called once, by one goroutine.
func (r *Rest) Relay(write func(piece []byte, at time.Time) error) error {
	c, last := r.chunk(), time.Now()
	defer func() { c.Free() }()
	for {
		err := r.fill(c)
		if c.n > 0 {
			now := time.Now()
			r.way.out.sent(now)
			if failed := write(c.Bytes(), now); failed != nil {
				return failed
			}
			c.Free()
			if r.fast = now.Sub(last) < inARow; r.fast {
				runtime.Gosched() // what comes meanwhile goes out in one piece
			}
			c, last = r.chunk(), now
		}
		if err != nil {
			r.end(err)
			return nil
		}
	}
}

// inARow is how soon after the last piece of a stream the next has to come for
// more of them to be expected at once.
const inARow = 20 * time.Millisecond

// chunk returns one for what is read next.
func (r *Rest) chunk() *Chunk {
	if r.fast {
		return newLargeChunk()
	}
	return NewChunk()
}

// fill reads once, if that is still allowed. What it waits for ends with the
// request's context.
func (r *Rest) fill(c *Chunk) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.n = 0; r.over {
		return io.EOF
	}
	return c.Fill(r.watch.read)
}

// end ends the task, once: because the answer has ended, or its request has.
func (r *Rest) end(err error) {
	r.mu.Lock()
	over, unhook := r.over, r.unhook
	r.over = true
	r.mu.Unlock()
	if over {
		return
	}
	unhook()
	r.watch.answer.Close()
	r.way.journal.SetTokensOut(r.watch.usage.Completion())
	r.done(r.result, whole(err))
}
