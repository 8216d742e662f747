package wire

import (
	"math"
	"strconv"
)

// Single is one prompt of a batch, as a request of its own would have it.
type Single struct {
	// Body is the batch's with this prompt alone. It shares the text.
	Body   *Body
	Prompt Prompt
}

// maxBatchMembers bounds what the bodies of a batch take: each keeps where its members
// are, which is charged to nobody.
const maxBatchMembers = 100_000

const oneKind = "prompt must be a string, an array of non-negative token ids, or an array of one kind of them"

// Singles takes a body with an array of prompts apart: the prompts of a completions
// request may be strings, or arrays of token ids, of one kind. It returns nil for a
// body that has no such array, and leaves one whose limit is 1 to Prompt, which
// refuses it. Errors are faults: more prompts than limit are LimitExceeded.
func (p *Protocol) Singles(b *Body, limit int) ([]Single, error) {
	if !p.batches || limit <= 1 {
		return nil, nil
	}
	value := b.Get("prompt")
	first, n := firstElement(value)
	if first == 0 || isDigit(first) {
		return nil, nil // one prompt, or none
	}
	if n > limit {
		return nil, Faultf(LimitExceeded, "the request has %d prompts, more than the limit of %d", n, limit)
	}
	if n*len(b.members) > maxBatchMembers {
		return nil, Faultf(LimitExceeded, "the request has too many prompts for a body of %d members", len(b.members))
	}
	singles := make([]Single, 0, n)
	var err error
	EachElement(value, func(prompt []byte) bool {
		var s Single
		if s, err = p.single(b, prompt, first); err == nil {
			singles = append(singles, s)
		}
		return err == nil
	})
	if err != nil {
		return nil, err
	}
	return singles, nil
}

// firstElement returns the first byte of an array's first element, 0 if value is
// none or is empty, and how many elements there are, unless they are numbers.
func firstElement(value []byte) (first byte, n int) {
	EachElement(value, func(element []byte) bool {
		if n++; n == 1 {
			first = element[0]
		}
		return !isDigit(first)
	})
	return first, n
}

// single makes a request of one prompt of a batch, which must begin like the first
// does.
func (p *Protocol) single(b *Body, prompt []byte, first byte) (Single, error) {
	if prompt[0] != first || first != '"' && first != '[' {
		return Single{}, Invalid("invalid_prompt", oneKind)
	}
	e := b.Edit()
	e.Set("prompt", Text{prompt})
	body := &e.body
	found, err := p.Prompt(body)
	return Single{Body: body, Prompt: found}, err
}

// maxChoices is more than any worker gives.
const maxChoices = 1 << 20

// Choices returns how many choices a body asks for of each prompt.
func (p *Protocol) Choices(b *Body) int {
	n, ok := number(b.Get("n"))
	if !ok || n != math.Trunc(n) || !(n > 1 && n <= maxChoices) {
		return 1 // none, one, or what a worker refuses
	}
	return int(n)
}

// PartID is the request id by which one prompt of a batch goes: <id>-p<i>. What is
// too long for an id loses its own end.
func PartID(id string, i int) string {
	suffix := "-p" + strconv.Itoa(i)
	return id[:min(len(id), maxRequestID-len(suffix))] + suffix
}
