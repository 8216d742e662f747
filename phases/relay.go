package phases

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/journal"
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

// closeNow closes an answer at the end of its task, unless that ends later.
func closeNow(answer *gateway.Answer, result *Result) {
	if _, later := (*result).(Later); !later {
		answer.Close()
	}
}

// wayOut is where an answer goes, and who takes notes of it.
type wayOut struct {
	out     *Response
	journal *journal.Journal
	typed   bool          // events of the answer say what they are
	cached  *cachedTokens // that the answer is to have, or nil
	batch   *Batch        // if the answer is to one of its prompts, else nil
}

// wayOut returns the request's.
func (r *Request) wayOut() wayOut {
	return wayOut{out: r.Out, journal: r.Journal, typed: r.Protocol.Typed(), batch: r.Batch}
}

// begun reports whether the client has something of the answer, or is about to: the
// request must not start again then. Of a prompt of a batch that is its own answer.
func (w wayOut) begun() bool {
	if w.batch != nil {
		return w.batch.begun.Load()
	}
	return w.out.Begun()
}

// relay sends an answer out, after what was read of it already. It returns the
// result of its task, or one that comes later, which closes the answer. A stream
// of events goes out with its head first: its first event may be a while, and the
// client sees that it has been taken. Of any other nothing goes out before there is
// some of it, or, if it says its length, all of it or a large chunk. One that breaks
// before that is an unsent error.
func (w wayOut) relay(ctx context.Context, answer *gateway.Answer, held []byte, result Result) (Result, error) {
	if w.batch != nil {
		return w.relayPart(ctx, answer, held, result)
	}
	it := Item{Head: &Head{Status: answer.Status, Header: wire.ResponseHeaders(answer.Header)}}
	watch := &answerWatch{answer: answer, events: wire.IsEventStream(answer.Header), errors: wire.ErrorEvents{Typed: w.typed}, edit: w.cached.edit(it.Head, w)}
	if watch.events {
		answer.PassOn()
		if watch.edit != nil {
			held = watch.edit.edit.Take(held)
		}
		watch.look(held)
		rest := w.rest(watch, result)
		rest.fast = len(held) >= smallChunk
		it, err := sendHeld(ctx, it, held, w.out)
		if err != nil {
			return nil, err
		}
		return rest.handOver(ctx, it), nil
	}
	if bodiless(answer.Status) {
		return result, w.out.Send(ctx, it)
	}
	it.Chunk = newLargeChunk()
	fill := it.Chunk.Fill
	if answer.Length() >= 0 { // one that is made already, and goes out in one piece if it fits in
		fill = it.Chunk.FillUp
	}
	switch err := fill(watch.read); err {
	case nil:
		answer.PassOn()
		rest := w.rest(watch, result)
		rest.fast = it.Chunk.n >= smallChunk
		return rest.handOver(ctx, it), nil
	case io.EOF:
		w.journal.SetTokensOut(watch.usage.Completion())
		return result, w.out.Send(ctx, it)
	default:
		it.Free()
		return nil, &unsent{err}
	}
}

// bodiless reports whether an answer of a status never has a body, whatever length it
// says.
func bodiless(status int) bool {
	return status == http.StatusNoContent || status == http.StatusNotModified
}

// unsent is the fault of an answer that broke before anything of it was passed on.
type unsent struct{ fault error }

func (u *unsent) Error() string { return u.fault.Error() }
func (u *unsent) Unwrap() error { return u.fault }

// isUnsent reports whether an error of relay is one, of a request that goes on.
func isUnsent(ctx context.Context, err error) bool {
	u := (*unsent)(nil)
	return errors.As(err, &u) && ctx.Err() == nil
}

func (w wayOut) rest(watch *answerWatch, result Result) *Rest {
	return &Rest{way: w, watch: watch, result: result}
}

// sendHeld sends the head of an answer and what was held of it, but for the last
// item, which it returns.
func sendHeld(ctx context.Context, it Item, held []byte, out *Response) (Item, error) {
	for len(held) > 0 {
		it.Chunk = NewChunk()
		if held = held[it.Chunk.Set(held):]; len(held) > 0 {
			if err := out.Send(ctx, it); err != nil {
				return it, err
			}
			it = Item{}
		}
	}
	return it, nil
}

// whole is the error of an answer that has been read until it ended.
func whole(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// answerWatch looks at an answer as it goes by, without reading its JSON: for how
// many tokens it has, and, in a stream, for events by which a worker says in the
// middle that it failed. They go to the client as they are, and are one failure.
type answerWatch struct {
	answer *gateway.Answer
	events bool
	errors wire.ErrorEvents
	usage  wire.Usage
	edit   *usageEdit // nil: it goes by as it is
	failed bool
}

// read reads the answer and looks at what comes.
func (w *answerWatch) read(p []byte) (n int, err error) {
	if w.edit == nil {
		n, err = w.answer.Read(p)
	} else {
		n, err = w.edit.read(p, w.answer.Read)
	}
	w.look(p[:n])
	return n, err
}

func (w *answerWatch) look(text []byte) {
	w.usage.Look(text)
	if w.events && !w.failed && w.errors.Found(text) {
		w.failed = true
		w.answer.Failed("error_event")
	}
}
