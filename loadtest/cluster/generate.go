package cluster

import "encoding/json"

// generateAPI is tokens in, tokens out.
var generateAPI = api{
	path:        "/inference/v1/generate",
	idPrefix:    "generate-tokens-",
	prompt:      generatePrompt,
	tokensIn:    true,
	finishRides: true,
	whole:       func(t *text) any { return t.generated() },
	chunk: func(t *text, choices []any, counted *usage) any {
		return generateChunk{ID: t.id, Model: t.model, Created: created, Choices: choices, Usage: counted}
	},
	choice: func(index int, t *text) any {
		return generateChoice{Index: index, FinishReason: &t.finish, TokenIDs: t.ids(t.words)}
	},
	delta: func(index int, t *text, p piece) any {
		return generateChoice{Index: index, FinishReason: p.finish, TokenIDs: t.ids(t.words[p.at : p.at+1])}
	},
}

type generateAnswer struct {
	ID               string          `json:"request_id"`
	Model            string          `json:"model"`
	Created          int64           `json:"created"`
	Choices          []any           `json:"choices"`
	Usage            *usage          `json:"usage"`
	PromptLogprobs   json.RawMessage `json:"prompt_logprobs"`
	KVTransferParams json.RawMessage `json:"kv_transfer_params"`
	ECTransferParams json.RawMessage `json:"ec_transfer_params"`
}

// generateChunk has no transfer params: a stream never does.
type generateChunk struct {
	ID      string `json:"request_id"`
	Model   string `json:"model"`
	Created int64  `json:"created"`
	Choices []any  `json:"choices"`
	Usage   *usage `json:"usage,omitempty"`
}

type generateChoice struct {
	Index         int     `json:"index"`
	FinishReason  *string `json:"finish_reason"`
	TokenIDs      []int   `json:"token_ids"`
	Logprobs      *string `json:"logprobs"`
	RoutedExperts *string `json:"routed_experts"`
}

func (t *text) generated() generateAnswer {
	return generateAnswer{
		ID: t.id, Model: t.model, Created: created, Choices: t.allChoices(), Usage: &t.counted,
		KVTransferParams: t.handoff, ECTransferParams: t.embedding,
	}
}

// ids are the token ids of words.
func (t *text) ids(words []string) []int { return t.vocabulary.encode(words)[1:] }
