package cluster

import (
	"encoding/json"
	"strings"
)

// chatReader renders a chat with a template: tools, then each message as role,
// words and end mark. (Tools are in it because they are in real templates: a leg
// whose tools differ has another prompt.)
type chatReader struct {
	hashing hashing
	words   []string // one token each
	images  []image
}

// chatPrompt reads the prompt of a chat request. What is said back is the last
// user message.
func chatPrompt(v *vocabulary, o object) (*prompt, error) {
	messages, err := o.list("messages")
	if err != nil {
		return nil, err
	}
	if len(messages) == 0 {
		return nil, badValue("messages", "messages: List should have at least 1 item")
	}
	var r chatReader
	if r.hashing, err = readHashing(o); err != nil {
		return nil, err
	}
	if o.has("tools") {
		r.words = append(r.words, "<|tools|>")
		r.words = append(r.words, strings.Fields(string(o["tools"]))...)
	}
	var last []string
	asked := false
	for _, message := range messages {
		role, text, err := r.readMessage(message)
		if err != nil {
			return nil, err
		}
		if role == "user" || !asked {
			last, asked = text, role == "user"
		}
	}
	r.words = append(r.words, "<|assistant|>")
	return newPrompt(v.encode(r.words), last, r.images), nil
}

// readMessage renders a message and returns its role and the words of its text.
func (r *chatReader) readMessage(message json.RawMessage) (role string, text []string, err error) {
	o, _, err := parseObject(message)
	if err != nil {
		return "", nil, badSchema("messages", "messages: Input should be a valid dictionary")
	}
	role, err = o.text("role")
	if err != nil || role == "" {
		return "", nil, badSchema("messages", "messages.role: Field required")
	}
	r.words = append(r.words, "<|"+role+"|>")
	if content, err := o.text("content"); err == nil {
		text = strings.Fields(content)
		r.words = append(r.words, text...)
	} else if text, err = r.readParts(o); err != nil {
		return "", nil, err
	}
	r.words = append(r.words, "<|end|>")
	return role, text, nil
}

func (r *chatReader) readParts(message object) (text []string, err error) {
	parts, err := message.list("content")
	if err != nil {
		return nil, badSchema("messages", "messages.content: Input should be a string or a list of parts")
	}
	for _, part := range parts {
		words, err := r.readPart(part)
		if err != nil {
			return nil, err
		}
		text = append(text, words...)
	}
	return text, nil
}

// readPart renders one part of a message's content and returns the words of its
// text.
func (r *chatReader) readPart(part json.RawMessage) ([]string, error) {
	var text string
	if json.Unmarshal(part, &text) == nil {
		words := strings.Fields(text)
		r.words = append(r.words, words...)
		return words, nil
	}
	o, _, err := parseObject(part)
	if err != nil {
		return nil, badSchema("messages", "messages.content: Input should be a valid dictionary")
	}
	member, modality, err := mediumOf(o)
	if err != nil {
		return nil, err
	}
	if member != "" {
		return nil, r.readMedium(part, o, member, modality)
	}
	if _, ok := o["text"]; !ok {
		return nil, badValue("messages", "Unknown part type in messages.content")
	}
	if text, err = o.text("text"); err != nil {
		return nil, err
	}
	words := strings.Fields(text)
	r.words = append(r.words, words...)
	return words, nil
}

// readMedium renders a medium as its placeholder.
func (r *chatReader) readMedium(part json.RawMessage, o object, member, modality string) error {
	im, err := readMedium(part, o, member, modality, r.hashing)
	if err != nil {
		return err
	}
	im.offset = 1 + len(r.words) // the BOS is not among the words
	r.images = append(r.images, im)
	r.words = append(r.words, placeholderWords(modality, im.length)...)
	return nil
}
