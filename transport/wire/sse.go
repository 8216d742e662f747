package wire

import (
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
type Boundary struct{ inside, lineOpen, afterCR bool }

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
}

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
