package conf

import (
	"strconv"
	"strings"
)

// A node is one key of a TOML file, or one element of an array, and the line it is on. Nodes form a tree of the
// same shape as the parsed values: a table's keys are in table, an array's elements in items.
type node struct {
	line  int
	table map[string]*node
	items []*node
}

// child returns the node of a key, or n itself if there is none: the closest place to point at.
func (n *node) child(name string) *node {
	if c, ok := n.table[name]; ok {
		return c
	}
	return n
}

// item returns the node of an array's element, or n itself if there is none.
func (n *node) item(i int) *node {
	if i < len(n.items) {
		return n.items[i]
	}
	return n
}

// walk follows path from n, making what is not there yet. On its way it goes into the last element of an array
// of tables, as TOML's headers do.
func (n *node) walk(path []string, line int) *node {
	for _, name := range path {
		n = n.latest()
		c, ok := n.table[name]
		if !ok {
			c = &node{line: line}
			if n.table == nil {
				n.table = map[string]*node{}
			}
			n.table[name] = c
		}
		n = c
	}
	return n
}

func (n *node) latest() *node {
	if len(n.items) == 0 {
		return n
	}
	return n.items[len(n.items)-1]
}

func (n *node) add(line int) *node {
	c := &node{line: line}
	n.items = append(n.items, c)
	return c
}

// A scanner finds the keys of a TOML text and skips its values. It is used on text that the library has accepted
// already, so it refuses nothing; on any other text it ends without sense, but it ends.
type scanner struct {
	text string
	pos  int
	line int
}

// scanLines returns the root of the tree of keys.
func scanLines(text string) *node {
	for _, bom := range []string{"\xef\xbb\xbf", "\xff\xfe", "\xfe\xff"} {
		if strings.HasPrefix(text, bom) {
			text = text[len(bom):]
			break
		}
	}
	s := &scanner{text: text, line: 1}
	root := &node{line: 1}
	current := root
	for s.gap(); s.pos < len(s.text); s.gap() {
		start := s.pos
		switch line := s.line; {
		case s.take("[["):
			current = root.walk(s.path(), line).add(line)
			s.take("]]")
		case s.take("["):
			current = root.walk(s.path(), line).latest()
			s.take("]")
		default:
			s.pair(current)
		}
		if s.pos == start {
			s.advance(1)
		}
	}
	return root
}

// pair reads key = value into table.
func (s *scanner) pair(table *node) {
	line := s.line
	n := table.walk(s.path(), line)
	s.blank()
	s.take("=")
	s.blank()
	s.value(n)
}

// value skips a value and notes the keys and elements in it under n.
func (s *scanner) value(n *node) {
	switch {
	case s.take(`"""`):
		s.long('"')
	case s.take(`'''`):
		s.long('\'')
	case s.take(`"`):
		s.short('"')
	case s.take(`'`):
		s.short('\'')
	case s.take("["):
		s.list(']', func() { s.value(n.add(s.line)) })
	case s.take("{"):
		s.list('}', func() { s.pair(n) })
	default:
		rest := s.text[s.pos:]
		if end := strings.IndexAny(rest, ",]}#\n"); end >= 0 {
			rest = rest[:end]
		}
		s.advance(len(rest))
	}
}

// list reads elements parted by commas up to end. An element that takes no text ends the list, lest it go on for
// ever in text that is no TOML.
func (s *scanner) list(end byte, element func()) {
	for s.gap(); s.pos < len(s.text); s.gap() {
		if s.take(string(end)) {
			return
		}
		if s.take(",") {
			continue
		}
		start := s.pos
		if element(); s.pos == start {
			return
		}
	}
}

// path reads a key, dotted or not, quoted or not.
func (s *scanner) path() []string {
	var path []string
	for {
		s.blank()
		start := s.pos
		switch {
		case s.take(`"`):
			s.short('"')
			path = append(path, unescape(strings.TrimSuffix(s.text[start+1:s.pos], `"`)))
		case s.take(`'`):
			s.short('\'')
			path = append(path, strings.TrimSuffix(s.text[start+1:s.pos], `'`))
		default:
			for s.pos < len(s.text) && isBare(s.text[s.pos]) {
				s.pos++
			}
			path = append(path, s.text[start:s.pos])
		}
		s.blank()
		if !s.take(".") {
			return path
		}
	}
}

// short skips to the end of a string of one line, whose opening quote is taken.
func (s *scanner) short(quote byte) {
	for s.pos < len(s.text) && s.text[s.pos] != '\n' {
		switch c := s.text[s.pos]; {
		case c == quote:
			s.advance(1)
			return
		case c == '\\' && quote == '"':
			s.advance(2)
		default:
			s.advance(1)
		}
	}
}

// long skips to the end of a multi-line string, whose opening quotes are taken. The last three quotes of a run
// close it: up to two more before them belong to the text.
func (s *scanner) long(quote byte) {
	closing := strings.Repeat(string(quote), 3)
	for s.pos < len(s.text) {
		switch {
		case s.take(closing):
			for range 2 {
				s.take(string(quote))
			}
			return
		case s.text[s.pos] == '\\' && quote == '"':
			s.advance(2)
		default:
			s.advance(1)
		}
	}
}

// gap skips blanks, ends of lines and comments.
func (s *scanner) gap() {
	for s.pos < len(s.text) {
		switch s.text[s.pos] {
		case ' ', '\t', '\r', '\n':
			s.advance(1)
		case '#':
			if end := strings.IndexByte(s.text[s.pos:], '\n'); end >= 0 {
				s.advance(end)
			} else {
				s.advance(len(s.text))
			}
		default:
			return
		}
	}
}

// blank skips blanks within a line.
func (s *scanner) blank() {
	for s.pos < len(s.text) && (s.text[s.pos] == ' ' || s.text[s.pos] == '\t') {
		s.pos++
	}
}

func (s *scanner) take(token string) bool {
	if !strings.HasPrefix(s.text[s.pos:], token) {
		return false
	}
	s.pos += len(token)
	return true
}

// advance moves on by up to n bytes, counting the lines that end in them.
func (s *scanner) advance(n int) {
	end := min(s.pos+n, len(s.text))
	s.line += strings.Count(s.text[s.pos:end], "\n")
	s.pos = end
}

// isBare tells whether c may stand in a key without quotes.
func isBare(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// unescape resolves the escapes of a quoted key. Text it does not understand stays as it is.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, `\`)
		b.WriteString(before)
		if !found || after == "" {
			return b.String()
		}
		text, rest := escaped(after)
		b.WriteString(text)
		s = rest
	}
}

// escaped returns what the escape at the start of s (its backslash is off) stands for, and the rest of s.
func escaped(s string) (text, rest string) {
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[0]]
	if digits > 0 && len(s) > digits {
		if r, err := strconv.ParseUint(s[1:1+digits], 16, 32); err == nil {
			return string(rune(r)), s[1+digits:]
		}
	}
	const letters, meanings = `btnfre"\`, "\b\t\n\f\r\x1b\"\\"
	if i := strings.IndexByte(letters, s[0]); i >= 0 {
		return meanings[i : i+1], s[1:]
	}
	return s[:1], s[1:]
}
