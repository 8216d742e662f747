package wire

import (
	"bytes"
	"strconv"
)

// Tally is the sum of several usages: of each number in them, also of those in an
// object inside. What is no number is that of the first usage which has it. The
// zero value is the sum of none. It belongs to one goroutine.
type Tally struct{ members []tallied }

// tallied is one member.
type tallied struct {
	name  []byte // with its quotes
	kind  tallyKind
	count int64
	inner Tally
	text  []byte // of what is neither
}

type tallyKind uint8

const (
	tallyText tallyKind = iota
	tallyNumber
	tallyObject
)

// maxTallied is how many members of a usage are kept, and maxTallyDepth how deep
// they are looked for: workers write a handful, two deep.
const (
	maxTallied    = 64
	maxTallyDepth = 4
)

// Counted reports whether there was a usage.
func (t *Tally) Counted() bool { return len(t.members) > 0 }

// Add adds a usage, which must be valid JSON. What is no object adds nothing.
func (t *Tally) Add(usage []byte) { t.add(usage, 0) }

func (t *Tally) add(usage []byte, depth int) {
	EachMember(usage, func(name, value []byte) bool {
		m := t.member(name)
		if m == nil {
			return false
		}
		n, err := strconv.ParseInt(string(value), 10, 64)
		switch {
		case err == nil && m.kind != tallyObject:
			m.kind, m.count = tallyNumber, m.count+n
		case IsObject(value) && m.kind != tallyNumber && depth < maxTallyDepth:
			m.kind = tallyObject
			m.inner.add(value, depth+1)
		case m.text == nil:
			m.text = bytes.Clone(value)
		}
		return true
	})
}

// member returns the member of that name, a new one if need be; nil: there are too
// many.
func (t *Tally) member(name []byte) *tallied {
	for i := range t.members {
		if bytes.Equal(t.members[i].name, name) {
			return &t.members[i]
		}
	}
	if len(t.members) == maxTallied {
		return nil
	}
	t.members = append(t.members, tallied{name: bytes.Clone(name)})
	return &t.members[len(t.members)-1]
}

// Merge adds another sum, as if each of its usages were added.
func (t *Tally) Merge(other *Tally) {
	if other.Counted() {
		t.Add(other.Append(nil))
	}
}

// Append appends the sum as JSON.
func (t *Tally) Append(to []byte) []byte {
	to = append(to, '{')
	for i := range t.members {
		m := &t.members[i]
		if i > 0 {
			to = append(to, ',')
		}
		to = append(append(to, m.name...), ':')
		switch m.kind {
		case tallyNumber:
			to = strconv.AppendInt(to, m.count, 10)
		case tallyObject:
			to = m.inner.Append(to)
		default:
			to = append(to, m.text...)
		}
	}
	return append(to, '}')
}
