package wire

import "bytes"

// Events takes a stream of server-sent events apart, event by event, out of a
// buffer that grows with the largest of them. It belongs to one goroutine.
type Events struct {
	buf  []byte
	from int // where the event begins that is being read
	next int // where its next line begins
	seen int // up to where that has no end: a long one is gone through once
}

// Room returns where to read more of the stream into, of so many bytes at least,
// and by how much the buffer had to grow for that. What Next has returned is gone
// then.
func (e *Events) Room(least int) (room []byte, grown int) {
	e.buf = e.buf[:copy(e.buf, e.buf[e.from:])]
	e.next, e.seen = e.next-e.from, max(0, e.seen-e.from)
	e.from = 0
	if free := cap(e.buf) - len(e.buf); free < least {
		before := cap(e.buf)
		bigger := make([]byte, len(e.buf), max(2*before, len(e.buf)+least))
		copy(bigger, e.buf)
		e.buf = bigger
		grown = cap(e.buf) - before
	}
	return e.buf[len(e.buf):cap(e.buf)], grown
}

// Filled adds the first n bytes of the room.
func (e *Events) Filled(n int) { e.buf = e.buf[:len(e.buf)+n] }

// Open returns how many bytes the event has that has not ended yet.
func (e *Events) Open() int { return len(e.buf) - e.from }

// Next returns the next whole event: its lines, without the empty one that ends it.
// It is good until the next call of Room.
func (e *Events) Next() (event []byte, ok bool) {
	for {
		at := e.next
		length, whole := e.line()
		if !whole {
			return nil, false
		}
		if length > 0 {
			continue
		}
		event = e.buf[e.from:at]
		e.from = e.next
		if len(event) > 0 { // else it is one more empty line
			return event, true
		}
	}
}

// line goes over the next whole line, and returns its length without its end: LF,
// CRLF, or CR if something stands behind it.
func (e *Events) line() (length int, ok bool) {
	rest, from := e.buf[e.next:], max(0, e.seen-e.next)
	i := bytes.IndexAny(rest[from:], "\r\n")
	if i += from; i < from || rest[i] == '\r' && i+1 == len(rest) {
		e.seen = len(e.buf) - min(1, len(rest)) // it may end with a CR
		return 0, false
	}
	e.next += i + 1
	if rest[i] == '\r' && rest[i+1] == '\n' {
		e.next++
	}
	return i, true
}

// EventData returns the data of an event: of one line as it stands there, of more
// as a copy. It is nil for one that has none, such as a comment.
func EventData(event []byte) (data []byte) {
	for joined := false; len(event) > 0; {
		line := event
		if i := bytes.IndexAny(event, "\r\n"); i >= 0 {
			line = event[:i]
			event = event[i+1:] // of a CRLF the LF is an empty line, which has no data
		} else {
			event = nil
		}
		text, ok := bytes.CutPrefix(line, []byte("data:"))
		if !ok {
			continue
		}
		text = bytes.TrimPrefix(text, []byte(" "))
		if data == nil {
			data = text
			continue
		}
		if !joined {
			data, joined = bytes.Clone(data), true
		}
		data = append(append(data, '\n'), text...)
	}
	return data
}
