package assembly_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// sdk is OpenAI's own client, which tries nothing twice.
func (r *rig) sdk() openai.Client {
	return openai.NewClient(option.WithBaseURL(r.base+"/v1/"), option.WithAPIKey("sk-of-a-client"), option.WithMaxRetries(0), option.WithHTTPClient(r.client))
}

// asks counts requests that go out past post.
func (r *rig) asks() context.Context {
	r.sent.Add(1)
	return within(r.t)
}

func sdkChat(text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: cluster.DefaultModel, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)}}
}

func TestSDKChat(t *testing.T) {
	r := newRig(t, setup{})
	client := r.sdk()
	got, err := client.Chat.Completions.New(r.asks(), sdkChat("Why is the sky blue?"))
	if err != nil {
		t.Fatal(err)
	}
	if want := cluster.Reply("Why is the sky blue?"); len(got.Choices) != 1 || got.Choices[0].Message.Content != want || got.Choices[0].FinishReason != "stop" {
		t.Errorf("got %s", got.RawJSON())
	}
	if got.Usage.PromptTokens == 0 || got.Usage.CompletionTokens == 0 || got.Usage.TotalTokens != got.Usage.PromptTokens+got.Usage.CompletionTokens {
		t.Errorf("usage %+v", got.Usage)
	}
	if legs := r.legs(""); !slices.Equal(legs, []string{"render", "prefill", "decode"}) {
		t.Errorf("legs %v", legs)
	}
	r.settled()
}

func TestSDKStreamedChatWithUsage(t *testing.T) {
	r := newRig(t, setup{})
	params := sdkChat("one two three")
	params.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	client := r.sdk()
	stream := client.Chat.Completions.NewStreaming(r.asks(), params)
	defer stream.Close()
	var all openai.ChatCompletionAccumulator
	chunks := 0
	for stream.Next() {
		chunks++
		if !all.AddChunk(stream.Current()) {
			t.Errorf("chunk %d does not fit: %s", chunks, stream.Current().RawJSON())
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if want := cluster.Reply("one two three"); len(all.Choices) != 1 || all.Choices[0].Message.Content != want || all.Choices[0].FinishReason != "stop" {
		t.Errorf("got %+v", all.Choices)
	}
	if chunks < 4 || all.Usage.CompletionTokens == 0 {
		t.Errorf("%d chunks, usage %+v", chunks, all.Usage)
	}
	r.settled()
}

func TestSDKCompletions(t *testing.T) {
	r := newRig(t, setup{})
	client := r.sdk()
	ask := openai.CompletionNewParams{Model: cluster.DefaultModel, Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("Once upon a time")}}
	got, err := client.Completions.New(r.asks(), ask)
	if err != nil {
		t.Fatal(err)
	}
	want := cluster.Reply("Once upon a time")
	if len(got.Choices) != 1 || got.Choices[0].Text != want || got.Usage.CompletionTokens == 0 {
		t.Errorf("got %s", got.RawJSON())
	}
	stream := client.Completions.NewStreaming(r.asks(), ask)
	defer stream.Close()
	text := ""
	for stream.Next() {
		for _, c := range stream.Current().Choices {
			text += c.Text
		}
	}
	if stream.Err() != nil || text != want {
		t.Errorf("streamed %q, %v", text, stream.Err())
	}
	r.settled()
}

func TestSDKImage(t *testing.T) {
	r := newRig(t, setup{steps: wholeSteps})
	image := picture(7, 300)
	client := r.sdk()
	got, err := client.Chat.Completions.New(r.asks(), openai.ChatCompletionNewParams{
		Model: cluster.DefaultModel,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{
			openai.TextContentPart("one two"),
			openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: dataURI(image), Detail: "low"}),
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := cluster.ReplyWithImages("one two", cluster.ImageHash(image)); got.Choices[0].Message.Content != want {
		t.Errorf("got %s, want %s", got.RawJSON(), want)
	}
	if legs := r.legs(""); !slices.Equal(legs, []string{"render", "encode", "prefill", "decode"}) {
		t.Errorf("legs %v", legs)
	}
	r.settled()
}

// TestSDKTools: the schema reaches every leg as the SDK wrote it, and a worker's
// call of a tool comes back.
func TestSDKTools(t *testing.T) {
	r := newRig(t, setup{steps: renderStep + decodeStep})
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Decode, Status: 200, Headers: map[string]string{"Content-Type": "application/json"},
		Body: `{"id":"x","object":"chat.completion","created":1,"model":"demo-model","choices":[{"index":0,"finish_reason":"tool_calls","message":` +
			`{"role":"assistant","content":null,"tool_calls":[{"id":"call-1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Oslo\"}"}}]}}]}`})
	params := sdkChat("How is the weather?")
	params.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
		Name: "weather", Strict: openai.Bool(true),
		Parameters: shared.FunctionParameters{"type": "object", "required": []string{"city"},
			"properties": rawJSON(`{"z":{"type":"number","maximum":1.0},"city":{"type":"string"}}`)},
	})}
	params.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String("auto")}
	client := r.sdk()
	got, err := client.Chat.Completions.New(r.asks(), params)
	if err != nil {
		t.Fatal(err)
	}
	calls := got.Choices[0].Message.ToolCalls
	if got.Choices[0].FinishReason != "tool_calls" || len(calls) != 1 || calls[0].Function.Name != "weather" || calls[0].Function.Arguments != `{"city":"Oslo"}` {
		t.Errorf("got %s", got.RawJSON())
	}
	legs := r.cluster.Legs("")
	const schema = `"properties":{"z":{"type":"number","maximum":1.0},"city":{"type":"string"}}`
	for _, leg := range legs {
		if !strings.Contains(string(leg.Body), schema) {
			t.Errorf("%s was sent %s", leg.Name, leg.Body)
		}
	}
	if len(legs) != 2 {
		t.Errorf("%d legs", len(legs))
	}
	r.settled()
}

// rawJSON is a text that the SDK sends as it is.
type rawJSON string

func (s rawJSON) MarshalJSON() ([]byte, error) { return []byte(s), nil }

// wantSDKError checks that err is the SDK's own type, as full as it can be.
func wantSDKError(t *testing.T, err error, status int, kind, code, id string) *openai.Error {
	t.Helper()
	var e *openai.Error
	if !errors.As(err, &e) {
		t.Fatalf("%T: %v", err, err)
	}
	if e.StatusCode != status || e.Type != kind || e.Code != code || !strings.HasSuffix(e.Message, "(request_id: "+id+")") {
		t.Errorf("got %d %q %q %q", e.StatusCode, e.Type, e.Code, e.Message)
	}
	if got := e.Response.Header.Get("X-Request-Id"); got != id {
		t.Errorf("X-Request-Id %q", got)
	}
	return e
}

func TestSDKErrors(t *testing.T) {
	r := newRig(t, setup{toml: "[actors]\nmax_inflight_requests = 1\n"})
	client := r.sdk()
	id := option.WithHeader("X-Request-Id", "the-id")

	_, err := client.Completions.New(r.asks(), openai.CompletionNewParams{Model: cluster.DefaultModel,
		Prompt: openai.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"a", "b"}}}, id)
	wantSDKError(t, err, http.StatusBadRequest, "invalid_request_error", "invalid_prompt", "the-id")

	_, err = client.Chat.Completions.New(r.asks(), openai.ChatCompletionNewParams{Model: "no-such-model",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")}}, id)
	wantSDKError(t, err, http.StatusNotFound, "invalid_request_error", "upstream_rejected", "the-id")

	// An upstream's 429, streamed or not.
	fault := r.cluster.AddFault(cluster.Fault{Leg: cluster.Render, Status: 429, Headers: map[string]string{"Retry-After": "7"}})
	_, err = client.Chat.Completions.New(r.asks(), sdkChat("hi"), id)
	e := wantSDKError(t, err, http.StatusTooManyRequests, "rate_limit_error", "upstream_rejected", "the-id")
	if after := e.Response.Header.Get("Retry-After"); after != "7" {
		t.Errorf("Retry-After %q", after)
	}
	stream := client.Chat.Completions.NewStreaming(r.asks(), sdkChat("hi"), id)
	if stream.Next() {
		t.Errorf("an event came: %s", stream.Current().RawJSON())
	}
	wantSDKError(t, stream.Err(), http.StatusTooManyRequests, "rate_limit_error", "upstream_rejected", "the-id")
	stream.Close()
	r.cluster.RemoveFault(fault)

	// Our own.
	gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtHeaders})
	done := make(chan response)
	go func() { done <- r.post(chatPath, chatBody("hi", false)) }()
	if err := gate.WaitFor(within(t), 1); err != nil {
		t.Fatal(err)
	}
	_, err = client.Chat.Completions.New(r.asks(), sdkChat("hi"), id)
	e = wantSDKError(t, err, http.StatusTooManyRequests, "overloaded_error", "queue_full", "the-id")
	if e.Response.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	gate.Release()
	if got := <-done; got.status != 200 {
		t.Errorf("got %d %s", got.status, got.body)
	}
	r.settled()
}

// TestSDKStreamThatBreaks is an error to the SDK and not a short answer.
func TestSDKStreamThatBreaks(t *testing.T) {
	r := newRig(t, setup{})
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Decode, BreakAfter: new(3)})
	client := r.sdk()
	stream := client.Chat.Completions.NewStreaming(r.asks(), sdkChat("one two three four"), option.WithHeader("X-Request-Id", "the-id"))
	defer stream.Close()
	events := 0
	for stream.Next() {
		events++
	}
	if err := stream.Err(); events != 3 || err == nil || !strings.Contains(err.Error(), "the-id") {
		t.Errorf("%d events, %v", events, err)
	}
	r.settled()
}
