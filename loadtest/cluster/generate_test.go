package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// generateBody is a body of the generate route for a completions prompt.
func (r *rig) generateBody(prompt, more, sampling string) string {
	return fmt.Sprintf(`{"token_ids":%s,"sampling_params":{%s}%s}`, jsonText(r.TokenIDs(prompt)), sampling, more)
}

func TestGenerateShapes(t *testing.T) {
	r := start(t, Options{})
	you := r.TokenIDs("You said: hi")[1:]
	for _, test := range []struct{ name, more, sampling, want string }{
		{"whole", "", `"n":2`, fmt.Sprintf(
			`{"request_id":"generate-tokens-req","model":"demo-model","created":1750000000,"choices":[{"index":0,"finish_reason":"stop","token_ids":%[1]s,"logprobs":null,"routed_experts":null},{"index":1,"finish_reason":"stop","token_ids":%[1]s,"logprobs":null,"routed_experts":null}],"usage":{"prompt_tokens":2,"total_tokens":8,"completion_tokens":6},"prompt_logprobs":null,"kv_transfer_params":null,"ec_transfer_params":null}`, jsonText(you))},
		{"streamed", `,"stream":true,"stream_options":{"include_usage":true}`, `"max_tokens":2`, fmt.Sprintf(
			`data: {"request_id":"generate-tokens-req","model":"demo-model","created":1750000000,"choices":[{"index":0,"finish_reason":null,"token_ids":[%d],"logprobs":null,"routed_experts":null}]}

data: {"request_id":"generate-tokens-req","model":"demo-model","created":1750000000,"choices":[{"index":0,"finish_reason":"length","token_ids":[%d],"logprobs":null,"routed_experts":null}]}

data: {"request_id":"generate-tokens-req","model":"demo-model","created":1750000000,"choices":[],"usage":{"prompt_tokens":2,"total_tokens":4,"completion_tokens":2}}

data: [DONE]

`, you[0], you[1])},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := r.send(call{leg: Decode, path: generatePath, body: r.generateBody("hi", test.more, test.sampling)})
			if got.body != test.want {
				t.Errorf("got\n%s\nwant\n%s", got.body, test.want)
			}
		})
	}
	if r.Words(you) != Reply("hi") {
		t.Errorf("words %q", r.Words(you))
	}
	r.noViolations()
}

// TestGenerateRefusals has a row for each thing that newer workers refuse.
func TestGenerateRefusals(t *testing.T) {
	r := start(t, Options{})
	items, _ := tensorsOf([]image{{hash: "a", length: 4}}, 8)
	item := items[0]
	features := func(hashes, places, tensors string) string {
		return fmt.Sprintf(`{"token_ids":[1,2,3,4],"sampling_params":{},"features":{"mm_hashes":%s,"mm_placeholders":%s,"kwargs_data":%s}}`, hashes, places, tensors)
	}
	at := func(offset, length any) string {
		return features(`{"image":["a"]}`, fmt.Sprintf(`{"image":[{"offset":%v,"length":%v}]}`, offset, length), `{"image":["`+item+`"]}`)
	}
	sampling := func(params string) string { return `{"token_ids":[1,2],"sampling_params":{` + params + `}}` }
	for _, test := range []struct {
		name, leg, body string
		param           string // "" if it is good
	}{
		{"good", Decode, at(1, 3), ""},
		{"no ids", Decode, `{"sampling_params":{}}`, "token_ids"},
		{"empty ids", Decode, `{"token_ids":[],"sampling_params":{}}`, "token_ids"},
		{"negative id", Decode, `{"token_ids":[-1],"sampling_params":{}}`, "token_ids"},
		{"fraction", Decode, `{"token_ids":[1.5],"sampling_params":{}}`, "token_ids"},
		{"no sampling", Decode, `{"token_ids":[1]}`, "sampling_params"},
		{"null sampling", Decode, `{"token_ids":[1],"sampling_params":null}`, "sampling_params"},
		{"sampling list", Decode, `{"token_ids":[1],"sampling_params":[]}`, "sampling_params"},
		{"features list", Decode, `{"token_ids":[1],"sampling_params":{},"features":[]}`, "features"},
		{"offset negative", Decode, at(-1, 1), "features"},
		{"offset outside", Decode, at(4, 1), "features"},
		{"length 0", Decode, at(1, 0), "features"},
		{"too long", Decode, at(1, 4), "features"},
		{"overflow", Decode, at(1, "9223372036854775807"), "features"},
		{"length text", Decode, at(1, `"1"`), "features"},
		{"no offset", Decode, features(`{"image":["a"]}`, `{"image":[{"length":1}]}`, `null`), "features"},
		{"placeholder list", Decode, features(`{"image":["a"]}`, `{"image":[[1,2]]}`, `null`), "features"},
		{"no placeholders", Decode, features(`{"image":["a"]}`, `null`, `null`), "features"},
		{"fewer placeholders", Decode, features(`{"image":["a"]}`, `{"image":[]}`, `null`), "features"},
		{"other modality", Decode, features(`{"image":["a"]}`, `{"video":[{"offset":1,"length":1}]}`, `null`), "features"},
		{"modality without tensors", Decode, features(`{"image":["a"]}`, `{"image":[{"offset":1,"length":1}]}`, `{}`), "features"},
		{"more tensors", Decode, features(`{"image":["a"]}`, `{"image":[{"offset":1,"length":1}]}`, `{"image":[null,null]}`), "features"},
		{"undecodable tensors", Decode, features(`{"image":["a"]}`, `{"image":[{"offset":1,"length":1}]}`, `{"image":["!"]}`), "features"},
		{"hash a number", Decode, features(`{"image":[7]}`, `{"image":[{"offset":1,"length":1}]}`, `null`), "features"},
		{"overlap", Decode, features(`{"image":["a"],"video":["b"]}`, `{"image":[{"offset":1,"length":2}],"video":[{"offset":2,"length":1}]}`, `null`), "features"},

		{"max_tokens", Decode, sampling(`"max_tokens":0`), "max_tokens"},
		{"min_tokens", Decode, sampling(`"max_tokens":1,"min_tokens":2`), "min_tokens"},
		{"n", Decode, sampling(`"n":0`), "n"},
		{"temperature", Decode, sampling(`"temperature":-1`), "temperature"},
		{"logprobs a number", Decode, sampling(`"logprobs":1`), ""},
		{"prefill without max_tokens", Prefill, sampling(``), "max_tokens"},
		{"prefill max_tokens at the top", Prefill, `{"token_ids":[1],"sampling_params":{},"max_tokens":1}`, "max_tokens"},
		{"prefill n", Prefill, sampling(`"max_tokens":1,"n":2`), "n"},
		{"prefill streamed", Prefill, `{"token_ids":[1],"sampling_params":{"max_tokens":1},"stream":true}`, "stream"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := r.send(call{leg: test.leg, path: generatePath, body: test.body})
			switch {
			case test.param == "" && got.status != 200:
				t.Errorf("got %+v", got)
			case test.param != "" && (got.status != 400 || !strings.Contains(got.body, `"param":"`+test.param+`"`)):
				t.Errorf("got %+v, want param %q", got, test.param)
			}
		})
	}
}

func TestGenerateHasNoRender(t *testing.T) {
	r := start(t, Options{})
	if got := r.send(call{leg: Render, path: generatePath, body: `{}`}); got.status != 404 || len(r.Legs("")) != 0 {
		t.Errorf("got %+v", got)
	}
}

// TestWhereTransferParamsAreRead presents a hand-off at either place, or both.
func TestWhereTransferParamsAreRead(t *testing.T) {
	const top, inner, both, differ = "top", "inner", "both", "differ"
	for _, test := range []struct {
		mode, place string
		fetched     bool
		violations  int
	}{
		{GenerateParamsOld, top, false, 0},
		{GenerateParamsOld, inner, true, 0},
		{GenerateParamsOld, both, true, 0},
		{GenerateParamsNew, top, true, 0},
		{GenerateParamsNew, inner, true, 0},
		{GenerateParamsNew, differ, true, 0},
		{GenerateParamsChecked, both, true, 0},
		{GenerateParamsChecked, top, true, 2}, // of prefill and of decode
		{GenerateParamsChecked, inner, true, 2},
		{GenerateParamsChecked, differ, true, 2},
	} {
		t.Run(test.mode+" "+test.place, func(t *testing.T) {
			r := start(t, Options{GenerateParams: test.mode})
			send := func(leg, more, sampling, params string) answer {
				params = `"kv_transfer_params":` + params
				extra := params
				if test.place == differ {
					extra = `"kv_transfer_params":{}`
				}
				if test.place != inner {
					more += "," + params
				}
				if test.place != top {
					sampling += `,"extra_args":{` + extra + `}`
				}
				return r.send(call{leg: leg, path: generatePath, body: r.generateBody("hi", more, sampling)})
			}
			got := send(Prefill, `,"request_id":"req"`, `"max_tokens":1,"ignore_eos":true`, nixlAsk)
			var answer struct {
				Params json.RawMessage `json:"kv_transfer_params"`
			}
			if err := json.Unmarshal([]byte(got.body), &answer); err != nil || got.status != 200 {
				t.Fatalf("prefill: %+v", got)
			}
			if string(answer.Params) == "null" == test.fetched {
				t.Fatalf("prefill gave out %s", answer.Params)
			}
			send(Decode, "", `"n":1`, present(string(answer.Params)))
			if s := r.State(); (s.FetchedKV == 1) != test.fetched || s.ViolationCount != test.violations {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestRequestIDInTheBody(t *testing.T) {
	for _, test := range []struct{ path, more, want string }{
		{generatePath, `,"request_id":"x-r1"`, ""},
		{generatePath, `,"request_id":"x"`, "request_id"},
		{generatePath, ``, "request_id"},
		{completionsPath, `,"request_id":"x-r1"`, ""},
		{completionsPath, `,"request_id":"other"`, "request_id"},
		{completionsPath, ``, ""},
	} {
		r := start(t, Options{})
		body := r.generateBody("hi", test.more, `"max_tokens":1,"ignore_eos":true`)
		if test.path == completionsPath {
			body = `{"prompt":[1,2],"max_tokens":1,"ignore_eos":true` + test.more + `}`
		}
		if got := r.send(call{leg: Prefill, id: "x-r1", path: test.path, body: body}); got.status != 200 {
			t.Errorf("got %+v", got)
		}
		r.wantViolation(test.want)
	}
}

// TestItemsWithoutTensors: null means that the worker has had them.
func TestItemsWithoutTensors(t *testing.T) {
	r := start(t, Options{})
	p := r.render("x", chatOf("", imagePart(catURI, "")))
	whole := p.generate("", "")
	null := strings.Replace(whole, `"`+*p.Features.Kwargs["image"][0]+`"`, "null", 1)
	for _, test := range []struct {
		name, leg, body string
		status          int
	}{
		{"never seen", Decode, null, 500},
		{"seen now", Decode, whole, 200},
		{"seen before", Decode, null, 200},
		{"not by that worker", Prefill, strings.Replace(null, `"sampling_params":{`, `"request_id":"g","sampling_params":{"ignore_eos":true,"max_tokens":1`, 1), 500},
	} {
		got := r.send(call{leg: test.leg, id: "g", path: generatePath, body: test.body})
		if got.status != test.status || got.status == 500 && !strings.Contains(got.body, "Expected a cached item for mm_hash") {
			t.Errorf("%s: %+v", test.name, got)
		}
	}
	r.noViolations()
}

// TestGenerateSaysThePromptBack: the marks of the template and the images are not
// among the words.
func TestGenerateSaysThePromptBack(t *testing.T) {
	r := start(t, Options{})
	p := r.render("x", chatOf("", textPart, imagePart(catURI, "")))
	got := r.send(call{leg: Decode, id: "g", path: generatePath, body: p.generate("", "")})
	var answer struct {
		Choices []struct {
			TokenIDs []int `json:"token_ids"`
		}
	}
	if err := json.Unmarshal([]byte(got.body), &answer); err != nil || got.status != http.StatusOK {
		t.Fatalf("got %+v", got)
	}
	if text := r.Words(answer.Choices[0].TokenIDs); text != ReplyWithImages("what is this", catHash) {
		t.Errorf("said %q", text)
	}
}

// TestRenderedFeaturesStayWhatTheyWere: a prefill in the generate format that was
// made from render's answer has its features unchanged.
func TestRenderedFeaturesStayWhatTheyWere(t *testing.T) {
	for _, test := range []struct{ name, old, new, want string }{
		{"whole", "", "", ""},
		{"hash", catHash, dogHash, "hash"},
		{"unknown member", `{"b":1,"a":2}`, `{"a":2,"b":1}`, "placeholder"},
		{"tensors", "gqxw", "gqxx", "kwargs_data"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := start(t, Options{})
			p := r.render("x", chatOf("", imagePart(catURI, "")))
			body := strings.Replace(p.generate(`"request_id":"x"`, `"max_tokens":1,"ignore_eos":true`), test.old, test.new, 1)
			if got := r.send(call{leg: Prefill, id: "x", path: generatePath, body: body}); got.status != 200 {
				t.Errorf("got %+v", got)
			}
			r.wantViolation(test.want)
		})
	}
}
