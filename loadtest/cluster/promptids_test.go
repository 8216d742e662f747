package cluster

import (
	"net/http"
	"strings"
	"testing"
)

// TestPromptIDsAreThoseOfThePrompt, on a chat, at a worker that takes them; else
// the breach is noted.
func TestPromptIDsAreThoseOfThePrompt(t *testing.T) {
	const fetch = `{"do_remote_decode":false,"do_remote_prefill":true`
	for _, tt := range []struct {
		name   string
		takes  bool
		ids    string // "" stands for those of the prompt
		path   string
		loads  bool
		breach string
	}{
		{name: "a chat", takes: true, loads: true},
		{name: "another prompt", takes: true, ids: "[1,2]", loads: true, breach: "prompt_token_ids are not those of the prompt"},
		{name: "no ids", takes: true, ids: "null", breach: "kv_transfer_params are not those of kv-shared-storage"},
		{name: "text", takes: true, ids: `"x"`, loads: true, breach: "prompt_token_ids are not those of the prompt"},
		{name: "completions", takes: true, path: completionsPath, loads: true, breach: "prompt_token_ids are for chats of text only"},
		{name: "a worker that does not know them", breach: "kv_transfer_params are not those of kv-shared-storage"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := start(t, Options{KV: KVSharedStorage, PromptIDs: tt.takes})
			body := chat("one two", "")
			if tt.path == completionsPath {
				body = `{"prompt":"one two"}`
			}
			r.send(call{leg: Prefill, path: tt.path, body: strings.TrimSuffix(body, "}") + `,"max_tokens":1,"ignore_eos":true}`})
			ids := tt.ids
			if ids == "" {
				p := r.send(call{leg: Render, path: tt.path, body: body})
				_, ids, _ = strings.Cut(p.body, `"token_ids":`)
				ids = ids[:strings.Index(ids, "]")+1]
			}
			got := r.send(call{leg: Decode, path: tt.path, body: strings.TrimSuffix(body, "}") + `,"kv_transfer_params":` + fetch + `,"prompt_token_ids":` + ids + `}}`})
			if loaded := got.status == http.StatusOK; loaded != tt.loads {
				t.Errorf("got %+v", got)
			}
			breaches := strings.Join(r.State().Violations, ";")
			if !strings.Contains(breaches, tt.breach) || (breaches == "") != (tt.breach == "") {
				t.Errorf("violations %q, want %q", breaches, tt.breach)
			}
		})
	}
}

// TestUsageSaysWhatWasCached: prefill as it is told, decode all that it fetches.
func TestUsageSaysWhatWasCached(t *testing.T) {
	r := start(t, Options{CachedTokens: 2})
	params := r.handoff("a", "one two")
	for body, want := range map[string]string{
		r.send(call{leg: Prefill, body: chat("three", `,"max_tokens":1,"ignore_eos":true`)}).body:                          `"cached_tokens":2}`,
		r.send(call{leg: Decode, body: chat("three", "")}).body:                                                            `"cached_tokens":2}`,
		r.send(decodeWith("a", "one two", present(params), `,"stream":true,"stream_options":{"include_usage":true}`)).body: `"cached_tokens":6}`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("want %s in %s", want, body)
		}
	}
	r.noViolations()
}

// TestRevisionsAreInAnswers of the legs that have one.
func TestRevisionsAreInAnswers(t *testing.T) {
	r := start(t, Options{Revisions: map[string]string{Render: "a"}})
	for leg, want := range map[string]string{Render: "a", Decode: ""} {
		got := r.send(call{leg: leg, body: chat("one", "")})
		if got.header.Get("X-Llm-D-Disagg-Revision") != want {
			t.Errorf("%s: %v", leg, got.header)
		}
	}
}
