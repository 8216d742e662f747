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
	// roles says that a stream begins with the assistant's role.
	roles bool
	// choice is a choice of a whole answer, delta one of a stream's chunk, whose
	// finish is nil but in the last.
	choice func(index int, text, finish string) any
	delta  func(index int, text string, role bool, finish *string) any
	// object and chunk are what the two call themselves.
	object, chunk string
}

// apiAt returns the protocol of a client path, nil if there is none.
func apiAt(path string) *api {
	switch path {
	case chatAPI.path:
		return &chatAPI
	case completionsAPI.path:
		return &completionsAPI
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
	chunk:    "chat.completion.chunk",
	choice: func(index int, text, finish string) any {
		return chatChoice{
			Index: index, FinishReason: finish,
			Message: chatMessage{Role: "assistant", Content: text, ToolCalls: []json.RawMessage{}},
		}
	},
	delta: func(index int, text string, role bool, finish *string) any {
		d := chatDelta{Index: index, FinishReason: finish}
		switch {
		case role:
			d.Delta.Role, d.Delta.Content = "assistant", &text
		case finish == nil:
			d.Delta.Content = &text
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
	chunk:    "text_completion",
	choice: func(index int, text, finish string) any {
		return completionsChoice{Index: index, Text: text, FinishReason: &finish}
	},
	delta: func(index int, text string, _ bool, finish *string) any {
		return completionsChoice{Index: index, Text: text, FinishReason: finish}
	},
}

type completionsChoice struct {
	Index        int     `json:"index"`
	Text         string  `json:"text"`
	Logprobs     *string `json:"logprobs"`
	FinishReason *string `json:"finish_reason"`
	StopReason   *string `json:"stop_reason"`
}
