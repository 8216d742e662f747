package cluster

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
)

const responsesPath = "/v1/responses"

func responsesCall(leg, body string) call { return call{leg: leg, path: responsesPath, body: body} }

const responsesPrefill = `{"model":"demo-model","input":"one two","max_output_tokens":1,"stream":false,"store":false,"ignore_eos":true,"kv_transfer_params":` + nixlAsk + `}`

// responseOf reads a whole answer.
func responseOf(t *testing.T, body string) response {
	t.Helper()
	var r response
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return r
}

// TestResponsesThroughTheCluster: render, prefill, and a decode that fetches the KV,
// streamed with events that are numbered and end with the whole.
func TestResponsesThroughTheCluster(t *testing.T) {
	c := start(t, Options{})
	rendered := c.send(responsesCall(Render, `{"model":"demo-model","input":"one two"}`))
	var r rendering
	if err := json.Unmarshal([]byte(rendered.body), &r); err != nil || rendered.status != http.StatusOK || len(r.TokenIDs) == 0 {
		t.Fatalf("%v %+v", err, rendered)
	}
	handoff := responseOf(t, c.send(responsesCall(Prefill, responsesPrefill)).body).KVTransferParams
	got := c.send(responsesCall(Decode, `{"model":"demo-model","input":"one two","stream":true,"kv_transfer_params":`+string(handoff)+`}`))
	var kinds []string
	text := ""
	var last typedEvent
	for i, data := range events(got.body) {
		last = typedEvent{}
		if err := json.Unmarshal([]byte(data), &last); err != nil || last.SequenceNumber != i {
			t.Errorf("event %d: %v %s", i, err, data)
		}
		if !strings.Contains(got.body, "event: "+last.Type+"\ndata: "+data+"\n\n") {
			t.Errorf("event %d does not say what it is: %s", i, data)
		}
		if kinds = append(kinds, last.Type); last.Delta != nil {
			text += *last.Delta
		}
	}
	want := []string{"response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
		"response.output_text.delta", "response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed"}
	if !slices.Equal(slices.Compact(kinds), want) || text != Reply("one two") || last.Response.Output[0].Content[0].Text != text || last.Response.KVTransferParams != nil {
		t.Errorf("%v %q: %s", kinds, text, got.body)
	}
	if st := c.State(); st.FetchedKV != 1 || st.HeldKV != 0 {
		t.Errorf("%+v", st)
	}
	c.noViolations()
}

// TestResponsesThatAreRefused, as a worker or the render service would.
func TestResponsesThatAreRefused(t *testing.T) {
	c := start(t, Options{})
	prefill := func(old, new string) call {
		return responsesCall(Prefill, strings.Replace(responsesPrefill, old, new, 1))
	}
	for name, tt := range map[string]struct {
		call   call
		status int
	}{
		"prefill without a cap":        {prefill(`"max_output_tokens":1`, `"max_tokens":1`), 400},
		"prefill with another cap":     {prefill(`"max_output_tokens":1`, `"max_output_tokens":2`), 400},
		"prefill, streamed":            {prefill(`"stream":false`, `"stream":true`), 400},
		"prefill, stored":              {prefill(`"store":false`, `"x":1`), 400},
		"prefill with logprobs":        {prefill(`"store"`, `"include":["message.output_text.logprobs"],"store"`), 400},
		"prefill that truncates":       {prefill(`"store"`, `"truncation":"auto","store"`), 400},
		"a prompt of the server's":     {responsesCall(Decode, `{"input":"x","prompt":{"id":"p"}}`), 400},
		"background, not stored":       {responsesCall(Decode, `{"input":"x","background":true,"store":false}`), 400},
		"no input":                     {responsesCall(Decode, `{}`), 400},
		"an item that nobody knows":    {responsesCall(Decode, `{"input":[{"type":"item_reference","id":"x"}]}`), 400},
		"a file":                       {responsesCall(Decode, `{"input":[{"role":"user","content":[{"type":"input_file","file_url":"http://x/"}]}]}`), 400},
		"a limit of nothing":           {responsesCall(Decode, `{"input":"x","max_output_tokens":0}`), 400},
		"what it does not remember":    {responsesCall(Decode, `{"input":"x","previous_response_id":"resp_x"}`), 404},
		"render that would remember":   {responsesCall(Render, `{"input":"x","previous_response_id":"resp_x"}`), 400},
		"an encode without an image":   {responsesCall(Encode, `{"input":[{"role":"user","content":[{"type":"input_text","text":"x"}]}],"tokens":{},"max_output_tokens":1,"store":false,"stream":false}`), 400},
		"an encode that is remembered": {responsesCall(Encode, `{"input":[],"tokens":{},"max_output_tokens":1,"store":true,"stream":false}`), 400},
	} {
		if got := c.send(tt.call); got.status != tt.status {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	old := start(t, Options{NoResponsesRender: true})
	if got := old.send(responsesCall(Render, `{"input":"x"}`)); got.status != 404 || got.body != `{"detail":"Not Found"}` {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := old.send(responsesCall(Decode, `{"input":"x"}`)); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestResponsesAreRemembered by the worker, if the request says so, and continued.
func TestResponsesAreRemembered(t *testing.T) {
	c := start(t, Options{})
	first := responseOf(t, c.send(call{leg: Decode, path: responsesPath, id: "a", body: `{"input":"one","store":true}`}).body)
	c.send(call{leg: Decode, path: responsesPath, id: "b", body: `{"input":"one","store":false}`})
	second := responseOf(t, c.send(responsesCall(Decode, `{"input":"two","previous_response_id":"`+first.ID+`"}`)).body)
	alone := responseOf(t, c.send(responsesCall(Decode, `{"input":"two"}`)).body)
	if second.Status != "completed" || second.Usage.InputTokens <= alone.Usage.InputTokens {
		t.Errorf("%+v, alone %+v", second.Usage, alone.Usage)
	}
	if got := c.send(responsesCall(Decode, `{"input":"two","previous_response_id":"resp_b"}`)); got.status != 404 {
		t.Errorf("%d %s", got.status, got.body)
	}
	if cut := responseOf(t, c.send(responsesCall(Decode, `{"input":"two three","max_output_tokens":2}`)).body); cut.Status != "incomplete" || cut.IncompleteDetails.Reason != "max_output_tokens" {
		t.Errorf("%+v", cut)
	}
}
