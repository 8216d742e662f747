package cluster

import "encoding/json"

const (
	// created is the date of every answer, so that equal requests have equal
	// answers.
	created     = 1750000000
	maxModelLen = 131072
)

// api is one inbound protocol: what a worker reads differently, and answers
// differently, from one client path to the next.
type api struct {
	path     string // of clients and of the worker legs; render's has a suffix
	idPrefix string // of the ids of answers
	prompt   func(*vocabulary, object) (*prompt, error)
	// rendered puts the render service's one object in the shape of the route.
	rendered func(rendering) any
	// tokensIn says that the prompt is token ids with features, and the sampling
	// parameters are in an object of their own.
	tokensIn bool
	// typed says that it is the Responses API: a stream's events say what they are,
	// and members have names of their own.
	typed bool
	// roles says that a stream begins with the assistant's role, finishRides
	// that the last token's chunk tells why it is the last.
	roles, finishRides bool
	// whole is a whole answer, chunk one of a stream.
	whole func(*text) any
	chunk func(t *text, choices []any, counted *usage) any
	// choice is a choice of a whole answer, delta one of a stream's chunk.
	choice func(index int, t *text) any
	delta  func(index int, t *text, p piece) any
	// object and event are what the two call themselves.
	object, event string
}

// piece is what one chunk of a stream brings.
type piece struct {
	word   string
	at     int  // place of the word among all
	role   bool // no word but the role
	finish *string
}

// apiAt returns the protocol of a client path, nil if there is none.
func apiAt(path string) *api {
	switch path {
	case chatAPI.path:
		return &chatAPI
	case completionsAPI.path:
		return &completionsAPI
	case generateAPI.path:
		return &generateAPI
	case responsesAPI.path:
		return &responsesAPI
	}
	return nil
}

var chatAPI = api{
	path:     "/v1/chat/completions",
	idPrefix: "chatcmpl-",
	prompt:   chatPrompt,
	rendered: func(r rendering) any { return r },
	roles:    true,
	object:   "chat.completion",
	event:    "chat.completion.chunk",
	whole:    func(t *text) any { return t.completed() },
	chunk:    completionChunk,
	choice: func(index int, t *text) any {
		return chatChoice{
			Index: index, FinishReason: t.finish,
			Message: chatMessage{Role: "assistant", Content: t.joined(), ToolCalls: []json.RawMessage{}},
		}
	},
	delta: func(index int, _ *text, p piece) any {
		d := chatDelta{Index: index, FinishReason: p.finish}
		switch {
		case p.role:
			d.Delta.Role, d.Delta.Content = "assistant", &p.word
		case p.finish == nil:
			d.Delta.Content = &p.word
		}
		return d
	},
}

type chatMessage struct {
	Role      string            `json:"role"`
	Content   string            `json:"content"`
	Refusal   *string           `json:"refusal"`
	ToolCalls []json.RawMessage `json:"tool_calls"`
}

type chatChoice struct {
	Index        int         `json:"index"`
	Message      chatMessage `json:"message"`
	Logprobs     *string     `json:"logprobs"`
	FinishReason string      `json:"finish_reason"`
	StopReason   *string     `json:"stop_reason"`
}

type chatDelta struct {
	Index int `json:"index"`
	Delta struct {
		Role    string  `json:"role,omitempty"`
		Content *string `json:"content,omitempty"`
	} `json:"delta"`
	Logprobs     *string `json:"logprobs"`
	FinishReason *string `json:"finish_reason"`
}

var completionsAPI = api{
	path:     "/v1/completions",
	idPrefix: "cmpl-",
	prompt:   completionsPrompt,
	rendered: func(r rendering) any { return []rendering{r} },
	object:   "text_completion",
	event:    "text_completion",
	whole:    func(t *text) any { return t.completed() },
	chunk:    completionChunk,
	choice: func(index int, t *text) any {
		return completionsChoice{Index: index, Text: t.joined(), FinishReason: &t.finish}
	},
	delta: func(index int, _ *text, p piece) any {
		return completionsChoice{Index: index, Text: p.word, FinishReason: p.finish}
	},
}

type completionsChoice struct {
	Index        int     `json:"index"`
	Text         string  `json:"text"`
	Logprobs     *string `json:"logprobs"`
	FinishReason *string `json:"finish_reason"`
	StopReason   *string `json:"stop_reason"`
}
