package wire

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
)

// What a rendering shows at most: the names of members, numbers, and the strings of
// members that tell what a body is, but no prompt, token, image or tensor.
const (
	shownString   = 64   // bytes of a string that can be a name; of others only the length
	shownLiteral  = 32   // bytes of a number; of a longer one only the length
	shownElements = 4    // of an array; the others are counted
	shownDepth    = 8    // of nesting; what is deeper is left out
	shownBytes    = 4096 // of the whole, not counting the mark that it was cut
)

// cut stands where something was left out.
const cut = "…"

// LevelTrace is the level of the log at which bodies are shown, redacted.
const LevelTrace = slog.LevelDebug - 4

// Redacted is a writer that makes a short, safe rendering of a JSON body for
// the log: one line of printable ASCII and a few marks, with the structure, the
// numbers that are members, and what telling members say (see telling), but nothing of
// what other strings and the elements of arrays hold: a prompt may be one word, or a
// list of token ids. The body may come in any pieces; only the rendering is kept of
// it, at most about 4 KB.
//
// It checks nothing: a log is read when something is wrong, so what is no JSON
// has a rendering too.
//
// The zero value is ready to use. Only one goroutine may write, and String
// must not be called meanwhile.
type Redacted struct {
	out  []byte // the rendering so far
	size int    // bytes of the body so far

	begun   bool // something other than white space has come,
	foreign bool // but it was neither object nor array: bytes are only counted
	full    bool // the rendering has its last mark: bytes are only counted

	// token is the beginning of the string or literal that is being read, and
	// length is how long all of it is. Nothing is shown before its end, as
	// only then it is known what may be.
	token    [shownString]byte
	length   int
	inString bool
	escaped  bool // the byte before was a backslash that escapes the next
	tells    bool // the last name was that of a member whose string may be shown

	// levels are the open containers that are shown, and the one below them
	// of which only the brackets are.
	levels [shownDepth + 1]level
	depth  int
	// skip is not 0 while the rest of the innermost level is left out. It is
	// then the number of open containers from that level on, without their
	// kinds: a body can have millions.
	skip int
	more int // elements left out
}

// level is an open container.
type level struct {
	array  bool
	commas int
}

// Redact renders a body that is there in pieces.
func Redact(parts ...[]byte) string {
	var r Redacted
	for _, part := range parts {
		_, _ = r.Write(part) // never fails
	}
	return r.String()
}

// Full reports whether the rendering is as long as it may be. What is written
// from then on does not change it, so a caller may stop.
func (r *Redacted) Full() bool { return r.full }

// Write takes the next piece of the body. It keeps nothing of p, never fails
// and always returns len(p).
func (r *Redacted) Write(p []byte) (int, error) {
	r.size += len(p)
	for rest := p; len(rest) > 0 && !r.full && !r.foreign; {
		mark := len(r.out)
		switch {
		case r.inString:
			rest = r.quoted(rest)
		case r.skip > 0:
			rest = r.skipped(rest)
		default:
			r.plain(rest[0])
			rest = rest[1:]
		}
		r.bound(mark)
	}
	return len(p), nil
}

// bound ends the rendering at mark, where its last step began, if that step
// has made it too long: half an escape or half a length would mislead.
func (r *Redacted) bound(mark int) {
	if len(r.out) > shownBytes {
		r.out = append(r.out[:mark], cut...)
		r.full = true
	}
}

// String returns the rendering of what was written so far. Of a string that
// has not ended only the length is shown, as it may be the beginning of a long
// one. Writing may go on afterwards.
func (r *Redacted) String() string {
	switch {
	case r.size == 0:
		return "<empty>"
	case !r.begun || r.foreign:
		return fmt.Sprintf("<%d bytes, not JSON>", r.size)
	case r.full:
		return string(r.out)
	}
	end := *r
	end.out = slices.Clip(r.out) // what is appended here must not stand in r
	switch {
	case r.skip > 0:
		end.count()
	case r.inString:
		end.out = fmt.Appendf(end.out, `"<%d bytes%s`, r.length, cut)
	default:
		end.literal()
	}
	end.bound(len(r.out))
	return string(end.out)
}

// plain takes a byte that is neither in a string nor left out.
func (r *Redacted) plain(c byte) {
	switch c {
	case ' ', '\t', '\n', '\r':
		return
	}
	if !r.begun {
		r.begun = true
		if r.foreign = c != '{' && c != '['; r.foreign {
			return
		}
	}
	switch c {
	case '"':
		r.literal()
		r.inString = true
	case '{', '[':
		r.literal()
		r.open(c)
	case '}', ']':
		r.literal()
		r.close(c)
	case ',':
		r.literal()
		r.comma()
	case ':':
		r.literal()
		r.out = append(r.out, c)
	default:
		r.keep(c)
	}
}

// quoted takes the bytes of a string up to and with its closing quote, and
// returns what is behind it.
func (r *Redacted) quoted(p []byte) []byte {
	for i, c := range p {
		switch {
		case r.escaped:
			r.escaped = false
		case c == '\\':
			r.escaped = true
		case c == '"':
			r.keep(p[:i]...)
			r.endString()
			return p[i+1:]
		}
	}
	r.keep(p...)
	return nil
}

// skipped takes bytes that are left out, up to a string, which must be
// followed as it can hold brackets, or to where the level closes.
func (r *Redacted) skipped(p []byte) []byte {
	for i, c := range p {
		switch c {
		case '"':
			r.inString = true
			return p[i+1:]
		case '{', '[':
			r.skip++
		case '}', ']':
			if r.skip--; r.skip == 0 {
				r.count()
				r.close(c)
				return p[i+1:]
			}
		case ',':
			if r.skip == 1 {
				r.more++
			}
		}
	}
	return nil
}

// keep adds bytes to the token.
func (r *Redacted) keep(p ...byte) {
	if r.length < len(r.token) {
		copy(r.token[r.length:], p)
	}
	r.length += len(p)
}

// endString shows the string that has ended, or how long it was.
func (r *Redacted) endString() {
	n := r.length
	r.length, r.inString = 0, false
	if r.skip > 0 {
		return
	}
	text := r.token[:min(n, shownString)]
	isMember := r.depth > 0 && !r.levels[r.depth-1].array
	before := r.out[len(r.out)-1] // there is a bracket at least
	value := isMember && before == ':'
	isMember = isMember && (before == '{' || before == ',')
	tells := r.tells
	r.tells = isMember && telling[string(text)]
	switch {
	case isDataURI(text):
		r.out = fmt.Appendf(r.out, `"<data URI, %d bytes>"`, n)
	case n > shownString || !isName(text) || !isMember && !(value && tells):
		r.out = fmt.Appendf(r.out, `"<%d bytes>"`, n)
	default:
		r.out = append(append(append(r.out, '"'), text...), '"')
	}
}

// telling are the names of members whose strings say what a body is and never what
// is in it. They are shown if they look like names.
var telling = map[string]bool{
	"model": true, "object": true, "id": true, "request_id": true, "type": true, "role": true, "detail": true, "code": true,
	"finish_reason": true, "stop_reason": true, "service_tier": true, "encoding_format": true, "truncation": true,
	"remote_engine_id": true, "remote_request_id": true, "remote_host": true, "transfer_id": true,
}

// isName reports whether a text can be a name of something: of a member, a
// model, a role.
func isName(text []byte) bool {
	for _, c := range text {
		if !isDigit(c) && (c|0x20 < 'a' || c|0x20 > 'z') && !bytes.ContainsRune([]byte("._-:/@+"), rune(c)) {
			return false
		}
	}
	return true
}

// isDataURI reports whether a string that begins with text is a data URI.
func isDataURI(text []byte) bool {
	const scheme = "data:"
	return len(text) >= len(scheme) && bytes.EqualFold(text[:len(scheme)], []byte(scheme))
}

// literal shows the number or word that has ended, if there was one, and of
// what is neither how long it was: it may be the text of a string that has lost
// its quotes.
func (r *Redacted) literal() {
	n := r.length
	r.length = 0
	switch text := r.token[:min(n, shownLiteral)]; {
	case n == 0:
	case n > shownLiteral || !isLiteral(text):
		r.out = fmt.Appendf(r.out, "<%d bytes>", n)
	case r.depth > 0 && r.levels[r.depth-1].array && (isDigit(text[0]) || text[0] == '-'):
		r.out = append(r.out, '#') // a token, as likely as not
	default:
		r.out = append(r.out, text...)
	}
}

// isLiteral reports whether a text is a word of JSON, or looks like a number.
func isLiteral(text []byte) bool {
	switch string(text) {
	case "true", "false", "null":
		return true
	}
	for _, c := range text {
		if !isDigit(c) && !bytes.ContainsRune([]byte("-+.eE"), rune(c)) {
			return false
		}
	}
	return isDigit(text[0]) || text[0] == '-'
}

// open shows an opening bracket. Below the last level that is shown the
// content is left out.
func (r *Redacted) open(c byte) {
	r.out = append(r.out, c)
	r.levels[r.depth] = level{array: c == '['}
	r.depth++
	if r.depth > shownDepth {
		r.out = append(r.out, cut...)
		r.skip = 1
	}
}

// close shows a closing bracket. It closes a level of either kind: which one a
// broken body meant cannot be known.
func (r *Redacted) close(c byte) {
	r.out = append(r.out, c)
	if r.depth > 0 {
		r.depth--
	}
}

// comma shows a comma. Behind the last element that is shown the rest of an
// array is left out.
func (r *Redacted) comma() {
	r.out = append(r.out, ',')
	if r.depth == 0 || !r.levels[r.depth-1].array {
		return
	}
	l := &r.levels[r.depth-1]
	if l.commas++; l.commas == shownElements {
		r.skip, r.more = 1, 1
	}
}

// count shows how many elements of an array were left out. A level that is too
// deep has its mark already.
func (r *Redacted) count() {
	if r.depth <= shownDepth {
		r.out = fmt.Appendf(r.out, "%s %d more", cut, r.more)
	}
	r.more = 0
}
