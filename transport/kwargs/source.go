package kwargs

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
)

// Decode reads an item from its msgpack. The item refers to nothing of data.
func Decode(data []byte) (*Item, error) { return decode(&memory{bytes.NewReader(data)}) }

// DecodeBase64 reads an item from its text and returns its msgpack too, which
// the entries' Raw refers to.
func DecodeBase64(text []byte) (*Item, []byte, error) {
	data := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(data, text)
	if err != nil {
		return nil, nil, notBase64(err)
	}
	it, err := Decode(data[:n])
	if err != nil {
		return nil, nil, err
	}
	return it, data[:n], nil
}

// ReadBase64 is DecodeBase64 for those who only want to know what there is:
// its memory does not grow with the tensors, because nobody holds the msgpack.
func ReadBase64(text []byte) (*Item, error) {
	if err := checkBase64(text); err != nil {
		return nil, notBase64(err)
	}
	return decode(bufio.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(text))))
}

// alphabet is true for the 64.
var alphabet = func() (is [256]bool) {
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/" {
		is[c] = true
	}
	return is
}()

// checkBase64 finds the faults that base64.Encoding.Decode finds. The stream
// decoder overlooks what follows the padding in another of its buffers, does
// not know where a fault is, and comes to it after those of the msgpack.
func checkBase64(text []byte) error {
	n, padding := 0, 0
	for i, c := range text {
		switch {
		case c == '\r', c == '\n':
			continue
		case c == '=':
			padding++
		case padding > 0, !alphabet[c]:
			return base64.CorruptInputError(i)
		}
		n++
	}
	if n%4 != 0 || padding > 2 {
		return base64.CorruptInputError(len(text))
	}
	return nil
}

func notBase64(err error) error {
	return fmt.Errorf("not base64 of the standard alphabet, padded: %w", err)
}

// source is what an item is read from. [msgpack.Decoder] puts no buffer of its
// own before a reader that can unread a byte, so that the places are right and
// bytes can be passed over.
type source interface {
	io.Reader
	io.ByteScanner
	// Discard passes over n bytes, or fails if there are not so many.
	Discard(n int) (int, error)
}

// memory is a source that passes over bytes without touching them.
type memory struct{ *bytes.Reader }

func (m *memory) Discard(n int) (int, error) {
	if left := m.Len(); n > left {
		m.Seek(0, io.SeekEnd)
		return left, io.EOF
	}
	_, err := m.Seek(int64(n), io.SeekCurrent)
	return n, err
}

// counted knows how many bytes of a source were read.
type counted struct {
	source
	pos int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.source.Read(p)
	c.pos += n
	return n, err
}

func (c *counted) ReadByte() (byte, error) {
	b, err := c.source.ReadByte()
	if err == nil {
		c.pos++
	}
	return b, err
}

func (c *counted) UnreadByte() error {
	err := c.source.UnreadByte()
	if err == nil {
		c.pos--
	}
	return err
}

func (c *counted) Discard(n int) (int, error) {
	n, err := c.source.Discard(n)
	c.pos += n
	return n, err
}
