package load

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
)

// nonceDigits is how many hexadecimal digits make content unique.
const nonceDigits = 16

// pngHead is base64 of how a PNG begins. An image has a nonce after it.
const pngHead = "iVBORw0KGgoAAAAN"

const minImage = len(pngHead) + nonceDigits

// spelling writes a digit of the nonce in the way of its place in the body:
// always the same number of bytes.
type spelling func(dst []byte, digit byte) []byte

func asWord(dst []byte, digit byte) []byte { return append(dst, hex[digit], ' ') }
func asBase64(dst []byte, digit byte) []byte {
	return append(dst, hex[digit])
}
func asID(dst []byte, digit byte) []byte {
	return append(strconv.AppendInt(dst, 1000+int64(digit), 10), ',')
}

const hex = "0123456789abcdef"

// piece is a part of a body: text that is the same in all, or a nonce.
type piece struct {
	text  []byte
	spell spelling // nil: text
	width int      // bytes of a digit
}

// bodies makes the bodies of a run. It may be used by many goroutines.
type bodies struct {
	pieces []piece
	size   int64
	next   atomic.Uint64
}

func newBodies(r Request) *bodies {
	b := &bodies{}
	b.next.Store(rand.Uint64())
	b.text(fmt.Sprintf(`{"model":%q,"stream":%t,`, r.Model, r.Stream))
	switch r.Kind {
	case Generate:
		b.text(fmt.Sprintf(`"sampling_params":{"max_tokens":%d},"token_ids":[`, r.MaxTokens))
		b.unique(asID, 5)
		// The ids after the nonce; an array does not end with a comma.
		b.text(strings.Repeat("2000,", max(0, r.PromptBytes/5-nonceDigits-1)) + "2001]}")
	case Completions:
		b.text(fmt.Sprintf(`"max_tokens":%d,"prompt":"`, r.MaxTokens))
		b.words(r.PromptBytes)
		b.text(`"}`)
	default:
		b.text(fmt.Sprintf(`"max_tokens":%d,"messages":[{"role":"user","content":`, r.MaxTokens))
		b.content(r)
		b.text(`}]}`)
	}
	return b
}

// content is that of a chat message: a string, or parts if there are images.
func (b *bodies) content(r Request) {
	if r.Images == 0 {
		b.text(`"`)
		b.words(r.PromptBytes)
		b.text(`"`)
		return
	}
	b.text(`[{"type":"text","text":"`)
	b.words(r.PromptBytes)
	b.text(`"}`)
	pixels := []byte(strings.Repeat("Zm9vYmFyYmF6cXV4", r.ImageBytes/16+1)[:r.ImageBytes-minImage])
	for range r.Images {
		b.text(`,{"type":"image_url","image_url":{"url":"data:image/png;base64,` + pngHead)
		b.unique(asBase64, 1)
		b.add(piece{text: pixels})
		b.text(`"}}`)
	}
	b.text(`]`)
}

// words is a prompt of words of one letter.
func (b *bodies) words(size int) {
	b.unique(asWord, 2)
	b.text(strings.Repeat("a b c d e f g h ", size/16+1)[:max(0, size-2*nonceDigits)])
}

func (b *bodies) text(s string) { b.add(piece{text: []byte(s)}) }
func (b *bodies) unique(s spelling, width int) {
	b.add(piece{spell: s, width: width})
}

func (b *bodies) add(p piece) {
	b.pieces = append(b.pieces, p)
	b.size += int64(len(p.text) + nonceDigits*p.width)
}

// body is the body of a request. It can be used for one after the other, if each
// was closed before the next begins.
type body struct {
	from   *bodies
	parts  [][]byte
	part   int
	offset int
	closed chan struct{} // has an element once the body was closed
}

func (b *bodies) body() *body {
	own := &body{from: b, closed: make(chan struct{}, 1)}
	for _, p := range b.pieces {
		if p.spell != nil {
			p.text = make([]byte, 0, nonceDigits*p.width)
		}
		own.parts = append(own.parts, p.text)
	}
	return own
}

// renew begins a body with content that no other has.
func (b *body) renew() {
	b.part, b.offset = 0, 0
	nonce := b.from.next.Add(1)
	for i, p := range b.from.pieces {
		if p.spell == nil {
			continue
		}
		text := b.parts[i][:0]
		for digit := range nonceDigits {
			text = p.spell(text, byte(nonce>>(4*digit))&15)
		}
		b.parts[i] = text
		nonce = nonce*6364136223846793005 + 1442695040888963407 // each image has its own
	}
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (n int, err error) {
	for n < len(p) && b.part < len(b.parts) {
		k := copy(p[n:], b.parts[b.part][b.offset:])
		n += k
		b.offset += k
		if b.offset == len(b.parts[b.part]) {
			b.part, b.offset = b.part+1, 0
		}
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Close implements io.Closer.
func (b *body) Close() error {
	select {
	case b.closed <- struct{}{}:
	default:
	}
	return nil
}
