package cluster

import (
	"encoding/json"
	"slices"
)

const promptIDs = "prompt_token_ids"

// takePromptIDs takes the prompt's token ids out of a decode's transfer params, as
// a worker that uses them does before its connector sees the rest. That they are
// not those of the prompt, or have no business there, is a breach of the contract,
// returned in words: the worker would answer another prompt.
func (l *leg) takePromptIDs(params json.RawMessage, p *prompt) (rest json.RawMessage, breach string) {
	fields, _, err := parseObject(params)
	if err != nil || !fields.has(promptIDs) || !l.cluster.options.PromptIDs {
		return params, "" // who does not know them finds an altered hand-off
	}
	var ids []int
	if err := json.Unmarshal(fields[promptIDs], &ids); err != nil || !slices.Equal(ids, p.ids) {
		breach = promptIDs + " are not those of the prompt"
	}
	if l.api != &chatAPI || len(p.images) > 0 {
		breach = promptIDs + " are for chats of text only"
	}
	delete(fields, promptIDs)
	return encode(fields), breach
}
