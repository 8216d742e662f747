package kwargs

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"

	"github.com/vmihailenco/msgpack/v5"
)

// Why an item is not made smaller by [Strip], though it is one.
var (
	// ErrNothingKept is an item none of whose entries is kept on the CPU.
	ErrNothingKept = errors.New("no entry is marked keep_on_cpu: nothing would be left")
	// ErrNothingDropped is an item all of whose entries are.
	ErrNothingDropped = errors.New("all entries are marked keep_on_cpu: nothing would be dropped")
)

// Strip returns the item of a text reduced to the entries that are kept on the
// CPU, as base64: a new map header, and behind it their bytes as they were, in
// their order. That is what a worker needs of an item whose embedding it has.
//
// The text may hold neither line breaks nor JSON's escapes. The bytes of tensors
// are passed over unread, so that what Strip costs and allocates is that of what
// is kept. An error means that there is no smaller item; the text is as good as
// it was.
func Strip(text []byte) ([]byte, error) {
	src, err := newQuads(text)
	if err != nil {
		return nil, err
	}
	it, err := decode(src)
	if err != nil {
		return nil, err
	}
	kept, size := 0, 0
	for i := range it.Entries {
		if e := &it.Entries[i]; e.Field.KeepOnCPU {
			kept++
			size += e.Raw[1] - e.Raw[0]
		}
	}
	switch kept {
	case 0:
		return nil, ErrNothingKept
	case len(it.Entries):
		return nil, ErrNothingDropped
	}
	var out bytes.Buffer
	out.Grow(len("\xde\x04\x00") + size)
	if err := msgpack.NewEncoder(&out).EncodeMapLen(kept); err != nil {
		return nil, err
	}
	for i := range it.Entries {
		if e := &it.Entries[i]; e.Field.KeepOnCPU {
			if err := src.copyRange(&out, e.Raw[0], e.Raw[1]); err != nil {
				return nil, notBase64(err)
			}
		}
	}
	return base64.StdEncoding.AppendEncode(nil, out.Bytes()), nil
}

// quads is a source of what a base64 text stands for: any place of it can be
// gone to at once, because four characters are three bytes everywhere.
type quads struct {
	text []byte
	size int // bytes that the text stands for
	pos  int // of the next byte
	at   int // which quad three holds, -1: none
	// three are the bytes of one quad.
	three [3]byte
}

// newQuads checks what would shift the places in a text. Its characters are
// checked where they are read.
func newQuads(text []byte) (*quads, error) {
	for _, c := range []byte{'\\', '\n', '\r'} {
		if i := bytes.IndexByte(text, c); i >= 0 {
			return nil, notBase64(base64.CorruptInputError(i))
		}
	}
	if len(text)%4 != 0 {
		return nil, notBase64(base64.CorruptInputError(len(text)))
	}
	padding := len(text) - len(bytes.TrimRight(text, "="))
	if padding > 2 {
		return nil, notBase64(base64.CorruptInputError(len(text)))
	}
	return &quads{text: text, size: len(text)/4*3 - padding, at: -1}, nil
}

// load decodes the quad that the place lies in, unless it is there.
func (q *quads) load() error {
	n := q.pos / 3
	if q.at == n {
		return nil
	}
	q.at = -1
	got, err := base64.StdEncoding.Decode(q.three[:], q.text[4*n:4*n+4])
	if err == nil && got != min(3, q.size-3*n) { // padding in the middle
		err = base64.CorruptInputError(4*n + got + 1)
	}
	if err == nil {
		q.at = n
	}
	return err
}

func (q *quads) Read(p []byte) (n int, err error) {
	for n < len(p) && q.pos < q.size {
		if err := q.load(); err != nil {
			return n, err
		}
		moved := copy(p[n:], q.three[q.pos%3:min(3, q.size-3*q.at)])
		n += moved
		q.pos += moved
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (q *quads) ReadByte() (byte, error) {
	if q.pos >= q.size {
		return 0, io.EOF
	}
	if err := q.load(); err != nil {
		return 0, err
	}
	q.pos++
	return q.three[(q.pos-1)%3], nil
}

func (q *quads) UnreadByte() error {
	if q.pos == 0 {
		return errors.New("nothing was read")
	}
	q.pos--
	return nil
}

func (q *quads) Discard(n int) (int, error) {
	if left := q.size - q.pos; n > left {
		q.pos = q.size
		return left, io.EOF
	}
	q.pos += n
	return n, nil
}

// copyRange appends the bytes from one place up to another to out.
func (q *quads) copyRange(out *bytes.Buffer, from, to int) error {
	q.pos = from
	_, err := io.CopyN(out, q, int64(to-from))
	return err
}
