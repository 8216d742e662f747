package wire

import (
	"bytes"
	"unicode/utf8"
)

// Cutter shortens the strings of a JSON text while it arrives: of those longer
// than Keep bytes the rest is dropped, as far as it is plain ASCII: rendered
// tensors are. A text is valid after it if it was before, and only then. It belongs
// to one goroutine.
type Cutter struct {
	Keep int

	in, escaped bool // in a string, and behind a backslash in it
	digits      int  // still to come of an escape
	n           int  // bytes of the string so far
	last        byte // that was kept
}

// Cut cuts the next bytes of the text in place, and returns how many are left.
func (c *Cutter) Cut(text []byte) int {
	kept, quote := 0, -1
	take := func(b []byte) {
		if len(b) > 0 {
			kept += copy(text[kept:], b)
			c.last = text[kept-1]
		}
	}
	for at := 0; at < len(text); {
		if quote < at {
			if quote = bytes.IndexByte(text[at:], '"'); quote < 0 {
				quote = len(text)
			} else {
				quote += at
			}
		}
		switch {
		case !c.in:
			end := min(quote+1, len(text))
			c.in, c.n = quote < len(text), 0
			take(text[at:end])
			at = end
		case c.escaped || c.digits > 0:
			c.escape(text[at])
			take(text[at : at+1])
			at++
		default:
			piece := text[at:quote]
			if n := bytes.IndexByte(piece, '\\'); n >= 0 {
				piece = piece[:n]
			}
			take(c.cut(piece))
			if at += len(piece); at < len(text) {
				c.escaped = text[at] == '\\'
				c.in = c.escaped
				take(text[at : at+1])
				at++
			}
		}
	}
	return kept
}

// escape notes a byte of an escape sequence.
func (c *Cutter) escape(b byte) {
	switch {
	case !c.escaped:
		c.digits--
	case b == 'u':
		c.digits = len("00e9")
	}
	c.escaped = false
}

// cut returns what is to be kept of a piece of a string without escapes.
func (c *Cutter) cut(piece []byte) []byte {
	room := min(max(0, c.Keep-c.n), len(piece))
	c.n += len(piece)
	if plainASCII(piece[room:]) < len(piece)-room {
		return piece
	}
	before := c.last
	if room > 0 {
		before = piece[room-1]
	}
	if before >= utf8.RuneSelf { // what follows may not meet half a character
		room = min(room+1, len(piece))
	}
	return piece[:room]
}
