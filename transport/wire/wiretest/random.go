package wiretest

import (
	"math/rand/v2"
	"strings"
	"unicode/utf8"
)

// random writes JSON that is valid and as odd as can be.
type random struct{ *rand.Rand }

// oneIn is true once in n times.
func (r random) oneIn(n int) bool { return r.IntN(n) == 0 }

func pick[T any](r random, from ...T) T { return from[r.IntN(len(from))] }

// space is white space, most often none.
func (r random) space() string {
	if !r.oneIn(4) {
		return ""
	}
	return pick(r, " ", " ", "\n", "\t", "\r\n", " \t ", "\n\n    ", "  ")
}

// names are of members that mean nothing to anybody: case counts, and so does
// every blank. Some hold a surrogate without its partner (as WTF-8).
var names = []string{"", "a", "b", "z", "A", " ", "é", "日本語", "😀", "\x00", "\n", "\"", "\\", "/", "\u2028", "\xed\xa0\x80", "\xed\xa0\x81", "x\xed\xbf\xbfy",
	"Model", "model ", "modell", "Messages", "token", "Tokens", "tokens\x00", "kv_transfer_param", "KV_transfer_params", "bootstrap_hosts",
	"user", "seed", "temperature", "$schema", "1", "-0", "null", "__proto__", "constructor", "required", "properties", "x-y", "a.b", "a[0]"}

// spell writes a name or a text as a JSON string, with escapes where they must
// be and where they need not.
func (r random) spell(text string) string {
	b := make([]byte, 0, len(text)+16)
	b = append(b, '"')
	odds := pick(r, 1_000_000, 1_000_000, 8, 2)
	for len(text) > 0 {
		c, n := utf8.DecodeRuneInString(text)
		if n == 1 && c == utf8.RuneError { // a surrogate
			c, n = rune(text[0]&0xf)<<12|rune(text[1]&0x3f)<<6|rune(text[2]&0x3f), 3
			b = r.unit(b, c)
			text = text[n:]
			continue
		}
		switch escaped := r.oneIn(odds); {
		case c == '"' || c == '\\' || c == '/' && escaped && r.oneIn(2):
			b = append(b, '\\', byte(c))
		case c >= 0x20 && !escaped:
			b = append(b, text[:n]...)
		case c == '\n' && r.oneIn(2):
			b = append(b, `\n`...)
		case c == '\t' && r.oneIn(2):
			b = append(b, `\t`...)
		case c > 0xffff:
			b = r.unit(b, 0xd800+(c-0x10000)>>10)
			b = r.unit(b, 0xdc00+(c-0x10000)&0x3ff)
		default:
			b = r.unit(b, c)
		}
		text = text[n:]
	}
	return string(append(b, '"'))
}

// unit writes one UTF-16 unit as an escape.
func (r random) unit(b []byte, c rune) []byte {
	digits := pick(r, "0123456789abcdef", "0123456789ABCDEF")
	return append(b, '\\', 'u', digits[c>>12&15], digits[c>>8&15], digits[c>>4&15], digits[c&15])
}

// str is a string.
func (r random) str() string {
	if r.oneIn(3) {
		return r.spell(pick(r, names...))
	}
	var b strings.Builder
	b.WriteByte('"')
	for range r.IntN(6) {
		b.WriteString(pick(r, "why is the sky blue?", "é", "日本", "😀", `\"`, `\\`, `\/`, `\b\f\n\r\t`, `\u0000`, `\ud800`, `\uDFFF`, `\ud83d\ude00`, `\ude00\ud83d`,
			"\u2028", "\x7f", "<|im_start|>", "{}[],:", `\u003c/script\u003e`, "  ", `\\u0041`, "data:image/png;base64,AA==", "kv_transfer_params"))
	}
	b.WriteByte('"')
	return b.String()
}

// number is one, some beyond what a float or an int64 can be.
func (r random) number() string {
	return pick(r, "0", "-0", "1", "1.0", "0.10", "1e0", "1E+2", "1e-7", "9007199254740993", "-9223372036854775809", "18446744073709551616",
		"3.14159265358979323846264338327950288", "1e400", "-1E-400", "123456789012345678901234567890123456789012345678901234567890", "5600.0", "0.000", "1.7976931348623157e+309")
}

// value is any value, nested at most so deep.
func (r random) value(depth int) string {
	kinds := 8
	if depth <= 0 {
		kinds = 6
	}
	switch r.IntN(kinds) {
	case 0, 1:
		return r.str()
	case 2, 3:
		return r.number()
	case 4:
		return pick(r, "true", "false", "null")
	case 5:
		return pick(r, "{}", "[]", "{ }", "[\n]", `""`)
	case 6:
		return r.list(depth)
	}
	return r.object(depth).text()
}

// list is an array of anything.
func (r random) list(depth int) string {
	var items []string
	for range r.IntN(5) {
		items = append(items, r.value(depth-1))
	}
	return r.array(items...)
}

// array is an array of these.
func (r random) array(items ...string) string {
	var b strings.Builder
	b.WriteString("[" + r.space())
	for i, it := range items {
		if i > 0 {
			b.WriteString(r.space() + "," + r.space())
		}
		b.WriteString(it)
	}
	b.WriteString(r.space() + "]")
	return b.String()
}

// object is one with members in any order, names twice among them.
func (r random) object(depth int) *Object {
	o := &Object{}
	for range r.IntN(6) {
		o.add(r.member(pick(r, names...), r.value(depth-1)))
	}
	if len(o.members) == 0 {
		o.space = r.space()
	}
	return o
}

// add puts a member behind the last.
func (o *Object) add(m Member) {
	m.place = len(o.members)
	o.members = append(o.members, m)
}

// member is a member in some spelling.
func (r random) member(name, value string) Member {
	return Member{Name: name, Before: r.space(), Spelt: r.spell(name), Colon: r.space() + ":" + r.space(), Value: value, After: r.space()}
}

// place makes an object of members in any order. Before some of them it puts
// another of the same name, which does not count.
func (r random) place(members []Member) *Object {
	r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	o := &Object{}
	for i, m := range members {
		if r.oneIn(12) { // of a member that comes later or here
			o.add(r.member(members[i+r.IntN(len(members)-i)].Name, r.value(2)))
		}
		o.add(m)
	}
	if len(members) == 0 {
		o.space = r.space()
	}
	return o
}

// deep is a value that is nested so deep.
func (r random) deep(n int) string {
	var open, shut strings.Builder
	ends := make([]string, n)
	for i := range n {
		if r.oneIn(2) {
			open.WriteString("[")
			ends[i] = "]"
		} else {
			open.WriteString(`{"d":`)
			ends[i] = "}"
		}
	}
	for i := n - 1; i >= 0; i-- {
		shut.WriteString(ends[i])
	}
	return open.String() + "1" + shut.String()
}

// schema is a tool's parameters: keys that are out of order on purpose.
func (r random) schema(depth int) string {
	o := &Object{}
	keys := []string{"type", "required", "additionalProperties", "description", "enum", "default"}
	if depth > 0 {
		keys[r.IntN(3)] = "properties"
	}
	r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	for _, key := range keys[:3+r.IntN(4)] {
		switch key {
		case "type":
			o.add(r.member(key, `"object"`))
		case "required":
			o.add(r.member(key, `["z","a"]`))
		case "properties":
			properties := &Object{}
			for range 1 + r.IntN(3) {
				properties.add(r.member(pick(r, names...), r.schema(depth-1)))
			}
			o.add(r.member(key, properties.text()))
		default:
			o.add(r.member(key, r.value(1)))
		}
	}
	return o.text()
}
