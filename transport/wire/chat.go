package wire

import "strings"

// Chat is POST /v1/chat/completions. Its workers tokenize the messages
// themselves; token ids go beside them, for the endpoint picker, which takes
// them out.
var Chat = &Protocol{
	Name:       "chat",
	Path:       "/v1/chat/completions",
	RenderPath: "/v1/chat/completions/render",
	prompt:     chatPrompt,
	setTokens: func(e *Edit, t Tokens) {
		e.Set("tokens", Text{[]byte(`{"token_ids":`), t.IDs, closeBrace})
	},
}

// chatPrompt refuses what no worker may be asked to fetch: media are not
// supported yet. Everything else about messages is the render service's and
// the workers' to judge.
func chatPrompt(b *Body) (Prompt, error) {
	var media string
	EachElement(b.Get("messages"), func(message []byte) bool {
		EachMember(message, func(name, content []byte) bool {
			if NameIs(name, "content") {
				media = mediaMember(content)
			}
			return media == ""
		})
		return media == ""
	})
	if media != "" {
		return Prompt{}, Invalid("invalid_media", "messages hold a content part with %q: this coordinator serves text only", media)
	}
	return Prompt{}, nil
}

// mediaMembers are the members of a content part by which workers find media,
// whatever the part's type says.
var mediaMembers = []string{"image_url", "input_image", "image_embeds", "image_pil", "image",
	"audio_url", "input_audio", "audio_embeds", "audio",
	"video_url", "input_video", "video_embeds", "video"}

// mediaMember returns the name of the first media member in an array of
// content parts, or "".
func mediaMember(content []byte) (found string) {
	EachElement(content, func(part []byte) bool {
		EachMember(part, func(name, value []byte) bool {
			for _, m := range mediaMembers {
				if NameIs(name, m) && !IsNull(value) {
					found = m
				}
			}
			if NameIs(name, "type") && found == "" {
				found = mediaType(value)
			}
			return found == ""
		})
		return found == ""
	})
	return found
}

// mediaType returns the type of a part if it names a kind of media.
func mediaType(value []byte) string {
	kind, _ := Unquote(value)
	for _, m := range mediaMembers {
		if strings.EqualFold(kind, m) {
			return m
		}
	}
	return ""
}
