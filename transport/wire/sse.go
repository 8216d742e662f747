package wire

import (
	"bytes"
	"net/http"
	"strings"
)

// IsEventStream reports whether an answer is a stream of server-sent events
// that can be read and added to: text/event-stream without an encoding.
func IsEventStream(h http.Header) bool {
	media, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(media), "text/event-stream") && !IsEncoded(h)
}

// IsEncoded reports whether a message with these headers is encoded, so that it
// cannot be read as it is.
func IsEncoded(h http.Header) bool {
	for _, enc := range h["Content-Encoding"] {
		if enc != "" && !strings.EqualFold(enc, "identity") {
			return true
		}
	}
	return false
}

// Boundary follows a stream of server-sent events and knows whether it stands
// between two events. The zero value stands at the start, which is a boundary.
type Boundary struct {
	inside, lineOpen, afterCR bool
	// last is the end of what was written, but for line ends.
	last [len(lastEvent)]byte
}

// lastEvent ends a stream that is whole; what is behind it clients do not read.
const lastEvent = "data: [DONE]"

// Write follows the bytes of a chunk.
func (b *Boundary) Write(chunk []byte) {
	// Only the last line ends matter: an event is over when its last line is
	// followed by an empty one.
	from := max(0, len(chunk)-4)
	if len(chunk) > 4 {
		b.inside, b.lineOpen, b.afterCR = true, true, false
	}
	for _, c := range chunk[from:] {
		switch {
		case c == '\n' && b.afterCR: // the second half of CRLF
			b.afterCR = false
		case c == '\n' || c == '\r':
			b.inside = b.inside && b.lineOpen
			b.lineOpen = false
			b.afterCR = c == '\r'
		default:
			b.inside, b.lineOpen, b.afterCR = true, true, false
		}
	}
	text := bytes.TrimRight(chunk, "\r\n")
	if more := len(text) - len(b.last); more >= 0 {
		copy(b.last[:], text[more:])
		return
	}
	copy(b.last[:], b.last[len(text):])
	copy(b.last[len(b.last)-len(text):], text)
}

// Done reports whether the stream has said that it is whole.
func (b *Boundary) Done() bool { return !b.inside && string(b.last[:]) == lastEvent }

// Gap returns what has to be written before a new event can begin.
func (b *Boundary) Gap() string {
	switch {
	case !b.inside:
		return ""
	case b.lineOpen, b.afterCR: // behind a CR the first only makes it a CRLF
		return "\n\n"
	}
	return "\n"
}
