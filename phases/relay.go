package phases

import (
	"context"
	"io"

	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// errFirstEvent is the fault of a stream that failed before its first event with
// content.
var errFirstEvent = wire.Faultf(wire.UpstreamFailed, "decode failed before it answered")

// holdBack reads the beginning of a streamed answer, up to its first event with
// content, and judges the attempt by it. It returns what it has read. Only 2xx
// streams of events that can be read are held. An error is a fault: the answer
// has failed before anything of it was passed on.
func holdBack(answer *gateway.Answer, proto *wire.Protocol) ([]byte, error) {
	if answer.Status/100 != 2 || !wire.IsEventStream(answer.Header) {
		return nil, nil
	}
	h := proto.Hold()
	c := NewChunk()
	defer c.Free()
	for {
		err := c.Fill(answer.Read)
		state := h.Write(c.Bytes())
		if err == io.EOF {
			state = h.End()
		}
		switch {
		case state == wire.Released:
			answer.Succeed()
			return h.Bytes(), nil
		case state == wire.Failed:
			answer.Fail()
			return nil, errFirstEvent
		case err != nil:
			return nil, err // the answer has reported it
		}
	}
}

// relay streams an answer to the way out, after what was read of it already.
func relay(ctx context.Context, answer *gateway.Answer, held []byte, out *Response) error {
	events := wire.IsEventStream(answer.Header)
	it := Item{Head: &Head{Status: answer.Status, Header: wire.ResponseHeaders(answer.Header)}}
	var failures *failureWatch
	if events {
		failures = &failureWatch{answer: answer}
	}
	if events && len(held) == 0 { // its first event may be a while, and the client sees that it has been taken
		if err := out.Send(ctx, it); err != nil {
			return err
		}
		it = Item{}
	}
	for len(held) > 0 {
		it.Chunk = NewChunk()
		held = held[it.Chunk.Set(held):]
		failures.look(it.Chunk)
		if err := out.Send(ctx, it); err != nil {
			return err
		}
		it = Item{}
	}
	c := NewChunk()
	for {
		err := c.Fill(answer.Read)
		if err != nil && err != io.EOF && it.Head != nil {
			c.Free()
			return err // nothing of it has been passed on
		}
		next := c.next() // before the chunk is somebody else's
		if c.n > 0 {
			it.Chunk = c
			failures.look(c)
		} else {
			c.Free()
		}
		if it != (Item{}) {
			if err := out.Send(ctx, it); err != nil {
				next.Free()
				return err
			}
		}
		c, it = next, Item{}
		if err != nil {
			c.Free()
			if err == io.EOF {
				return nil
			}
			return err
		}
	}
}

// failureWatch looks for events by which a worker says in the middle of a stream
// that it failed. They go to the client as they are, and are one failure. A nil
// one looks at nothing.
type failureWatch struct {
	answer *gateway.Answer
	events wire.ErrorEvents
	found  bool
}

func (w *failureWatch) look(c *Chunk) {
	if w != nil && !w.found && w.events.Found(c.Bytes()) {
		w.found = true
		w.answer.Failed("error_event")
	}
}
