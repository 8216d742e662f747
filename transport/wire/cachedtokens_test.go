package wire

import (
	"bytes"
	"strings"
	"testing"
)

func TestCachedTokens(t *testing.T) {
	for answer, want := range map[string]int{
		`{"usage":{"prompt_tokens":9,"prompt_tokens_details":{"audio_tokens":null,"cached_tokens":7}}}`: 7,
		`{"usage":{"prompt_tokens_details":{"cached_tokens":0}}}`:                                       0,
		`{"usage":{"prompt_tokens_details":{"cached_tokens":1,"cached_tokens":2}}}`:                     2,
		`{"usage":{"prompt_tokens_details":{"cached_tokens":-1}}}`:                                      -1,
		`{"usage":{"prompt_tokens_details":{"cached_tokens":"7"}}}`:                                     -1,
		`{"usage":{"prompt_tokens_details":{"cached_tokens":99999999999}}}`:                             -1,
		`{"usage":{"prompt_tokens_details":{"cached_tokens":null}}}`:                                    -1,
		`{"usage":{"prompt_tokens_details":null}}`:                                                      -1,
		`{"usage":{"prompt_tokens":9}}`:                                                                 -1,
		`{"usage":null}`:                                                                                -1,
		`{"usage":[]}`:                                                                                  -1,
		`{"prompt_tokens_details":{"cached_tokens":7}}`:                                                 -1,
		`{}`: -1,
	} {
		n, said := CachedTokens([]byte(answer))
		if !said {
			n = -1
		}
		if n != want {
			t.Errorf("%d, want %d: %s", n, want, answer)
		}
	}
}

// editUsage edits an answer that comes in pieces of these sizes, the last one again
// and again.
func editUsage(text []byte, cached int, sizes ...int) (string, *UsageEdit) {
	u := NewUsageEdit(cached)
	var out bytes.Buffer
	for at := 0; len(text) > 0; at = min(at+1, len(sizes)-1) {
		n := min(sizes[at], len(text))
		piece := bytes.Clone(text[:n]) // the next read may be into the same memory
		out.Write(u.Take(piece))
		clear(piece)
		text = text[n:]
	}
	out.Write(u.End())
	return out.String(), u
}

func TestUsageEdit(t *testing.T) {
	const (
		told = `{"prompt_tokens":20,"total_tokens":23,"completion_tokens":3,"prompt_tokens_details":{"audio_tokens":null,"cached_tokens":19}}`
		made = `{"prompt_tokens":20,"total_tokens":23,"completion_tokens":3,"prompt_tokens_details":{"audio_tokens":null,"cached_tokens":5}}`
	)
	long := strings.Repeat("x", maxUsageObject)
	for _, tt := range []struct {
		name, text, want string
		edits            int
	}{
		{"nothing", ``, ``, 0},
		{"a whole answer", `{"choices":[{"message":{"content":"hi"}}],"usage":` + told + `,"x":1}`, `{"choices":[{"message":{"content":"hi"}}],"usage":` + made + `,"x":1}`, 1},
		{"a stream", "data: {\"usage\":null}\n\ndata: {\"usage\":" + told + "}\n\ndata: [DONE]\n\n", "data: {\"usage\":null}\n\ndata: {\"usage\":" + made + "}\n\ndata: [DONE]\n\n", 1},
		{"in each event", strings.Repeat("data: {\"usage\":"+told+"}\n\n", 3), strings.Repeat("data: {\"usage\":"+made+"}\n\n", 3), 3},
		{"white space", "{ \"usage\" :\r\n { \"prompt_tokens\" : 2.0 , \"y\":[ 1 ] } }", "{ \"usage\" :\r\n {\"prompt_tokens\" : 2.0 , \"y\":[ 1 ],\"prompt_tokens_details\":{\"cached_tokens\":5}} }", 1},
		{"no details", `{"usage":{"prompt_tokens":2}}`, `{"usage":{"prompt_tokens":2,"prompt_tokens_details":{"cached_tokens":5}}}`, 1},
		{"null details", `{"usage":{"prompt_tokens_details":null,"prompt_tokens":2}}`, `{"usage":{"prompt_tokens_details":{"cached_tokens":5},"prompt_tokens":2}}`, 1},
		{"other details", `{"usage":{"prompt_tokens":2,"prompt_tokens_details":{"z":"}\"{","a":1e3}}}`, `{"usage":{"prompt_tokens":2,"prompt_tokens_details":{"z":"}\"{","a":1e3,"cached_tokens":5}}}`, 1},
		{"odd details", `{"usage":{"prompt_tokens":2,"prompt_tokens_details":[1]}}`, `{"usage":{"prompt_tokens":2,"prompt_tokens_details":[1]}}`, 0},
		{"another usage", `{"usage":{"cached_tokens":1,"prompt_tokens_details":{}}}`, `{"usage":{"cached_tokens":1,"prompt_tokens_details":{}}}`, 0},
		{"no object", `{"a":"usage","usage":[{"prompt_tokens":1}],"b":["usage"]}`, `{"a":"usage","usage":[{"prompt_tokens":1}],"b":["usage"]}`, 0},
		{"in a text", `{"content":"\"usage\":{\"prompt_tokens\":1}"}`, `{"content":"\"usage\":{\"prompt_tokens\":1}"}`, 0},
		{"no JSON", `{"usage":{"prompt_tokens":1,}}`, `{"usage":{"prompt_tokens":1,}}`, 0},
		{"broken off", `{"usage":{"prompt_tokens":1,"x":"`, `{"usage":{"prompt_tokens":1,"x":"`, 0},
		{"broken off in the name", `{"usag`, `{"usag`, 0},
		{"too long", `{"usage":{"prompt_tokens":1,"x":"` + long + `"},"usage":{"prompt_tokens":1}}`, `{"usage":{"prompt_tokens":1,"x":"` + long + `"},"usage":{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":5}}}`, 1},
		{"too long, and broken off", `{"usage":{"prompt_tokens":1,"x":"` + long, `{"usage":{"prompt_tokens":1,"x":"` + long, 0},
		{"far away", `{"usage"` + strings.Repeat(" ", maxUsageObject) + `:{"prompt_tokens":1}}`, `{"usage"` + strings.Repeat(" ", maxUsageObject) + `:{"prompt_tokens":1}}`, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for at := 1; at <= len(tt.text)+1; at++ { // split there, and in pieces of that size
				for _, sizes := range [][]int{{at, len(tt.text) + 1}, {at}} {
					got, u := editUsage([]byte(tt.text), 5, sizes...)
					if got != tt.want || u.Edits() != tt.edits {
						t.Fatalf("in pieces of %d: %d edits\n%s\nwant %d\n%s", sizes, u.Edits(), got, tt.edits, tt.want)
					}
				}
			}
		})
	}
}

// TestUsageEditKeepsLittleBack: what has no usage goes on at once, and as it is.
func TestUsageEditKeepsLittleBack(t *testing.T) {
	u := NewUsageEdit(5)
	event := []byte("data: {\"choices\":[{\"delta\":{\"content\":\"usage\"}}],\"usage\":null}\n\n")
	if got := u.Take(event); len(got) != len(event) || &got[0] != &event[0] {
		t.Errorf("%q goes on as %q", event, got)
	}
	if n := testing.AllocsPerRun(100, func() { u.Take(event) }); n != 0 {
		t.Errorf("%v allocations for an event without usage", n)
	}
	if got := string(u.Take([]byte(`data: {"x":1,"usage":{"prompt_tokens":`))); got != `data: {"x":1,` {
		t.Errorf("%q goes on while the usage comes", got)
	}
	if got := string(u.Take([]byte(strings.Repeat("1", maxUsageObject)))); len(got) < maxUsageObject {
		t.Errorf("%d bytes go on when it is too long", len(got))
	}
}

func FuzzUsageEdit(f *testing.F) {
	f.Add([]byte(`{"usage":{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":3}}}`), 12, 3, 7)
	f.Add([]byte("data: {\"usage\" : null}\n\ndata: {\"usage\":{\"prompt_tokens\":1,\"x\":\"}\\\"\"}}\n\n"), 0, 1, 30)
	f.Add([]byte(`"usage":{"prompt_tokens":"usage":{"prompt_tokens":1}}`), 5, 9, 2)
	f.Fuzz(func(t *testing.T, text []byte, cached, first, then int) {
		cached = max(0, cached)
		whole, u := editUsage(text, cached, len(text)+1)
		pieces, v := editUsage(text, cached, min(max(1, first), len(text)+1), min(max(1, then), len(text)+1))
		if pieces != whole || u.Edits() != v.Edits() {
			t.Fatalf("in pieces of %d and %d:\n%s\nas a whole:\n%s", first, then, pieces, whole)
		}
		if u.Edits() == 0 && whole != string(text) {
			t.Fatalf("no edit, but %q is not %q", whole, text)
		}
		if Valid(text) != nil {
			return
		}
		if err := Valid([]byte(whole)); err != nil {
			t.Fatalf("%v: %s became %s", err, text, whole)
		}
		usage := Lookup(text, "usage")
		if IsObject(usage) && u.Edits() == 1 && Lookup(usage, "prompt_tokens") != nil {
			if n, said := CachedTokens([]byte(whole)); said && n != cached && cached <= 1<<31-1 {
				t.Fatalf("it says %d, want %d: %s", n, cached, whole)
			}
		}
	})
}
