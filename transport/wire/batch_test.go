package wire

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func bodyOf(t testing.TB, text string) *Body {
	t.Helper()
	b, err := ParseBody([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestArraysOfPromptsAreTakenApart(t *testing.T) {
	for _, test := range []struct {
		name, body string
		limit      int
		want       string // the bodies of the prompts, or the fault's code
	}{
		{"strings", `{"a": 1.0,"prompt": [ "one" , "t\"w,o]" ],"z":[ ]}`, 2, `{"a": 1.0,"prompt":"one","z":[ ]} {"a": 1.0,"prompt":"t\"w,o]","z":[ ]}`},
		{"ids", `{"prompt":[[1, 2],[3]]}`, 2, `{"prompt":[1, 2]} {"prompt":[3]}`},
		{"one", `{"prompt":["one"]}`, 2, `{"prompt":"one"}`},
		{"an empty string is a prompt", `{"prompt":["",""]}`, 2, `{"prompt":""} {"prompt":""}`},
		{"no array", `{"prompt":"one"}`, 2, ``},
		{"one of ids", `{"prompt":[1,2,3]}`, 2, ``},
		{"empty", `{"prompt":[ ]}`, 2, ``},
		{"none", `{}`, 2, ``},
		{"switched off", `{"prompt":["one","two"]}`, 1, ``},
		{"too many", `{"prompt":["1","2","3"]}`, 2, `limit_exceeded`},
		{"mixed", `{"prompt":["one",[2]]}`, 2, `invalid_prompt`},
		{"mixed with an id", `{"prompt":["one",2]}`, 2, `invalid_prompt`},
		{"an empty one", `{"prompt":[[1],[]]}`, 2, `invalid_prompt`},
		{"a negative id", `{"prompt":[[1],[-2]]}`, 2, `invalid_prompt`},
		{"nested", `{"prompt":[[1],[[2]]]}`, 2, `invalid_prompt`},
		{"objects", `{"prompt":[{},{}]}`, 2, `invalid_prompt`},
		{"nulls", `{"prompt":[null,null]}`, 2, `invalid_prompt`},
		{"a negative number", `{"prompt":[-1]}`, 2, `invalid_prompt`},
	} {
		t.Run(test.name, func(t *testing.T) {
			singles, err := Completions.Singles(bodyOf(t, test.body), test.limit)
			if err != nil {
				if got := FaultOf(err).ErrorCode(); got != test.want {
					t.Errorf("code %q, want %q", got, test.want)
				}
				return
			}
			var got []string
			for _, s := range singles {
				got = append(got, string(s.Body.Edit().Payload().Append(nil)))
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("got  %s\nwant %s", strings.Join(got, " "), test.want)
			}
		})
	}
	if singles, err := Generate.Singles(bodyOf(t, `{"prompt":["a","b"]}`), 9); singles != nil || err != nil {
		t.Errorf("generate: %v %v", singles, err)
	}
}

func TestPartIDsAreIDs(t *testing.T) {
	long := strings.Repeat("a", maxRequestID)
	for _, test := range []struct {
		id, want string
		i        int
	}{{"x", "x-p0", 0}, {"x", "x-p12", 12}, {long, long[:maxRequestID-5] + "-p999", 999}} {
		if got := PartID(test.id, test.i); got != test.want || !ValidRequestID(got) {
			t.Errorf("%s, want %s", got, test.want)
		}
	}
}

func TestChoicesOfABody(t *testing.T) {
	for body, want := range map[string]int{`{}`: 1, `{"n":3}`: 3, `{"n":null}`: 1, `{"n":0}`: 1, `{"n":-1}`: 1, `{"n":"2"}`: 2, `{"n":2.0}`: 2,
		`{"n":2.5}`: 1, `{"n":1e9}`: 1, `{"n":true}`: 1} {
		if got := Completions.Choices(bodyOf(t, body)); got != want {
			t.Errorf("%s: %d, want %d", body, got, want)
		}
	}
}

func TestWholeAnswersAreMerged(t *testing.T) {
	answers := [][]byte{
		[]byte(` {"id":"cmpl-a","created":1,"choices":[ {"index":1,"text":"b","n":[1]}, {"text":"a","index": 0} ],"usage":{"prompt_tokens":2,"completion_tokens":3,"total_tokens":5,"prompt_tokens_details":null},"x":9007199254740993}`),
		[]byte(`{"id":"cmpl-b","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":20,"total_tokens":30,"prompt_tokens_details":{"cached_tokens":4}}}`),
		[]byte(`{"id":"cmpl-c","choices":[{"index":0,"text":"c"}],"usage":{"prompt_tokens":100,"completion_tokens":200,"total_tokens":300,"prompt_tokens_details":{"cached_tokens":5}}}`),
	}
	for _, a := range answers {
		if err := CheckMergeable(a); err != nil {
			t.Fatal(err)
		}
	}
	got := string(bytes.Join(MergeAnswers(answers, 2), nil))
	want := ` {"id":"cmpl-a","created":1,"choices":[ {"index":1,"text":"b","n":[1]}, {"text":"a","index": 0} ,{"index":4,"text":"c"}],` +
		`"usage":{"prompt_tokens":112,"completion_tokens":223,"total_tokens":335,"prompt_tokens_details":{"cached_tokens":9}},"x":9007199254740993}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestWhatCannotBeMerged(t *testing.T) {
	for _, bad := range []string{``, `[]`, `{"choices":`, `{}`, `{"choices":{}}`, `{"choices":[{}]}`, `{"choices":[{"index":"0"}]}`, `{"choices":[{"index":-1}]}`,
		`{"choices":[{"index":0.5}]}`, `{"choices":[1]}`, `{"choices":[{"index":99999999999999999999}]}`} {
		if CheckMergeable([]byte(bad)) == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

func TestEventsAreMerged(t *testing.T) {
	first := []byte(`{"id":"cmpl-p1","object":"text_completion","created":7,"model":"m","choices":[{"index":0,"text":"x"}]}`)
	names := NamesOf(first)
	for _, test := range []struct{ data, want string }{
		{string(first), `{"id":"cmpl-p1","object":"text_completion","created":7,"model":"m","choices":[{"index":6,"text":"x"}]}`},
		{` {"model":"other", "choices" : [ {"text":"\"index\":1","index":1 } , {"index":0} ],"created":99,"id":"cmpl-p0","usage":{"prompt_tokens":1}} `,
			` {"model":"m", "choices" : [ {"text":"\"index\":1","index":7 } , {"index":6} ],"created":7,"id":"cmpl-p1","usage":{"prompt_tokens":1}} `},
		{`{"choices":[]}`, `{"choices":[]}`},
	} {
		e, err := ReadEvent([]byte(test.data))
		if err != nil || e.Error != nil || e.Usage != nil {
			t.Fatalf("%s: %v %+v", test.data, err, e)
		}
		got, err := names.AppendEvent(nil, []byte(test.data), 6)
		if err != nil || string(got) != test.want {
			t.Errorf("%v\ngot  %s\nwant %s", err, got, test.want)
		}
	}
	if _, err := names.AppendEvent(nil, []byte(`{"choices":[{"text":"no index"}]}`), 1); err == nil {
		t.Error("a choice without an index was taken")
	}
}

func TestEventsThatAreNotPassedOn(t *testing.T) {
	e, err := ReadEvent([]byte(`{"choices":[],"usage":{"prompt_tokens":3}}`))
	if err != nil || string(e.Usage) != `{"prompt_tokens":3}` {
		t.Errorf("%+v %v", e, err)
	}
	e, err = ReadEvent([]byte(`{"error":{"message":"m"}}`))
	if err != nil || string(e.Error) != `{"message":"m"}` {
		t.Errorf("%+v %v", e, err)
	}
	for _, bad := range []string{`{`, `[]`, `{}`, `{"choices":null}`} {
		if _, err := ReadEvent([]byte(bad)); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
	var sum Tally
	sum.Add([]byte(`{"prompt_tokens":3,"total_tokens":4}`))
	sum.Add([]byte(`{"prompt_tokens":30,"total_tokens":40}`))
	names := Names{id: []byte(`"cmpl-p1"`), created: []byte(`7`)}
	got := names.AppendUsage(nil, []byte(`{"id":"cmpl-p0","created":9,"model":"m","choices":[], "usage":{"prompt_tokens":3,"total_tokens":4}}`), &sum)
	if want := `{"id":"cmpl-p1","created":7,"model":"m","choices":[], "usage":{"prompt_tokens":33,"total_tokens":44}}`; string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestMergingAnEventAllocatesNothing(t *testing.T) {
	data := []byte(`{"id":"cmpl-p0","object":"text_completion","created":7,"model":"m","choices":[{"index":0,"text":"word","logprobs":null,"finish_reason":null}],"usage":null}`)
	names := NamesOf(data)
	to := make([]byte, 0, 1024)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := ReadEvent(data); err != nil {
			t.Fatal(err)
		}
		if _, err := names.AppendEvent(to, data, 3); err != nil {
			t.Fatal(err)
		}
	}); n > maxEventAllocations {
		t.Errorf("%v allocations", n)
	}
}

// maxEventAllocations is for the scanner's own stack of brackets.
const maxEventAllocations = 1

func TestUsagesAreAdded(t *testing.T) {
	for _, test := range []struct {
		usages []string
		want   string
	}{
		{[]string{`{"a":1}`, `{"a":2,"b":3}`}, `{"a":3,"b":3}`},
		{[]string{`{"d":{"c":1,"e":null}}`, `{"d":{"c":2}}`}, `{"d":{"c":3,"e":null}}`},
		{[]string{`{"d":null}`, `{"d":{"c":2}}`}, `{"d":{"c":2}}`},
		{[]string{`{"d":1.5,"s":"x"}`, `{"d":1.5,"s":"y"}`}, `{"d":1.5,"s":"x"}`},
		{[]string{`null`, `{"a":1}`, ``}, `{"a":1}`},
	} {
		var sum Tally
		for _, u := range test.usages {
			var one Tally
			one.Add([]byte(u))
			sum.Merge(&one)
		}
		if got := string(sum.Append(nil)); got != test.want {
			t.Errorf("%v: got %s, want %s", test.usages, got, test.want)
		}
	}
}

// TestEventsAreFoundHoweverTheyArrive: whole, byte by byte, with any line ends.
func TestEventsAreFoundHoweverTheyArrive(t *testing.T) {
	const stream = ": hello\n\ndata: one\n\ndata:two\r\ndata: three\r\n\r\n\n\nid: 7\ndata: four\n\nevent: x\n\ndata: five\r\rdata: open"
	want := []string{"", "one", "two\nthree", "four", "", "five"}
	for _, size := range []int{1, 2, 7, len(stream)} {
		var e Events
		var got []string
		for rest := stream; len(rest) > 0; {
			n := min(size, len(rest))
			room, _ := e.Room(n)
			e.Filled(copy(room[:n], rest))
			rest = rest[n:]
			for event, ok := e.Next(); ok; event, ok = e.Next() {
				got = append(got, string(EventData(event)))
			}
		}
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("%d bytes at a time: %q, want %q", size, got, want)
		}
	}
}

// eventsOf returns the data of the events of a stream that comes in two pieces.
func eventsOf(pieces ...[]byte) (all []string) {
	var e Events
	for _, piece := range append(pieces, []byte("\n\n ")) {
		room, _ := e.Room(len(piece))
		e.Filled(copy(room, piece))
		for event, ok := e.Next(); ok; event, ok = e.Next() {
			all = append(all, string(EventData(event)))
		}
	}
	return all
}

func FuzzSingles(f *testing.F) {
	for _, seed := range []string{`{"prompt":["a","b"]}`, `{"prompt":[[1,2],[3]],"n":2}`, `{"prompt":["a",1]}`, `{"prompt":[ ["x"] ]}`, `{"prompt":[-1]}`, `{"prompt":"a"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		b, err := ParseBody(text)
		if err != nil {
			return
		}
		singles, err := Completions.Singles(b, 5)
		if err != nil || singles == nil {
			return
		}
		var prompts []any
		if err := json.Unmarshal(b.Get("prompt"), &prompts); err != nil || len(prompts) != len(singles) {
			t.Fatalf("%d prompts of %s: %v", len(singles), text, err)
		}
		for i, s := range singles {
			one, err := ParseBody(s.Body.Edit().Payload().Append(nil))
			if err != nil {
				t.Fatal(err)
			}
			want, _ := json.Marshal(prompts[i])
			var got any
			if err := json.Unmarshal(one.Get("prompt"), &got); err != nil {
				t.Fatal(err)
			}
			if again, _ := json.Marshal(got); !bytes.Equal(again, want) {
				t.Fatalf("prompt %d is %s, want %s", i, again, want)
			}
		}
	})
}

// FuzzMergedEvents: what comes out is JSON that differs in what was to be changed
// alone, and a stream can be cut anywhere.
func FuzzMergedEvents(f *testing.F) {
	for _, seed := range []string{`{"id":"a","choices":[{"index":0}]}`, `{"choices":[{"index":1,"x":[{"index":2}]},{"index":0}],"usage":{"a":1}}`, `{"choices":[],"usage":{"a":{"b":2}}}`,
		` { "choices" : [ ] } `, `{"choices":[{"inde\u0078":3}]}`} {
		f.Add([]byte(seed), 3)
	}
	type event struct {
		Choices []map[string]any `json:"choices"`
	}
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		at := int(uint(cut) % uint(len(data)+1))
		if whole, pieces := eventsOf(data, nil), eventsOf(data[:at], data[at:]); strings.Join(whole, "|") != strings.Join(pieces, "|") {
			t.Fatalf("cut at %d: %q, want %q", at, pieces, whole)
		}
		found, err := ReadEvent(data)
		if err != nil || found.Error != nil {
			return
		}
		names := NamesOf(data)
		got, err := names.AppendEvent(nil, data, 5)
		if err != nil {
			return
		}
		if Valid(got) != nil {
			t.Fatalf("%s became %s", data, got)
		}
		var before, after event
		if json.Unmarshal(data, &before) != nil || json.Unmarshal(got, &after) != nil || len(before.Choices) != len(after.Choices) {
			return // names that json takes for one, such as Choices
		}
		var sum Tally
		sum.Add(found.Usage)
		if found.Usage != nil && Valid(names.AppendUsage(nil, data, &sum)) != nil {
			t.Fatalf("the usage of %s", data)
		}
		if CheckMergeable(data) == nil && Valid(bytes.Join(MergeAnswers([][]byte{data, data}, 1), nil)) != nil {
			t.Fatalf("%s merged with itself", data)
		}
	})
}
