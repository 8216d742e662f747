package wire

import (
	"bytes"
	"strconv"
)

// Usage finds in an answer that goes by how many tokens the worker says it has
// generated: the last "usage" that is an object counts. It reads no JSON: within a
// string the quote before the colon would be escaped. The zero value stands at the
// start of an answer. It belongs to one goroutine.
type Usage struct {
	tail [len(usageName)]byte // the last bytes of what was read before
	n    int
	buf  [maxUsage]byte // what follows a name, until it has been read
	in   int
	open bool
	last int
}

const (
	usageName      = `"usage":`
	completionName = `"completion_tokens":`
	outputName     = `"output_tokens":` // of the Responses API
	// maxUsage is how much behind the name is looked at. Workers write three counts
	// before anything else; of the Responses API there are details of the first.
	maxUsage = 160
)

// Look looks at the next bytes of the answer.
func (u *Usage) Look(chunk []byte) {
	if u.open {
		u.take(chunk)
	}
	if u.n > 0 { // a name across the seam
		var seam [2 * len(usageName)]byte
		n := copy(seam[:], u.tail[:u.n])
		n += copy(seam[n:], chunk[:min(len(chunk), len(usageName)-1)])
		if i := bytes.Index(seam[:n], []byte(usageName)); i >= 0 && i < u.n {
			u.begin(chunk[i+len(usageName)-u.n:])
		}
	}
	for rest := chunk; ; {
		i := bytes.Index(rest, []byte(usageName))
		if i < 0 {
			break
		}
		rest = rest[i+len(usageName):]
		u.begin(rest)
	}
	u.keep(chunk)
}

// keep keeps the last bytes, for the next seam.
func (u *Usage) keep(chunk []byte) {
	const most = len(usageName) - 1
	if len(chunk) >= most {
		u.n = copy(u.tail[:], chunk[len(chunk)-most:])
		return
	}
	old := max(0, min(u.n, most-len(chunk)))
	copy(u.tail[:], u.tail[u.n-old:u.n])
	u.n = old + copy(u.tail[old:], chunk)
}

// begin begins to read what follows a name.
func (u *Usage) begin(text []byte) {
	if u.open {
		u.read()
	}
	u.open, u.in = true, 0
	u.take(text)
}

func (u *Usage) take(text []byte) {
	u.in += copy(u.buf[u.in:], text)
	if u.in == len(u.buf) {
		u.read()
	}
}

// read reads what has been taken in.
func (u *Usage) read() {
	u.open = false
	text := bytes.TrimLeft(u.buf[:u.in], " ")
	if len(text) == 0 || text[0] != '{' {
		return
	}
	name := completionName
	i := bytes.Index(text, []byte(name))
	if i < 0 {
		name = outputName
		if i = bytes.Index(text, []byte(name)); i < 0 {
			return
		}
	}
	text = bytes.TrimLeft(text[i+len(name):], " ")
	end := 0
	for end < len(text) && isDigit(text[end]) {
		end++
	}
	if n, err := strconv.Atoi(string(text[:end])); err == nil && end < len(text) { // else it is cut off
		u.last = n
	}
}

// Completion returns how many tokens the answer has, as far as it has been said; 0
// is not known.
func (u *Usage) Completion() int {
	if u.open {
		u.read()
	}
	return u.last
}
