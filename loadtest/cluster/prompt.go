package cluster

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"strings"
)

// promptKey stands for a prompt: two prompts with the same token ids have the
// same key.
type promptKey [sha256.Size]byte

// prompt is what a request asks the model, as a worker sees it.
type prompt struct {
	ids  []int
	key  promptKey
	said []string // the words that the answer says back
}

func newPrompt(ids []int, said []string) *prompt {
	hash := sha256.New()
	var b [8]byte
	for _, id := range ids {
		binary.LittleEndian.PutUint64(b[:], uint64(id))
		hash.Write(b[:])
	}
	p := &prompt{ids: ids, said: said}
	hash.Sum(p.key[:0])
	return p
}

// Reply returns the text that answers a prompt: a completions prompt, or the last
// user message of a chat. White space in it is as single blanks. (A completions
// prompt with a word of more than 1024 bytes is answered otherwise.)
func Reply(prompt string) string {
	return strings.Join(replyWords(strings.Fields(prompt)), " ")
}

func replyWords(said []string) []string {
	return append([]string{"You", "said:"}, said...)
}

// TokenIDs returns the ids that render gives to a completions prompt: a BOS and
// one for each word.
func (c *Cluster) TokenIDs(prompt string) []int {
	return c.vocabulary.encode(strings.Fields(prompt))
}

// spoken is the text said for a prompt.
type spoken struct {
	prompt promptKey
	words  []string
}

// remember keeps the prompt as one whose text another request may get.
func (c *Cluster) remember(p *prompt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.recent[0].prompt != p.key {
		c.recent[1] = c.recent[0]
	}
	c.recent[0] = spoken{p.key, p.said}
}

// anothersWords is what a worker says that has read the wrong KV.
func (c *Cluster) anothersWords(p *prompt) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range c.recent {
		if other.prompt != p.key && other.words != nil {
			return replyWords(other.words)
		}
	}
	return []string{"text", "of", "another", "request"}
}

// completionsPrompt reads the prompt of a completions request: a string, or
// token ids.
func completionsPrompt(v *vocabulary, o object) (*prompt, error) {
	if text, err := o.text("prompt"); o.has("prompt") && err == nil {
		ids := v.encode(strings.Fields(text))
		return newPrompt(ids, v.decode(ids)), nil
	}
	var ids []int
	if json.Unmarshal(o["prompt"], &ids) != nil {
		return nil, badSchema("prompt", "prompt: Input should be a string or a list of token ids")
	}
	if len(ids) == 0 {
		return nil, badValue("prompt", "The prompt must not be empty")
	}
	for _, id := range ids {
		if id < 0 {
			return nil, badValue("prompt", "Token id %d is out of vocabulary", id)
		}
	}
	return newPrompt(ids, v.decode(ids)), nil
}

// chatPrompt renders messages with a template: tools, then each message as role,
// words and end mark. (Tools are in it because they are in real templates: a leg
// whose tools differ has another prompt.)
func chatPrompt(v *vocabulary, o object) (*prompt, error) {
	messages, err := o.list("messages")
	if err != nil {
		return nil, err
	}
	if len(messages) == 0 {
		return nil, badValue("messages", "messages: List should have at least 1 item")
	}
	var words, last []string
	asked := false
	if o.has("tools") {
		words = append(words, "<|tools|>")
		words = append(words, strings.Fields(string(o["tools"]))...)
	}
	for _, message := range messages {
		role, content, err := readMessage(message)
		if err != nil {
			return nil, err
		}
		if role == "user" || !asked {
			last, asked = content, role == "user"
		}
		words = append(words, "<|"+role+"|>")
		words = append(words, content...)
		words = append(words, "<|end|>")
	}
	words = append(words, "<|assistant|>")
	return newPrompt(v.encode(words), last), nil
}

// readMessage returns the role and the words of a message.
func readMessage(message json.RawMessage) (role string, words []string, err error) {
	o, _, err := parseObject(message)
	if err != nil {
		return "", nil, badSchema("messages", "messages: Input should be a valid dictionary")
	}
	role, err = o.text("role")
	if err != nil || role == "" {
		return "", nil, badSchema("messages", "messages.role: Field required")
	}
	if text, err := o.text("content"); err == nil {
		return role, strings.Fields(text), nil
	}
	parts, err := o.list("content")
	if err != nil {
		return "", nil, badSchema("messages", "messages.content: Input should be a string or a list of parts")
	}
	for _, part := range parts {
		text, err := readPart(part)
		if err != nil {
			return "", nil, err
		}
		words = append(words, strings.Fields(text)...)
	}
	return role, words, nil
}

// readPart returns the text of one part of a message's content.
func readPart(part json.RawMessage) (string, error) {
	var text string
	if json.Unmarshal(part, &text) == nil {
		return text, nil
	}
	o, _, err := parseObject(part)
	if err != nil {
		return "", badSchema("messages", "messages.content: Input should be a valid dictionary")
	}
	// A worker goes by the members of a part before its type.
	for name := range o {
		if strings.HasSuffix(name, "_url") || name == "input_audio" {
			return "", badValue("messages", "At most 0 media may be provided in one prompt: %s", name)
		}
	}
	if _, ok := o["text"]; !ok {
		return "", badValue("messages", "Unknown part type in messages.content")
	}
	return o.text("text")
}
