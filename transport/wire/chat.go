package wire

// Chat is POST /v1/chat/completions. Its workers tokenize the messages
// themselves; token ids go beside them, for the endpoint picker, which takes
// them out.
var Chat = &Protocol{
	Name:       "chat",
	Path:       "/v1/chat/completions",
	RenderPath: "/v1/chat/completions/render",
	prompt:     chatPrompt,
	setTokens:  setTokensObject,
	content:    chatContent,
	hasParts:   true,
}

// chatPrompt finds the media. Everything else about messages is the render
// service's and the workers' to judge.
func chatPrompt(b *Body) (Prompt, error) {
	media, err := findMedia(b.Get("messages"))
	return Prompt{Media: media}, err
}

func setTokensObject(e *Edit, t Tokens) { e.Set("tokens", t.object(t.IDs, &t.Features)) }

// object is the member tokens of a leg whose workers tokenize by themselves.
func (Tokens) object(ids []byte, f *Features) Text {
	if !f.any() {
		return Text{[]byte(`{"token_ids":`), ids, closeBrace}
	}
	return Text{[]byte(`{"token_ids":`), ids, []byte(`,"features":{"mm_hashes":`), f.Hashes,
		[]byte(`,"mm_placeholders":`), f.Placeholders, []byte("}}")}
}
