package wire

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// Strings of the longest length that is shown, and of the shortest that is not.
var (
	string64 = strings.Repeat("a", 64)
	string65 = strings.Repeat("a", 65)
)

var renderings = []struct{ name, text, want string }{
	{"nothing", "", "<empty>"},
	{"only space", " \r\n\t", "<4 bytes, not JSON>"},
	{"prose", " Bad Gateway\n", "<13 bytes, not JSON>"},
	{"a string", `"[1]"`, "<5 bytes, not JSON>"},
	{"an event", "data: {}\n\n", "<10 bytes, not JSON>"},
	{"a byte order mark", "\ufeff{}", "<5 bytes, not JSON>"},
	{"empty object", " { } ", "{}"},
	{"space goes", "\r\n{ \"ab\" :\t[ 1 , true , null ] }\n", `{"ab":[#,true,null]}`},
	{"a name", `{"model":"meta-llama/Llama-3.1-8B_x@v1:a+b"}`, `{"model":"meta-llama/Llama-3.1-8B_x@v1:a+b"}`},
	{"a short prompt", `{"prompt":"the patient has gout"}`, `{"prompt":"<20 bytes>"}`},
	{"a name that is none", `{"a b":1}`, `{"<3 bytes>":1}`},
	{"two bodies", "{}\n[1]", "{}[#]"},
	{"a prompt of one word", `{"prompt":"gout","a":"b"}`, `{"prompt":"<4 bytes>","a":"<1 bytes>"}`},
	{"token ids", `{"token_ids":[9906,1917],"n":2}`, `{"token_ids":[#,#],"n":2}`},
	{"telling members", `{"role":"user","content":"user","id":"x-1","finish_reason":"stop"}`, `{"role":"user","content":"<4 bytes>","id":"x-1","finish_reason":"stop"}`},
	{"what follows a telling one", `{"role":["user"],"a":{"role":"user":"user","role" "user","role",":","x"}}`, `{"role":["<4 bytes>"],"a":{"role":"user":"<4 bytes>","role""<4 bytes>","role",":","x"}}`},

	{"longest string shown", `{"id":"` + string64 + `"}`, `{"id":"` + string64 + `"}`},
	{"long string", `{"id":"` + string65 + `"}`, `{"id":"<65 bytes>"}`},
	{"long name", `{"` + string65 + `":1}`, `{"<65 bytes>":1}`},
	{"length is of the spelling", `["` + strings.Repeat(`\u00e9`, 11) + `"]`, `["<66 bytes>"]`},
	{"escaped quotes and backslashes", `{"\"\\":"]\\\"","a\\":1}`, `{"<4 bytes>":"<5 bytes>","<3 bytes>":1}`},
	{"long string of quotes", `["` + strings.Repeat(`\"`, 40) + `",1]`, `["<80 bytes>",#]`},
	{"brackets in strings", `{"a":"[{","b":"}],"}`, `{"a":"<2 bytes>","b":"<3 bytes>"}`},
	{"data URI", `["data:,x"]`, `["<data URI, 7 bytes>"]`},
	{"data URI in any case", `["DaTa:image/png;base64,` + string65 + `"]`, `["<data URI, 87 bytes>"]`},
	{"shortest data URI", `["data:","data"]`, `["<data URI, 5 bytes>","<4 bytes>"]`},
	{"data URI as a name", `{"data:,x":1}`, `{"<data URI, 7 bytes>":1}`},

	{"control characters", "[\"a\nb\x00\x1b[31m\x7f\"]", `["<10 bytes>"]`},
	{"other scripts", `["é 日本"]`, `["<9 bytes>"]`},
	{"not UTF-8", "[\"a\xffb\xc3\"]", `["<4 bytes>"]`},
	{"stray bytes", "{\x00\xff\u2028é}", `{<7 bytes>}`},

	{"longest number shown", `{"a":` + strings.Repeat("1", 32) + "}", `{"a":` + strings.Repeat("1", 32) + "}"},
	{"long number", "[" + strings.Repeat("1", 33) + ",2]", "[<33 bytes>,#]"},
	{"numbers and words", "{,-1.5e+3,0,true,false,null}", "{,-1.5e+3,0,true,false,null}"},
	{"stray prose", "[what was once a string, x, True, e5, -]", "[<18 bytes>,<1 bytes>,<4 bytes>,<2 bytes>,… 1 more]"},

	{"four elements", "[1,2,3,4]", "[#,#,#,#]"},
	{"five elements", "[1,2,3,4,5]", "[#,#,#,#,… 1 more]"},
	{"many elements", "[1,2,3,4" + strings.Repeat(", 5", 508) + "]", "[#,#,#,#,… 508 more]"},
	{"elements with commas", `[[1,2],{"a":1,"b":2},"x,y",[],[1,[2,3]],{"c":[],"d":","},"]",9]`, `[[#,#],{"a":1,"b":2},"<3 bytes>",[],… 4 more]`},
	{"after an array", `{"a":[1,2,3,4,5,6],"b":7,"c":8,"d":9,"e":10,"f":11}`, `{"a":[#,#,#,#,… 2 more],"b":7,"c":8,"d":9,"e":10,"f":11}`},
	{"arrays in an array", "[[1,2,3,4,5],[1,2,3,4,5,6],1,2,3]", "[[#,#,#,#,… 1 more],[#,#,#,#,… 2 more],#,#,… 1 more]"},
	{"strings left out", `[1,2,3,4,"]\"]\\","` + string65 + `"]`, `[#,#,#,#,… 2 more]`},

	{"deepest level shown", "[[[[[[[[1]]]]]]]]", "[[[[[[[[#]]]]]]]]"},
	{"too deep", `[[[[[[[{"a":{"b":["}",{}]}},[1,2,3,4,5]]]]]]]]`, `[[[[[[[{"a":{…}},[#,#,#,#,… 1 more]]]]]]]]`},
	{"too deep array", "[[[[[[[[[1,2,3,4,5,[6]],7]]]]]]]]", "[[[[[[[[[…],#]]]]]]]]"},

	{"ends in a string", `{"a":"secret`, `{"a":"<6 bytes…`},
	{"ends in an escape", `{"a":"\`, `{"a":"<1 bytes…`},
	{"ends in a number", `{"a":12`, `{"a":12`},
	{"ends in a long array", `[1,2,3,4,5,"6`, `[#,#,#,#,… 2 more`},
	{"ends too deep", `[[[[[[[[[1,2,3,4,5,6`, `[[[[[[[[[…`},
	{"closes too much", `{}]}],1,2,3,4,5`, `{}]}],1,2,3,4,5`},
	{"closes what is not open", "[1,2,3,4,5}]", "[#,#,#,#,… 1 more}]"},
	{"opens after closing too much", "[]]][1,2,3,4,5]", "[]]][#,#,#,#,… 1 more]"},
	{"without names", "{,,:,,,,1}", "{,,:,,,,1}"},
}

func TestRedactedRendering(t *testing.T) {
	for _, tt := range renderings {
		t.Run(tt.name, func(t *testing.T) {
			if got := Redact([]byte(tt.text)); got != tt.want {
				t.Errorf("%q is shown as\n%s, want\n%s", tt.text, got, tt.want)
			}
			checkRedact(t, []byte(tt.text), 1)
		})
	}
}

// checkRedact fails the test unless the rendering of text is one printable
// line within bounds that does not depend on the pieces text comes in.
func checkRedact(t *testing.T, text []byte, seed uint64) {
	t.Helper()
	var whole Redacted
	if n, err := whole.Write(text); n != len(text) || err != nil {
		t.Fatalf("Write returned %d and %v, want %d", n, err, len(text))
	}
	want := whole.String()
	if again := whole.String(); again != want {
		t.Fatalf("String has changed the rendering from %q to %q", want, again)
	}
	if !utf8.ValidString(want) || strings.ContainsFunc(want, unicode.IsControl) || strings.ContainsAny(want, "\u2028\u2029\u202e") {
		t.Fatalf("%q is shown as %q, want one printable line", text, want)
	}
	if len(want) > shownBytes+len(cut) || whole.Full() && !strings.HasSuffix(want, cut) {
		t.Fatalf("the rendering has %d bytes and ends with %q", len(want), want[max(0, len(want)-9):])
	}
	rnd := rand.New(rand.NewPCG(seed, 2))
	for _, most := range []int{1, 9, 1 + len(text)/3} {
		var parts [][]byte
		var r Redacted
		for rest := text; len(rest) > 0; {
			n := min(1+rnd.IntN(most), len(rest))
			piece := bytes.Clone(rest[:n])
			parts, rest = append(parts, bytes.Clone(piece), nil), rest[n:]
			if _, err := r.Write(piece); err != nil {
				t.Fatal(err)
			}
			clear(piece) // it is the caller's again
			if rnd.IntN(64) == 0 {
				_ = r.String() // does not disturb what comes
			}
		}
		if got := r.String(); got != want || r.Full() != whole.Full() {
			t.Fatalf("%q in pieces of %d is shown as\n%s, want\n%s", text, most, got, want)
		}
		if got := Redact(parts...); got != want {
			t.Fatalf("Redact of %d parts is\n%s, want\n%s", len(parts), got, want)
		}
	}
}

// redactModel makes random bodies together with their renderings.
type redactModel struct {
	rnd     *rand.Rand
	secrets []string
}

// space is where white space may be.
func (m *redactModel) space() string { return []string{"", "", "", " ", "\n\t"}[m.rnd.IntN(5)] }

// secret is text that occurs nowhere else.
func (m *redactModel) secret(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[m.rnd.IntN(26)]
	}
	m.secrets = append(m.secrets, string(b))
	return string(b)
}

// quoted makes a string; the odd ones have a secret. shown: it may be, if it looks
// like a name.
func (m *redactModel) quoted(shown bool) (text, want string) {
	switch m.rnd.IntN(6) {
	case 0:
		odd := []string{"", `\"]}`, `\\`, `\u0041`, "é,{", "\xff", "\n"}[m.rnd.IntN(7)]
		text = odd + m.secret(65+m.rnd.IntN(100)) + odd
		return `"` + text + `"`, fmt.Sprintf(`"<%d bytes>"`, len(text))
	case 1:
		text = []string{"data:", "DATA:", "dAtA:"}[m.rnd.IntN(3)] + m.secret(8+m.rnd.IntN(90))
		return `"` + text + `"`, fmt.Sprintf(`"<data URI, %d bytes>"`, len(text))
	default:
		n := m.rnd.IntN(5)
		want = []string{`"role"`, `""`, `"<4 bytes>"`, `"<5 bytes>"`, `"<2 bytes>"`}[n]
		if n < 2 && !shown {
			want = []string{`"<4 bytes>"`, `"<0 bytes>"`}[n]
		}
		return []string{`"role"`, `""`, `"a\"]"`, `"é}\\"`, `"[,"`}[n], want
	}
}

// value makes a value that stands inside depth others: as a member of that name, or
// in an array.
func (m *redactModel) value(depth int, name string) (text, want string) {
	kind := m.rnd.IntN(4)
	if depth == 0 {
		kind = m.rnd.IntN(2)
	}
	if depth > 11 || kind == 3 {
		if name == "" {
			return "-1.5e3", "#"
		}
		return "-1.5e3", "-1.5e3"
	}
	if kind == 2 {
		return m.quoted(name == `"role"`)
	}
	var texts, wants []string
	for range m.rnd.IntN(8 - depth/2) {
		own, name, shown := "", "", ""
		if kind == 0 {
			own, shown = m.quoted(true)
			name, shown = own+m.space()+":", shown+":"
		}
		text, want := m.value(depth+1, own)
		texts, wants = append(texts, m.space()+name+m.space()+text+m.space()), append(wants, shown+want)
	}
	brackets := []string{"{}", "[]"}[kind]
	if kind == 1 && len(wants) > 4 {
		wants = append(wants[:4], fmt.Sprintf("… %d more", len(wants)-4))
	}
	want = strings.Join(wants, ",")
	if depth >= 8 {
		want = "…"
	}
	return brackets[:1] + m.space() + strings.Join(texts, ",") + brackets[1:], brackets[:1] + want + brackets[1:]
}

func TestRedactedShowsNoSecrets(t *testing.T) {
	cuts := 0
	for seed := range uint64(600) {
		m := redactModel{rnd: rand.New(rand.NewPCG(seed, 1))}
		text, want := m.value(0, "")
		if len(text) > 40_000 {
			continue
		}
		got := Redact([]byte(text))
		if start, ok := strings.CutSuffix(got, cut); ok && len(want) > shownBytes {
			cuts++
			if !strings.HasPrefix(want, start) || len(start) < shownBytes-100 {
				t.Fatalf("seed %d: the rendering is cut to %d bytes\n%s, want the beginning of\n%s", seed, len(start), start, want)
			}
		} else if got != want {
			t.Fatalf("seed %d: %q is shown as\n%s, want\n%s", seed, text, got, want)
		}
		if seed%10 == 0 {
			checkRedact(t, []byte(text), seed)
		}
		noSecrets(t, got, m.secrets)
		// Nor does it when the body ends anywhere.
		noSecrets(t, Redact([]byte(text[:m.rnd.IntN(len(text))])), m.secrets)
	}
	if cuts == 0 {
		t.Error("no rendering was cut")
	}
}

// noSecrets fails the test if the rendering has a part of a secret.
func noSecrets(t *testing.T, rendering string, secrets []string) {
	t.Helper()
	const window = 8
	if !strings.ContainsFunc(rendering, unicode.IsUpper) {
		return // nearly always: all secrets are in capitals
	}
	for _, s := range secrets {
		for i := range len(s) - window + 1 {
			if strings.Contains(rendering, s[i:i+window]) {
				t.Fatalf("%q shows the secret %q", rendering, s)
			}
		}
	}
}

func TestRedactedSurvivesBombs(t *testing.T) {
	const n = 1_000_000
	many := func(s string) []byte { return []byte(strings.Repeat(s, n)) }
	for _, tt := range []struct {
		name string
		text [][]byte
		want string
	}{
		{"depth", [][]byte{many("[")}, "[[[[[[[[[…"},
		{"depth of objects", [][]byte{many(`{"a":`)}, `{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{…`},
		{"depth that closes", [][]byte{many("["), many("]")}, "[[[[[[[[[…]]]]]]]]]"},
		{"depth behind elements", [][]byte{[]byte("[1,2,3,4,"), many("[,"), many("]"), []byte(",5]")}, "[#,#,#,#,… 2 more]"},
		{"elements", [][]byte{[]byte("[1"), many(",123456789"), []byte("]")}, "[#,#,#,#,… 999997 more]"},
		{"string", [][]byte{[]byte(`["`), many(`abcdefgh\"`), []byte(`"]`)}, `["<10000000 bytes>"]`},
		{"number", [][]byte{[]byte(`[`), many("1"), []byte(`]`)}, "[<1000000 bytes>]"},
		{"prose", [][]byte{many("no JSON")}, "<7000000 bytes, not JSON>"},
		{"space", [][]byte{many(" "), []byte("{}")}, "{}"},
		{"members", [][]byte{[]byte("{"), many(`"a":1,`), []byte("}")}, "{" + strings.Repeat(`"a":1,`, 682) + `"a"…`},
		{"closing", [][]byte{[]byte("{"), many("}")}, "{" + strings.Repeat("}", 4095) + "…"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Redact(tt.text...); got != tt.want {
				t.Errorf("is shown as %d bytes\n%.200s, want\n%.200s", len(got), got, tt.want)
			}
		})
	}
}

func TestRedactedIsFull(t *testing.T) {
	var r Redacted
	writes := 0
	for ; !r.Full() && writes < 2000; writes++ {
		if _, err := r.Write([]byte(`{"name":"` + strings.Repeat("x", 64) + `"},`)); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.String(); writes != 187 || len(got) > shownBytes+len(cut) || !strings.HasSuffix(got, `{"name":"<64 bytes>"},{…`) {
		t.Errorf("after %d writes the rendering has %d bytes: %s", writes, len(got), got)
	}
	want := r.String()
	if n, err := r.Write([]byte("more")); n != 4 || err != nil || r.String() != want {
		t.Errorf("a full one returns %d and %v and renders %q", n, err, r.String())
	}
}

func TestRedactedKeepsLittle(t *testing.T) {
	body := slices.Concat([]byte(`{"a":"`), bytes.Repeat([]byte("a"), 1<<20), []byte(`","b":[`), bytes.Repeat([]byte("1,"), 1<<20), []byte(`1]}`))
	if n := testing.AllocsPerRun(3, func() { _ = Redact(body) }); n > 20 {
		t.Errorf("a body of 3 MB makes %v allocations", n)
	}
}

func FuzzRedact(f *testing.F) {
	for _, text := range []string{
		`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("hello ", 20) + `"}],"max_tokens":5}`,
		`{"a":["data:image/png;base64,AAAA",1,2,3,4,[5,"]"]],"b":{"c":[[[[[[[[{"x":"}"}]]]]]]]]}}`,
		"[\"\xff\u2028\x00\\", " {,]}\x1b\x80", "[1,2,3,4,\"\\\"]\",5]", "x", "",
		`["` + strings.Repeat("\x01", 60) + `","` + strings.Repeat("\x01", 60) + `"]`,
	} {
		f.Add([]byte(text), uint64(len(text)))
	}
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		checkRedact(t, text, seed)
		if seed%8 == 0 { // long enough to be cut, but slow
			checkRedact(t, slices.Concat([]byte("{"), bytes.Repeat(append([]byte(`"a":`), text...), 40)), seed)
		}

		// As the content of a string nothing of it is shown.
		content := bytes.ReplaceAll(bytes.ReplaceAll(text, []byte(`\`), []byte(`\\`)), []byte(`"`), []byte(`\"`))
		long := slices.Concat(content, bytes.Repeat([]byte("a"), 65), content)
		body := fmt.Appendf(nil, `{"%s":["data:%s",{"a":"%s"}]}`, long, content, long)
		want := fmt.Sprintf(`{"<%d bytes>":["<data URI, %d bytes>",{"a":"<%[1]d bytes>"}]}`, len(long), len(content)+5)
		if bytes.HasPrefix(bytes.ToLower(content[:min(5, len(content))]), []byte("data:")) {
			want = strings.ReplaceAll(want, fmt.Sprintf("<%d bytes>", len(long)), fmt.Sprintf("<data URI, %d bytes>", len(long)))
		}
		if got := Redact(body); got != want {
			t.Fatalf("%q is shown as\n%s, want\n%s", body, got, want)
		}
	})
}
