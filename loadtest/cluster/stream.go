package cluster

import (
	"cmp"
	"iter"
	"net/http"
)

// stream sends the answer as server-sent events, or an error event if loading
// the KV failed: as with real workers the headers are out by then.
func (l *leg) stream(t *text, loadingFailed bool) error {
	l.writer.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	if err := l.begin(http.StatusOK); err != nil {
		return err
	}
	if err := l.flush(); err != nil {
		return err
	}
	if loadingFailed {
		return l.sendFailure()
	}
	goOn, err := l.betweenChunks()
	if err != nil || !goOn {
		return err
	}
	events := t.events
	if t.api.typed {
		events = t.responseEvents
	}
	for event, isToken := range events() {
		if isToken {
			if err := l.cluster.pause(l.request.Context(), l.cluster.options.TokenInterval); err != nil {
				return err
			}
		}
		if err := l.send(event); err != nil {
			return err
		}
		l.chunks++
		goOn, err := l.betweenChunks()
		if err != nil || !goOn {
			return err
		}
	}
	return nil
}

// event is a server-sent event. Only those of the Responses API have a name.
type event struct {
	name string
	data []byte
}

// send writes one event and puts it on the wire.
func (l *leg) send(e event) error {
	event := make([]byte, 0, len(e.data)+64)
	if e.name != "" {
		event = append(append(append(event, "event: "...), e.name...), '\n')
	}
	event = append(event, "data: "...)
	event = append(event, e.data...)
	event = append(event, "\n\n"...)
	if _, err := l.writer.Write(event); err != nil {
		return err
	}
	return l.flush()
}

// sendFailure ends the stream as a worker does whose engine fails.
func (l *leg) sendFailure() error {
	if l.api.typed {
		return l.send(failureEvent(l.chunks, cmp.Or(l.fault.ErrorCode, loadFailed.status)))
	}
	if err := l.send(event{data: l.errorBody(refusalOf(cmp.Or(l.fault.ErrorCode, loadFailed.status)), true)}); err != nil {
		return err
	}
	return l.send(event{data: done})
}

// done is the last event of a stream.
var done = []byte("[DONE]")

// betweenChunks holds the leg at the gates that stand here, and applies the faults
// that do: goOn is false if the stream has come to its end that way.
func (l *leg) betweenChunks() (goOn bool, err error) {
	// Without an interval nothing else would notice the client's leaving before
	// a write fails, which takes the network a while to say.
	ctx := l.request.Context()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if err := l.cluster.passGates(ctx, l.record, AtChunk, l.chunks); err != nil {
		return false, err
	}
	here := func(after *int) bool { return after != nil && *after == l.chunks }
	switch {
	case here(l.fault.BreakAfter):
		return false, errBreak
	case here(l.fault.ErrorEventAfter):
		return false, l.sendFailure()
	case here(l.fault.EndAfter):
		return false, nil
	}
	return true, nil
}

// events are the data of a stream's events, in order, with whether each is a
// token that takes time to make.
func (t *text) events() iter.Seq2[event, bool] {
	return func(send func(event, bool) bool) {
		yield := func(data []byte, isToken bool) bool { return send(event{data: data}, isToken) }
		// all yields a chunk for each choice.
		all := func(p piece) bool {
			for i := range t.choices {
				chunk := t.api.chunk(t, []any{t.api.delta(i, t, p)}, nil)
				isToken := i == 0 && !p.role && (p.finish == nil || t.api.finishRides)
				if !yield(encode(chunk), isToken) {
					return false
				}
			}
			return true
		}
		if t.api.roles && !all(piece{role: true}) {
			return
		}
		for i, word := range t.words {
			p := piece{word: word, at: i}
			if i > 0 {
				p.word = " " + word
			}
			if t.api.finishRides && i == len(t.words)-1 {
				p.finish = &t.finish
			}
			if !all(p) {
				return
			}
		}
		if !t.api.finishRides && !all(piece{finish: &t.finish}) {
			return
		}
		if t.withUses && !yield(encode(t.api.chunk(t, []any{}, &t.counted)), false) {
			return
		}
		yield(done, false)
	}
}
