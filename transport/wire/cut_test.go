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
		"[\"" + long + "\x01\"]":                           "[\"" + long + "\x01\"]",
		`not JSON at ` + long:                              `not JSON at ` + long,
	} {
		if got := cutBy([]byte(text), 8, len(text)); string(got) != want {
			t.Errorf("%s\ngot  %s\nwant %s", text, got, want)
		}
	}
}

// FuzzCutter: however a text arrives, it is as valid as it was, and strings that
// are short are what they were.
func FuzzCutter(f *testing.F) {
	for _, text := range validTexts {
		f.Add([]byte(text), 3, 2)
	}
	for _, tt := range invalidTexts {
		f.Add([]byte(tt.text), 0, 1)
	}
	f.Add([]byte(`{"a":"é–😀aaaaaaaaaaaaaaaaé","b":"\ud83d\ude00\\\"abcdefgh"}`), 4, 7)
	f.Fuzz(func(t *testing.T, text []byte, keep, size int) {
		if keep < 0 || size < 1 {
			return
		}
		cut := cutBy(text, keep, size)
		if was, is := Valid(text), Valid(cut); (was == nil) != (is == nil) {
			t.Fatalf("%q was %v, %q is %v", text, was, cut, is)
		}
		if whole := cutBy(text, len(text), size); !bytes.Equal(whole, text) {
			t.Fatalf("%q became %q", text, whole)
		}
	})
}
