package phases

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/llm-coordinator/coordinator/transport/budget"
	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// errTooLarge is the cause of a fault, for the log.
var errTooLarge = errors.New("an event of it is too large")

// unusable is the fault of an answer that cannot be merged with those to the other
// prompts.
func unusable(cause error) *wire.Fault {
	return wire.Faultf(wire.UpstreamFailed, "the answer to one of the prompts cannot be used").Because(cause)
}

// partAnswer is the answer to one prompt of a batch, while its task reads it.
type partAnswer struct {
	*merge
	way    wayOut
	answer *gateway.Answer
	part   int
	usage  wire.Usage

	// Of a stream.
	events  wire.Events
	scratch []byte // what is sent next
	over    bool   // [DONE] was there
	counted wire.Tally
	charged int64
}

// relayPart brings the answer to one prompt into that of its batch: from its worker,
// by the task that has it. Nothing else of the request is needed once the answer is
// there, or has begun if it is a stream.
func (w wayOut) relayPart(ctx context.Context, answer *gateway.Answer, held []byte, result Result) (Result, error) {
	if err := refusedPart(answer); err != nil {
		return nil, err
	}
	p := &partAnswer{merge: w.batch.merge, part: w.batch.part, way: w, answer: answer}
	if p.stream != wire.IsEventStream(answer.Header) {
		return nil, unusable(errors.New("it is streamed where it was not to be, or not where it was, or is encoded"))
	}
	write := func() error { return p.readStream(ctx, held) }
	if !p.stream { // it can break, and the prompt start again
		merged, err := p.readWhole()
		if err != nil {
			return nil, err
		}
		write = func() error { return p.sendMerged(ctx, merged) }
	}
	return Later(func(done func(Result, error)) {
		err := error(wire.Faultf(wire.Internal, "internal error").Because(errors.New("the answer to a prompt could not be merged: a panic")))
		defer func() { // also of a panic, which goes on to who supervises the worker
			answer.Close()
			done(result, err)
		}()
		err = write()
		w.journal.SetTokensOut(p.usage.Completion())
	}), nil
}

// refusedPart returns the fault of an answer that is none: what the worker says is
// for the client.
func refusedPart(answer *gateway.Answer) error {
	if answer.Status == http.StatusOK {
		return nil
	}
	f := wire.Faultf(wire.UpstreamFailed, "decode answered %d", answer.Status)
	if answer.Status/100 == 4 {
		f.Kind, f.Status = wire.UpstreamRejected, answer.Status
	}
	f.RetryAfter, f.DropReason = answer.Header.Get(wire.HeaderRetryAfter), answer.Header.Get(wire.HeaderDropReason)
	text, err := io.ReadAll(io.LimitReader(answer, maxRefusal))
	if err == nil {
		quote(f, text)
	}
	return f
}

// maxRefusal is how much of an error's body is read.
const maxRefusal = 8 << 10

// quote has a fault say what a worker says.
func quote(f *wire.Fault, answer []byte) {
	if wire.Valid(answer) != nil {
		return
	}
	object := answer
	if inner := wire.Lookup(answer, "error"); wire.IsObject(inner) {
		object = inner
	}
	if says, ok := wire.Unquote(wire.Lookup(object, "message")); ok && says != "" {
		f.Message, f.Quoted = says, true
	}
}

// begin sends the head of the answer, unless another part has; its size is 0 if it is
// not known. The response is empty then, so this does not block.
func (p *partAnswer) begin(ctx context.Context, size int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.headSent {
		return nil
	}
	header := wire.ResponseHeaders(p.answer.Header)
	delete(header, "Content-Length") // of this answer alone
	if size > 0 {
		header["Content-Length"] = []string{strconv.Itoa(size)}
	}
	err := p.out.Send(ctx, Item{Head: &Head{Status: p.answer.Status, Header: header}})
	p.headSent = err == nil // else another part has to, or none does
	return err
}

// room is how much of a stream is read at a time, at least.
const room = 4 << 10

// readStream passes on the events of a stream as they come, to its end.
func (p *partAnswer) readStream(ctx context.Context, held []byte) error {
	defer func() { p.memory.Refund(p.charged) }()
	if err := p.begin(ctx, 0); err != nil {
		return err
	}
	p.answer.PassOn()
	ended := error(nil)
	for ended == nil {
		space, err := p.space(max(room, len(held)))
		if err != nil {
			return err
		}
		n := copy(space, held)
		if len(held) == 0 {
			n, ended = p.answer.Read(space)
		}
		held = nil
		p.usage.Look(space[:n])
		p.events.Filled(n)
		if err := p.passOn(ctx); err != nil {
			return err
		}
	}
	switch {
	case ended != io.EOF:
		return ended
	case !p.over:
		p.answer.Failed("upstream")
		return wire.Faultf(wire.UpstreamFailed, "decode broke off before the answer was whole")
	}
	return p.endStream(ctx)
}

// space returns where to read into, and charges what that takes.
func (p *partAnswer) space(least int) ([]byte, error) {
	if p.events.Open() > p.answer.Limit() {
		return nil, unusable(errTooLarge)
	}
	space, grown := p.events.Room(least)
	if grown == 0 {
		return space, nil
	}
	if err := p.memory.Charge(int64(grown)); err != nil {
		return nil, err
	}
	p.charged += int64(grown)
	return space, nil
}

// passOn sends the whole events that have come, in one piece: those of other parts
// come before or behind.
func (p *partAnswer) passOn(ctx context.Context) error {
	p.scratch = p.scratch[:0]
	for {
		event, ok := p.events.Next()
		if !ok {
			break
		}
		if err := p.take(event); err != nil {
			return err
		}
	}
	return p.send(ctx, p.scratch)
}

// send sends a copy of a text in one piece.
func (p *partAnswer) send(ctx context.Context, text []byte) error {
	if len(text) == 0 {
		return nil
	}
	p.way.batch.begun.Store(true)
	var c *Chunk
	switch {
	case len(text) <= smallChunk:
		c = NewChunk()
	case len(text) <= largeChunk:
		c = newLargeChunk()
	default:
		return p.out.Send(ctx, Item{Chunk: chunkOf(bytes.Clone(text))})
	}
	c.Set(text)
	return p.out.Send(ctx, Item{Chunk: c})
}

// take adds an event to what is sent next: with the index that its choices have among
// those of all prompts, and the names of the first event of all.
func (p *partAnswer) take(event []byte) error {
	data := wire.EventData(event)
	switch {
	case p.over:
		return nil // nothing is behind [DONE]
	case data == nil: // a comment, by which a worker keeps the connection open
		p.scratch = append(append(p.scratch, event...), "\n\n"...)
		return nil
	case string(data) == "[DONE]":
		p.over = true
		return nil
	}
	found, err := wire.ReadEvent(data)
	switch {
	case err != nil:
		return unusable(err)
	case found.Error != nil:
		return p.failedInside(data, found.Refused())
	}
	names := p.namesOf(data)
	if found.Usage != nil {
		p.counted.Add(found.Usage)
		p.keepLast(data)
		return nil
	}
	p.scratch = append(p.scratch, "data: "...)
	if p.scratch, err = names.AppendEvent(p.scratch, data, p.part*p.choices); err != nil {
		return unusable(err)
	}
	p.scratch = append(p.scratch, "\n\n"...)
	return nil
}

// failedInside is the fault of a worker that says in its stream that it failed, or
// that it refuses the prompt.
func (p *partAnswer) failedInside(event []byte, refused bool) error {
	if !refused {
		p.answer.Failed("error_event")
	}
	f := wire.Faultf(wire.UpstreamFailed, "decode failed while it answered")
	quote(f, event)
	return f
}

// namesOf returns the names of all events: those of the first.
func (p *partAnswer) namesOf(data []byte) *wire.Names {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.names.Known() {
		p.names = wire.NamesOf(data)
	}
	return &p.names // not changed any more
}

// keepLast keeps an event with a usage, for that of all.
func (p *partAnswer) keepLast(data []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		p.last = bytes.Clone(data)
	}
}

// endStream ends the stream of all if this was the last: with the sum of the usages,
// if workers have sent theirs, and [DONE].
func (p *partAnswer) endStream(ctx context.Context) error {
	p.mu.Lock()
	p.merge.usage.Merge(&p.counted)
	p.mu.Unlock()
	if !p.way.batch.isLast() {
		return nil
	}
	text := p.scratch[:0]
	if p.last != nil {
		text = append(p.names.AppendUsage(append(text, "data: "...), p.last, &p.merge.usage), "\n\n"...)
	}
	return p.send(ctx, append(text, "data: [DONE]\n\n"...))
}

// readWhole reads an answer that is not streamed, and returns the answer of all if it
// is the last.
func (p *partAnswer) readWhole() (merged wire.Text, err error) {
	text, err := p.readAll()
	if err != nil {
		return nil, err
	}
	p.usage.Look(text)
	if err := wire.CheckMergeable(text); err != nil {
		p.answer.Fail()
		return nil, unusable(err)
	}
	p.mu.Lock()
	p.answers[p.part] = text
	p.mu.Unlock()
	if !p.way.batch.isLast() {
		return nil, nil
	}
	return wire.MergeAnswers(p.answers, p.choices), nil
}

// sendMerged sends the answer of all; nil is none, for it is another's to send.
func (p *partAnswer) sendMerged(ctx context.Context, merged wire.Text) error {
	if merged == nil {
		return nil
	}
	size := 0
	for _, piece := range merged {
		size += len(piece)
	}
	if err := p.begin(ctx, size); err != nil {
		return err
	}
	return p.sendAll(ctx, merged)
}

// sendAll sends a text in chunks.
func (p *partAnswer) sendAll(ctx context.Context, text wire.Text) error {
	c := newLargeChunk()
	c.Set(nil)
	for _, piece := range text {
		for {
			if piece = piece[c.add(piece):]; len(piece) == 0 {
				break
			}
			if err := p.out.Send(ctx, Item{Chunk: c}); err != nil {
				return err
			}
			c = newLargeChunk()
			c.Set(nil)
		}
	}
	return p.out.Send(ctx, Item{Chunk: c})
}

// readAll reads an answer whole. Its bytes are charged until the batch has ended.
func (p *partAnswer) readAll() ([]byte, error) {
	promised, err := strconv.ParseInt(cmp.Or(p.answer.Header.Get("Content-Length"), "-1"), 10, 64)
	if err != nil {
		promised = -1
	}
	buf, err := budget.NewBuffer(p.memory, promised)
	for err == nil {
		var space []byte
		if space, err = buf.Free(); err != nil {
			break
		}
		n := 0
		n, err = p.answer.Read(space)
		buf.Filled(n)
		switch {
		case len(buf.Bytes()) > p.answer.Limit():
			err = unusable(errTooLarge)
		case err != nil && err != io.EOF:
			err = &unsent{err}
		}
	}
	if err != io.EOF {
		buf.Refund()
		return nil, err
	}
	return buf.Bytes(), nil
}
