package kwargs

import (
	"fmt"
	"unicode/utf8"

	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// kind is what a msgpack value is.
type kind uint8

const (
	nothing kind = iota // the one byte that begins no value
	null
	boolean
	integer
	float
	str
	bin
	array
	mapping
	ext
)

var kindNames = [...]string{"no msgpack", "null", "a boolean", "an integer", "a float", "a string", "binary data",
	"an array", "a map", "an extension"}

func (k kind) String() string { return kindNames[k] }

// next returns what comes next without reading it.
func (d *decoder) next() (kind, error) {
	c, err := d.pack.PeekCode()
	if err != nil {
		return nothing, d.broken(err)
	}
	return kindOf(c), nil
}

func kindOf(c byte) kind {
	switch {
	case msgpcode.IsFixedNum(c), c >= msgpcode.Uint8 && c <= msgpcode.Int64:
		return integer
	case msgpcode.IsFixedMap(c), c == msgpcode.Map16, c == msgpcode.Map32:
		return mapping
	case msgpcode.IsFixedArray(c), c == msgpcode.Array16, c == msgpcode.Array32:
		return array
	case msgpcode.IsString(c):
		return str
	case msgpcode.IsBin(c):
		return bin
	case msgpcode.IsExt(c):
		return ext
	case c == msgpcode.Float, c == msgpcode.Double:
		return float
	case c == msgpcode.True, c == msgpcode.False:
		return boolean
	case c == msgpcode.Nil:
		return null
	}
	return nothing
}

// unexpected is the error for a value of kind k that comes next. An extension
// is named by its type.
func (d *decoder) unexpected(what string, k kind) error {
	if k == ext {
		id, _, err := d.pack.DecodeExtHeader()
		if err != nil {
			return d.broken(err)
		}
		return d.refused(id)
	}
	return d.failf("%s, not %v", what, k)
}

// want fails unless what comes next is of kind k.
func (d *decoder) want(k kind, what string) error {
	got, err := d.next()
	if err == nil && got != k {
		err = d.unexpected(fmt.Sprintf("%s is %v", what, k), got)
	}
	return err
}

// length takes the length that a header claims. One that a 32-bit int cannot
// hold is negative, and longer than any item there.
func (d *decoder) length(n int, err error) (int, error) {
	if err != nil {
		return 0, d.broken(err)
	}
	if n < 0 {
		return 0, d.fail(ErrTruncated)
	}
	return n, nil
}

func (d *decoder) discard(n int) error {
	if _, err := d.src.Discard(n); err != nil {
		return d.broken(err)
	}
	return nil
}

// mapLen reads the header of a map of at most limit pairs (-1: any number).
// Nothing is allocated for the number that it claims.
func (d *decoder) mapLen(what string, limit int) (int, error) {
	if err := d.want(mapping, what); err != nil {
		return 0, err
	}
	n, err := d.length(d.pack.DecodeMapLen())
	if err == nil && limit >= 0 && n > limit {
		return 0, d.failf("%s has at most %d keys, not %d", what, limit, n)
	}
	return n, err
}

func (d *decoder) arrayLen(what string) (int, error) {
	if err := d.want(array, what); err != nil {
		return 0, err
	}
	return d.length(d.pack.DecodeArrayLen())
}

func (d *decoder) string(what string) (string, error) {
	if err := d.want(str, what); err != nil {
		return "", err
	}
	n, err := d.length(d.pack.DecodeBytesLen())
	if err != nil {
		return "", err
	}
	if n > len(d.text) {
		return "", d.failf("%s has at most %d bytes, not %d", what, len(d.text), n)
	}
	if err := d.pack.ReadFull(d.text[:n]); err != nil {
		return "", d.broken(err)
	}
	if !utf8.Valid(d.text[:n]) {
		return "", d.failf("%s is not UTF-8", what)
	}
	return string(d.text[:n]), nil
}

func (d *decoder) int(what string) (int64, error) {
	if err := d.want(integer, what); err != nil {
		return 0, err
	}
	n, err := d.pack.DecodeInt64() // beyond 63 bits: negative
	if err != nil {
		return 0, d.broken(err)
	}
	return n, nil
}

func (d *decoder) smallInt(what string) (int, error) {
	n, err := d.int(what)
	if err == nil && int64(int32(n)) != n {
		err = d.failf("%s is beyond 32 bits", what)
	}
	return int(n), err
}

func (d *decoder) bool(what string) (bool, error) {
	if err := d.want(boolean, what); err != nil {
		return false, err
	}
	b, err := d.pack.DecodeBool()
	if err != nil {
		return false, d.broken(err)
	}
	return b, nil
}

// scalar passes over a null, a boolean or a number.
func (d *decoder) scalar() error {
	if err := d.pack.Skip(); err != nil {
		return d.broken(err)
	}
	return nil
}
