package wire

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

var validTexts = []string{
	`{}`, `[]`, `""`, `0`, `-0`, `true`, `false`, `null`, " \t\r\n{ \t\r\n} \t\r\n", `[ ]`,
	`1.0`, `-12.50e+07`, `1E9`, `1e-9`, `0.0`, `0e0`, `9007199254740993`, strings.Repeat("9", 1000),
	`[1,2 , 3]`, `{"a":1,"b":[{},{"c":null}]}`, `{"a" : 1 , "a" : 2}`, `{"":""}`,
	`"\"\\\/\b\f\n\r\t\u00e9\uD83D\ude00"`, `"\ud800"`, `"\udc00\ud800"`, `"\u0000"`,
	`"é – 😀"`, "\"\x7f\"", `"01234567é"`, `"0123456\"789"`, `"\\"`, `"\\\""`, `"a\\"`,
	`"01234567012345670123456701234567"`, "\"\u2028\ufffd\ufeff\"", `[[],[[]],{}]`,
}

// invalidTexts say where the fault is found.
var invalidTexts = []struct {
	text   string
	offset int
}{
	{``, 0}, {` `, 1}, {`{`, 1}, {`[`, 1}, {`"`, 1}, {`"abc`, 4}, {`-`, 1}, {`1.`, 2}, {`1e`, 2}, {`1e+`, 3},
	{`{"a"`, 4}, {`{"a":`, 5}, {`{"a":1`, 6}, {`{"a":1,`, 7}, {`[1`, 2}, {`[1,`, 3}, {`"\`, 2}, {`"\u00`, 5},
	{`tru`, 0}, {`nul`, 0}, {`True`, 0}, {`nan`, 0}, {`Infinity`, 0}, {`+1`, 0}, {`.5`, 0}, {`'a'`, 0}, {`a`, 0},
	{`01`, 1}, {`-01`, 2}, {`1.e1`, 2}, {`1.a`, 2}, {`-a`, 1}, {`1ea`, 2}, {`0x10`, 1}, {`1_0`, 1}, {`--1`, 1},
	{`[,]`, 1}, {`[1,]`, 3}, {`[1 2]`, 3}, {`[1}`, 2}, {`[}`, 1}, {`[1:2]`, 2},
	{`{]`, 1}, {`{1:2}`, 1}, {`{a:1}`, 1}, {`{"a" 1}`, 5}, {`{"a",1}`, 4}, {`{"a":1,}`, 7}, {`{"a":1]`, 6},
	{`{"a":}`, 5}, {`{,}`, 1}, {`{"a":1 "b":2}`, 7}, {`{"a"::1}`, 5},
	{`{} {}`, 3}, {`{}x`, 2}, {`1 1`, 2}, {`[]]`, 2}, {`{}}`, 2}, {`nulll`, 4}, {"{}\x00", 2}, {"\x00", 0}, {"[\x00]", 1},
	{`"\x"`, 2}, {`"\u12g4"`, 5}, {`"\u12"`, 5}, {`"\u"`, 3}, {`"\U0041"`, 2}, {`"\'"`, 2}, {"\"\\\n\"", 2},
	{"\"a\nb\"", 2}, {"\"\x00\"", 1}, {"\"\x1f\"", 1}, {"\"\t\"", 1}, {"\"0123456701234567\x01\"", 17}, {"\"01234567\t1234567\"", 9},
	{"\"\xff\"", 1}, {"\"ab\xc3\"", 3}, {"\"\xc0\x80\"", 1}, {"\"\xed\xa0\x80\"", 1}, {"\"\xf5\x80\x80\x80\"", 1}, {"\"01234567é\xe9\"", 11},
	{"\"01\xff34567\"", 3}, {"\"0123456\xff89\"", 8},
	{"\"\xc3\\u00e9\"", 1}, {"\"\xc3\"", 1}, {"{\"\xff\":1}", 2}, {"{\"a\nb\":1}", 3},
	{"\xef\xbb\xbf{}", 0}, {"\v{}", 0}, {"\f1", 0}, {"[1,\u00a02]", 3}, {"/**/1", 0}, {"[1,//\n2]", 3},
}

func TestValidAcceptsJSON(t *testing.T) {
	for _, text := range validTexts {
		if err := Valid([]byte(text)); err != nil {
			t.Errorf("Valid(%.80q) = %v", text, err)
		}
		if !json.Valid([]byte(text)) {
			t.Errorf("the table is wrong: encoding/json refuses %.80q", text)
		}
	}
}

func TestValidRefusesWhatIsNoJSON(t *testing.T) {
	for _, tt := range invalidTexts {
		err := (*SyntaxError)(nil)
		if !errors.As(Valid([]byte(tt.text)), &err) {
			t.Errorf("Valid(%q) does not report a SyntaxError", tt.text)
			continue
		}
		if err.Offset != tt.offset {
			t.Errorf("Valid(%q) reports %q, want byte %d", tt.text, err, tt.offset)
		}
		if json.Valid([]byte(tt.text)) && utf8.ValidString(tt.text) {
			t.Errorf("the table is wrong: encoding/json accepts %q", tt.text)
		}
	}
}

func TestSyntaxErrorNeverQuotesTheText(t *testing.T) {
	for _, text := range []string{`{"secret`, `{"a":secret}`, `{"secret":1,}`, `"\secret"`, `{} secret`, `[1 secret`} {
		if err := Valid([]byte(text)); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("Valid(%q) = %v", text, err)
		}
	}
}

func TestTruncatedTextIsCalledShort(t *testing.T) {
	const text = `{"a":[1.5e+3,-2,"x\u00e9\n"],"b":{"c":{}}}`
	for n := range len(text) {
		err := (*SyntaxError)(nil)
		if !errors.As(Valid([]byte(text[:n])), &err) {
			t.Fatalf("Valid(%q) does not report a SyntaxError", text[:n])
		}
		if err.Reason != errShort || err.Offset != n {
			t.Errorf("Valid(%q) = %v, want %q at its end", text[:n], err, errShort)
		}
	}
}

// nested is a text of so many arrays and objects in each other.
func nested(depth int, open, close string) []byte {
	return []byte(strings.Repeat(open, depth) + strings.Repeat(close, depth))
}

func TestDepthLimitIsExact(t *testing.T) {
	for name, text := range map[string]func(depth int) string{
		"arrays":  func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) },
		"lists":   func(n int) string { return strings.Repeat("[1,", n-1) + "[ ]" + strings.Repeat("]", n-1) },
		"objects": func(n int) string { return strings.Repeat(`{"a":`, n-1) + "{}" + strings.Repeat("}", n-1) },
	} {
		deepest, beyond := []byte(text(MaxDepth)), []byte(text(MaxDepth+1))
		if err := Valid(deepest); err != nil {
			t.Errorf("%s: depth %d: %v", name, MaxDepth, err)
		}
		err := (*SyntaxError)(nil)
		if !errors.As(Valid(beyond), &err) || err.Reason != "nested too deep" {
			t.Errorf("%s: depth %d: %v", name, MaxDepth+1, err)
		}
		if !json.Valid(deepest) || json.Valid(beyond) {
			t.Errorf("%s: encoding/json has another limit", name)
		}
	}
}

func TestDepthOfABodyCountsItsOwnObject(t *testing.T) {
	body := func(depth int) []byte {
		return append(append([]byte(`{"a":1,"b":`), nested(depth-1, "[", "]")...), '}')
	}
	if _, err := ParseBody(body(MaxDepth)); err != nil {
		t.Errorf("depth %d: %v", MaxDepth, err)
	}
	if _, err := ParseBody(body(MaxDepth + 1)); err == nil {
		t.Errorf("depth %d is accepted", MaxDepth+1)
	}
}

func TestDepthComesDownAgain(t *testing.T) {
	one := string(nested(MaxDepth-1, "[", "]"))
	if err := Valid([]byte("[" + one + "," + one + "]")); err != nil {
		t.Error(err)
	}
}

// A search for the string's end that began anew behind each escape would run
// for hours here.
func TestLongStringsTakeLinearTime(t *testing.T) {
	const size = 20 << 20
	for _, piece := range []string{`\\`, `\"`, `\u0041`} {
		inside := strings.Repeat(piece, size/len(piece))
		text := []byte(`{"a":"` + inside + `"}`)
		if err := Valid(text); err != nil {
			t.Errorf("%q: %v", piece, err)
		}
		if Valid(text[:len(text)-2]) == nil {
			t.Errorf("%q: without its last quote it is accepted", piece)
		}
	}
}

func TestLongNamesTakeLinearTime(t *testing.T) {
	const size = 1 << 20
	for _, piece := range []string{`\\`, `\"`, `\u0041`, `\ud800`} {
		name := `"` + strings.Repeat(piece, size/len(piece)) + `"`
		b := mustParse(t, `{`+name+`:1,`+name+`:2}`)
		unquoted, ok := Unquote([]byte(name))
		if got := string(b.Get(unquoted)); !ok || got != "2" {
			t.Errorf("%q: the value is %q", piece, got)
		}
	}
}

func FuzzValid(f *testing.F) {
	for _, text := range validTexts {
		f.Add([]byte(text))
	}
	for _, tt := range invalidTexts {
		f.Add([]byte(tt.text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		err := Valid(text)
		if want := json.Valid(text) && utf8.Valid(text); (err == nil) != want {
			t.Fatalf("Valid = %v, encoding/json accepts it: %v", err, want)
		}
		if want := jsontextAccepts(text); (err == nil) != want {
			t.Fatalf("Valid = %v, jsontext accepts it: %v", err, want)
		}
		if err != nil {
			checkOffset(t, text, err)
		}
	})
}

// jsontextAccepts asks jsontext. It differs from us, as from encoding/json, in
// one thing: an escaped surrogate without a partner is invalid UTF-8 to it. So
// it is told to overlook that, and the bytes are looked at apart.
func jsontextAccepts(text []byte) bool {
	v := jsontext.Value(text)
	return v.IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) && utf8.Valid(text)
}

// checkOffset holds that nothing before the place of a fault is at fault: cut
// off there, the text is whole or only short.
func checkOffset(t *testing.T, text []byte, fault error) {
	t.Helper()
	var syntax, before *SyntaxError
	if !errors.As(fault, &syntax) || syntax.Offset < 0 || syntax.Offset > len(text) {
		t.Fatalf("%v is not a place in %d bytes", fault, len(text))
	}
	if errors.As(Valid(text[:syntax.Offset]), &before) && before.Reason != errShort {
		t.Fatalf("the fault is said to be %v, but there is one before it: %v", syntax, before)
	}
}

// TestStringsAcrossBlocks: what stands where one block of a long string ends is
// judged as it is anywhere.
func TestStringsAcrossBlocks(t *testing.T) {
	for _, what := range []string{"é", "€", "😀", `\"`, `\\`, `\u00e9`, `\n`, "\x01", "\xff", "\xe2\x82", "\x82\x82", `\u00g0`, `\x`, "\xf0\x9f\x98"} {
		for before := stringBlock - 8; before <= stringBlock+2; before++ {
			for _, after := range []string{"", "z", strings.Repeat("z", 2*stringBlock)} {
				text := `"` + strings.Repeat("a", before) + what + after
				for _, text := range []string{text + `"`, text, text + `\"`} {
					want := json.Valid([]byte(text)) && utf8.ValidString(text)
					if err := Valid([]byte(text)); (err == nil) != want {
						t.Errorf("%q behind %d bytes, %d behind it: %v, want valid %v", what, before, len(after), err, want)
					}
				}
			}
		}
	}
}
