package cluster

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

func readAll(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// TestRefusals has a row for each thing that is refused. The error object must
// name the field.
func TestRefusals(t *testing.T) {
	r := start(t, Options{})
	pre := func(more string) string {
		return chat("hi", `,"ignore_eos":true,"kv_transfer_params":`+nixlAsk+more)
	}
	for _, test := range []struct {
		name  string
		call  call
		param string
	}{
		{"no JSON", call{leg: Render, body: `{`}, ""},
		{"no object", call{leg: Render, body: `[]`}, ""},
		{"two objects", call{leg: Render, body: `{} {}`}, ""},
		{"form", call{leg: Decode, body: chat("hi", ""), header: map[string]string{"Content-Type": "text/plain"}}, ""},
		{"no content type", call{leg: Decode, body: chat("hi", ""), header: map[string]string{"Content-Type": ""}}, ""},
		{"model type", call{leg: Render, body: `{"model":1}`}, "model"},

		{"no messages", call{leg: Render, body: `{}`}, "messages"},
		{"empty messages", call{leg: Render, body: `{"messages":[]}`}, "messages"},
		{"messages type", call{leg: Render, body: `{"messages":"x"}`}, "messages"},
		{"message type", call{leg: Render, body: `{"messages":["x"]}`}, "messages"},
		{"field case", call{leg: Render, body: `{"Messages":[{"role":"user","content":"x"}]}`}, "messages"},
		{"no role", call{leg: Render, body: `{"messages":[{"content":"x"}]}`}, "messages"},
		{"content type", call{leg: Render, body: `{"messages":[{"role":"user","content":1}]}`}, "messages"},
		{"image", call{leg: Render, body: `{"messages":[{"role":"user","content":[{"type":"text","text":"x","image_url":{"url":"data:"}}]}]}`}, "messages"},
		{"image to decode", call{leg: Decode, body: `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":"data:"}]}]}`}, "messages"},
		{"unknown part", call{leg: Render, body: `{"messages":[{"role":"user","content":[{"type":"smell"}]}]}`}, "messages"},
		{"rendered ids", call{leg: Render, path: completionsPath, body: `{"prompt":[1]}`}, "prompt"},
		{"no prompt", call{leg: Render, path: completionsPath, body: `{}`}, "prompt"},
		{"empty prompt", call{leg: Decode, path: completionsPath, body: `{"prompt":[]}`}, "prompt"},
		{"prompt of strings", call{leg: Decode, path: completionsPath, body: `{"prompt":["a"]}`}, "prompt"},
		{"negative id", call{leg: Decode, path: completionsPath, body: `{"prompt":[1,-1]}`}, "prompt"},
		{"negative id to prefill", call{leg: Prefill, path: completionsPath, body: `{"prompt":[-1],"max_tokens":1}`}, "prompt"},

		{"max_tokens 0", call{leg: Decode, body: chat("hi", `,"max_tokens":0`)}, "max_tokens"},
		{"max_completion_tokens 0", call{leg: Decode, body: chat("hi", `,"max_completion_tokens":0`)}, "max_completion_tokens"},
		{"max_tokens fraction", call{leg: Decode, body: chat("hi", `,"max_tokens":1.5`)}, "max_tokens"},
		{"max_tokens type", call{leg: Decode, body: chat("hi", `,"max_tokens":"1"`)}, "max_tokens"},
		{"min_tokens", call{leg: Decode, body: chat("hi", `,"max_tokens":3,"min_tokens":4`)}, "min_tokens"},
		{"temperature type", call{leg: Decode, body: chat("hi", `,"temperature":"hot"`)}, "temperature"},
		{"temperature", call{leg: Decode, body: chat("hi", `,"temperature":-1`)}, "temperature"},
		{"top_p", call{leg: Decode, body: chat("hi", `,"top_p":0`)}, "top_p"},
		{"seed", call{leg: Decode, body: chat("hi", `,"seed":"x"`)}, "seed"},
		{"n 0", call{leg: Decode, body: chat("hi", `,"n":0`)}, "n"},
		{"n 5", call{leg: Decode, body: chat("hi", `,"n":5`)}, "n"},
		{"stop", call{leg: Decode, body: chat("hi", `,"stop":7`)}, "stop"},
		{"stream type", call{leg: Decode, body: chat("hi", `,"stream":"yes"`)}, "stream"},
		{"stream_options", call{leg: Render, body: chat("hi", `,"stream_options":{"include_usage":true}`)}, "stream_options"},
		{"include_usage", call{leg: Decode, body: chat("hi", `,"stream":true,"stream_options":{"include_usage":1}`)}, "include_usage"},
		{"top_logprobs", call{leg: Decode, body: chat("hi", `,"top_logprobs":2`)}, "top_logprobs"},
		{"prompt_logprobs", call{leg: Decode, body: chat("hi", `,"prompt_logprobs":0,"stream":true`)}, "prompt_logprobs"},
		{"no tools", call{leg: Decode, body: chat("hi", `,"tools":[]`)}, "tools"},
		{"tool_choice", call{leg: Decode, body: chat("hi", `,"tool_choice":"auto"`)}, "tool_choice"},
		{"cache_salt", call{leg: Decode, body: chat("hi", `,"cache_salt":""`)}, "cache_salt"},

		{"prefill streamed", call{leg: Prefill, body: pre(`,"max_tokens":1,"stream":true`)}, "stream"},
		{"prefill stream_options", call{leg: Prefill, body: pre(`,"max_tokens":1,"stream_options":{"include_usage":true}`)}, "stream_options"},
		{"prefill without max_tokens", call{leg: Prefill, body: pre(``)}, "max_tokens"},
		{"prefill max_tokens", call{leg: Prefill, body: pre(`,"max_tokens":2`)}, "max_tokens"},
		{"prefill max_completion_tokens alone", call{leg: Prefill, body: pre(`,"max_completion_tokens":1`)}, "max_tokens"},
		{"prefill max_completion_tokens", call{leg: Prefill, body: pre(`,"max_tokens":1,"max_completion_tokens":9`)}, "max_completion_tokens"},
		{"prefill min_tokens", call{leg: Prefill, body: pre(`,"max_tokens":1,"min_tokens":2`)}, "min_tokens"},
		{"prefill top_logprobs", call{leg: Prefill, body: pre(`,"max_tokens":1,"top_logprobs":2,"logprobs":false`)}, "top_logprobs"},
		{"prefill logprob_token_ids", call{leg: Prefill, body: pre(`,"max_tokens":1,"logprob_token_ids":[5]`)}, "logprob_token_ids"},
		{"prefill n", call{leg: Prefill, body: pre(`,"max_tokens":1,"n":2`)}, "n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := r.send(test.call)
			var body struct {
				Error struct {
					Message, Type string
					Param         *string
					Code          int
				}
			}
			if err := json.Unmarshal([]byte(got.body), &body); err != nil {
				t.Fatalf("%v: %+v", err, got)
			}
			e := body.Error
			if got.status != 400 || e.Code != 400 || e.Message == "" || e.Type != "BadRequestError" && e.Type != "Bad Request" {
				t.Errorf("got %d %s", got.status, got.body)
			}
			if (e.Param == nil) != (test.param == "") || e.Param != nil && *e.Param != test.param {
				t.Errorf("got %s, want param %q", got.body, test.param)
			}
		})
	}
	if s := r.State(); s.HeldKV != 0 || s.Recomputed != 0 {
		t.Errorf("refused legs did work: %+v", s)
	}
}

func TestUnknownModel(t *testing.T) {
	r := start(t, Options{})
	for _, leg := range []string{Render, Prefill, Decode} {
		got := r.send(call{leg: leg, body: `{"model":"other","messages":[{"role":"user","content":"x"}],"max_tokens":1}`})
		want := "{\"error\":{\"message\":\"The model `other` does not exist.\",\"type\":\"NotFoundError\",\"param\":\"model\",\"code\":404}}"
		if got.status != 404 || got.body != want {
			t.Errorf("%s: %+v", leg, got)
		}
	}
}

func TestUnknownFieldsAreIgnored(t *testing.T) {
	r := start(t, Options{})
	got := r.send(call{leg: Decode, body: chat("hi", `,"whatever":{"a":1},"tokens":{"token_ids":[7]},"stop":["x"],"tool_choice":"none"`)})
	if got.status != 200 || said(t, got.body) != Reply("hi") {
		t.Errorf("%+v", got)
	}
}

func TestViolations(t *testing.T) {
	for _, test := range []struct {
		name   string
		call   call
		status int
		want   string
	}{
		{"no hop", call{leg: Decode, body: chat("hi", ""), header: map[string]string{"X-Coordinator-Hop": ""}}, 200, "X-Coordinator-Hop"},
		{"other hop", call{leg: Render, body: chat("hi", ""), header: map[string]string{"X-Coordinator-Hop": "2"}}, 200, "X-Coordinator-Hop"},
		{"no id", call{leg: Render, body: chat("hi", ""), header: map[string]string{"X-Request-Id": ""}}, 200, "X-Request-Id"},
		{"no profile", call{leg: "", body: chat("hi", ""), header: map[string]string{"EPP-Profile": ""}}, 404, "profile"},
		{"unknown profile", call{leg: "tea", body: chat("hi", "")}, 404, "profile"},
		{"profile on render", call{leg: Render, body: chat("hi", ""), header: map[string]string{"EPP-Profile": "decode"}}, 200, "profile"},
		{"routing header", call{leg: Decode, body: chat("hi", ""), header: map[string]string{"x-prefiller-url": "u"}}, 200, "X-Prefiller-Url"},
		{"repeated field", call{leg: Decode, body: chat("hi", `,"n":2,"n":1`)}, 200, "field n"},
		{"bootstrap", call{leg: Decode, body: chat("hi", `,"bootstrap_host":"h"`)}, 200, "bootstrap_host"},
		{"params to render", call{leg: Render, body: chat("hi", `,"kv_transfer_params":null`)}, 200, "kv_transfer_params"},
		{"tokens to render", call{leg: Render, body: chat("hi", `,"tokens":{}`)}, 200, "tokens"},
		{"xargs", call{leg: Decode, body: chat("hi", `,"vllm_xargs":{"kv_transfer_params":{}}`)}, 200, "vllm_xargs"},
		{"ignore_eos", call{leg: Prefill, body: chat("hi", `,"max_tokens":1`)}, 200, "ignore_eos"},
		{"useless params", call{leg: Decode, body: chat("hi", `,"kv_transfer_params":{"do_remote_decode":true}`)}, 200, "fetch"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := start(t, Options{})
			got := r.send(test.call)
			state := r.State()
			if got.status != test.status || state.ViolationCount != 1 || !strings.Contains(state.Violations[0], test.want) {
				t.Errorf("got %+v, violations %q", got, state.Violations)
			}
			if test.status == 404 && (got.body != `{"detail":"no profile"}` || r.Count(Unknown) != 1) {
				t.Errorf("got %+v, state %+v", got, state)
			}
		})
	}
}
