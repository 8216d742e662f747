package wire

import (
	"bytes"
	"strings"
	"testing"
)

// cutBy cuts a text that arrives in pieces of a size.
func cutBy(text []byte, keep, size int) []byte {
	c := Cutter{Keep: keep}
	var out []byte
	for len(text) > 0 {
		piece := bytes.Clone(text[:min(size, len(text))])
		text = text[len(piece):]
		out = append(out, piece[:c.Cut(piece)]...)
	}
	return out
}

func TestCutter(t *testing.T) {
	long := strings.Repeat("x", 50)
	for text, want := range map[string]string{
		`{"a":"` + long + `","b":[1,"` + long + `"]}`:      `{"a":"xxxxxxxx","b":[1,"xxxxxxxx"]}`,
		`["12345678","123456789",""]`:                      `["12345678","12345678",""]`,
		`{"` + long + `":` + strings.Repeat("1", 50) + `}`: `{"xxxxxxxx":` + strings.Repeat("1", 50) + `}`,
		`["` + long + `\"` + long + `\\"]`:                 `["xxxxxxxx\"\\"]`,
		`["` + long + `\u00e9` + long + `"]`:               `["xxxxxxxx\u00e9"]`,
		`["1234567é` + long + `"]`:                         `["1234567é"]`,
		`["12345678é", "1234😀6789"]`:                       `["12345678", "1234😀"]`,
		`["` + long + `é\té😀"]`:                            `["xxxxxxxx\t"]`,
		`not JSON at ` + long:                              `not JSON at ` + long,
	} {
		for _, size := range []int{len(text), 5, 1} {
			if got := cutBy([]byte(text), 8, size); string(got) != want {
				t.Errorf("%s by %d\ngot  %s\nwant %s", text, size, got, want)
			}
		}
	}
}

// FuzzCutter: however a text arrives, a valid one stays valid, nothing is cut but
// the insides of strings, and strings that are short are what they were.
func FuzzCutter(f *testing.F) {
	for _, text := range validTexts {
		f.Add([]byte(text), 3, 2)
	}
	for _, tt := range invalidTexts {
		f.Add([]byte(tt.text), 0, 1)
	}
	f.Add([]byte(`"\u"abcdefghijk`), 3, 2)
	f.Add([]byte(`{"a":"é–😀aaaaaaaaaaaaaaaaé","b":"\ud83d\ude00\\\"abcdefgh"}`), 4, 7)
	f.Fuzz(func(t *testing.T, text []byte, keep, size int) {
		if keep < 0 || size < 1 {
			return
		}
		cut := cutBy(text, keep, size)
		if err := Valid(cut); err != nil && Valid(text) == nil {
			t.Fatalf("%q was valid, %q is not: %v", text, cut, err)
		}
		if was, is := skeleton(text), skeleton(cut); !bytes.Equal(was, is) {
			t.Fatalf("%q became %q: without their strings %q and %q", text, cut, was, is)
		}
		if whole := cutBy(text, len(text), size); !bytes.Equal(whole, text) {
			t.Fatalf("%q became %q", text, whole)
		}
	})
}

// skeleton is a text without what its strings hold.
func skeleton(text []byte) (rest []byte) {
	in, escaped := false, false
	for _, b := range text {
		switch {
		case escaped:
			escaped = false
		case in && b == '\\':
			escaped = true
		case b == '"':
			in = !in
			rest = append(rest, b)
		case !in:
			rest = append(rest, b)
		}
	}
	return rest
}
