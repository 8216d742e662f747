// Package servertest is tables for tests: what clients send, and what they get when
// all goes well and when it does not. They are held against a coordinator alone, in
// cmd/assembly, and against coordinators behind real gateways, in e2e.
package servertest

const (
	chatPath        = "/v1/chat/completions"
	completionsPath = "/v1/completions"
)

// Request is what a client sends.
type Request struct {
	Name, Path, Body string
	// Given: the prompt is token ids, so that nothing has to be rendered.
	Given bool
}

// Requests are the shapes of request that every pipeline serves: each is answered
// byte for byte as by a decode worker.
var Requests = []Request{
	{Name: "chat", Path: chatPath, Body: `{"model":"demo-model","stream":false,"messages":[{"role":"user","content":"Why is the sky blue?"}]}`},
	{Name: "chat/stream", Path: chatPath, Body: `{"model":"demo-model","stream":true,"messages":[{"role":"user","content":"Why is the sky blue?"}]}`},
	{Name: "chat/usage", Path: chatPath, Body: `{"model":"demo-model","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":[{"type":"text","text":"one two"}]}]}`},
	{Name: "chat/tools", Path: chatPath, Body: `{"model":"demo-model","tools":[{"type":"function","function":{"name":"z","parameters":{"b":1,"a":{"z":1.0,"y":9007199254740993}}}}],"max_completion_tokens":3,"min_tokens":2,"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"a b c d e f"}]}`},
	{Name: "completions", Path: completionsPath, Body: `{"model":"demo-model","prompt":"Once upon a time"}`},
	{Name: "completions/stream", Path: completionsPath, Body: `{"model":"demo-model","stream":true,"prompt":"Once upon a time"}`},
	{Name: "completions/ids", Path: completionsPath, Body: `{"model":"demo-model","prompt":[1, 17,  99999]}`, Given: true},
	{Name: "completions/stop", Path: completionsPath, Body: `{"model":"demo-model","stop":["x"],"logprobs":null,"n":1,"prompt":"Once upon a time"}`},
}
