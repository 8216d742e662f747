package wire

import (
	"bytes"
	"strings"
	"testing"
)

func TestRenderAnswer(t *testing.T) {
	for _, tt := range []struct {
		object string
		ids    string
		n      int
	}{
		{`{"token_ids":[1,2,3]}`, "[1,2,3]", 3},
		{`{"request_id":"x","token_ids" : [ 151644 , 9007199254740993 ] ,"features":null}`, "[ 151644 , 9007199254740993 ]", 2},
		{`{"token_ids":[0],"features":{}}`, "[0]", 1},
		{`{"token_ids":[1],"features":{"mm_hashes":null,"mm_placeholders":null,"kwargs_data":null}}`, "[1]", 1},
		{`{"token_ids":[1],"features":{"mm_hashes":{},"mm_placeholders":{},"kwargs_data":{}}}`, "[1]", 1},
		{`{"token_ids":[1],"features":{"mm_hashes":{"image":[]},"mm_placeholders":{"image":[ ]},"kwargs_data":{"image":null}}}`, "[1]", 1},
		// modalities that are not known are carried and not counted
		{`{"token_ids":[1],"features":{"mm_hashes":{"hologram":["h"]},"mm_placeholders":{"hologram":[{"offset":0,"length":1}]}}}`, "[1]", 1},
		{`{"token_ids":[1],"token\u005fids":[2,3]}`, "[2,3]", 2},
		{`{"features":{"mm_hashes":{"image":["h"]}},"token_ids":[4],"features":null}`, "[4]", 1},
		{`{"token_ids":[1],"unknown":{"mm_hashes":{"image":["h"]}}}`, "[1]", 1},
	} {
		for _, p := range []struct {
			*Protocol
			before, after string
		}{{Chat, "", ""}, {Chat, " \n", "\t "}, {Completions, "[", "]"}, {Completions, " [ ", " ]\n"}} {
			answer := []byte(p.before + tt.object + p.after)
			got, err := p.ParseRender(answer, nil, len(answer)%2 == 0) // there are no tensors to be wanted
			clear(answer)                                              // nothing of it may be kept
			if err != nil || string(got.IDs) != tt.ids || got.Count != tt.n || !got.Known() {
				t.Errorf("%s: %s%s%s: %q (%d), %v", p.Name, p.before, tt.object, p.after, got.IDs, got.Count, err)
			}
			if f := &got.Features; f.Items != nil || f.PlaceholderTokens() != 0 || bytes.IndexByte(f.Hashes, 0) >= 0 ||
				bytes.IndexByte(f.Placeholders, 0) >= 0 || !f.any() && f.Kwargs != nil {
				t.Errorf("%s: %s: features %+v", p.Name, tt.object, f)
			}
		}
	}
}

func TestRenderAnswerThatMakesNoSense(t *testing.T) {
	for _, object := range []string{
		``, `{`, `{"token_ids":[1,2}`, `{"token_ids":[1]}}`, `{"token_ids":[1]} x`, `{"token_ids":[1]}{"token_ids":[1]}`, "{\"token_ids\":[1],\"a\":\"\xff\"}",
		`null`, `"x"`, `1`, `[]`, `[1,2]`, `[[{"token_ids":[1]}]]`,
		`{}`, `{"token_ids":[]}`, `{"token_ids":[ ]}`, `{"token_ids":null}`, `{"token_ids":"[1]"}`, `{"token_ids":{"a":1}}`, `{"token_ids":1}`,
		`{"token_ids":[1.0]}`, `{"token_ids":[-1]}`, `{"token_ids":["1"]}`, `{"token_ids":[[1]]}`, `{"token_ids":[1,null]}`, `{"token_ids":[1],"token_ids":null}`,
		`{"a":{"token_ids":[1]}}`, `{"Token_ids":[1]}`,
		// images that the request does not have, in any of the three lists
		`{"token_ids":[1],"features":{"mm_hashes":{"image":["h"]},"mm_placeholders":{"image":[{"offset":0,"length":1}]},"kwargs_data":{"image":["AA"]}}}`,
		`{"token_ids":[1],"features":{"mm_hashes":{"image":["h"]}}}`,
		`{"token_ids":[1],"features":{"mm_hashes":{"audio":[],"image":["a","b"]}}}`,
		`{"token_ids":[1],"features":{"mm_hashes":{"image":[null]}}}`,
		`{"token_ids":[1],"features":{"mm_hashes":{"image":[]},"mm_placeholders":{"image":[{"offset":0,"length":1}]}}}`,
		`{"token_ids":[1],"features":{"mm_placeholders":{"image":[{"offset":0,"length":1}]}}}`,
		`{"token_ids":[1],"features":{"kwargs_data":{"image":[null]}}}`,
	} {
		for p, answer := range map[*Protocol]string{Chat: object, Completions: "[" + object + "]"} {
			if p == Completions && object == "" {
				continue
			}
			if got, err := p.ParseRender([]byte(answer), nil, false); err == nil || got.Known() || got.Count != 0 {
				t.Errorf("%s: %q: %q (%d), %v", p.Name, answer, got.IDs, got.Count, err)
			}
		}
	}
}

func TestRenderAnswerOfTheOtherRoute(t *testing.T) {
	const object = `{"token_ids":[1,2]}`
	for _, answer := range []string{object, `[]`, `[ ]`, `[` + object + `,` + object + `]`, `{"0":` + object + `}`, `[` + object + `,null]`, `[` + object, `[` + object + `]]`} {
		if _, err := Completions.ParseRender([]byte(answer), nil, false); err == nil {
			t.Errorf("completions: %s is accepted", answer)
		}
	}
	if _, err := Chat.ParseRender([]byte(`[`+object+`]`), nil, false); err == nil {
		t.Error("chat: a list is accepted")
	}
}

func TestRenderErrorsQuoteNothing(t *testing.T) {
	for _, answer := range []string{`{"secret"`, `{"token_ids":["secret"]}`, `{"token_ids":[1],"features":{"mm_hashes":{"image":["secret"]}}}`, `["secret"]`, `"secret"`} {
		for _, p := range Protocols() {
			if _, err := p.ParseRender([]byte(answer), nil, false); err == nil || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %s: %v", p.Name, answer, err)
			}
		}
	}
}

func TestTransferIsAnObjectOrNothing(t *testing.T) {
	for _, tt := range []struct{ answer, want string }{
		{`{"id":"x","kv_transfer_params" : { "a" : 1.0 , "b":9007199254740993 } }`, `{ "a" : 1.0 , "b":9007199254740993 }`},
		{` {"kv_transfer_params":{}} `, `{}`},
		{`{"kv_transfer_params":{"a":1},"kv\u005ftransfer_params":{"b":2}}`, `{"b":2}`},
		{`{"kv_transfer_params":{"a":1},"kv_transfer_params":null}`, ``},
		{`{"kv_transfer_params":null}`, ``},
		{`{"kv_transfer_params":[{}]}`, ``},
		{`{"kv_transfer_params":"{}"}`, ``},
		{`{"kv_transfer_params":1}`, ``},
		{`{"choices":[{"kv_transfer_params":{"a":1}}]}`, ``},
		{`{}`, ``}, {`[]`, ``}, {`[{"kv_transfer_params":{}}]`, ``}, {`null`, ``},
	} {
		if got := Transfer([]byte(tt.answer)); string(got) != tt.want || (got == nil) != (tt.want == "") {
			t.Errorf("Transfer(%s) = %q, want %q", tt.answer, got, tt.want)
		}
	}
}
