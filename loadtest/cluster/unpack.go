package cluster

import "encoding/binary"

// unpacker reads msgpack, as far as items of kwargs_data have it: maps with keys
// that are strings, arrays, strings, whole numbers that are not negative,
// booleans, nil, and tensors' bytes.
type unpacker struct{ rest []byte }

// take returns the next n bytes.
func (u *unpacker) take(n int) ([]byte, bool) {
	if n < 0 || n > len(u.rest) {
		return nil, false
	}
	taken := u.rest[:n]
	u.rest = u.rest[n:]
	return taken, true
}

// number reads a big-endian number of n bytes.
func (u *unpacker) number(n int) (int, bool) {
	b, ok := u.take(n)
	if !ok {
		return 0, false
	}
	var whole [8]byte
	copy(whole[8-n:], b)
	v := binary.BigEndian.Uint64(whole[:])
	return int(v), v < 1<<62
}

// value reads the next value: a map[string]any, []any, string, int, bool or nil,
// or the []byte of a tensor, which is not copied.
func (u *unpacker) value(depth int) (any, bool) {
	head, ok := u.take(1)
	if !ok || depth > 16 {
		return nil, false
	}
	switch c := head[0]; {
	case c < 0x80:
		return int(c), true
	case c < 0x90:
		return u.mapOf(int(c&0x0f), depth)
	case c < 0xa0:
		return u.arrayOf(int(c&0x0f), depth)
	case c < 0xc0:
		return u.text(int(c & 0x1f))
	case c == 0xc0:
		return nil, true
	case c == 0xc2 || c == 0xc3:
		return c == 0xc3, true
	case c >= 0xc7 && c <= 0xc9: // ext8, ext16, ext32
		n, ok := u.number(1 << (c - 0xc7))
		return u.tensor(n, ok)
	case c >= 0xcc && c <= 0xcf: // uint8 to uint64
		return u.number(1 << (c - 0xcc))
	case c >= 0xd4 && c <= 0xd8: // fixext1 to fixext16
		return u.tensor(1<<(c-0xd4), true)
	case c >= 0xd9 && c <= 0xdb: // str8 to str32
		if n, ok := u.number(1 << (c - 0xd9)); ok {
			return u.text(n)
		}
	case c >= 0xdc && c <= 0xdd: // array16, array32
		if n, ok := u.number(2 << (c - 0xdc)); ok {
			return u.arrayOf(n, depth)
		}
	case c >= 0xde: // map16, map32
		if n, ok := u.number(2 << (c - 0xde)); ok && c < 0xe0 {
			return u.mapOf(n, depth)
		}
	}
	return nil, false
}

func (u *unpacker) text(n int) (any, bool) {
	b, ok := u.take(n)
	return string(b), ok
}

// tensor reads the type of an extension, which must be a tensor's, and n bytes.
func (u *unpacker) tensor(n int, ok bool) (any, bool) {
	kind, there := u.take(1)
	if !ok || !there || kind[0] != rawView {
		return nil, false
	}
	b, ok := u.take(n)
	return b, ok
}

func (u *unpacker) arrayOf(n, depth int) (any, bool) {
	var list []any
	for range n {
		v, ok := u.value(depth + 1)
		if !ok {
			return nil, false
		}
		list = append(list, v)
	}
	return list, true
}

func (u *unpacker) mapOf(n, depth int) (any, bool) {
	m := map[string]any{}
	for range n {
		name, ok := u.value(depth + 1)
		key, isText := name.(string)
		if !ok || !isText {
			return nil, false
		}
		if m[key], ok = u.value(depth + 1); !ok {
			return nil, false
		}
	}
	return m, true
}
