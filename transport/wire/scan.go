package wire

import (
	"bytes"
	"errors"
	"fmt"
)

// MaxDepth is how deep objects and arrays may be nested. It is the limit of
// encoding/json and of the parsers behind us.
const MaxDepth = 10_000

// SyntaxError says where a text stops being JSON. It never quotes the text: a
// body holds what a client wrote.
type SyntaxError struct {
	Offset int // bytes before the place
	Reason string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s at byte %d", e.Reason, e.Offset)
}

const errShort = "unexpected end of JSON"

// scanner walks JSON text without building values. It checks the whole
// grammar of RFC 8259, so that a text it has passed can be walked again
// without checks, and looks at the bytes of a long string only in bulk:
// a body's weight is in its images and token arrays.
type scanner struct {
	data []byte
	pos  int
	// nest holds one entry per open object ('{') or array ('[').
	nest []byte
	// nameAt and nameEnd are where the last member name stood, quotes included.
	nameAt, nameEnd int
	// idsEnd is where the last array ended that ids has read, and idsCount is how
	// many are in it.
	idsEnd, idsCount int
}

func (s *scanner) fail(reason string) error {
	if s.pos >= len(s.data) {
		reason = errShort
	}
	return &SyntaxError{Offset: s.pos, Reason: reason}
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek returns the next byte, or 0 at the end: a NUL is no JSON either way.
func (s *scanner) peek() byte {
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

// value moves over one value, which must begin at pos.
func (s *scanner) value() error {
	base := len(s.nest)
	for {
		opened, err := s.open()
		if err != nil {
			return err
		}
		if opened {
			continue
		}
		more, err := s.close(base)
		if err != nil || !more {
			return err
		}
	}
}

// open moves over a scalar, or into an object or array up to where its first
// member's value or first element begins. It reports whether a value must
// follow. An empty object or array counts as a scalar.
func (s *scanner) open() (bool, error) {
	switch c := s.peek(); c {
	case '{', '[':
		if len(s.nest) >= MaxDepth {
			return false, &SyntaxError{Offset: s.pos, Reason: "nested too deep"}
		}
		s.pos++
		s.space()
		if s.peek() == c+2 { // '}' is '{'+2 and ']' is '['+2
			s.pos++
			return false, nil
		}
		if c == '[' && s.ids() {
			return false, nil
		}
		s.nest = append(s.nest, c)
		if c == '{' {
			return true, s.name()
		}
		return true, nil
	case '"':
		return false, s.string()
	case 't':
		return false, s.literal("true")
	case 'f':
		return false, s.literal("false")
	case 'n':
		return false, s.literal("null")
	default:
		return false, s.number()
	}
}

// openObject is open for a text that begins an object.
func (s *scanner) openObject() (bool, error) {
	opened, err := s.open()
	return opened && err == nil, err
}

// close moves over what may follow a value, closing objects and arrays that
// end there, down to the nesting of base. It reports whether a value must
// follow.
func (s *scanner) close(base int) (bool, error) {
	for len(s.nest) > base {
		s.space()
		top := s.nest[len(s.nest)-1]
		switch s.peek() {
		case ',':
			s.pos++
			s.space()
			if top == '{' {
				return true, s.name()
			}
			return true, nil
		case top + 2:
			s.pos++
			s.nest = s.nest[:len(s.nest)-1]
		default:
			return false, s.fail("want a comma or a closing bracket")
		}
	}
	return false, nil
}

// name moves over a member's name and colon, to where its value begins.
func (s *scanner) name() error {
	if s.peek() != '"' {
		return s.fail("want a member name in quotes")
	}
	s.nameAt = s.pos
	if err := s.string(); err != nil {
		return err
	}
	s.nameEnd = s.pos
	s.space()
	if s.peek() != ':' {
		return s.fail("want a colon after a member name")
	}
	s.pos++
	s.space()
	return nil
}

func (s *scanner) literal(word string) error {
	if !bytes.HasPrefix(s.data[s.pos:], []byte(word)) {
		return s.fail("not a JSON value")
	}
	s.pos += len(word)
	return nil
}

// ids moves over the rest of an array of integers of 0 and more, up to and with
// its bracket, with at most one blank behind a comma: most of what goes over the
// wire is token ids. It reports false, and moves nothing, if the array is not so
// written.
func (s *scanner) ids() bool {
	data, i := s.data, s.pos
	for n := 1; ; n++ {
		from := i
		for i < len(data) && isDigit(data[i]) {
			i++
		}
		if i == from || i == len(data) || data[from] == '0' && i > from+1 {
			return false
		}
		switch data[i] {
		case ',':
			if i++; i < len(data) && data[i] == ' ' {
				i++
			}
		case ']':
			s.pos = i + 1
			s.idsEnd, s.idsCount = s.pos, n
			return true
		default:
			return false
		}
	}
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func (s *scanner) digits() error {
	if !isDigit(s.peek()) {
		return s.fail("want a digit")
	}
	i := s.pos
	for i < len(s.data) && isDigit(s.data[i]) {
		i++
	}
	s.pos = i
	return nil
}

func (s *scanner) number() error {
	c := s.peek()
	if c != '-' && !isDigit(c) {
		return s.fail("not a JSON value")
	}
	if c == '-' {
		s.pos++
	}
	if s.peek() == '0' {
		s.pos++
	} else if err := s.digits(); err != nil {
		return err
	}
	if s.peek() == '.' {
		s.pos++
		if err := s.digits(); err != nil {
			return err
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		return s.digits()
	}
	return nil
}

// scanObject checks that text is one JSON object, and calls f for each of its
// members with its name as it is spelt, its value's text, and how many ids that
// is if it was plain to see that it is an array of them, else 0.
func scanObject(text []byte, f func(name, value []byte, ids int)) error {
	s := scanner{data: text}
	if s.space(); s.peek() != '{' {
		return errNotObject
	}
	opened, err := s.openObject()
	for ; err == nil && opened; opened, err = s.close(0) {
		name, from, ids := text[s.nameAt:s.nameEnd], s.pos, 0
		if err := s.value(); err != nil {
			return err
		}
		if s.idsEnd == s.pos && text[from] == '[' && len(s.nest) == 1 {
			ids = s.idsCount
		}
		f(name, text[from:s.pos], ids)
	}
	if err != nil {
		return err
	}
	return s.end()
}

// Valid reports the first fault of text as one JSON value with nothing but
// white space around it, as a *SyntaxError, or nil.
func Valid(text []byte) error {
	s := scanner{data: text}
	s.space()
	if err := s.value(); err != nil {
		return err
	}
	return s.end()
}

func (s *scanner) end() error {
	if s.space(); s.pos < len(s.data) {
		return &SyntaxError{Offset: s.pos, Reason: "something follows the JSON value"}
	}
	return nil
}

var errNotObject = errors.New("not a JSON object")
