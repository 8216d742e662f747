package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// images makes the features of so many images; kwargs is the member kwargs_data
// or "".
func images(n int, kwargs string) string {
	hashes, places := strings.Repeat(`"h",`, n), strings.Repeat(`{"offset":0,"length":1},`, n)
	return `{"mm_hashes":{"image":[` + strings.TrimSuffix(hashes, ",") + `]},"mm_placeholders":{"image":[` + strings.TrimSuffix(places, ",") + `]}` + kwargs + `}`
}

// rendered parses a render answer with three token ids.
func rendered(features string, n int, tensors bool) (Tokens, error) {
	return Chat.ParseRender([]byte(`{"token_ids":[1,2,3],"features":`+features+`}`), n, tensors)
}

func TestRenderedImages(t *testing.T) {
	got, err := rendered(`{"mm_placeholders" : {"image" : [ { "x":{"offset":9} , "length":2, "offset":1 } , {"offset":2,"length":0},{"offset":0,"length":3}]},
		"mm_hashes":{"audio":[],"image":["a", "b\/" ,"a"]}, "kwargs_data":{"image":["QQ==",null,""]},"mm_metadata":7}`, 3, true)
	if err != nil {
		t.Fatal(err)
	}
	f := &got.Features
	want := []Span{
		{[]byte(`"a"`), []byte(`{ "x":{"offset":9} , "length":2, "offset":1 }`), []byte(`"QQ=="`), 1, 2, []byte("2,3")},
		{[]byte(`"b\/"`), []byte(`{"offset":2,"length":0}`), nil, 2, 0, nil},
		{[]byte(`"a"`), []byte(`{"offset":0,"length":3}`), nil, 0, 3, []byte("1,2,3")},
	}
	if fmt.Sprintf("%x", f.Images) != fmt.Sprintf("%x", want) {
		t.Errorf("images\n%s\nwant\n%s", fmt.Sprint(f.Images), fmt.Sprint(want))
	}
	if f.PlaceholderTokens() != 5 || f.Tensors() || !f.any() {
		t.Errorf("%d placeholder tokens, tensors %v", f.PlaceholderTokens(), f.Tensors())
	}
	if string(f.Hashes) != `{"audio":[],"image":["a", "b\/" ,"a"]}` || string(f.Kwargs) != `{"image":["QQ==",null,""]}` {
		t.Errorf("%s, %s", f.Hashes, f.Kwargs)
	}
}

func TestRenderedImagesThatMakeNoSense(t *testing.T) {
	one := func(placeholder string) string {
		return `{"mm_hashes":{"image":["h"]},"mm_placeholders":{"image":[` + placeholder + `]}}`
	}
	bad := []string{
		`null`, `{}`, `7`, `"x"`, `[]`, images(0, ""), images(2, ""), // too few or too many
		`{"mm_hashes":{"image":["h"]}}`, `{"mm_hashes":{"image":["h"]},"mm_placeholders":null}`, `{"mm_hashes":{"image":["h"]},"mm_placeholders":{}}`,
		`{"mm_placeholders":{"image":[{"offset":0,"length":1}]}}`,
		`{"mm_hashes":{"image":["h","h"]},"mm_placeholders":{"image":[{"offset":0,"length":1}]}}`,
		images(1, `,"kwargs_data":{"image":[]}`), images(1, `,"kwargs_data":{"image":[null,null]}`),
		images(1, `,"kwargs_data":{"image":"QQ=="}`), images(1, `,"kwargs_data":{"image":[7]}`), images(1, `,"kwargs_data":{"image":[[]]}`), images(1, `,"kwargs_data":{"image":[false]}`),
		images(1, `,"kwargs_data":["QQ=="]`), images(1, `,"kwargs_data":""`),
		`{"mm_hashes":["h"],"mm_placeholders":{"image":[{"offset":0,"length":1}]}}`, `{"mm_hashes":{"image":"h"},"mm_placeholders":{"image":[{"offset":0,"length":1}]}}`,
		`{"mm_hashes":{"image":[null]},"mm_placeholders":{"image":[{"offset":0,"length":1}]}}`, `{"mm_hashes":{"image":[7]},"mm_placeholders":{"image":[{"offset":0,"length":1}]}}`,
		`{"mm_hashes":{"image":["h"]},"mm_placeholders":{"image":{"offset":0,"length":1}}}`, `{"mm_hashes":{"image":["h"]},"mm_placeholders":[{"offset":0,"length":1}]}`,
		one(`null`), one(`[]`), one(`[0,1]`), one(`"x"`), one(`7`), one(`{}`), one(`{"offset":0}`), one(`{"length":1}`),
		// not inside three token ids
		one(`{"offset":3,"length":0}`), one(`{"offset":3,"length":1}`), one(`{"offset":2,"length":2}`), one(`{"offset":0,"length":4}`),
		one(`{"offset":-1,"length":1}`), one(`{"offset":1,"length":-1}`), one(`{"offset":-1,"length":-1}`),
		one(`{"offset":1,"length":9223372036854775807}`), one(`{"offset":9223372036854775807,"length":1}`), one(`{"offset":2,"length":9223372036854775806}`),
		one(`{"offset":1,"length":18446744073709551615}`), one(`{"offset":18446744073709551616,"length":1}`), one(`{"offset":0,"length":` + strings.Repeat("9", 1000) + `}`),
		one(`{"offset":9223372036854775807,"length":9223372036854775807}`), one(`{"offset":-9223372036854775808,"length":1}`),
		// no integers
		one(`{"offset":0.0,"length":1}`), one(`{"offset":0,"length":1e0}`), one(`{"offset":"0","length":1}`), one(`{"offset":0,"length":null}`), one(`{"offset":false,"length":1}`),
		one(`{"offset":[0],"length":1}`), one(`{"offset":{"offset":0},"length":1}`), one(`{"offset":0,"length":1,"length":9}`), one(`{"offset":0,"offset":{},"length":1}`),
		one(`{"Offset":0,"Length":1}`),
	}
	for _, features := range bad {
		for _, tensors := range []bool{false, true} {
			if got, err := rendered(features, 1, tensors); err == nil || got.Known() || got.Features.Images != nil {
				t.Errorf("%s: %+v", features, got)
			}
		}
	}
	// of a modality that is not known nothing is counted, but it cannot be sent
	// without its places
	if _, err := rendered(`{"mm_hashes":{"hologram":["h"]}}`, 0, false); err == nil {
		t.Error("hashes without placeholders are accepted")
	}
	if _, err := Completions.ParseRender([]byte(`[{"token_ids":[1],"features":`+images(1, "")+`}]`), 0, false); err == nil {
		t.Error("completions with an image are accepted")
	}
}

func TestOddSpellingsOfSpans(t *testing.T) {
	for placeholder, want := range map[string][2]int{
		`{"offset":2,"length":1}`: {2, 1}, `{"offset":-0,"length":3}`: {0, 3}, `{"o\u0066fset" : 1 , "length":0}`: {1, 0},
		`{"offset":9,"length":9,"\u006cength":2,"offset":1}`: {1, 2}, `{"offset":0,"length":-0}`: {0, 0},
	} {
		offset, length, ok := span([]byte(placeholder), 3)
		if !ok || offset != want[0] || length != want[1] {
			t.Errorf("%s: %d, %d, %v", placeholder, offset, length, ok)
		}
	}
}

// A worker's answer may be large; what is kept of it must not hold all of it.
func TestRenderedTokensKeepNothingOfTheAnswer(t *testing.T) {
	for _, tt := range []struct {
		features string
		n        int
	}{
		{`null`, 0}, {images(2, `,"kwargs_data":{"image":["QQ==","Qg=="]}`), 2}, {images(1, ""), 1}, {`{"mm_hashes":{},"mm_placeholders":{},"kwargs_data":{}}`, 0},
		{`{"mm_hashes":{"x":["h"]},"mm_placeholders":{"x":[{"offset":7}]},"kwargs_data":{"x":["QQ=="]}}`, 0},
	} {
		answer := []byte(`{"token_ids":[1,2,3],"features":` + tt.features + `}`)
		got, err := Chat.ParseRender(answer, tt.n, false)
		if err != nil {
			t.Fatalf("%s: %v", tt.features, err)
		}
		before := fmt.Sprintf("%x", got)
		clear(answer)
		if after := fmt.Sprintf("%x", got); after != before {
			t.Errorf("%s: it has become\n%s\nof\n%s", tt.features, after, before)
		}
		if f := &got.Features; f.Kwargs != nil || slices.ContainsFunc(f.Images, func(s Span) bool { return s.Kwargs != nil }) || f.any() && f.Tensors() {
			t.Errorf("%s: tensors that are not wanted are kept", tt.features)
		}
		if !bytes.Equal(got.IDs, []byte("[1,2,3]")) {
			t.Errorf("ids are %s", got.IDs)
		}
	}
	// wanted ones are the answer's; the rest is not, and without media nothing
	answer := []byte(`{"token_ids":[1,2,3],"features":` + images(1, `,"kwargs_data":{"image":["QQ=="]}`) + `}`)
	got, err := Chat.ParseRender(answer, 1, true)
	if err != nil || string(got.Features.Kwargs) != `{"image":["QQ=="]}` || string(got.Features.Images[0].Kwargs) != `"QQ=="` || !got.Features.Tensors() {
		t.Fatalf("%+v, %v", got, err)
	}
	clear(answer)
	if f := &got.Features; string(f.Hashes) != `{"image":["h"]}` || string(f.Images[0].Hash) != `"h"` || string(f.Images[0].Placeholder) != `{"offset":0,"length":1}` {
		t.Errorf("%+v", f)
	}
	if got, err := rendered(`{"mm_hashes":{},"mm_placeholders":{},"kwargs_data":{}}`, 0, true); err != nil || got.Features.Kwargs != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestTensorsAreThereForAllOrNot(t *testing.T) {
	for features, want := range map[string]bool{
		images(2, `,"kwargs_data":{"image":["QQ==","Qg=="]}`): true,
		images(2, `,"kwargs_data":{"image":["QQ==",null]}`):   false,
		images(2, `,"kwargs_data":{"image":["","Qg=="]}`):     false,
		images(2, `,"kwargs_data":{"image":null}`):            false,
		images(2, `,"kwargs_data":{}`):                        false,
		images(2, `,"kwargs_data":null`):                      false,
		images(2, ``):                                         false,
	} {
		got, err := rendered(features, 2, true)
		if err != nil || got.Features.Tensors() != want {
			t.Errorf("%s: %v, %v", features, got.Features.Tensors(), err)
		}
	}
	if !new(Features).Tensors() {
		t.Error("a prompt without media lacks tensors")
	}
}

func TestFormatOfLegs(t *testing.T) {
	whole, err := rendered(images(1, `,"kwargs_data":{"image":["QQ=="]}`), 1, true)
	if err != nil {
		t.Fatal(err)
	}
	part, err := rendered(images(2, `,"kwargs_data":{"image":["QQ==",null]}`), 2, true)
	if err != nil {
		t.Fatal(err)
	}
	other, err := rendered(`{"mm_hashes":{"x":["h"]},"mm_placeholders":{"x":[]}}`, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	text := Tokens{IDs: []byte("[1]"), Count: 1}
	for _, tt := range []struct {
		proto  *Protocol
		openAI bool
		tokens Tokens
		want   Format
		asked  bool
		path   string
	}{
		{Chat, true, whole, OpenAI, true, "/v1/chat/completions"},
		{Chat, true, part, OpenAI, true, "/v1/chat/completions"},
		{Chat, true, Tokens{}, OpenAI, true, "/v1/chat/completions"},
		{Chat, false, whole, TokensIn, true, "/inference/v1/generate"},
		{Chat, false, text, TokensIn, true, "/inference/v1/generate"},
		{Chat, false, part, OpenAI, false, "/v1/chat/completions"},
		{Chat, false, other, OpenAI, false, "/v1/chat/completions"},
		{Completions, true, text, OpenAI, true, "/v1/completions"},
		{Completions, false, text, OpenAI, true, "/v1/completions"},
		{Generate, true, text, TokensIn, true, "/inference/v1/generate"},
		{Generate, false, part, TokensIn, true, "/inference/v1/generate"},
	} {
		got, asked := tt.proto.Format(tt.openAI, Source{Tokens: tt.tokens})
		if got != tt.want || asked != tt.asked || tt.proto.LegPath(got) != tt.path {
			t.Errorf("%s, %v: %v, %v, %s", tt.proto.Name, tt.openAI, got, asked, tt.proto.LegPath(got))
		}
	}
}

func TestRangeOfIDs(t *testing.T) {
	const ids = "[ 10,9007199254740993 ,\n3 , 44\t]"
	for _, tt := range []struct {
		from, n int
		want    string
	}{
		{0, 0, ""}, {0, 1, "10"}, {0, 2, "10,9007199254740993"}, {0, 4, "10,9007199254740993 ,\n3 , 44"}, {1, 2, "9007199254740993 ,\n3"},
		{3, 1, "44"}, {3, 0, ""}, {2, 2, "3 , 44"},
	} {
		if got := idsFrom([]byte(ids), tt.from, tt.n); string(got) != tt.want {
			t.Errorf("idRange(%d, %d) = %q, want %q", tt.from, tt.n, got, tt.want)
		}
	}
}

func FuzzIDRange(f *testing.F) {
	f.Add([]byte("[ 10,9007199254740993 ,\n3 , 44\t]"), 1, 2)
	f.Add([]byte("[0]"), 0, 1)
	f.Fuzz(func(t *testing.T, text []byte, from, n int) {
		if Valid(text) != nil {
			return
		}
		text = trim(text)
		count, ok := CountIDs(text, 0)
		if !ok || count == 0 {
			return
		}
		if from = from % count; from < 0 {
			from = -from
		}
		if n = n % (count - from + 1); n < 0 {
			n = -n
		}
		checkRange(t, text, from, n)
	})
}

// checkRange compares with encoding/json's elements.
func checkRange(t *testing.T, ids []byte, from, n int) {
	t.Helper()
	want, _ := elements(ids)
	got, ok := elements(slices.Concat([]byte("["), idsFrom(ids, from, n), []byte("]")))
	if !ok || !slices.Equal(got, want[from:from+n]) {
		t.Fatalf("idRange(%q, %d, %d) has %q, want %q", ids, from, n, got, want[from:from+n])
	}
}

func TestMalformedPlaceholdersDoNotPanic(t *testing.T) {
	for _, p := range []string{"", "{", "{}", `{"offset"`, `{"offset":`, `{"offset":1`, `{"offset":1,"length"`, `{"offset":1,"length":2`, `{"offset":1,}`, `{{`, `{"`, `{"\`, `{"\u0`, `[`, "\x00", `{"offset":1,"length":2}}`} {
		span([]byte(p), 3)
		_, _ = parseFeatures([]byte(`{"mm_hashes":{"image":["h"]},"mm_placeholders":{"image":[`+p), 3, true)
		_, _ = rendered(`{"mm_hashes":{"image":["h"]},"mm_placeholders":{"image":[`+p+`]}}`, 1, true)
	}
}

// last returns the values of an object's members by name, of a repeated one the
// last; nil if text is no object.
func last(text string) map[string]string {
	members, _, ok := split([]byte(text))
	if !ok {
		return nil
	}
	values := map[string]string{}
	for _, m := range members {
		values[m.key()] = m.value
	}
	return values
}

// key is how last calls a name.
func key(name string) string { return rawMember{name: `"` + name + `"`}.key() }

func absent(value string) bool { return value == "" || value == "null" }

var integer = regexp.MustCompile(`^-?[0-9]+$`)

// insideOracle checks a placeholder with arithmetic that cannot overflow.
func insideOracle(placeholder string, count int) bool {
	members := last(placeholder)
	offset, length := members[key("offset")], members[key("length")]
	if !integer.MatchString(offset) || !integer.MatchString(length) {
		return false
	}
	o, _ := new(big.Int).SetString(offset, 10)
	l, _ := new(big.Int).SetString(length, 10)
	total := big.NewInt(int64(count))
	return o.Sign() >= 0 && l.Sign() >= 0 && o.Cmp(total) < 0 && new(big.Int).Add(o, l).Cmp(total) <= 0
}

// listOracle takes an array apart; one that is null or not there is empty.
func listOracle(text string) (values []string, there, ok bool) {
	if absent(text) {
		return nil, false, true
	}
	values, ok = elements([]byte(text))
	return values, true, ok
}

// modalityOracle checks the three lists of one modality.
func modalityOracle(hashes, placeholders, kwargs string, count int) bool {
	h, _, ok := listOracle(hashes)
	p, _, ok2 := listOracle(placeholders)
	k, there, ok3 := listOracle(kwargs)
	if !ok || !ok2 || !ok3 || len(h) != len(p) || there && len(k) != len(h) {
		return false
	}
	for i := range h {
		if h[i][0] != '"' || !insideOracle(p[i], count) {
			return false
		}
	}
	return !slices.ContainsFunc(k, func(v string) bool { return v != "null" && v[0] != '"' })
}

// featuresOracle checks features; strict as for a client's.
func featuresOracle(text string, count int, strict bool) bool {
	if absent(text) {
		return true
	}
	members := last(text)
	if members == nil {
		return false
	}
	maps := map[string]map[string]string{}
	for _, name := range []string{"mm_hashes", "mm_placeholders", "kwargs_data"} {
		v := members[key(name)]
		if absent(v) {
			continue
		}
		if maps[name] = last(v); maps[name] == nil {
			return false
		}
	}
	h, p, k := maps["mm_hashes"], maps["mm_placeholders"], maps["kwargs_data"]
	if !strict {
		some := false
		for _, list := range h {
			items, _ := elements([]byte(list))
			some = some || len(items) > 0
		}
		image := key("image")
		return modalityOracle(h[image], p[image], k[image], count) && (!some || p != nil)
	}
	if h == nil {
		return p == nil && k == nil
	}
	if p == nil {
		return false
	}
	for name := range h {
		if p[name] == "" || k != nil && k[name] == "" || !modalityOracle(h[name], p[name], k[name], count) {
			return false
		}
	}
	return len(p) == len(h) && (k == nil || len(k) == len(h))
}

func FuzzRenderAnswer(f *testing.F) {
	for _, answer := range []string{
		`{"token_ids":[1,2,3],"features":` + images(2, `,"kwargs_data":{"image":["QQ==",null]}`) + `}`,
		`[ {"token_ids" : [ 1 , 22,333 ],"features":{"mm_hashes":{"image":["a\/"],"x":["b"]},"mm_placeholders":{"x":[7],"image":[{ "z":1 , "length":2,"offset" : 1 }]}}} ]`,
		`{"token_ids":[1],"features":null}`, `{"token_ids":[1],"features":{"mm_hashes":{"x":["h"]},"mm_placeholders":{},"kwargs_data":{"x":[""]}}}`,
		`{"token_ids":[1,2],"features":{"mm_hashes":{"x":[],"image":["h"],"image":["h"]},"mm_placeholders":{"image":[{"offset":1,"length":9223372036854775807}]}}}`,
		`{"token_ids":[7],"features":{"mm_hashes":{"\ud800":["h"]},"mm_placeholders":{"\ud801":null}}}`,
		`{"token_ids":[1],"features":{"mm_hashes":{"x":["h"]}}}`,
	} {
		f.Add([]byte(answer), 1, true)
		f.Add([]byte(answer), 2, false)
		f.Add([]byte(answer), 0, true)
	}
	f.Fuzz(func(t *testing.T, answer []byte, n int, tensors bool) {
		object, listed := answer, false
		if values, ok := elements(answer); ok && Valid(answer) == nil && len(values) == 1 {
			object, listed = []byte(values[0]), true
		}
		for _, p := range []*Protocol{Chat, Completions} {
			got, err := p.ParseRender(answer, n, tensors)
			ids := ""
			if Valid(answer) == nil && listed == p.renderList {
				ids = last(string(object))[key("token_ids")]
			}
			count, ok := countIDs([]byte(ids))
			features := last(string(object))[key("features")]
			images, _ := elements([]byte(last(last(features)[key("mm_hashes")])[key("image")]))
			want := ok && count > 0 && len(images) == n && featuresOracle(features, count, false)
			if want != (err == nil) {
				t.Fatalf("%s: %q with %d images: %v, the oracle takes it: %v", p.Name, answer, n, err, want)
			}
			if err == nil {
				checkRendered(t, answer, got, ids, count, n, tensors)
			}
		}
	})
}

// checkRendered checks what was read of an answer, and the legs made of it.
func checkRendered(t *testing.T, answer []byte, got Tokens, ids string, count, n int, tensors bool) {
	t.Helper()
	if string(got.IDs) != ids || got.Count != count || len(got.Features.Images) != n {
		t.Fatalf("%q: %q (%d), %d images; want %q (%d), %d", answer, got.IDs, got.Count, len(got.Features.Images), ids, count, n)
	}
	messages := `[{"content":[` + strings.TrimSuffix(strings.Repeat(`{"image_url":"data:x"},`, n), ",") + `]}]`
	body := mustParse(t, `{"messages":`+messages+`,"model":"m"}`)
	prompt, err := Chat.Prompt(body)
	if err != nil {
		t.Fatal(err)
	}
	if !tensors { // then nothing may be of the answer
		answer = bytes.Clone(answer)
		before := fmt.Sprintf("%x", got)
		clear(answer)
		if fmt.Sprintf("%x", got) != before || got.Features.Kwargs != nil {
			t.Fatalf("%q is kept", answer)
		}
	}
	src := Chat.Source(body, prompt, nil, got)
	legs := []Payload{Chat.ProbeLeg(src), Chat.DecodeLeg(src, Transfers{KV: Raw("{}")}), Chat.ReleaseLeg(src, Transfers{KV: Raw("{}")}), Chat.PrefillLeg(src, OpenAI, "r", Transfers{KV: Raw("{}"), EC: Raw("{}")})}
	format, asked := Chat.Format(false, src)
	if asked {
		legs = append(legs, Chat.PrefillLeg(src, format, "r", Transfers{KV: Raw("{}")}))
	}
	for i, im := range got.Features.Images {
		if !insideOracle(string(im.Placeholder), count) || im.Offset+im.Length > count || im.Hash[0] != '"' {
			t.Fatalf("image %d is %+v of %d", i, im, count)
		}
		checkRange(t, got.IDs, im.Offset, im.Length)
		legs = append(legs, Chat.EncodeLeg(src, OpenAI, i))
		if asked {
			legs = append(legs, Chat.EncodeLeg(src, TokensIn, i))
			checkEncodeIDs(t, legs[len(legs)-1], got.IDs, im)
		}
	}
	for _, leg := range legs {
		if !json.Valid(leg.Append(nil)) {
			t.Fatalf("%q gives the leg %q", answer, leg.Append(nil))
		}
	}
}

// checkEncodeIDs checks that an encode leg has the first id and the span's, and
// the placeholder behind the first.
func checkEncodeIDs(t *testing.T, leg Payload, ids []byte, im Span) {
	t.Helper()
	all, _ := elements(ids)
	members := last(string(leg.Append(nil)))
	got, _ := elements([]byte(members[key("token_ids")]))
	if !slices.Equal(got, append([]string{all[0]}, all[im.Offset:im.Offset+im.Length]...)) {
		t.Fatalf("the encode leg has the ids %q", got)
	}
	list := last(last(members[key("features")])[key("mm_placeholders")])[key("image")]
	places, _ := elements([]byte(list))
	if want := fmt.Sprint(1); len(places) != 1 || last(places[0])[key("offset")] != want || !insideOracle(places[0], len(got)) {
		t.Fatalf("the encode leg has the placeholders %q", places)
	}
}

// Maps by modality may have as many names as a body is long: a walk for each of
// them would not end in this test's time.
func TestManyModalities(t *testing.T) {
	const n = 50_000
	var names, same strings.Builder
	for i := range n {
		fmt.Fprintf(&names, `"m%d":[],`, i)
	}
	same.WriteString(strings.Repeat(`"x":[],`, n))
	long := `"x":[` + strings.Repeat(`"",`, n) + `""]`
	places := `"x":[` + strings.Repeat(`{"offset":0,"length":1},`, n) + `{"offset":0,"length":1}]`
	for name, maps := range map[string][2]string{
		"distinct": {`{` + names.String() + `"x":["h"]}`, `{` + names.String() + `"x":[{"offset":0,"length":1}]}`},
		"the same": {`{` + same.String() + long + `}`, `{` + same.String() + places + `}`},
	} {
		kwargs := strings.Replace(maps[0], `"h"`, `""`, 1)
		body := mustParse(t, `{"token_ids":[1],"features":{"mm_hashes":`+maps[0]+`,"mm_placeholders":`+maps[1]+`,"kwargs_data":`+kwargs+`}}`)
		prompt, err := Generate.Prompt(body)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		leg := Generate.PrefillLeg(Generate.Source(body, prompt, nil, Tokens{}), TokensIn, "r", Transfers{})
		if !json.Valid(leg.Append(nil)) {
			t.Errorf("%s: the leg is no JSON", name)
		}
	}
}

// idsFrom returns n ids from the one at index from.
func idsFrom(ids []byte, from, n int) []byte {
	_, pos := idRange(ids, 1, from)
	found, _ := idRange(ids, pos, n)
	return found
}
