package media

import (
	"encoding/base64"

	"github.com/llm-coordinator/coordinator/transport/budget"
)

// buffer is a data URI in the making, as a JSON string. What it allocates is
// charged before, and is the account's to give back.
type buffer struct {
	memory *budget.Account
	data   []byte
	head   string
	whole  int // its size at the end, if the origin told the truth; -1 if it told nothing
}

// ahead is how much memory a Content-Length is believed for.
const ahead = 1 << 20

const quote = `"`

// newBuffer makes the buffer of an image whose size is promised, or -1.
func newBuffer(memory *budget.Account, head string, promised int64) *buffer {
	b := &buffer{memory: memory, head: head, whole: -1}
	if promised >= 0 {
		b.whole = len(head) + base64.StdEncoding.EncodedLen(int(promised)) + len(quote)
	}
	return b
}

// encode adds bytes of the image. The error is a fault of kind QueueFull.
func (b *buffer) encode(image []byte) error {
	if err := b.reserve(len(b.head) + base64.StdEncoding.EncodedLen(len(image))); err != nil {
		return err
	}
	b.data = append(b.data, b.head...)
	b.head = ""
	b.data = base64.StdEncoding.AppendEncode(b.data, image)
	return nil
}

// finish returns the whole string.
func (b *buffer) finish() ([]byte, error) {
	err := b.reserve(len(quote))
	if err != nil {
		return nil, err
	}
	return append(b.data, quote...), nil
}

// reserve makes room. It doubles from what an origin is believed for, and ends
// at the size that the origin said.
func (b *buffer) reserve(n int) error {
	need := len(b.data) + n
	if need <= cap(b.data) {
		return nil
	}
	size := max(need, 2*cap(b.data), min(b.whole, ahead))
	if b.whole >= need {
		size = min(size, b.whole)
	}
	if err := b.memory.Charge(int64(size - cap(b.data))); err != nil {
		return err
	}
	b.data = append(make([]byte, 0, size), b.data...)
	return nil
}
