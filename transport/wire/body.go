package wire

import (
	"bytes"
	"io"
	"math"
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
//
// Every leg copies those of the body, so it is as small as can be.
type member struct {
	name []byte // unescaped; of one that Set added with quotes and colon, as it leaves
	set  Text   // the value that replaces it, if not nil
	// lo and hi are the ends of name, colon and value in the text, value is where
	// the value begins.
	lo, hi, value uint32
	ord           int32 // its number in the text, for neighbours can leave in one slice; or added
}

// added is the number of a member that is not in the text.
const added = -1

// is reports whether a member has that name.
func (m *member) is(name string) bool {
	if m.ord == added {
		return string(m.name[1:len(m.name)-2]) == name
	}
	return string(m.name) == name
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
	if len(text) > math.MaxUint32 {
		return nil, &SyntaxError{Offset: math.MaxUint32, Reason: "too long"}
	}
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
		m := member{lo: uint32(s.nameAt), value: uint32(s.pos), ord: int32(len(b.members))}
		m.name = unescape(b.text[s.nameAt+1 : s.nameEnd-1])
		if err := s.value(); err != nil {
			return err
		}
		m.hi = uint32(s.pos)
		if len(b.members) == MaxMembers {
			return &SyntaxError{Offset: int(m.lo), Reason: "too many members"}
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
	last := make(map[string]int32, len(b.members))
	for _, m := range b.members {
		last[string(m.name)] = m.ord
	}
	b.members = slices.DeleteFunc(b.members, func(m member) bool {
		return last[string(m.name)] != m.ord
	})
	b.members = slices.Clip(slices.Clone(b.members)) // lets go of the rest
}

func (b *Body) last(name []byte) int32 {
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
		case !m.is(name):
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
	return slices.IndexFunc(e.body.members, func(m member) bool { return m.is(name) })
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
	e.body.members = append(e.body.members, member{name: quoteName(name), ord: added, set: value})
}

// SetRaw is Set with a value of one piece.
func (e *Edit) SetRaw(name, value string) {
	if t, ok := usual[value]; ok {
		e.Set(name, t)
		return
	}
	e.Set(name, Raw(value))
}

// usual are the values that legs are most often given.
var usual = map[string]Text{"1": Raw("1"), "true": Raw("true"), "false": Raw("false")}

// Delete removes the members of these names.
func (e *Edit) Delete(names ...string) {
	e.body.members = slices.DeleteFunc(e.body.members, func(m member) bool {
		return slices.ContainsFunc(names, m.is)
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
			if ms[i].ord == added {
				p.add(ms[i].name)
			} else { // the client's, who may have spelt it in its own way
				p.add(quoteName(string(ms[i].name)))
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

// Append appends a copy in one piece.
func (p Payload) Append(to []byte) []byte {
	to = slices.Grow(to, int(p.size))
	for _, piece := range p.pieces {
		to = append(to, piece...)
	}
	return to
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
	if len(r.pieces) > 0 {
		return n, nil
	}
	r.pieces = nil // net/http keeps the reader for as long as the answer takes
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Rest returns what has not been read, and counts it as read. The slices are
// the payload's, and not to be changed; the slice of them is the caller's.
func (r *payloadReader) Rest() [][]byte {
	rest := append([][]byte(nil), r.pieces...)
	if len(rest) > 0 {
		rest[0] = rest[0][r.off:]
	}
	r.pieces, r.off = nil, 0
	return rest
}

func (r *payloadReader) Close() error { return nil }
