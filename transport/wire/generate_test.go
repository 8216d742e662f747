package wire

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestGeneratePrompt(t *testing.T) {
	for _, tt := range []struct {
		body   string
		ids    string
		n      int
		images int
	}{
		{`{"token_ids":[1]}`, "[1]", 1, 0},
		{`{"token_ids" : [ 0 , 9007199254740993 ] ,"sampling_params":{"extra_args":{}}}`, "[ 0 , 9007199254740993 ]", 2, 0},
		{`{"token_ids":[1],"\u0074oken_ids":[2,3],"sampling_params":null,"content_parts":null,"features":null}`, "[2,3]", 2, 0},
		{`{"token_ids":[1,2],"sampling_params":{"extra_args":null},"features":{}}`, "[1,2]", 2, 0},
		{`{"token_ids":[1,2],"features":` + images(2, "") + `}`, "[1,2]", 2, 2},
		{`{"token_ids":[1,2],"features":` + images(2, `,"kwargs_data":{"image":[null,""]}`) + `}`, "[1,2]", 2, 2},
		{`{"token_ids":[1,2],"features":` + images(1, `,"kwargs_data":null`) + `}`, "[1,2]", 2, 1},
		{`{"token_ids":[1,2],"features":{"mm_hashes":null,"mm_placeholders":null,"x":7}}`, "[1,2]", 2, 0},
		{`{"token_ids":[1,2],"features":{"mm_hashes":{"image":[],"audio":["h"]},"mm_placeholders":{"audio":[{"offset":1,"length":1,"x":2}],"image":[]}}}`, "[1,2]", 2, 1},
		{`{"token_ids":[1,2],"features":{"mm_hashes":{"image":[],"hologram":["h"]},"mm_placeholders":{"hologram":[{"offset":1,"length":1}],"image":[]}}}`, "[1,2]", 2, 0},
		{`{"token_ids":[1,2],"features":{"mm_hashes":{"image":["a"],"im\u0061ge":[]},"mm_placeholders":{"image":[]}}}`, "[1,2]", 2, 0},
	} {
		got, err := Generate.Prompt(mustParse(t, tt.body))
		if err != nil || string(got.Given.IDs) != tt.ids || got.Given.Count != tt.n || len(got.Given.Features.Items) != tt.images || got.Media != nil || !got.Given.Known() {
			t.Errorf("%s: %+v, %v", tt.body, got, err)
		}
	}
}

func TestGeneratePromptThatIsRefused(t *testing.T) {
	bad := []string{`{}`}
	for _, ids := range []string{`null`, `[]`, `[ ]`, `"x"`, `7`, `{}`, `[1.0]`, `[-1]`, `[1e3]`, `["1"]`, `[[1]]`, `[1,null]`, `[true]`} {
		bad = append(bad, `{"token_ids":`+ids+`}`)
	}
	many := `{` + strings.Repeat(`"x":1,`, MaxMembers) + `"x":1}` // which legs cannot be made of
	for _, params := range []string{many, `{"extra_args":` + many + `}`, `[]`, `"x"`, `7`, `false`, `{"extra_args":[]}`, `{"extra_args":7}`, `{"extra_args":"x"}`, `{"extra_args":{},"extra\u005fargs":false}`} {
		bad = append(bad, `{"token_ids":[1],"sampling_params":`+params+`}`)
	}
	maps := func(hashes, placeholders, kwargs string) string {
		return `{"mm_hashes":` + hashes + `,"mm_placeholders":` + placeholders + `,"kwargs_data":` + kwargs + `}`
	}
	const h, p = `{"image":["h"]}`, `{"image":[{"offset":0,"length":1}]}`
	for _, features := range []string{
		`[]`, `"x"`, `7`, `false`,
		// maps that are none
		maps(`[]`, p, `null`), maps(h, `"x"`, `null`), maps(h, p, `[]`), maps(h, p, `""`), maps(`false`, `null`, `null`),
		// one without another
		`{"mm_hashes":` + h + `}`, `{"mm_hashes":{}}`, `{"mm_placeholders":` + p + `}`, `{"kwargs_data":{"image":[null]}}`, `{"mm_placeholders":{}}`, maps(`null`, p, `null`), maps(h, `null`, `{"image":[null]}`),
		// lengths
		maps(`{"image":["h","h"]}`, p, `null`), maps(`{"image":[]}`, p, `null`), maps(h, `{"image":[]}`, `null`), maps(h, p, `{"image":[]}`), maps(h, p, `{"image":[null,null]}`),
		// lists that are none
		maps(`{"image":"h"}`, p, `null`), maps(`{"image":{"a":"h"}}`, p, `null`), maps(h, `{"image":{"offset":0,"length":1}}`, `null`), maps(h, p, `{"image":"QQ=="}`),
		// modalities of one map that are not in another
		maps(`{"image":["h"],"audio":[]}`, p, `null`), maps(h, `{"image":[{"offset":0,"length":1}],"audio":[]}`, `null`), maps(h, p, `{}`), maps(h, p, `{"image":[null],"audio":[]}`),
		maps(h, p, `{"audio":[null]}`), maps(`{"audio":[]}`, `{"video":[]}`, `null`),
		// items
		maps(`{"image":[7]}`, p, `null`), maps(`{"image":[null]}`, p, `null`), maps(h, p, `{"image":[7]}`), maps(h, p, `{"image":[{}]}`), maps(h, p, `{"image":[true]}`),
		// modalities that are not images
		maps(`{"audio":["h"]}`, `{"audio":[{"offset":0,"length":9}]}`, `null`), maps(`{"audio":["h"]}`, `{"audio":[]}`, `null`), maps(`{"audio":[7]}`, `{"audio":[{"offset":0,"length":1}]}`, `null`),
		maps(`{"audio":"h"}`, `{"audio":[]}`, `null`), maps(`{"image":[],"secret":["h"]}`, `{"image":[],"secret":[{"offset":5,"length":1}]}`, `null`),
		// spans must be apart, whatever their modality
		maps(`{"image":["h","h"]}`, `{"image":[{"offset":0,"length":2},{"offset":1,"length":1}]}`, `null`),
		maps(`{"video":["h"],"image":["h"]}`, `{"image":[{"offset":1,"length":1}],"video":[{"offset":0,"length":2}]}`, `null`),
		maps(`{"secret":["h"],"audio":["h"]}`, `{"audio":[{"offset":1,"length":1}],"secret":[{"offset":1,"length":1}]}`, `null`),
		// the span must lie inside
		maps(h, `{"image":[{"offset":2,"length":0}]}`, `null`), maps(h, `{"image":[{"offset":1,"length":2}]}`, `null`), maps(h, `{"image":[{"offset":-1,"length":1}]}`, `null`),
		maps(h, `{"image":[{"offset":1,"length":-1}]}`, `null`), maps(h, `{"image":[{"offset":1,"length":9223372036854775807}]}`, `null`), maps(h, `{"image":[{"offset":9223372036854775808,"length":0}]}`, `null`),
		maps(h, `{"image":[{"length":1}]}`, `null`), maps(h, `{"image":[null]}`, `null`), maps(h, `{"image":[[0,1]]}`, `null`), maps(h, `{"image":[{"offset":0.0,"length":1}]}`, `null`),
	} {
		bad = append(bad, `{"token_ids":[1,2],"features":`+features+`}`)
	}
	for _, body := range bad {
		_, err := Generate.Prompt(mustParse(t, body))
		t.Run(body[:min(len(body), 200)], func(t *testing.T) {
			wantFault(t, err, "invalid_prompt")
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the message is %q", err)
			}
		})
	}
	for _, parts := range []string{`[]`, `[{"type":"image_url","url":"http://a/"}]`, `false`, `"x"`, `{}`} {
		_, err := Generate.Prompt(mustParse(t, `{"token_ids":[1],"content_parts":`+parts+`}`))
		t.Run(parts, func(t *testing.T) { wantFault(t, err, "invalid_media") })
	}
}

func TestTensorsOfAGenerateClient(t *testing.T) {
	const h = `"mm_hashes":{"image":["a","b"]},"mm_placeholders":{"image":[{"offset":0,"length":1},{"offset":1,"length":1}]}`
	const two = `"mm_hashes":{"x" : ["c"],"image":["a"]},"mm_placeholders":{"image":[{"offset":0,"length":1}],"x":[{"offset":1,"length":1}]}`
	for _, tt := range []struct{ features, want string }{ // "": as it came
		{`{` + h + `,"kwargs_data":{ "image" : ["QQ==", "Qg=="] } , "x":1.0}`, ""},
		{`{` + h + `}`, `{` + h + `,"kwargs_data":{"image":[null,null]}}`},
		{`{"kwargs_data" : null , ` + h + `}`, `{"kwargs_data":{"image":[null,null]},` + h + `}`},
		{`{"kwargs_data":{"image":["", "Qg\/="]},"mm_metadata":{"image":["x"]}, ` + h + `}`, `{"kwargs_data":{"image":[null,"Qg\/="]},"mm_metadata":{"image":["x"]}, ` + h + `}`},
		{`{` + h + `,"kwargs\u005fdata":{"image":[null,"Qg=="]}}`, `{` + h + `,"kwargs_data":{"image":[null,"Qg=="]}}`},
		{`{` + h + `,"kwargs_data":{"image":null}}`, `{` + h + `,"kwargs_data":{"image":[null,null]}}`},
		{`{` + two + `,"kwargs_data":{"image":["QQ=="],"x":[""]}}`, `{` + two + `,"kwargs_data":{"x" : [null],"image":["QQ=="]}}`},
		{`{` + two + `,"kwargs_data":{"image":[""],"x":["QQ=="]}}`, `{` + two + `,"kwargs_data":{"x" : ["QQ=="],"image":[null]}}`},
		{`{"mm_hashes":{},"mm_placeholders":{}}`, ""}, {`{}`, ""}, {`null`, ""}, {`{"mm_hashes":{"image":[]},"mm_placeholders":{"image":[]}}`, ""},
		{`{"mm_hashes":{"image":["z","z"],"image":["a"]},"mm_placeholders":{"image":[{"offset":0,"length":1}]}}`,
			`{"mm_hashes":{"image":["z","z"],"image":["a"]},"mm_placeholders":{"image":[{"offset":0,"length":1}]},"kwargs_data":{"image":[null]}}`},
	} {
		if tt.want == "" {
			tt.want = tt.features
		}
		body := mustParse(t, `{"token_ids":[1,2],"features":`+tt.features+`}`)
		prompt, err := Generate.Prompt(body)
		if err != nil {
			t.Fatalf("%s: %v", tt.features, err)
		}
		src := Generate.Source(body, prompt, nil, Tokens{})
		for _, f := range []Format{OpenAI, TokensIn} { // it has but one
			leg := mustParse(t, string(Generate.PrefillLeg(src, f, "r", Transfers{}).Append(nil)))
			if got := string(leg.Get("features")); got != tt.want {
				t.Errorf("%s: features\n%s\nwant\n%s", tt.features, got, tt.want)
			}
		}
		for _, leg := range []Payload{Generate.DecodeLeg(src, Transfers{}), Generate.ProbeLeg(src)} {
			if got, want := string(leg.Append(nil)), `{"token_ids":[1,2],"features":`+tt.features+`}`; got != want {
				t.Errorf("the leg is\n%s\nwant\n%s", got, want)
			}
		}
	}
}

// generateOracle says by the contract's section 5 whether a generate body is
// accepted.
func generateOracle(text []byte) bool {
	members := last(string(text))
	n, ok := countIDs([]byte(members[key("token_ids")]))
	params := members[key("sampling_params")]
	if !ok || n == 0 || !absent(members[key("content_parts")]) || !absent(params) && last(params) == nil {
		return false
	}
	if extra := last(params)[key("extra_args")]; !absent(extra) && last(extra) == nil {
		return false
	}
	return featuresOracle(members[key("features")], n, true)
}

func FuzzGenerate(f *testing.F) {
	for _, body := range []string{
		`{"token_ids":[1,2,3],"features":` + images(2, `,"kwargs_data":{"image":["QQ==",null]}`) + `,"sampling_params":{"n":1,"extra_args":{"kv_transfer_params":1,"x":2}}}`,
		`{"token_ids":[1],"sampling_params":null,"features":{"mm_hashes":{"image":["h"],"x":["h"]},"mm_placeholders":{"x":[{"offset":0,"length":1}],"im\u0061ge":[{"length":0,"offset":0}]}}}`,
		`{"token_ids":[1],"sampling_params":{"stop":["a"],"max_tokens":0,"extra_args":null,"n":"2"},"stream_options":{},"content_parts":null}`,
		`{"token_ids":[7],"features":{"mm_hashes":{"\ud800":[]},"mm_placeholders":{"\ud801":[]},"kwargs_data":{}}}`,
		`{"token_ids":[7],"features":{"mm_hashes":{},"mm_placeholders":{},"kwargs_data":null},"content_parts":[]}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		body, err := ParseBody(text)
		if err != nil {
			return
		}
		body = Sanitize(body)
		prompt, err := Generate.Prompt(body)
		if want := generateOracle(text); want != (err == nil) {
			t.Fatalf("%q: %v, the oracle takes it: %v", text, err, want)
		}
		for _, p := range Protocols() {
			p.LocalKV(body)
		}
		if err != nil {
			FaultOf(err).ErrorCode()
			return
		}
		src := Generate.Source(body, prompt, nil, Tokens{})
		kv := Raw(`{"a":1}`)
		for capped, legs := range map[bool][]Payload{
			true:  {Generate.PrefillLeg(src, TokensIn, "r", Transfers{KV: kv}), Generate.ReleaseLeg(src, Transfers{KV: kv})},
			false: {Generate.DecodeLeg(src, Transfers{KV: kv})},
		} {
			for _, leg := range legs {
				checkGenerateLeg(t, leg, capped)
			}
		}
		if got, want := string(Generate.ProbeLeg(src).Append(nil)), string(body.Edit().Payload().Append(nil)); got != want {
			t.Fatalf("the probe is %q, want %q", got, want)
		}
	})
}

// checkGenerateLeg checks what the contract's section 8 says of a leg.
func checkGenerateLeg(t *testing.T, leg Payload, capped bool) {
	t.Helper()
	text := string(leg.Append(nil))
	members := last(text)
	params := last(members[key("sampling_params")])
	if !json.Valid(leg.Append(nil)) || members[key("kv_transfer_params")] != `{"a":1}` || last(params[key("extra_args")])[key("kv_transfer_params")] != `{"a":1}` {
		t.Fatalf("the leg is %q", text)
	}
	if !capped {
		return
	}
	if members[key("stream")] != "false" || members[key("stream_options")] != "" || params[key("max_tokens")] != "1" || params[key("ignore_eos")] != "true" ||
		slices.ContainsFunc(samplingDrops, func(name string) bool { return params[key(name)] != "" }) {
		t.Fatalf("the leg is not capped: %q", text)
	}
	n, _ := countIDs([]byte(members[key("token_ids")]))
	if !featuresOracle(members[key("features")], n, true) {
		t.Fatalf("the leg would be refused: %q", text)
	}
	if members[key("request_id")] != `"r"` { // a release
		return
	}
	f := last(members[key("features")])
	for name, list := range last(f[key("mm_hashes")]) {
		hashes, _ := elements([]byte(list))
		items, ok := elements([]byte(last(f[key("kwargs_data")])[name]))
		if len(hashes) > 0 && (!ok || len(items) != len(hashes) || slices.Contains(items, `""`)) {
			t.Fatalf("tensors of %q are %q", list, items)
		}
	}
}

// TestReserveLegs are prefill's without tensors: what stands beside them stays as it came.
func TestReserveLegs(t *testing.T) {
	const places = `"mm_hashes":{"image":["a"]},"mm_placeholders" : {"image":[{"offset":0,"length":1,"x":1.0}]}`
	for given, want := range map[string]string{
		`{"kwargs_data":{"image":["QQ=="]},"y":[ ],` + places + `}`: `{"y":[ ],` + places + `}`,
		`{` + places + `,"kwargs\u005fdata":{"image":[null]}}`:      `{` + places + `}`,
		`{` + places + `,"kwargs_data":null}`:                       `{` + places + `,"kwargs_data":null}`,
		`{` + places + `}`:                                          `{` + places + `}`,
		`null`:                                                      `null`,
	} {
		body := mustParse(t, `{"token_ids":[1,2],"features":`+given+`}`)
		prompt, err := Generate.Prompt(body)
		if err != nil {
			t.Fatal(err)
		}
		leg := mustParse(t, string(Generate.ReserveLeg(Generate.Source(body, prompt, nil, Tokens{}), TokensIn, "r", Transfers{}).Append(nil)))
		if got := string(leg.Get("features")); got != want {
			t.Errorf("%s: features\n%s\nwant\n%s", given, got, want)
		}
	}
	tokens, err := rendered(t, reducible, 3, true)
	if err != nil {
		t.Fatal(err)
	}
	chat := Source{Body: mustParse(t, `{"model":"m","messages":[]}`), Tokens: tokens}
	leg := string(Chat.ReserveLeg(chat, TokensIn, "r", Transfers{}).Append(nil))
	want := `"features":{"mm_hashes":` + string(tokens.Features.Hashes) + `,"mm_placeholders":` + string(tokens.Features.Placeholders) + `}`
	if !strings.Contains(leg, want) || chat.Reduced != nil {
		t.Errorf("%s\nwant %s", leg, want)
	}
}
