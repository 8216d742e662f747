package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"testing"
)

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
