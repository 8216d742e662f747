package wire

import "bytes"

// WithPromptIDs returns a decode's transfer params with the prompt's token ids in
// them, as prompt_token_ids: a worker that reads them there need not tokenize the
// messages again. They are returned as they are if there is nothing to hand over,
// if no ids are known, and for prompts other than a chat of text: completions and
// generate have the ids in their bodies, of the Responses API nobody says that it
// reads them, and with images a worker has to process
// the messages anyway.
func (p *Protocol) WithPromptIDs(s Source, t Transfers) Transfers {
	if t.KV == nil || !p.hasParts || p.typed || !s.Tokens.Known() || s.Media.Len() > 0 || s.Tokens.Features.any() {
		return t
	}
	params, err := ParseBody(bytes.Join(t.KV, nil)) // block ids at most: the prompt's are not copied
	if err != nil {
		return t
	}
	e := params.Edit()
	e.Set("prompt_token_ids", Text{s.Tokens.IDs})
	t.KV = e.Text()
	return t
}
