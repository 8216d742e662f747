package wire

import (
	"bytes"
	"strconv"
)

// Held is what is known of a streamed answer that is held back.
type Held uint8

const (
	// Holding: nothing has come yet that a client waits for.
	Holding Held = iota
	// Released: content has come, or something else that is the client's.
	Released
	// Failed: the worker reports that it failed, before any content.
	Failed
)

// maxHeld is how much is held back before it is let go, whatever it is.
const maxHeld = 64 << 10

// Hold reads the beginning of a streamed answer up to its first event with
// content (wire.md, section 13): workers answer 200 at once, and fail inside the
// stream. It keeps what it has read. It belongs to one goroutine.
type Hold struct {
	content func(event []byte) bool
	buf     []byte
	next    int      // where the next line begins
	data    [][]byte // of the event that is being read
	state   Held
}

// Hold begins to hold an answer of this protocol.
func (p *Protocol) Hold() *Hold { return &Hold{content: p.content} }

// Bytes returns what has been read.
func (h *Hold) Bytes() []byte { return h.buf }

// Write reads more of the answer, and says what is known then.
func (h *Hold) Write(chunk []byte) Held {
	h.buf = append(h.buf, chunk...)
	for h.state == Holding {
		line, ok := h.line()
		if !ok {
			break
		}
		h.take(line)
	}
	if h.state == Holding && len(h.buf) > maxHeld {
		h.state = Released
	}
	return h.state
}

// End says what is known when the answer has ended. One that ends while it is
// held is not whole, for its [DONE] is missing.
func (h *Hold) End() Held {
	if h.state == Holding {
		h.state = Failed
	}
	return h.state
}

// line returns the next whole line without its end: LF, CRLF, or CR if something
// stands behind it.
func (h *Hold) line() ([]byte, bool) {
	rest := h.buf[h.next:]
	i := bytes.IndexAny(rest, "\r\n")
	if i < 0 || rest[i] == '\r' && i+1 == len(rest) {
		return nil, false
	}
	h.next += i + 1
	if rest[i] == '\r' && rest[i+1] == '\n' {
		h.next++
	}
	return rest[:i], true
}

// take takes a line of an event. An empty one ends it.
func (h *Hold) take(line []byte) {
	if len(line) > 0 {
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			h.data = append(h.data, bytes.TrimPrefix(data, []byte(" ")))
		}
		return
	}
	if len(h.data) > 0 {
		h.state = h.judge(bytes.Join(h.data, []byte("\n")))
	}
	h.data = h.data[:0]
}

// judge says what an event makes of a held answer.
func (h *Hold) judge(event []byte) Held {
	if event = trim(event); Valid(event) != nil || !IsObject(event) {
		return Released // [DONE], or nothing that we know
	}
	if failure := Lookup(event, "error"); !IsNull(failure) {
		if isServerError(failure) {
			return Failed
		}
		return Released
	}
	if finishedInError(event) {
		return Failed
	}
	if h.content == nil || h.content(event) {
		return Released
	}
	return Holding
}

// isServerError reports whether the error of an event is the worker's and not
// the request's: its code is a status of 500 and more, or it says none. Other
// codes are words, which are for the client to read.
func isServerError(failure []byte) bool {
	code := Lookup(failure, "code")
	if IsNull(code) {
		return true
	}
	status, err := strconv.Atoi(string(bytes.Trim(code, `"`)))
	return err == nil && status >= 500
}

// chatContent reports whether an event of a chat stream has content: a part of
// the answer, or its end. The first event has only the role.
func chatContent(event []byte) bool {
	choices := Lookup(event, "choices")
	found, any := false, false
	isArray := EachElement(choices, func(choice []byte) bool {
		any = true
		found = !IsNull(Lookup(choice, "finish_reason")) || hasContent(Lookup(choice, "delta"))
		return !found
	})
	return found || !any || !isArray // without choices it is the usage, or none of a chat's
}

// hasContent reports whether a delta has a member but the role that says
// something.
func hasContent(delta []byte) (found bool) {
	EachMember(delta, func(name, value []byte) bool {
		empty := IsNull(value) || string(value) == `""` || emptyArray(value)
		found = !empty && !NameIs(name, "role")
		return !found
	})
	return found
}

func emptyArray(value []byte) bool {
	empty := true
	return EachElement(value, func([]byte) bool { empty = false; return false }) && empty
}

// finishedInError reports whether a worker says that it failed where it says why
// an answer ended.
func finishedInError(answer []byte) (failed bool) {
	EachElement(Lookup(answer, "choices"), func(choice []byte) bool {
		failed = string(Lookup(choice, "finish_reason")) == `"error"`
		return !failed
	})
	return failed
}

// ErrorEvents finds events in a running stream by which a worker says that it
// failed. It reads no JSON: an event that begins with an error begins like that
// with every worker. The zero value stands at the start of a stream.
type ErrorEvents struct {
	tail [len(errorEvent)]byte // the last bytes of what was read before
	n    int
}

// errorEvent begins an event that is an error, behind a line end.
const errorEvent = "\ndata: {\"error\":"

// Found reports whether such an event begins in a chunk, or between it and the
// one before.
func (e *ErrorEvents) Found(chunk []byte) bool {
	if len(chunk) == 0 {
		return false
	}
	if e.n == 0 {
		e.n = copy(e.tail[:], "\n") // the start of the stream is the start of a line
	}
	var seam [2 * len(errorEvent)]byte
	n := copy(seam[:], e.tail[:e.n])
	n += copy(seam[n:], chunk[:min(len(chunk), len(errorEvent)-1)])
	found := bytes.Contains(seam[:n], []byte(errorEvent)) || bytes.Contains(chunk, []byte(errorEvent))
	last := seam[:n]
	if len(chunk) >= len(e.tail) {
		last = chunk
	}
	e.n = copy(e.tail[:], last[max(0, len(last)-len(e.tail)+1):])
	return found
}
