package cluster

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"strings"
)

// promptKey stands for a prompt: two prompts with the same token ids and media
// have the same key.
type promptKey [sha256.Size]byte

// prompt is what a request asks the model, as a worker sees it.
type prompt struct {
	ids    []int
	images []image // in order of their offsets
	key    promptKey
	said   []string // the words that the answer says back
}

func newPrompt(ids []int, said []string, images []image) *prompt {
	hash := sha256.New()
	var b [8]byte
	for _, id := range ids {
		binary.LittleEndian.PutUint64(b[:], uint64(id))
		hash.Write(b[:])
	}
	for i := range images {
		binary.LittleEndian.PutUint64(b[:], uint64(len(images[i].hash)))
		hash.Write(b[:])
		hash.Write([]byte(images[i].hash))
	}
	p := &prompt{ids: ids, said: said, images: images}
	hash.Sum(p.key[:0])
	return p
}

// span is the token ids that stand for an image.
func (p *prompt) span(im *image) []int { return p.ids[im.offset : im.offset+im.length] }

// reply is the words that answer the prompt.
func (p *prompt) reply() []string {
	words := replyWords(p.said)
	for i := range p.images {
		if isServed(p.images[i].modality) {
			words = append(words, strings.Fields(mention(p.images[i].modality, p.images[i].hash))...)
		}
	}
	return words
}

// Reply returns the text that answers a prompt: a completions prompt, or the last
// user message of a chat. White space in it is as single blanks. (A completions
// prompt with a word of more than 1024 bytes is answered otherwise.)
func Reply(prompt string) string {
	return strings.Join(replyWords(strings.Fields(prompt)), " ")
}

// ReplyWithImages is [Reply] to a prompt with images that have these hashes, in
// order.
func ReplyWithImages(prompt string, hashes ...string) string {
	var images []Medium
	for _, hash := range hashes {
		images = append(images, Medium{imageModality, hash})
	}
	return ReplyWithMedia(prompt, images...)
}

func replyWords(said []string) []string {
	return append([]string{"You", "said:"}, said...)
}

// TokenIDs returns the ids that render gives to a completions prompt: a BOS and
// one for each word.
func (c *Cluster) TokenIDs(prompt string) []int {
	return c.vocabulary.encode(strings.Fields(prompt))
}

// Words returns the text of token ids, such as those of an answer of the
// generate route.
func (c *Cluster) Words(ids []int) string {
	return strings.Join(c.vocabulary.decode(ids), " ")
}

// spoken is the answer to a prompt.
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
	c.recent[0] = spoken{p.key, p.reply()}
}

// anothersWords is what a worker says that has read the wrong KV.
func (c *Cluster) anothersWords(p *prompt) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range c.recent {
		if other.prompt != p.key && other.words != nil {
			return other.words
		}
	}
	return []string{"text", "of", "another", "request"}
}

// completionsPrompt reads the prompt of a completions request: a string, or
// token ids.
func completionsPrompt(v *vocabulary, o object) (*prompt, error) {
	if text, err := o.text("prompt"); o.has("prompt") && err == nil {
		ids := v.encode(strings.Fields(text))
		return newPrompt(ids, v.decode(ids), nil), nil
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
	return newPrompt(ids, v.decode(ids), nil), nil
}
