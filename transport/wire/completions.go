package wire

// Completions is POST /v1/completions. Once the token ids are known they take
// the prompt's place on every leg.
var Completions = &Protocol{
	Name:       "completions",
	Path:       "/v1/completions",
	RenderPath: "/v1/completions/render",
	renderList: true,
	prompt:     completionsPrompt,
	setTokens:  func(e *Edit, t Tokens) { e.Set("prompt", Text{t.IDs}) },
	idInBody:   true,
	batches:    true,
}

const oneSpanPrompt = "prompt must be a string or an array of non-negative token ids"

// completionsPrompt takes one prompt, as text or as token ids. Several are taken
// apart before (see Singles): one answer could not carry a hand-off for each.
func completionsPrompt(b *Body) (Prompt, error) {
	value := b.Get("prompt")
	switch {
	case len(value) > 0 && value[0] == '"':
		return Prompt{}, nil
	case len(value) == 0 || value[0] != '[':
		return Prompt{}, Invalid("invalid_prompt", oneSpanPrompt)
	}
	n, ok := CountIDs(value, 0)
	switch {
	case !ok:
		return Prompt{}, Invalid("invalid_prompt", oneSpanPrompt+"; several prompts need a request each")
	case n == 0:
		return Prompt{}, Invalid("invalid_prompt", "prompt is an empty array")
	}
	return Prompt{Given: Tokens{IDs: value, Count: n}}, nil
}
