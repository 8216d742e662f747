package cluster

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// responseLimit bounds the output of the Responses API.
const responseLimit = "max_output_tokens"

// responsesAPI is the Responses API. Its events are made elsewhere.
var responsesAPI = api{
	path:     "/v1/responses",
	idPrefix: "resp_",
	prompt:   responsesPrompt,
	rendered: func(r rendering) any { return r },
	typed:    true,
	object:   "response",
	whole:    func(t *text) any { return t.response(t.status(), true) },
}

// response is an answer, and what the first and the last event of a stream hold.
type response struct {
	ID                string             `json:"id"`
	Object            string             `json:"object"`
	CreatedAt         int64              `json:"created_at"`
	Status            string             `json:"status"`
	Error             *responseError     `json:"error"`
	IncompleteDetails *incompleteDetails `json:"incomplete_details"`
	Model             string             `json:"model"`
	Output            []responseItem     `json:"output"`
	ParallelToolCalls bool               `json:"parallel_tool_calls"`
	ToolChoice        string             `json:"tool_choice"`
	Tools             []json.RawMessage  `json:"tools"`
	Usage             *responseUsage     `json:"usage"`
	KVTransferParams  json.RawMessage    `json:"kv_transfer_params,omitempty"`
	ECTransferParams  json.RawMessage    `json:"ec_transfer_params,omitempty"`
}

type responseError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type incompleteDetails struct {
	Reason string `json:"reason"`
}

type responseUsage struct {
	InputTokens        int `json:"input_tokens"`
	InputTokensDetails struct {
		CachedTokens int   `json:"cached_tokens"`
		InputPerTurn []int `json:"input_tokens_per_turn"`
		CachedPer    []int `json:"cached_tokens_per_turn"`
	} `json:"input_tokens_details"`
	OutputTokens        int `json:"output_tokens"`
	OutputTokensDetails struct {
		ReasoningTokens int `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	TotalTokens int `json:"total_tokens"`
}

type responseItem struct {
	Type    string         `json:"type"`
	ID      string         `json:"id"`
	Role    string         `json:"role"`
	Status  string         `json:"status"`
	Content []responsePart `json:"content"`
}

type responsePart struct {
	Type        string            `json:"type"`
	Text        string            `json:"text"`
	Annotations []json.RawMessage `json:"annotations"`
	Logprobs    []json.RawMessage `json:"logprobs"`
}

// status is how the answer has ended.
func (t *text) status() string {
	switch t.finish {
	case "length":
		return "incomplete"
	case "error":
		return "failed"
	}
	return "completed"
}

// response is the answer with a status, with its output and what else is known at
// its end if it is whole.
func (t *text) response(status string, whole bool) response {
	r := response{ID: t.id, Object: "response", CreatedAt: created, Status: status, Model: t.model,
		Output: []responseItem{}, ParallelToolCalls: true, ToolChoice: "auto", Tools: []json.RawMessage{}}
	if !whole {
		return r
	}
	switch status {
	case "failed":
		r.Error = &responseError{"server_error", "Internal server error"}
	case "incomplete":
		r.IncompleteDetails = &incompleteDetails{"max_output_tokens"}
	}
	if status != "failed" {
		r.Output = []responseItem{t.item("completed", t.part(t.joined()))}
	}
	u := &responseUsage{InputTokens: t.counted.PromptTokens, OutputTokens: t.counted.CompletionTokens, TotalTokens: t.counted.TotalTokens}
	u.InputTokensDetails.InputPerTurn, u.InputTokensDetails.CachedPer = []int{}, []int{}
	r.Usage = u
	r.KVTransferParams, r.ECTransferParams = rawJSON(t.handoff), t.embedding
	return r
}

func (t *text) item(status string, parts ...responsePart) responseItem {
	return responseItem{Type: "message", ID: "msg_" + strings.TrimPrefix(t.id, "resp_"), Role: "assistant", Status: status,
		Content: append([]responsePart{}, parts...)}
}

func (*text) part(said string) responsePart {
	return responsePart{Type: "output_text", Text: said, Annotations: []json.RawMessage{}, Logprobs: []json.RawMessage{}}
}

// responsesPrompt reads the prompt of a Responses request: instructions as a system
// message, then the input as messages. What is said back is the last of the user's.
func responsesPrompt(v *vocabulary, o object) (*prompt, error) {
	var r chatReader
	var err error
	if r.hashing, err = readHashing(o); err != nil {
		return nil, err
	}
	if tools, err := o.list("tools"); err != nil {
		return nil, err
	} else if len(tools) > 0 {
		r.words = append(append(r.words, "<|tools|>"), strings.Fields(string(o["tools"]))...)
	}
	instructions, err := o.text("instructions")
	if err != nil {
		return nil, err
	}
	if instructions != "" {
		r.say("system", strings.Fields(instructions))
	}
	if history, err := o.text(historyField); err == nil && history != "" {
		r.words = append(r.words, strings.Fields(history)...)
	}
	last, err := r.readInput(o)
	if err != nil {
		return nil, err
	}
	r.words = append(r.words, "<|assistant|>")
	return newPrompt(v.encode(r.words), last, r.images), nil
}

func (r *chatReader) say(role string, words []string) {
	r.words = append(append(append(r.words, "<|"+role+"|>"), words...), "<|end|>")
}

// readInput renders the input, and returns the words of the user's last message.
func (r *chatReader) readInput(o object) (last []string, err error) {
	if text, err := o.text("input"); o.has("input") && err == nil {
		r.say("user", strings.Fields(text))
		return strings.Fields(text), nil
	}
	items, err := o.list("input")
	if err != nil || len(items) == 0 {
		return nil, badSchema("input", "input: Input should be a string or a list of items")
	}
	for _, item := range items {
		said, isUser, err := r.readItem(item)
		if err != nil {
			return nil, err
		}
		if isUser || last == nil {
			last = said
		}
	}
	return last, nil
}

// readItem renders one item of the input.
func (r *chatReader) readItem(item json.RawMessage) (said []string, isUser bool, err error) {
	o, _, err := parseObject(item)
	if err != nil {
		return nil, false, badSchema("input", "input: Input should be a valid dictionary")
	}
	kind, err := o.text("type")
	if err != nil {
		return nil, false, err
	}
	switch kind {
	case "", "message":
		role, words, err := r.readMessage(item)
		return words, role == "user", err
	case "function_call":
		r.say("assistant", strings.Fields(string(o["name"])+" "+string(o["arguments"])))
		return nil, false, nil
	case "function_call_output":
		if text, err := o.text("output"); err == nil {
			r.say("tool", strings.Fields(text))
			return nil, false, nil
		}
		r.words = append(r.words, "<|tool|>")
		if _, err := r.readParts(object{"content": o["output"]}); err != nil {
			return nil, false, err
		}
		r.words = append(r.words, "<|end|>")
		return nil, false, nil
	}
	return nil, false, badSchema("input", "input: no such item type")
}

// checkResponse refuses what vLLM refuses of a Responses request.
func checkResponse(o object) error {
	if o.has("prompt") {
		return badValue("prompt", "prompt template is not supported")
	}
	background, err := o.truth("background")
	if err != nil {
		return err
	}
	if _, err := o.truth("store"); err != nil {
		return err
	}
	if background && string(o["store"]) == "false" {
		return badValue("background", "background can only be used when `store` is true")
	}
	if how, err := o.text("truncation"); err != nil || !slices.Contains([]string{"", "auto", "disabled"}, how) {
		return badSchema("truncation", "truncation: Input should be 'auto' or 'disabled'")
	}
	if _, err := o.list("include"); err != nil {
		return err
	}
	_, _, err = o.integer("top_logprobs")
	return err
}

// checkResponsePrefill refuses what would lose or spoil the hand-off of a prefill
// of the Responses API, or have it remembered.
func checkResponsePrefill(o object) error {
	if stream, _ := o.truth("stream"); stream {
		return badValue("stream", "A prefill must not be streamed: its kv_transfer_params would be lost.")
	}
	if limit, there, err := o.integer(responseLimit); err != nil || !there || limit != 1 {
		return badValue(responseLimit, "A prefill must ask for exactly 1 token in max_output_tokens.")
	}
	if string(o["store"]) != "false" {
		return badValue("store", "A prefill must not be stored.")
	}
	for _, name := range []string{"previous_response_id", "include", "top_logprobs", "stop", "min_tokens"} {
		if o.has(name) {
			return badValue(name, "A prefill must not have %s.", name)
		}
	}
	if how, err := o.text("truncation"); err != nil || how == "auto" {
		return badValue("truncation", "A prefill that truncates computes another prompt than its decode.")
	}
	return nil
}

// historyField has the words of the response that a request continues. It is put
// into the body by the worker that remembers them.
const historyField = "\x00history"

// continues puts the history of a Responses request into its body, if it names one:
// only a worker that has answered it can. The render service cannot.
func (l *leg) continues() error {
	id, err := l.body.text("previous_response_id")
	delete(l.body, historyField)
	if !l.api.typed || err != nil || id == "" {
		return err
	}
	l.cluster.mu.Lock()
	words, known := l.cluster.responses[id]
	l.cluster.mu.Unlock()
	if !known {
		return &refusal{http.StatusNotFound, "invalid_request_error", "Response with id '" + id + "' not found.", "response_id"}
	}
	l.body[historyField] = encode(strings.Join(words, " "))
	return nil
}

// storeResponse remembers an answer, if the request wants that.
func (l *leg) storeResponse(t *text) {
	if store, _ := l.body.truth("store"); !l.api.typed || !store {
		return
	}
	l.cluster.mu.Lock()
	defer l.cluster.mu.Unlock()
	if len(l.cluster.responses) < l.cluster.options.MaxRecorded {
		l.cluster.responses[t.id] = t.words
	}
}
