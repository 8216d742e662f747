package cluster

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

func TestRenderTokenizes(t *testing.T) {
	r := start(t, Options{})
	type rendered struct {
		RequestID string `json:"request_id"`
		TokenIDs  []int  `json:"token_ids"`
		Features  any
		Model     string
		Stream    *bool
	}
	var first, again rendered
	var list []rendered
	for _, into := range []*rendered{&first, &again} {
		got := r.send(call{leg: Render, body: chat("one two one", "")})
		if err := json.Unmarshal([]byte(got.body), into); err != nil || got.status != http.StatusOK {
			t.Fatalf("%v: %+v", err, got)
		}
	}
	if first.RequestID == again.RequestID || !reflect.DeepEqual(first.TokenIDs, again.TokenIDs) {
		t.Errorf("first %+v, again %+v", first, again)
	}
	// BOS, role, three words, end, assistant.
	ids := first.TokenIDs
	if len(ids) != 7 || ids[0] != 1 || ids[2] != ids[4] || ids[2] == ids[3] || first.Features != nil || *first.Stream {
		t.Errorf("rendered %+v", first)
	}
	got := r.send(call{leg: Render, path: completionsPath, body: `{"model":"demo-model","prompt":"one two one"}`})
	if err := json.Unmarshal([]byte(got.body), &list); err != nil || len(list) != 1 {
		t.Fatalf("%v: %+v", err, got)
	}
	if want := r.TokenIDs("one two one"); !reflect.DeepEqual(list[0].TokenIDs, want) {
		t.Errorf("token ids %v, want %v", list[0].TokenIDs, want)
	}
	r.noViolations()
}

func TestDecodeSaysThePromptBack(t *testing.T) {
	r := start(t, Options{})
	ids := jsonText(r.TokenIDs("hello wide world"))
	for _, test := range []struct {
		name, path, body, want string
	}{
		{"chat", chatPath, chat("hello  wide world", ""), Reply("hello wide world")},
		{"chat streamed", chatPath, chat("hello wide world", `,"stream":true`), Reply("hello wide world")},
		{"last user message", chatPath, `{"messages":[{"role":"user","content":"first"},{"role":"assistant","content":null},{"role":"user","content":[{"type":"text","text":"second"},{"type":"text","text":"part"}]},{"role":"system","content":"x"}]}`, Reply("second part")},
		{"completions", completionsPath, `{"prompt":"hello wide world"}`, Reply("hello wide world")},
		{"token ids", completionsPath, `{"prompt":` + ids + `}`, Reply("hello wide world")},
		{"token ids streamed", completionsPath, `{"stream":true,"prompt":` + ids + `}`, Reply("hello wide world")},
		{"unknown ids", completionsPath, `{"prompt":[1,7,99]}`, Reply("tok7 tok99")},
		{"cut off", chatPath, chat("hello wide world", `,"max_tokens":9,"max_completion_tokens":3.0`), "You said: hello"},
		{"echo", completionsPath, `{"prompt":"hello wide world","echo":true,"max_tokens":0}`, "hello wide world"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := r.send(call{leg: Decode, path: test.path, body: test.body})
			if got.status != http.StatusOK || said(t, got.body) != test.want {
				t.Errorf("got %+v, want %q", got, test.want)
			}
		})
	}
	r.noViolations()
}

func jsonText(v any) string { return string(encode(v)) }

func TestShapes(t *testing.T) {
	r := start(t, Options{})
	for _, test := range []struct {
		name, path, body, want string
	}{
		{"chat", chatPath, chat("hi", ""),
			`{"id":"chatcmpl-req","object":"chat.completion","created":1750000000,"model":"demo-model","choices":[{"index":0,"message":{"role":"assistant","content":"You said: hi","refusal":null,"tool_calls":[]},"logprobs":null,"finish_reason":"stop","stop_reason":null}],"usage":{"prompt_tokens":5,"total_tokens":8,"completion_tokens":3},"kv_transfer_params":null}`},
		{"chat streamed", chatPath, chat("hi", `,"max_tokens":1,"stream":true,"stream_options":{"include_usage":true}`),
			`data: {"id":"chatcmpl-req","object":"chat.completion.chunk","created":1750000000,"model":"demo-model","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}

data: {"id":"chatcmpl-req","object":"chat.completion.chunk","created":1750000000,"model":"demo-model","choices":[{"index":0,"delta":{"content":"You"},"logprobs":null,"finish_reason":null}]}

data: {"id":"chatcmpl-req","object":"chat.completion.chunk","created":1750000000,"model":"demo-model","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}]}

data: {"id":"chatcmpl-req","object":"chat.completion.chunk","created":1750000000,"model":"demo-model","choices":[],"usage":{"prompt_tokens":5,"total_tokens":6,"completion_tokens":1}}

data: [DONE]

`},
		{"completions", completionsPath, `{"prompt":"<hi>","n":2}`,
			`{"id":"cmpl-req","object":"text_completion","created":1750000000,"model":"demo-model","choices":[{"index":0,"text":"You said: <hi>","logprobs":null,"finish_reason":"stop","stop_reason":null},{"index":1,"text":"You said: <hi>","logprobs":null,"finish_reason":"stop","stop_reason":null}],"usage":{"prompt_tokens":2,"total_tokens":8,"completion_tokens":6},"kv_transfer_params":null}`},
		{"completions streamed", completionsPath, `{"prompt":"hi","stream":true,"max_tokens":1}`,
			`data: {"id":"cmpl-req","object":"text_completion","created":1750000000,"model":"demo-model","choices":[{"index":0,"text":"You","logprobs":null,"finish_reason":null,"stop_reason":null}]}

data: {"id":"cmpl-req","object":"text_completion","created":1750000000,"model":"demo-model","choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"length","stop_reason":null}]}

data: [DONE]

`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := r.send(call{leg: Decode, path: test.path, body: test.body})
			if got.body != test.want {
				t.Errorf("got\n%s\nwant\n%s", got.body, test.want)
			}
			wantType := "application/json"
			if strings.HasPrefix(test.want, "data") {
				wantType = "text/event-stream; charset=utf-8"
			}
			if is := got.header.Get("Content-Type"); is != wantType {
				t.Errorf("content type %q", is)
			}
		})
	}
}

func TestRoutes(t *testing.T) {
	r := start(t, Options{Model: "m"})
	for _, test := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/v1/models", 200, `{"object":"list","data":[{"id":"m","object":"model","created":1750000000,"owned_by":"vllm","root":"m","parent":null,"max_model_len":131072}]}`},
		{"POST", "/v1/models", 405, `{"detail":"Method Not Allowed"}`},
		{"GET", chatPath, 405, `{"detail":"Method Not Allowed"}`},
		{"POST", "/v1/nothing", 404, `{"detail":"Not Found"}`},
		{"POST", "/render", 404, `{"detail":"Not Found"}`},
	} {
		req, err := http.NewRequest(test.method, r.URL()+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got := readAll(t, resp)
		if resp.StatusCode != test.status || got != test.body {
			t.Errorf("%s %s: %d %s", test.method, test.path, resp.StatusCode, got)
		}
	}
	if n := len(r.Legs("")); n != 0 {
		t.Errorf("%d legs recorded", n)
	}
}

func TestVocabularyStaysInvertibleAndBounded(t *testing.T) {
	v := newVocabulary()
	words := make([]string, 20)
	for round := range 4000 {
		for i := range words {
			words[i] = "w" + jsonText(round*len(words)+i)
		}
		ids := v.encode(append([]string{"often"}, words...))
		if got := v.decode(ids); !reflect.DeepEqual(got[1:], words) || got[0] != "often" {
			t.Fatalf("round %d: %v", round, got)
		}
	}
	if n := v.recent.Len(); n != maxWords || len(v.byID) != n || len(v.byWord) != n {
		t.Errorf("%d words, %d ids", n, len(v.byID))
	}
	if a, b := v.encode([]string{"often"}), newVocabulary().encode([]string{"often"}); !reflect.DeepEqual(a, b) {
		t.Errorf("ids differ: %v, %v", a, b)
	}
}
