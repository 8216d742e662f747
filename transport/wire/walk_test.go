package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestEachMemberGoesInOrder(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []rawMember
		ok   bool
	}{
		{`{}`, nil, true},
		{" { \n} ", nil, true},
		{`{"a":1}`, []rawMember{{`"a"`, "1"}}, true},
		{` { "b" : [1, 2] , "\u0061" : { "x" : "}" } , "b":null }`, []rawMember{{`"b"`, "[1, 2]"}, {`"\u0061"`, `{ "x" : "}" }`}, {`"b"`, "null"}}, true},
		{`{"a\"b:":"c,\""}`, []rawMember{{`"a\"b:"`, `"c,\""`}}, true},
		{`[{"a":1}]`, nil, false},
		{`"{}"`, nil, false},
		{`null`, nil, false},
		{``, nil, false},
	} {
		var got []rawMember
		ok := EachMember([]byte(tt.text), func(name, value []byte) bool {
			got = append(got, rawMember{string(name), string(value)})
			return true
		})
		if ok != tt.ok || !slices.Equal(got, tt.want) {
			t.Errorf("EachMember(%s): %q, %v; want %q, %v", tt.text, got, ok, tt.want, tt.ok)
		}
	}
}

func TestEachElementGoesInOrder(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []string
		ok   bool
	}{
		{`[]`, nil, true},
		{" [ \t] ", nil, true},
		{`[1]`, []string{"1"}, true},
		{` [ 1.0 , "]," , [ 2 ] , {"a":[]} , null ] `, []string{"1.0", `"],"`, "[ 2 ]", `{"a":[]}`, "null"}, true},
		{`{"a":[1]}`, nil, false},
		{`"[]"`, nil, false},
		{`1`, nil, false},
		{``, nil, false},
	} {
		var got []string
		ok := EachElement([]byte(tt.text), func(value []byte) bool {
			got = append(got, string(value))
			return true
		})
		if ok != tt.ok || !slices.Equal(got, tt.want) {
			t.Errorf("EachElement(%s): %q, %v; want %q, %v", tt.text, got, ok, tt.want, tt.ok)
		}
	}
}

func TestWalksStopWhenTold(t *testing.T) {
	calls := 0
	if !EachMember([]byte(`{"a":1,"b":2,"c":3}`), func([]byte, []byte) bool { calls++; return calls < 2 }) || calls != 2 {
		t.Errorf("EachMember makes %d calls, want 2", calls)
	}
	calls = 0
	if !EachElement([]byte(`[1,2,3]`), func([]byte) bool { calls++; return calls < 2 }) || calls != 2 {
		t.Errorf("EachElement makes %d calls, want 2", calls)
	}
}

func TestLookupFindsTheLast(t *testing.T) {
	for _, tt := range []struct{ text, name, want string }{
		{`{"a":1,"b":2}`, "b", "2"},
		{`{"a":1,"a":2}`, "a", "2"},
		{`{"\u0061":1,"a":2}`, "a", "2"},
		{`{"a":1,"\u0061":{ "x":1 } }`, "a", `{ "x":1 }`},
		{`{"a":null}`, "a", "null"},
		{`{"b":{"a":1}}`, "a", ""},
		{`{"A":1}`, "a", ""},
		{`[{"a":1}]`, "a", ""},
		{`{}`, "", ""},
		{`{"":3}`, "", "3"},
		{``, "a", ""},
	} {
		if got := Lookup([]byte(tt.text), tt.name); string(got) != tt.want || (got == nil) != (tt.want == "") {
			t.Errorf("Lookup(%s, %q) = %q, want %q", tt.text, tt.name, got, tt.want)
		}
	}
}

func TestNameIsComparesUnescaped(t *testing.T) {
	for _, tt := range []struct {
		spelt, name string
		want        bool
	}{
		{`"tokens"`, "tokens", true},
		{`"token\u0073"`, "tokens", true},
		{`"\u0074\u006F\u006b\u0065\u006e\u0073"`, "tokens", true},
		{`"a\/b"`, "a/b", true},
		{`"\ud83d\ude00"`, "😀", true},
		{`"tokens "`, "tokens", false},
		{`"Tokens"`, "tokens", false},
		{`"token\\u0073"`, "tokens", false},
		{`"token\u0073"`, `token\u0073`, false},
		{`"tokens\u0000"`, "tokens", false},
		{`""`, "", true},
	} {
		if got := NameIs([]byte(tt.spelt), tt.name); got != tt.want {
			t.Errorf("NameIs(%s, %q) = %v", tt.spelt, tt.name, got)
		}
	}
}

func TestUnquoteResolvesEscapes(t *testing.T) {
	for _, tt := range []struct{ value, want string }{
		{`""`, ""},
		{`"plain é"`, "plain é"},
		{`"\"\\\/\b\f\n\r\t"`, "\"\\/\b\f\n\r\t"},
		{`"a\u0062\u00e9\u20AC\ud83d\ude00z"`, "abé€😀z"},
		{`"\u0000"`, "\x00"},
		{`"\\u0041"`, `\u0041`},
		{`"\ud800"`, "\xed\xa0\x80"},
		{`"\udfff"`, "\xed\xbf\xbf"},
		{`"\ud800\n"`, "\xed\xa0\x80\n"},
		{`"\ud800\u0041"`, "\xed\xa0\x80A"},
		{`"\ud83d\ud83d\ude00"`, "\xed\xa0\xbd😀"},
		{`"\ude00\ud83d"`, "\xed\xb8\x80\xed\xa0\xbd"},
	} {
		if got, ok := Unquote([]byte(tt.value)); !ok || got != tt.want {
			t.Errorf("Unquote(%s) = %q, %v, want %q", tt.value, got, ok, tt.want)
		}
	}
	for _, value := range []string{"", "1", "null", "{}", `["a"]`, `"`} {
		if got, ok := Unquote([]byte(value)); ok {
			t.Errorf("Unquote(%s) = %q", value, got)
		}
	}
}

func TestCountIDsReadsText(t *testing.T) {
	big := "[" + strings.Repeat("7,", 9999) + "7]"
	for _, tt := range []struct {
		value string
		limit int
		want  int
		ok    bool
	}{
		{`[]`, 0, 0, true},
		{"[ \r\n\t]", 0, 0, true},
		{`[0]`, 0, 1, true},
		{"[ 1 ,\t2\r\n,3 ]", 0, 3, true},
		{`[151644,8948,198]`, 0, 3, true},
		{`[9007199254740993,123456789012345678901234567890]`, 0, 2, true},
		{big, 0, 10_000, true},
		{big, 10_000, 10_000, true},
		{big, 9_999, 10_000, true},
		{big, 5, 6, true},
		{`[1,2]`, 2, 2, true},
		{`[1,2,3]`, 2, 3, true},
		{`[1,2,"x",[],1.5]`, 1, 2, true}, // over the limit: what follows is not read
		{`[1.0]`, 0, 0, false},
		{`[1,2.5]`, 0, 0, false},
		{`[1e2]`, 0, 0, false},
		{`[1E2]`, 0, 0, false},
		{`[0e0]`, 0, 0, false},
		{`[-1]`, 0, 0, false},
		{`[1,-0]`, 0, 0, false},
		{`["1"]`, 0, 0, false},
		{`[1,"2"]`, 0, 0, false},
		{`[[1]]`, 0, 0, false},
		{`[[]]`, 0, 0, false},
		{`[1,[2]]`, 0, 0, false},
		{`[{}]`, 0, 0, false},
		{`[null]`, 0, 0, false},
		{`[1,true]`, 0, 0, false},
		{`1`, 0, 0, false},
		{`"[1]"`, 0, 0, false},
		{`{"a":[1]}`, 0, 0, false},
		{`null`, 0, 0, false},
		{``, 0, 0, false},
	} {
		got, ok := CountIDs([]byte(tt.value), tt.limit)
		if ok != tt.ok || ok && got != tt.want {
			t.Errorf("CountIDs(%.60s, %d) = %d, %v, want %d, %v", tt.value, tt.limit, got, ok, tt.want, tt.ok)
		}
	}
}

func TestIsNullAndIsObject(t *testing.T) {
	for value, want := range map[string][2]bool{
		"": {true, false}, "null": {true, false}, "{}": {false, true}, `{"a":1}`: {false, true},
		"0": {false, false}, "false": {false, false}, `""`: {false, false}, `"null"`: {false, false}, "[]": {false, false},
	} {
		if got := [2]bool{IsNull([]byte(value)), IsObject([]byte(value))}; got != want {
			t.Errorf("%q: IsNull, IsObject = %v, want %v", value, got, want)
		}
	}
}

var tokenID = regexp.MustCompile(`^[0-9]+$`)

// countIDs is the oracle for CountIDs without a limit.
func countIDs(text []byte) (int, bool) {
	values, ok := elements(text)
	for _, v := range values {
		ok = ok && tokenID.MatchString(v)
	}
	return len(values), ok
}

func FuzzWalk(f *testing.F) {
	for _, text := range []string{
		`{"a":1,"\u0061":[1,{"b":"c"}],"\ud800":2}`, ` [ 1 , 2.0 , "x\n\u00e9" , [3] , {} ] `, "[ 1,\t22 , 333 ]", `[1,-2]`,
		`"\ud83d\ude00\ud800\udc00"`, `{"token_ids":[1,2],"features":null}`, `[]`, `{}`, `[0,9007199254740993,1e5]`,
	} {
		f.Add([]byte(text), "a", 2)
	}
	f.Fuzz(func(t *testing.T, text []byte, name string, limit int) {
		// What is not valid must do no harm either: it must end, and not panic.
		visited := 0
		count := func() bool { visited++; return true }
		EachMember(text, func(name, value []byte) bool { return count() })
		EachElement(text, func(value []byte) bool { return count() })
		if visited > len(text) {
			t.Fatalf("%d visits in %d bytes", visited, len(text))
		}
		if Valid(text) != nil {
			return
		}
		text = trim(text)
		checkMembers(t, text, name)
		checkElements(t, text, limit)
		if text[0] == '"' {
			checkUnquote(t, text)
		}
	})
}

func checkMembers(t *testing.T, text []byte, name string) {
	want, _, ok := split(text)
	var got []rawMember
	if EachMember(text, func(n, v []byte) bool { got = append(got, rawMember{string(n), string(v)}); return true }) != ok || !slices.Equal(got, want) {
		t.Fatalf("EachMember finds %q, want %q", got, want)
	}
	if !utf8.ValidString(name) {
		return
	}
	spelt, err := json.Marshal(name)
	if err != nil {
		t.Fatal(err)
	}
	key, last := rawMember{name: string(spelt)}.key(), ""
	for _, m := range want {
		if NameIs([]byte(m.name), name) != (m.key() == key) {
			t.Fatalf("NameIs(%s, %q) is %v", m.name, name, m.key() != key)
		}
		if m.key() == key {
			last = m.value
		}
		checkUnquote(t, []byte(m.name))
	}
	if got := Lookup(text, name); string(got) != last {
		t.Fatalf("Lookup(%q) = %q, want %q", name, got, last)
	}
}

func checkElements(t *testing.T, text []byte, limit int) {
	want, ok := elements(text)
	var got []string
	if EachElement(text, func(v []byte) bool { got = append(got, string(v)); return true }) != ok || !slices.Equal(got, want) {
		t.Fatalf("EachElement finds %q, want %q", got, want)
	}
	n, ok := countIDs(text)
	if m, isIDs := CountIDs(text, 0); isIDs != ok || ok && m != n {
		t.Fatalf("CountIDs(%q) = %d, %v, want %d, %v", text, m, isIDs, n, ok)
	}
	if limit <= 0 || !ok {
		return
	}
	if m, isIDs := CountIDs(text, limit); !isIDs || m != min(n, limit+1) {
		t.Fatalf("CountIDs(%q, %d) = %d, %v, want %d", text, limit, m, isIDs, min(n, limit+1))
	}
}

// checkUnquote compares with encoding/json, which makes one and the same
// character of all surrogates without a partner, and with UTF-16, where each
// has its own.
func checkUnquote(t *testing.T, value []byte) {
	got, ok := Unquote(value)
	if !ok {
		t.Fatalf("Unquote(%q) fails", value)
	}
	var want string
	if err := json.Unmarshal(value, &want); err != nil {
		t.Fatal(err)
	}
	units := utf16Bytes(string(value))
	if loose := mapSurrogates(got, func([]byte) string { return "\ufffd" }); loose != want {
		t.Fatalf("Unquote(%q) = %q, want %q", value, got, want)
	}
	spelt := mapSurrogates(strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(got), func(surrogate []byte) string {
		return fmt.Sprintf(`\u%04x`, 0xD000|int(surrogate[1]&0x3F)<<6|int(surrogate[2]&0x3F))
	})
	if again := utf16Bytes(`"` + spelt + `"`); !bytes.Equal(again, units) {
		t.Fatalf("Unquote(%q) = %q: something is lost", value, got)
	}
}

// mapSurrogates passes the three bytes of each surrogate in a text through f.
func mapSurrogates(s string, f func([]byte) string) string {
	var out strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			out.WriteString(f([]byte(s[i : i+3])))
			i += 3
			continue
		}
		out.WriteString(s[i : i+n])
		i += n
	}
	return out.String()
}

// TestDeepArraysAreSkippedInLinearTime: each looks for its end only as far as the
// next one.
func TestDeepArraysAreSkippedInLinearTime(t *testing.T) {
	block := strings.Repeat("[1,", 9000) + `"` + strings.Repeat("x", 100_000) + `"` + strings.Repeat("]", 9000)
	text := []byte("[" + strings.Repeat(block+",", 200) + "0]")
	if err := Valid(text); err != nil {
		t.Fatal(err)
	}
	n := 0
	if !EachElement(text, func(v []byte) bool { n++; return true }) || n != 201 {
		t.Errorf("%d elements", n)
	}
}
