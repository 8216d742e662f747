package wire

import (
	"bytes"
	"unicode/utf8"
)

// Cutter shortens the strings of a JSON text while it arrives: of those longer
// than Keep bytes the rest is dropped, but for its escapes. What is dropped, rendered
// tensors above all, is searched for its end and not looked at: a text is valid
// after it if it was before, and if it was not, only what was dropped can be why it
// is now. It belongs to one goroutine.
type Cutter struct {
	Keep int

	in, escaped bool // in a string, and behind a backslash in it
	digits      int  // still to come of an escape
	n           int  // bytes of the string so far
	whole       bool // none of it has been dropped
}

// Cut cuts the next bytes of the text in place, and returns how many are left.
func (c *Cutter) Cut(text []byte) int {
	kept, quote := 0, -1
	take := func(b []byte) { kept += copy(text[kept:], b) }
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
			c.in, c.n, c.whole = quote < len(text), 0, true
			take(text[at:end])
			at = end
		case c.escaped || c.digits > 0 && hexDigit(text[at]) >= 0:
			c.escape(text[at])
			take(text[at : at+1])
			at++
		default:
			c.digits = 0
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
	for c.whole && room < len(piece) && !utf8.RuneStart(piece[room]) {
		room++ // half a character is not valid
	}
	c.whole = c.whole && room == len(piece)
	return piece[:room]
}
