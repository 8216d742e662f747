package media

import "bytes"

// maxHead bounds what stands between "data:" and the comma.
const maxHead = 256

// chars are the characters of a JSON string, whose escapes are resolved as they
// are read. Some encoders write every "/" as "\/".
type chars struct {
	in  []byte // between the quotes
	pos int
}

func newChars(value []byte) (c chars, ok bool) {
	if len(value) < 2 || value[0] != '"' || value[len(value)-1] != '"' {
		return c, false
	}
	return chars{in: value[1 : len(value)-1]}, true
}

// notASCII stands for a character that no part of a data URI may have.
const notASCII = 0xff

// next returns the next character. ok is false at the end.
func (c *chars) next() (b byte, ok bool) {
	if c.pos == len(c.in) {
		return 0, false
	}
	b = c.in[c.pos]
	c.pos++
	if b == '\\' {
		return c.escape(), true
	}
	return b, true
}

// escape resolves an escape behind its backslash.
func (c *chars) escape() byte {
	rest := c.in[c.pos:]
	if len(rest) == 0 {
		return notASCII
	}
	c.pos++
	switch rest[0] {
	case '"', '\\', '/':
		return rest[0]
	case 't':
		return '\t'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 'u':
		if len(rest) >= 5 && rest[1] == '0' && rest[2] == '0' && '0' <= rest[3] && rest[3] <= '7' {
			if low := bytes.IndexByte([]byte("0123456789abcdef"), rest[4]|0x20); low >= 0 {
				c.pos += 4
				return (rest[3]-'0')<<4 | byte(low)
			}
		}
	}
	return notASCII
}

// scheme reads past a scheme in lower case, if it is there in any case.
func (c *chars) scheme(name string) bool {
	for i := range len(name) {
		if b, ok := c.next(); !ok || lower(b) != name[i] {
			return false
		}
	}
	return true
}

func lower(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		return b | 0x20
	}
	return b
}

// head appends to dst, which has room for as much as there may be, what stands
// before the first comma, in lower case.
func (c *chars) head(dst []byte) ([]byte, bool) {
	for {
		b, ok := c.next()
		if b == ',' {
			return dst, true
		}
		space := b == ' ' || b == '\t' || b == '\r' || b == '\n'
		if !ok || len(dst) == cap(dst) || !space && (b <= ' ' || b >= 0x7f) {
			return nil, false
		}
		dst = append(dst, lower(b))
	}
}

// base64 reads the rest and returns how many bytes it stands for. It stops when
// there are more than limit. ok is false if it is not base64.
func (c *chars) base64(limit int64) (size int64, ok bool) {
	var digits, pads int64
	for {
		if pads == 0 {
			run := digitRun(c.in[c.pos:])
			c.pos += run
			digits += int64(run)
		}
		size = digits/4*3 + digits%4*3/4
		b, more := c.next()
		switch {
		case size > limit:
			return size, false
		case !more:
			return size, (digits+pads)%4 == 0
		case b == '=' && pads < 2:
			pads++
		case pads == 0 && notDigit[b] == 0: // it was escaped
			digits++
		default:
			return size, false
		}
	}
}

// digitRun returns how many digits of base64 there are at the beginning of in.
func digitRun(in []byte) (n int) {
	for ; n+8 <= len(in); n += 8 {
		b := in[n : n+8 : n+8]
		if notDigit[b[0]]|notDigit[b[1]]|notDigit[b[2]]|notDigit[b[3]]|
			notDigit[b[4]]|notDigit[b[5]]|notDigit[b[6]]|notDigit[b[7]] != 0 {
			break
		}
	}
	for n < len(in) && notDigit[in[n]] == 0 {
		n++
	}
	return n
}

// notDigit is 1 for each byte that is no digit of base64.
var notDigit = func() (t [256]uint8) {
	for i := range t {
		if b := byte(i); !isAlphanumeric(b) && b != '+' && b != '/' {
			t[i] = 1
		}
	}
	return t
}()
