package wire

import (
	"bytes"
	"io"
	"slices"
)

// Body is a JSON object kept as its top-level members in order, each a slice
// of the text it was read from. It is not changed after [ParseBody]: the legs
// of a request share it, and each makes an [Edit] of its own.
type Body struct {
	text    []byte
	members []member
}

// member is one member of an object: where it stands in the text as it came,
// or what an Edit has put in its place.
type member struct {
	name   []byte // unescaped
	lo, hi int    // of name, colon and value in the text
	value  int    // where the value begins
	ord    int    // its number in the text: neighbours can leave in one slice
	set    Text   // the value that replaces it, if not nil
	quoted []byte // the name with quotes and colon, of one that Set added
}

// Text is JSON text in pieces, which stand one behind the other. The pieces
// are shared and must not be changed.
type Text [][]byte

// Raw makes a Text of one piece.
func Raw(piece string) Text { return Text{[]byte(piece)} }

// manyMembers is how many members an object has before names are looked up in
// a map: a hostile body has a million of them.
const manyMembers = 24

// MaxMembers is how many members an object may have at the top level. Each costs
// far more memory than its text, on every leg.
const MaxMembers = 10_000

// ParseBody checks that text is one JSON object and nothing after it, and
// takes it apart. Of a name that stands more than once only the last member is
// kept; names are compared after unescaping. It keeps text, which must not be
// changed afterwards. Errors are *SyntaxError or say that it is no object.
func ParseBody(text []byte) (*Body, error) {
	s := scanner{data: text}
	s.space()
	if s.peek() != '{' {
		if err := Valid(text); err != nil {
			return nil, err
		}
		return nil, errNotObject
	}
	b := &Body{text: text, members: make([]member, 0, 16)}
	if err := b.scan(&s); err != nil {
		return nil, err
	}
	if err := s.end(); err != nil {
		return nil, err
	}
	b.dropRepeated()
	return b, nil
}

func (b *Body) scan(s *scanner) error {
	opened, err := s.openObject()
	for ; err == nil && opened; opened, err = s.close(0) {
		m := member{lo: s.nameAt, value: s.pos, ord: len(b.members)}
		m.name = unescape(b.text[s.nameAt+1 : s.nameEnd-1])
		if err := s.value(); err != nil {
			return err
		}
		m.hi = s.pos
		if len(b.members) == MaxMembers {
			return &SyntaxError{Offset: m.lo, Reason: "too many members"}
		}
		b.members = append(b.members, m)
	}
	return err
}

// dropRepeated keeps the last of the members of each name.
func (b *Body) dropRepeated() {
	if len(b.members) <= manyMembers {
		// DeleteFunc moves members only to places it has passed, and the last
		// of a name never stands before the one that is asked about.
		b.members = slices.DeleteFunc(b.members, func(m member) bool {
			return b.last(m.name) != m.ord
		})
		return
	}
	last := make(map[string]int, len(b.members))
	for _, m := range b.members {
		last[string(m.name)] = m.ord
	}
	b.members = slices.DeleteFunc(b.members, func(m member) bool {
		return last[string(m.name)] != m.ord
	})
	b.members = slices.Clip(slices.Clone(b.members)) // lets go of the rest
}

func (b *Body) last(name []byte) int {
	for i := len(b.members) - 1; i >= 0; i-- {
		if string(b.members[i].name) == string(name) {
			return b.members[i].ord
		}
	}
	return -1
}

// Get returns the text of a member's value, or nil if there is no such member.
func (b *Body) Get(name string) []byte {
	for i := range b.members {
		switch m := &b.members[i]; {
		case string(m.name) != name:
		case m.set == nil:
			return b.text[m.value:m.hi]
		case len(m.set) == 1:
			return m.set[0]
		default:
			return bytes.Join(m.set, nil)
		}
	}
	return nil
}

// Edit returns an editable copy of the body's list of members. The text is
// shared.
func (b *Body) Edit() *Edit {
	return &Edit{body: Body{text: b.text, members: append(make([]member, 0, len(b.members)+6), b.members...)}}
}

// Edit is a body being changed into what one leg sends. It belongs to one
// goroutine.
type Edit struct{ body Body }

// NewEdit begins an empty object.
func NewEdit() *Edit { return &Edit{} }

func (e *Edit) index(name string) int {
	return slices.IndexFunc(e.body.members, func(m member) bool { return string(m.name) == name })
}

// Has reports whether there is a member of that name.
func (e *Edit) Has(name string) bool { return e.index(name) >= 0 }

// Set gives a member a new value, in the old one's place or behind the last
// member. Name must need no escapes.
func (e *Edit) Set(name string, value Text) {
	if i := e.index(name); i >= 0 {
		e.body.members[i].set = value
		return
	}
	quoted := quoteName(name)
	e.body.members = append(e.body.members, member{name: quoted[1 : len(quoted)-2], quoted: quoted, ord: -1, set: value})
}

// SetRaw is Set with a value of one piece.
func (e *Edit) SetRaw(name, value string) { e.Set(name, Raw(value)) }

// Delete removes the members of these names.
func (e *Edit) Delete(names ...string) {
	e.body.members = slices.DeleteFunc(e.body.members, func(m member) bool {
		return slices.Contains(names, string(m.name))
	})
}

// Payload returns the edited object as the pieces of an outgoing body.
func (e *Edit) Payload() Payload {
	ms := e.body.members
	p := Payload{pieces: make([][]byte, 0, 2*len(ms)+2)}
	p.add(openBrace)
	for i := 0; i < len(ms); i++ {
		if i > 0 {
			p.add(comma)
		}
		if ms[i].set != nil {
			if ms[i].quoted == nil { // it was the client's, who may have spelt it in its own way
				p.add(quoteName(string(ms[i].name)))
			} else {
				p.add(ms[i].quoted)
			}
			for _, piece := range ms[i].set {
				p.add(piece)
			}
			continue
		}
		lo := ms[i].lo
		for i+1 < len(ms) && ms[i+1].set == nil && ms[i+1].ord == ms[i].ord+1 {
			i++ // neighbours leave as they came, with what stands between them
		}
		p.add(e.body.text[lo:ms[i].hi])
	}
	p.add(closeBrace)
	return p
}

// Text returns the edited object as a value to be set in another.
func (e *Edit) Text() Text { return e.Payload().pieces }

var (
	openBrace  = []byte("{")
	closeBrace = []byte("}")
	comma      = []byte(",")
)

// quoteName returns a name with its quotes and the colon. It must need no escapes.
func quoteName(name string) []byte {
	out := make([]byte, 0, len(name)+3)
	return append(append(append(out, '"'), name...), '"', ':')
}

// Payload is an outgoing body: pieces with a known length, readable as often
// as a leg is sent.
type Payload struct {
	pieces [][]byte
	size   int64
}

// NewPayload makes a payload of one piece.
func NewPayload(text []byte) Payload {
	var p Payload
	p.add(text)
	return p
}

func (p *Payload) add(piece []byte) {
	p.pieces = append(p.pieces, piece)
	p.size += int64(len(piece))
}

// Size returns the length in bytes.
func (p Payload) Size() int64 { return p.size }

// Bytes returns a copy in one piece.
func (p Payload) Bytes() []byte {
	out := make([]byte, 0, p.size)
	for _, piece := range p.pieces {
		out = append(out, piece...)
	}
	return out
}

// Redacted renders the payload for the log.
func (p Payload) Redacted() string { return Redact(p.pieces...) }

// Reader returns a new reader from the start. Several may be read at once.
func (p Payload) Reader() io.ReadCloser { return &payloadReader{pieces: p.pieces} }

type payloadReader struct {
	pieces [][]byte
	off    int // in pieces[0]
}

func (r *payloadReader) Read(b []byte) (n int, err error) {
	for len(r.pieces) > 0 && n < len(b) {
		k := copy(b[n:], r.pieces[0][r.off:])
		n, r.off = n+k, r.off+k
		if r.off == len(r.pieces[0]) {
			r.pieces, r.off = r.pieces[1:], 0
		}
	}
	if n == 0 && len(r.pieces) == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (r *payloadReader) Close() error { return nil }
