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
	hashes, places := strings.Repeat(`"h",`, n), ""
	for i := range n {
		places += fmt.Sprintf(`{"offset":%d,"length":1},`, i)
	}
	return `{"mm_hashes":{"image":[` + strings.TrimSuffix(hashes, ",") + `]},"mm_placeholders":{"image":[` + strings.TrimSuffix(places, ",") + `]}` + kwargs + `}`
}

// mediaOf are the media of a chat request with these members, such as image_url,
// in order; nil if none.
func mediaOf(t testing.TB, members ...string) *Media {
	t.Helper()
	var parts []string
	for _, name := range members {
		value := `"data:"`
		if name == "input_audio" {
			value = `{"data":"","format":""}`
		}
		parts = append(parts, `{"`+name+`":`+value+`}`)
	}
	m, err := findMedia([]byte(`[{"content":[` + strings.Join(parts, ",") + `]}]`))
	if err != nil || m.Len() != len(members) {
		t.Fatalf("%d media, %v", m.Len(), err)
	}
	return m
}

// imagesOf are so many images.
func imagesOf(t testing.TB, n int) *Media {
	t.Helper()
	return mediaOf(t, slices.Repeat([]string{"image_url"}, n)...)
}

// rendered parses a render answer with three token ids.
func rendered(t testing.TB, features string, n int, tensors bool) (Tokens, error) {
	t.Helper()
	return Chat.ParseRender([]byte(`{"token_ids":[1,2,3],"features":`+features+`}`), imagesOf(t, n), tensors)
}

func TestRenderedImages(t *testing.T) {
	got, err := rendered(t, `{"mm_placeholders" : {"image" : [ { "x":{"offset":9} , "length":1, "offset":2 } , {"offset":2,"length":0},{"offset":0,"length":2}]},
		"mm_hashes":{"audio":[],"image":["a", "b\/" ,"a"]}, "kwargs_data":{"image":["QQ==",null,""]},"mm_unknown":7}`, 3, true)
	if err != nil {
		t.Fatal(err)
	}
	f := &got.Features
	want := []Span{
		{Image, []byte(`"a"`), []byte(`{ "x":{"offset":9} , "length":1, "offset":2 }`), []byte(`"QQ=="`), 2, 1, []byte("3"), nil},
		{Image, []byte(`"b\/"`), []byte(`{"offset":2,"length":0}`), nil, 2, 0, nil, nil},
		{Image, []byte(`"a"`), []byte(`{"offset":0,"length":2}`), nil, 0, 2, []byte("1,2"), nil},
	}
	if fmt.Sprintf("%x", f.Items) != fmt.Sprintf("%x", want) {
		t.Errorf("images\n%s\nwant\n%s", fmt.Sprint(f.Items), fmt.Sprint(want))
	}
	if f.PlaceholderTokens() != 3 || f.Tensors() || !f.any() {
		t.Errorf("%d placeholder tokens, tensors %v", f.PlaceholderTokens(), f.Tensors())
	}
	if string(f.Hashes) != `{"audio":[],"image":["a", "b\/" ,"a"]}` || string(f.Kwargs) != `{"image":["QQ==",null,""]}` {
		t.Errorf("%s, %s", f.Hashes, f.Kwargs)
	}
}

// TestRenderedMediaAreInTheOrderOfTheRequest: each list is in the order of the
// entries of its modality.
func TestRenderedMediaAreInTheOrderOfTheRequest(t *testing.T) {
	const features = `{"mm_hashes":{"video":["v"],"image":["i0","i1"],"audio":["a0","a1"],"hologram":["h"]},"mm_placeholders":{"hologram":[{}],` +
		`"audio":[{"offset":3,"length":1},{"offset":1,"length":1,"is_embed":[true]}],"image":[{"offset":4,"length":1},{"offset":2,"length":1}],"video":[{"offset":0,"length":1}]}}`
	answer := []byte(`{"token_ids":[10,11,12,13,14],"features":` + features + `}`)
	media := mediaOf(t, "audio_url", "image_url", "video_url", "input_audio", "image_url")
	got, err := Chat.ParseRender(answer, media, false)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, s := range got.Features.Items {
		order = append(order, fmt.Sprintf("%s %s %s", s.Modality, s.Hash, s.ids))
	}
	if want := []string{`audio "a0" 13`, `image "i0" 14`, `video "v" 10`, `audio "a1" 11`, `image "i1" 12`}; !slices.Equal(order, want) {
		t.Errorf("%q, want %q", order, want)
	}
	if got.Features.PlaceholderTokens() != 5 {
		t.Errorf("%d placeholder tokens", got.Features.PlaceholderTokens())
	}
	for _, members := range [][]string{nil, {"image_url", "image_url", "audio_url", "audio_url"}, {"image_url", "image_url", "audio_url", "video_url", "video_url"},
		{"image_url", "image_url", "image_url", "audio_url", "video_url"}} {
		if _, err := Chat.ParseRender(answer, mediaOf(t, members...), false); err == nil {
			t.Errorf("a request with %q takes it", members)
		}
	}
	for _, places := range []string{`{"image":[{"offset":0,"length":2}],"video":[{"offset":1,"length":1}]}`, `{"image":[{"offset":1,"length":0}],"video":[{"offset":0,"length":2}]}`} {
		answer := []byte(`{"token_ids":[10,11,12],"features":{"mm_hashes":{"image":["i"],"video":["v"]},"mm_placeholders":` + places + `}}`)
		if _, err := Chat.ParseRender(answer, mediaOf(t, "image_url", "video_url"), false); err == nil {
			t.Errorf("%s overlap", places)
		}
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
			if got, err := rendered(t, features, 1, tensors); err == nil || got.Known() || got.Features.Items != nil {
				t.Errorf("%s: %+v", features, got)
			}
		}
	}
	// of a modality that is not known nothing is counted, but it cannot be sent
	// without its places
	if _, err := rendered(t, `{"mm_hashes":{"hologram":["h"]}}`, 0, false); err == nil {
		t.Error("hashes without placeholders are accepted")
	}
	if _, err := Completions.ParseRender([]byte(`[{"token_ids":[1],"features":`+images(1, "")+`}]`), nil, false); err == nil {
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
		got, err := Chat.ParseRender(answer, imagesOf(t, tt.n), false)
		if err != nil {
			t.Fatalf("%s: %v", tt.features, err)
		}
		before := fmt.Sprintf("%x", got)
		clear(answer)
		if after := fmt.Sprintf("%x", got); after != before {
			t.Errorf("%s: it has become\n%s\nof\n%s", tt.features, after, before)
		}
		if f := &got.Features; f.Kwargs != nil || slices.ContainsFunc(f.Items, func(s Span) bool { return s.Kwargs != nil }) || f.any() && f.Tensors() {
			t.Errorf("%s: tensors that are not wanted are kept", tt.features)
		}
		if !bytes.Equal(got.IDs, []byte("[1,2,3]")) {
			t.Errorf("ids are %s", got.IDs)
		}
	}
	// wanted ones are the answer's; the rest is not, and without media nothing
	answer := []byte(`{"token_ids":[1,2,3],"features":` + images(1, `,"kwargs_data":{"image":["QQ=="]}`) + `}`)
	got, err := Chat.ParseRender(answer, imagesOf(t, 1), true)
	if err != nil || string(got.Features.Kwargs) != `{"image":["QQ=="]}` || string(got.Features.Items[0].Kwargs) != `"QQ=="` || !got.Features.Tensors() {
		t.Fatalf("%+v, %v", got, err)
	}
	clear(answer)
	if f := &got.Features; string(f.Hashes) != `{"image":["h"]}` || string(f.Items[0].Hash) != `"h"` || string(f.Items[0].Placeholder) != `{"offset":0,"length":1}` {
		t.Errorf("%+v", f)
	}
	if got, err := rendered(t, `{"mm_hashes":{},"mm_placeholders":{},"kwargs_data":{}}`, 0, true); err != nil || got.Features.Kwargs != nil {
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
		got, err := rendered(t, features, 2, true)
		if err != nil || got.Features.Tensors() != want {
			t.Errorf("%s: %v, %v", features, got.Features.Tensors(), err)
		}
	}
	if !new(Features).Tensors() {
		t.Error("a prompt without media lacks tensors")
	}
}

func TestFormatOfLegs(t *testing.T) {
	whole, err := rendered(t, images(1, `,"kwargs_data":{"image":["QQ=="]}`), 1, true)
	if err != nil {
		t.Fatal(err)
	}
	part, err := rendered(t, images(2, `,"kwargs_data":{"image":["QQ==",null]}`), 2, true)
	if err != nil {
		t.Fatal(err)
	}
	other, err := rendered(t, `{"mm_hashes":{"x":["h"]},"mm_placeholders":{"x":[]}}`, 0, true)
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
		_, _ = rendered(t, `{"mm_hashes":{"image":["h"]},"mm_placeholders":{"image":[`+p+`]}}`, 1, true)
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
	for _, name := range []string{"mm_hashes", "mm_placeholders", "kwargs_data", "mm_metadata"} {
		v := members[key(name)]
		if absent(v) || strict && name == "mm_metadata" { // a client's is the worker's to judge
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
		apart := map[string]string{}
		for m := range Modalities {
			name := key(m.String())
			if !modalityOracle(h[name], p[name], k[name], count) || !modalityOracle(h[name], p[name], maps["mm_metadata"][name], count) {
				return false
			}
			apart[name] = p[name]
		}
		return (!some || p != nil) && apartOracle(apart, count)
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
	return len(p) == len(h) && (k == nil || len(k) == len(h)) && apartOracle(p, count)
}

// apartOracle reports whether no span of any modality shares an id with another,
// nor stands between two ids of one.
func apartOracle(placeholders map[string]string, count int) bool {
	taken := make([]bool, count)
	between := map[int]bool{} // ids of one span: this one and the one before
	var empty []int
	for _, list := range placeholders {
		all, _, _ := listOracle(list)
		for _, p := range all {
			var at struct{ Offset, Length int }
			members := last(p)
			fmt.Sscan(members[key("offset")], &at.Offset)
			fmt.Sscan(members[key("length")], &at.Length)
			if at.Length == 0 {
				empty = append(empty, at.Offset)
			}
			for i := at.Offset; i < at.Offset+at.Length; i++ {
				if taken[i] {
					return false
				}
				taken[i] = true
				between[i] = i > at.Offset
			}
		}
	}
	return !slices.ContainsFunc(empty, func(offset int) bool { return between[offset] })
}

func FuzzRenderAnswer(f *testing.F) {
	for _, answer := range []string{
		`{"token_ids":[1,2,3],"features":` + images(2, `,"kwargs_data":{"image":["QQ==",null]}`) + `}`,
		`[ {"token_ids" : [ 1 , 22,333 ],"features":{"mm_hashes":{"image":["a\/"],"x":["b"]},"mm_placeholders":{"x":[7],"image":[{ "z":1 , "length":2,"offset" : 1 }]}}} ]`,
		`{"token_ids":[1],"features":null}`, `{"token_ids":[1],"features":{"mm_hashes":{"x":["h"]},"mm_placeholders":{},"kwargs_data":{"x":[""]}}}`,
		`{"token_ids":[1,2],"features":{"mm_hashes":{"x":[],"image":["h"],"image":["h"]},"mm_placeholders":{"image":[{"offset":1,"length":9223372036854775807}]}}}`,
		`{"token_ids":[7],"features":{"mm_hashes":{"\ud800":["h"]},"mm_placeholders":{"\ud801":null}}}`,
		`{"token_ids":[1],"features":{"mm_hashes":{"x":["h"]}}}`,
		`{"token_ids":[1,2,3],"features":{"mm_hashes":{"video":["v"],"image":["i"],"audio":["a"]},"mm_placeholders":{"audio":[{"offset":0,"length":1}],"video":[{"offset":1,"length":1}],` +
			`"image":[{"offset":2,"length":1}]},"kwargs_data":{"image":["QQ=="],"audio":["QQ=="],"video":["QQ=="]}}}`,
		`{"token_ids":[1,2,3],"features":` + images(2, `,"kwargs_data":{"y":7,"image":["QQ==","Qg=="]},"mm_metadata":{"image":[null,"TQ=="],"x":7}`) + `}`,
		`{"token_ids":[1,2,3],"features":` + images(1, `,"kwargs_data":{"image":["QQ=="]},"mm_metadata":{"image":["TQ==",null]}`) + `}`,
	} {
		f.Add([]byte(answer), 1, true)
		f.Add([]byte(answer), 2, false)
		f.Add([]byte(answer), 0, true)
		f.Add([]byte(answer), 0o111, true)
	}
	f.Fuzz(func(t *testing.T, answer []byte, n int, tensors bool) {
		object, listed := answer, false
		if values, ok := elements(answer); ok && Valid(answer) == nil && len(values) == 1 {
			object, listed = []byte(values[0]), true
		}
		media := mediaOfNumber(t, n)
		for _, p := range []*Protocol{Chat, Completions} {
			got, err := p.ParseRender(answer, media, tensors)
			ids := ""
			if Valid(answer) == nil && listed == p.renderList {
				ids = last(string(object))[key("token_ids")]
			}
			count, ok := countIDs([]byte(ids))
			features := last(string(object))[key("features")]
			want := ok && count > 0 && featuresOracle(features, count, false)
			for m := range Modalities {
				items, _ := elements([]byte(last(last(features)[key("mm_hashes")])[key(m.String())]))
				want = want && len(items) == media.Count(m)
			}
			if want != (err == nil) {
				t.Fatalf("%s: %q with media %d: %v, the oracle takes it: %v", p.Name, answer, n, err, want)
			}
			if err == nil {
				checkRendered(t, answer, got, ids, count, media, tensors)
			}
		}
	})
}

// mediaOfNumber are media by their number in octal: of images, audio files and
// videos, which stand in turn.
func mediaOfNumber(t *testing.T, n int) *Media {
	n = max(n, 0)
	left := [Modalities]int{n % 8, n / 8 % 8, n / 64 % 8}
	var members []string
	for left != [Modalities]int{} {
		for m, name := range []string{"image_url", "input_audio", "video_url"} {
			if left[m] > 0 {
				left[m]--
				members = append(members, name)
			}
		}
	}
	return mediaOf(t, members...)
}

// checkRendered checks what was read of an answer, and the legs made of it.
func checkRendered(t *testing.T, answer []byte, got Tokens, ids string, count int, media *Media, tensors bool) {
	t.Helper()
	if string(got.IDs) != ids || got.Count != count || len(got.Features.Items) != media.Len() {
		t.Fatalf("%q: %q (%d), %d media; want %q (%d), %d", answer, got.IDs, got.Count, len(got.Features.Items), ids, count, media.Len())
	}
	messages := `[]`
	if media != nil {
		messages = string(media.messages)
	}
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
		checkReduced(t, src, format, count)
	}
	for i, im := range got.Features.Items {
		if im.Modality != media.Modality(i) || !insideOracle(string(im.Placeholder), count) || im.Offset+im.Length > count || im.Hash[0] != '"' {
			t.Fatalf("medium %d is %+v of %d", i, im, count)
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
	list := last(last(members[key("features")])[key("mm_placeholders")])[key(im.Modality.String())]
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
	places := `"x":[` + strings.Repeat(`{"offset":0,"length":0},`, n) + `{"offset":0,"length":1}]`
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
