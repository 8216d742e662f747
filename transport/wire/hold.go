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
	typed   bool
	buf     []byte
	next    int      // where the next line begins
	data    [][]byte // of the event that is being read
	state   Held
}

// Hold begins to hold an answer of this protocol.
func (p *Protocol) Hold() *Hold { return &Hold{content: p.content, typed: p.typed} }

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
// held is not whole: its [DONE] is missing, or the event with the whole response.
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
	if h.typed {
		return judgeTyped(event)
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
