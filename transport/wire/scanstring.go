package wire

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"
)

// stringBlock is how much of a string is looked at at a time: it is read three
// times, and from memory only once.
const stringBlock = 8 << 10

// string moves over a string. The pieces between its escapes are found with
// bytes.IndexByte and checked in bulk. What ends a piece is looked for again only
// once it is passed, so that a string of nothing but escapes takes no more than
// linear time.
func (s *scanner) string() error {
	s.pos++
	end, quoted := -1, false // where the piece ends at the latest, and whether a quote is there
	for {
		if s.pos > end || s.pos == end && !quoted {
			if end, quoted = s.piece(); end < 0 {
				s.pos = len(s.data)
				return s.fail(errShort)
			}
		}
		piece := s.data[s.pos:end]
		esc := bytes.IndexByte(piece, '\\')
		if esc >= 0 {
			piece = piece[:esc]
		}
		if i := badChar(piece); i >= 0 {
			return &SyntaxError{Offset: s.pos + i, Reason: "control character or invalid UTF-8 in a string"}
		}
		s.pos += len(piece)
		switch {
		case esc >= 0:
			if err := s.escape(); err != nil {
				return err
			}
		case quoted:
			s.pos++
			return nil
		}
	}
}

// piece returns where the next piece of a string ends: at a quote, or where no
// character is cut in two, or less than 0 if there is no quote any more.
func (s *scanner) piece() (end int, quoted bool) {
	if s.pos >= len(s.data) {
		return -1, false
	}
	next := min(s.pos+stringBlock, len(s.data))
	if n := bytes.IndexByte(s.data[s.pos:next], '"'); n >= 0 {
		return s.pos + n, true
	}
	if next == len(s.data) {
		return -1, false
	}
	for end = next; end > next-utf8.UTFMax && !utf8.RuneStart(s.data[end]); {
		end--
	}
	return end, false
}

// escape moves over one escape sequence.
func (s *scanner) escape() error {
	s.pos++ // the backslash
	switch s.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos++
		return nil
	case 'u':
		s.pos++
		for range 4 {
			if hexDigit(s.peek()) < 0 {
				return s.fail("bad \\u escape")
			}
			s.pos++
		}
		return nil
	}
	return s.fail("bad escape")
}

func hexDigit(c byte) int {
	switch {
	case isDigit(c):
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// badChar returns the index of the first byte that may not stand in a JSON
// string as it is, or -1. Eight bytes are tested at a time.
func badChar(b []byte) int {
	i := plainASCII(b)
	if i == len(b) {
		return -1
	}
	ascii := true
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		if w&0x8080808080808080 != 0 {
			ascii = false
		}
		// A byte below 0x20 has none of the bits 0x60 and none of 0x80.
		if (w-0x2020202020202020)&^w&0x8080808080808080 != 0 {
			break
		}
	}
	for ; i < len(b); i++ {
		if b[i] < 0x20 {
			return i
		}
		if b[i] >= utf8.RuneSelf {
			ascii = false
		}
	}
	if ascii || utf8.Valid(b) {
		return -1
	}
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

// plainASCII returns how many bytes at the beginning are ASCII and no control
// characters: all of an image.
func plainASCII(b []byte) int {
	const high, space = 0x8080808080808080, 0x2020202020202020
	i := 0
	for ; i+32 <= len(b); i += 32 {
		q := b[i : i+32 : i+32]
		w0, w1 := binary.LittleEndian.Uint64(q), binary.LittleEndian.Uint64(q[8:])
		w2, w3 := binary.LittleEndian.Uint64(q[16:]), binary.LittleEndian.Uint64(q[24:])
		if (w0|w1|w2|w3)&high != 0 || ((w0-space)|(w1-space)|(w2-space)|(w3-space))&high != 0 {
			break
		}
	}
	for i < len(b) && b[i]-0x20 < 0x60 {
		i++
	}
	return i
}
