package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mustParse takes apart a body that is known to be good.
func mustParse(t testing.TB, text string) *Body {
	t.Helper()
	b, err := ParseBody([]byte(text))
	if err != nil {
		t.Fatalf("ParseBody(%.200q): %v", text, err)
	}
	return b
}

// wantFault fails the test unless err is a BadRequest with this code.
func wantFault(t *testing.T, err error, code string) {
	t.Helper()
	f := (*Fault)(nil)
	if !errors.As(err, &f) {
		t.Fatalf("error is %v, want a fault %q", err, code)
	}
	if f.Kind != BadRequest || f.ErrorCode() != code {
		t.Errorf("fault is %v %q, want %v %q", f.Kind, f.ErrorCode(), BadRequest, code)
	}
}

// rawMember is a member as the oracle finds it: both parts as they are spelt.
type rawMember struct{ name, value string }

// key makes names comparable, in another way than the code under test does:
// as UTF-16 units, in which a surrogate without a partner has a place.
func (m rawMember) key() string { return string(utf16Bytes(m.name)) }

// utf16Bytes resolves a JSON string, quotes included, to its UTF-16 units, two
// bytes each.
func utf16Bytes(spelt string) []byte {
	var units []uint16
	in := spelt[1 : len(spelt)-1]
	for len(in) > 0 {
		if in[0] != '\\' {
			r, n := utf8.DecodeRuneInString(in)
			units, in = utf16.AppendRune(units, r), in[n:]
			continue
		}
		if in[1] != 'u' {
			short := map[byte]uint16{'b': 8, 't': 9, 'n': 10, 'f': 12, 'r': 13, '"': '"', '\\': '\\', '/': '/'}
			units, in = append(units, short[in[1]]), in[2:]
			continue
		}
		n, err := strconv.ParseUint(in[2:6], 16, 16)
		if err != nil {
			panic(err)
		}
		units, in = append(units, uint16(n)), in[6:]
	}
	out := make([]byte, 0, 2*len(units))
	for _, u := range units {
		out = append(out, byte(u>>8), byte(u))
	}
	return out
}

// split is the oracle for whatever takes an object apart: encoding/json's
// decoder finds where the parts end. where holds each member's place, from its
// name's first quote to behind its value. ok is false if text is not one
// object.
func split(text []byte) (members []rawMember, where [][2]int, ok bool) {
	if !json.Valid(text) {
		return nil, nil, false
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, nil, false
	}
	for d.More() {
		from := int(d.InputOffset())
		if _, err := d.Token(); err != nil {
			return nil, nil, false
		}
		nameEnd := int(d.InputOffset())
		for text[from] != '"' { // white space, and a comma
			from++
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, nil, false
		}
		members = append(members, rawMember{string(text[from:nameEnd]), string(value)})
		where = append(where, [2]int{from, int(d.InputOffset())})
	}
	return members, where, true
}

// elements is the oracle for arrays.
func elements(text []byte) (values []string, ok bool) {
	var raw []json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil || raw == nil {
		return nil, false
	}
	for _, v := range raw {
		values = append(values, string(v))
	}
	return values, true
}

// lastOfEach keeps the last of the members of each name.
func lastOfEach(members []rawMember) (kept []int) {
	last := make(map[string]int)
	for i, m := range members {
		last[m.key()] = i
	}
	for i, m := range members {
		if last[m.key()] == i {
			kept = append(kept, i)
		}
	}
	return kept
}
