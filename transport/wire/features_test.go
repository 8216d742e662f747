package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
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
		{Image, []byte(`"a"`), []byte(`{ "x":{"offset":9} , "length":1, "offset":2 }`), nil, 2, 1, []byte("3"), nil}, // without the others its tensor is of no use
		{Image, []byte(`"b\/"`), []byte(`{"offset":2,"length":0}`), nil, 2, 0, nil, nil},
		{Image, []byte(`"a"`), []byte(`{"offset":0,"length":2}`), nil, 0, 2, []byte("1,2"), nil},
	}
	if fmt.Sprintf("%x", f.Items) != fmt.Sprintf("%x", want) {
		t.Errorf("images\n%s\nwant\n%s", fmt.Sprint(f.Items), fmt.Sprint(want))
	}
	if f.PlaceholderTokens() != 3 || f.Tensors() || !f.any() {
		t.Errorf("%d placeholder tokens, tensors %v", f.PlaceholderTokens(), f.Tensors())
	}
	if string(f.Hashes) != `{"audio":[],"image":["a", "b\/" ,"a"]}` || f.Kwargs != nil {
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

// Maps by modality may have as many names as a body is long: a walk for each of
// them would not end in this test's time, nor may each cost more memory than text.
func TestManyModalities(t *testing.T) {
	const n = 50_000
	names := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"m%d":[],`, i)
		}
		return b.String()
	}
	same := strings.Repeat(`"x":[],`, n)
	long := func(name string, n int) [2]string {
		return [2]string{name + `:[` + strings.Repeat(`"",`, n-1) + `""]`, name + `:[` + strings.Repeat(`{"offset":0,"length":0},`, n-1) + `{"offset":0,"length":1}]`}
	}
	many, tooMany, images := long(`"x"`, MaxMedia), long(`"x"`, n), long(`"image"`, n)
	for name, tt := range map[string]struct {
		maps [2]string
		want string
	}{
		"distinct":          {[2]string{`{` + names(maxModalities-1) + `"x":["h"]}`, `{` + names(maxModalities-1) + `"x":[{"offset":0,"length":1}]}`}, ""},
		"too many distinct": {[2]string{`{` + names(n) + `"x":["h"]}`, `{` + names(n) + `"x":[{"offset":0,"length":1}]}`}, "too many modalities"},
		"the same":          {[2]string{`{` + same + many[0] + `}`, `{` + same + many[1] + `}`}, ""},
		"too many items":    {[2]string{`{` + tooMany[0] + `}`, `{` + tooMany[1] + `}`}, "more than 10000 items"},
		"too many images":   {[2]string{`{` + images[0] + `}`, `{` + images[1] + `}`}, "more than 10000 items"},
	} {
		maps := tt.maps
		kwargs := strings.Replace(maps[0], `"h"`, `""`, 1)
		body := mustParse(t, `{"token_ids":[1],"features":{"mm_hashes":`+maps[0]+`,"mm_placeholders":`+maps[1]+`,"kwargs_data":`+kwargs+`}}`)
		prompt, err := Generate.Prompt(body)
		if tt.want != "" {
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
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
