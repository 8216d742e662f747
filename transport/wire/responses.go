package wire

import (
	"errors"
	"strings"
)

// Responses is POST /v1/responses, as far as a request carries all that it is
// about: vLLM renders it at a route of its own since version 0.30, and takes and
// gives transfer params like chat's. Its workers tokenize the input themselves;
// token ids go beside it, for the endpoint picker.
var Responses = &Protocol{
	Name:       "responses",
	Path:       "/v1/responses",
	RenderPath: "/v1/responses/render",
	prompt:     responsesPrompt,
	setTokens:  setTokensObject,
	hasParts:   true,
	typed:      true,
}

// NeedsState returns the member of a body of the Responses API by which it needs
// what one worker remembers, or wants that to be remembered; "" if there is none.
// Such a request can only be served by that worker, and is not rendered.
func NeedsState(b *Body) string {
	for _, name := range []string{"previous_response_id", "conversation", "prompt"} {
		if !IsNull(b.Get(name)) {
			return name
		}
	}
	for _, name := range []string{"background", "store"} {
		if v := b.Get(name); !IsNull(v) && string(v) != "false" {
			return name
		}
	}
	found := ""
	EachElement(b.Get("input"), func(item []byte) bool {
		if kind, _ := Unquote(Lookup(item, "type")); kind == itemReference {
			found = itemReference
		}
		return found == ""
	})
	return found
}

// imageURL is the member of a part that makes it an image.
const imageURL = "image_url"

// itemReference is the type of an item that stands for one of an earlier response.
const itemReference = "item_reference"

// responsesPrompt finds the images. Everything else about the input is the render
// service's and the workers' to judge.
func responsesPrompt(b *Body) (Prompt, error) {
	media, err := findInputMedia(b.Get("input"))
	return Prompt{Media: media}, err
}

// findInputMedia finds the images in the input of the Responses API: in the
// content of its messages, and in what functions have put out. It returns nil if
// there are none, and refuses other media, wherever they are, as findMedia does.
func findInputMedia(input []byte) (*Media, error) {
	m := &Media{messages: input, member: "input", unnamed: true}
	var err error
	EachElement(input, func(item []byte) bool {
		err = m.scanItem(item)
		return err == nil
	})
	if err != nil || len(m.parts) == 0 {
		return nil, err
	}
	return m, nil
}

// scanItem adds the images of one item.
func (m *Media) scanItem(item []byte) (err error) {
	lists, before := 0, len(m.parts)
	EachMember(item, func(name, value []byte) bool {
		switch {
		case NameIs(name, "content"), NameIs(name, "output"):
			lists++
			err = m.scanInputParts(value)
		case NameIs(name, imageURL) && !IsNull(value):
			err = errStrayImage
		default:
			err = refuseInput(name, value)
		}
		return err == nil
	})
	if err == nil && lists > 1 && len(m.parts) > before {
		err = Invalid("invalid_media", "an input item with an image has more than one content or output")
	}
	return err
}

// errStrayImage refuses an image that no leg could be given in its place.
var errStrayImage = Invalid("invalid_media", "an image_url stands elsewhere than in a part of an input item's content or output")

// scanInputParts adds the images of a list of parts. An object in the place of the
// list (what a computer has put out) may have none.
func (m *Media) scanInputParts(value []byte) (err error) {
	EachElement(value, func(part []byte) bool {
		var p mediaPart
		var found bool
		if p, found, err = m.scanInputPart(part); found {
			err = m.add(p)
		}
		return err == nil
	})
	EachMember(value, func(name, member []byte) bool {
		if err = refuseInput(name, member); err == nil && NameIs(name, imageURL) && !IsNull(member) {
			err = errStrayImage
		}
		return err == nil
	})
	return err
}

// scanInputPart looks at one part: it is an image if it has an image_url.
func (m *Media) scanInputPart(part []byte) (p mediaPart, found bool, err error) {
	urls := 0
	EachMember(part, func(name, value []byte) bool {
		switch {
		case !NameIs(name, imageURL):
			err = refuseInput(name, value)
		case urls > 0:
			err = Invalid("invalid_media", "a content part has more than one image_url")
		default:
			if urls++; !IsNull(value) {
				found = true
				p.lo = cap(m.messages) - cap(part)
				p.hi = p.lo + len(part)
				err = p.url(m, imageURL, value)
			}
		}
		return err == nil
	})
	return p, found && err == nil, err
}

// inputMedia are members of parts and items, and types of them, by which workers
// find media that are not served: what they would fetch, and what they would have
// to have been given before.
var inputMedia = []string{"file_url", "file_id", "file_data", "input_file", "input_audio", "audio_url", "audio", "audio_embeds",
	"input_video", "video_url", "video", "video_embeds", "image", "image_embeds", "image_pil", "prompt_embeds"}

// refuseInput refuses a member of an item or part that stands for other media.
func refuseInput(name, value []byte) error {
	if IsNull(value) {
		return nil
	}
	kind := ""
	if NameIs(name, "type") {
		kind, _ = Unquote(value)
	}
	for _, other := range inputMedia {
		if NameIs(name, other) || strings.EqualFold(kind, other) {
			return Invalid("invalid_media", "an input item has %q: images by image_url are served, other media are not", other)
		}
	}
	return nil
}

// truncates reports whether a worker may shorten the prompt: to what its limit of
// output leaves room for, which a prefill's is not. Null does not mean no.
func truncates(truncation []byte) bool {
	how, _ := Unquote(truncation)
	return truncation != nil && how != "disabled"
}

// responseDrops are the members, besides samplingDrops, that only say what the
// answer has: nobody reads a prefill's, and one without the other is refused.
var responseDrops = []string{"include", "max_tool_calls"}

// capResponse asks for one token, which may not end the text, and for nothing to be
// remembered of it.
func capResponse(e *Edit) {
	e.Delete(samplingDrops...)
	e.Delete(responseDrops...)
	e.SetRaw("max_output_tokens", "1")
	e.SetRaw("ignore_eos", "true")
	e.SetRaw("store", "false")
}

// Types of events of a Responses stream.
const (
	typeError  = "error"
	typeFailed = "response.failed"
)

// announcements are the types of events that come before anything is said.
var announcements = []string{"response.created", "response.queued", "response.in_progress", "response.output_item.added",
	"response.content_part.added", "response.reasoning_part.added", "response.reasoning_summary_part.added"}

// judgeTyped says what an event of a Responses stream makes of a held answer.
func judgeTyped(event []byte) Held {
	kind, _ := Unquote(Lookup(event, "type"))
	switch kind {
	case typeError:
		return judgeFailure(event)
	case typeFailed:
		return judgeFailure(Lookup(Lookup(event, "response"), "error"))
	}
	for _, before := range announcements {
		if kind == before {
			return Holding
		}
	}
	if strings.HasSuffix(kind, ".delta") && string(Lookup(event, "delta")) == `""` {
		return Holding
	}
	return Released
}

// judgeFailure tells a failure of the worker's from one of the request's.
func judgeFailure(failure []byte) Held {
	if code, _ := Unquote(Lookup(failure, "code")); isServerError(failure) || code == "server_error" {
		return Failed
	}
	return Released
}

var errResponseFailed = errors.New("its status is failed")

// failedResponse returns why a worker's parsed answer is a failure if it is a
// response that says so.
func failedResponse(answer []byte) error {
	isResponse, failed := false, false
	EachMember(answer, func(name, value []byte) bool {
		switch {
		case NameIs(name, "object"):
			isResponse = string(value) == `"response"`
		case NameIs(name, "status"):
			failed = string(value) == `"failed"`
		}
		return true
	})
	if isResponse && failed {
		return errResponseFailed
	}
	return nil
}
