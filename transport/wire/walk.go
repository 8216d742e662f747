package wire

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// The functions of this file walk text that has been checked before (by
// [ParseBody] or [Valid]): they do not report faults.

// trim cuts white space off both ends of a JSON text.
func trim(text []byte) []byte { return bytes.Trim(text, " \t\r\n") }

// EachMember calls f for every member of an object in order, with its name as
// it is spelt (quotes included) and its value's text, until f returns false.
// It reports whether text is an object. Text must be valid JSON.
func EachMember(text []byte, f func(name, value []byte) bool) bool {
	text = trim(text)
	if len(text) == 0 || text[0] != '{' {
		return false
	}
	for at := skipSpace(text, 1); at < len(text) && text[at] == '"'; {
		end := skipString(text, at)
		name := text[at:end]
		at = skipSpace(text, skipSpace(text, end)+1) // the colon is in between
		end = skipValue(text, at)
		if end == at || !f(name, text[at:end]) {
			return true
		}
		at = skipSpace(text, skipSpace(text, end)+1) // a comma is, or the end
	}
	return true
}

// EachElement calls f for every element of an array in order until f returns
// false. It reports whether text is an array. Text must be valid JSON.
func EachElement(text []byte, f func(value []byte) bool) bool {
	text = trim(text)
	if len(text) == 0 || text[0] != '[' {
		return false
	}
	for at := skipSpace(text, 1); at < len(text) && text[at] != ']'; {
		end := skipValue(text, at)
		if end == at || !f(text[at:end]) {
			return true
		}
		at = skipSpace(text, skipSpace(text, end)+1)
	}
	return true
}

// intoObject walks the object that begins at a place, and returns the place
// behind it. f is told where the value of each member begins, and returns the
// place behind that: so a value that is large is walked through once, whatever is
// wanted of it.
func intoObject(text []byte, at int, f func(name []byte, at int) int) int {
	at = skipSpace(text, at+1)
	for at < len(text) && text[at] == '"' {
		end := skipString(text, at)
		name := text[at:end]
		at = skipSpace(text, skipSpace(text, end)+1) // the colon is in between
		at = skipSpace(text, f(name, at))
		if at < len(text) && text[at] == ',' {
			at = skipSpace(text, at+1)
		}
	}
	return min(at+1, len(text))
}

// eachOf returns the elements of the array that begins at a place, and the place
// behind it. Each costs more memory than its text may: there are at most one more
// than MaxMedia.
func eachOf(text []byte, at int) (all [][]byte, end int) {
	all = [][]byte{}
	at = skipSpace(text, at+1)
	for at < len(text) && text[at] != ']' {
		end := skipValue(text, at)
		if end == at {
			return all, at
		}
		if len(all) <= MaxMedia {
			all = append(all, text[at:end])
		}
		at = skipSpace(text, end)
		if at < len(text) && text[at] == ',' {
			at = skipSpace(text, at+1)
		}
	}
	return all, min(at+1, len(text))
}

// skipSpace returns the place of the first byte from at on that is no white
// space.
func skipSpace(text []byte, at int) int {
	for at < len(text) && isSpace(text[at]) {
		at++
	}
	return at
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// skipValue returns the place behind the value that begins at a place. It looks
// only for what can end it: the value has been checked.
func skipValue(text []byte, at int) int {
	if at >= len(text) {
		return at
	}
	switch text[at] {
	case '"':
		return skipString(text, at)
	case '{', '[':
		return skipNested(text, at)
	}
	for at < len(text) && !ends[text[at]] {
		at++
	}
	return at
}

// ends are the bytes that can stand behind a number or a word.
var ends = [256]bool{',': true, ']': true, '}': true, ' ': true, '\n': true, '\r': true, '\t': true, ':': true}

// skipString returns the place behind the string that begins at a place.
func skipString(text []byte, at int) int {
	for from := at + 1; ; {
		n := bytes.IndexByte(text[from:], '"')
		if n < 0 {
			return len(text)
		}
		quote := from + n
		escapes := 0
		for quote-1-escapes > at && text[quote-1-escapes] == '\\' {
			escapes++
		}
		if from = quote + 1; escapes%2 == 0 {
			return from
		}
	}
}

// skipNested returns the place behind the object or array that begins at a place.
func skipNested(text []byte, at int) int {
	depth := 0
	for at < len(text) {
		switch c := text[at]; {
		case !structural[c]:
			at++
		case c == '"':
			at = skipString(text, at)
		case c == '{' || c == '[':
			if end := skipFlat(text, at); end > 0 && depth > 0 {
				at = end
				continue
			} else if end > 0 {
				return end
			}
			depth++
			at++
		default:
			at++
			if depth--; depth == 0 {
				return at
			}
		}
	}
	return at
}

// skipFlat returns the place behind an array in which there is nothing but numbers
// and words, or 0: token ids are most of what is skipped.
func skipFlat(text []byte, at int) int {
	if text[at] != '[' || at+1 == len(text) || !isDigit(text[at+1]) {
		return 0
	}
	in := text[at+1:]
	// Up to the next array, so that however deep they are nested each byte is
	// looked at once.
	if next := bytes.IndexByte(in, '['); next >= 0 {
		in = in[:next]
	}
	n := bytes.IndexByte(in, ']')
	if n < 0 || bytes.IndexByte(in[:n], '"') >= 0 || bytes.IndexByte(in[:n], '{') >= 0 {
		return 0
	}
	return at + n + 2
}

// structural are the bytes that begin or end a string, an object or an array.
var structural = [256]bool{'"': true, '{': true, '}': true, '[': true, ']': true}

// Lookup returns the value of an object's last member of that name, or nil if
// there is none or text is no object. Text must be valid JSON.
func Lookup(text []byte, name string) (value []byte) {
	EachMember(text, func(n, v []byte) bool {
		if NameIs(n, name) {
			value = v
		}
		return true
	})
	return value
}

// NameIs reports whether a member's name as it is spelt, with its quotes and
// escapes, is name.
func NameIs(spelt []byte, name string) bool {
	inner := spelt[1 : len(spelt)-1]
	if len(inner) > 6*len(name) { // longer than with every character escaped
		return false
	}
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner) == name
	}
	return string(unescape(inner)) == name
}

// Unquote returns the text of a JSON string. It reports false if value is not
// a string. Value must be valid JSON; surrogates without a partner are kept as
// three bytes each (WTF-8), so that different strings stay different.
func Unquote(value []byte) (string, bool) {
	if len(value) < 2 || value[0] != '"' {
		return "", false
	}
	return string(unescape(value[1 : len(value)-1])), true
}

// unescape resolves the escapes of a string's inside. Without escapes the
// inside itself is returned.
func unescape(inner []byte) []byte {
	i := bytes.IndexByte(inner, '\\')
	if i < 0 {
		return inner
	}
	out := make([]byte, 0, len(inner))
	for {
		out = append(out, inner[:i]...)
		inner = inner[i:]
		if len(inner) == 0 {
			return out
		}
		var n int
		out, n = appendEscape(out, inner)
		inner = inner[n:]
		if i = bytes.IndexByte(inner, '\\'); i < 0 {
			i = len(inner)
		}
	}
}

// appendEscape appends what the escape at the start of in stands for, and
// returns how many bytes of in it took.
func appendEscape(out, in []byte) ([]byte, int) {
	switch in[1] {
	case 'b':
		return append(out, '\b'), 2
	case 'f':
		return append(out, '\f'), 2
	case 'n':
		return append(out, '\n'), 2
	case 'r':
		return append(out, '\r'), 2
	case 't':
		return append(out, '\t'), 2
	case 'u':
		r := hexRune(in[2:6])
		if !utf16.IsSurrogate(r) {
			return utf8.AppendRune(out, r), 6
		}
		if len(in) >= 12 && in[6] == '\\' && in[7] == 'u' {
			if pair := utf16.DecodeRune(r, hexRune(in[8:12])); pair != utf8.RuneError {
				return utf8.AppendRune(out, pair), 12
			}
		}
		return append(out, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F), 6
	}
	return append(out, in[1]), 2
}

func hexRune(digits []byte) (r rune) {
	for _, c := range digits {
		r = r<<4 | rune(hexDigit(c))
	}
	return r
}

// CountIDs counts the elements of an array of token ids as text. It reports
// false if value is not an array of non-negative integers written as digits.
// It stops at the first element beyond limit (0: none) and returns limit+1.
// Value must be valid JSON.
func CountIDs(value []byte, limit int) (int, bool) {
	if len(value) < 2 || value[0] != '[' {
		return 0, false
	}
	n := 0
	for i := 1; i < len(value); {
		switch c := value[i]; {
		case isDigit(c):
			n++
			if limit > 0 && n > limit {
				return n, true
			}
			for i < len(value) && isDigit(value[i]) {
				i++
			}
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ',' || c == ']':
			i++
		default: // the rest of a number that is no id, too
			return n, false
		}
	}
	return n, true
}

// IsNull reports whether a value is absent or null.
func IsNull(value []byte) bool { return len(value) == 0 || value[0] == 'n' }

// IsObject reports whether a value's text begins an object.
func IsObject(value []byte) bool { return len(value) > 0 && value[0] == '{' }
