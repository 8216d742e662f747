// Package wiretest makes random requests of clients, and says what each leg of
// them must be, byte for byte.
//
// It shares no code with package wire and reads no JSON: whoever has written a
// text knows where its members are. A leg is put together from the texts of the
// client's members and from what the contract (spec/wire.md, sections 2, 3 and
// 5 to 11) sets in their places. It is for tests only.
package wiretest

import "strings"

// Member is a member of an object as it is written.
type Member struct {
	Name   string // what it means: WTF-8
	Before string // white space in front of the name
	Spelt  string // the name, with quotes and escapes
	Colon  string // with white space around it
	Value  string
	After  string // white space behind the value

	inner *Object // the value, if legs change within it
	place int     // among the members as they came; -1: not as it came
}

func (m *Member) text() string {
	if m.inner != nil {
		return m.Spelt + m.Colon + m.inner.text()
	}
	return m.Spelt + m.Colon + m.Value
}

func (m *Member) value() string {
	if m.inner != nil {
		return m.inner.text()
	}
	return m.Value
}

// Object is an object as it is written.
type Object struct {
	members []Member
	space   string // within an empty one
}

// text is the object as it came: every byte of it.
func (o *Object) text() string {
	if len(o.members) == 0 {
		return "{" + o.space + "}"
	}
	var b strings.Builder
	for i := range o.members {
		m := &o.members[i]
		b.WriteByte("{,"[min(i, 1)])
		b.WriteString(m.Before)
		b.WriteString(m.text())
		b.WriteString(m.After)
	}
	b.WriteByte('}')
	return b.String()
}

// leg is the object as it leaves: members that stay keep every byte, and two
// that were neighbours keep what stood between them. Nothing is said of other
// white space between members.
func (o *Object) leg() string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range o.members {
		m := &o.members[i]
		if i > 0 {
			before := &o.members[i-1]
			if m.place >= 0 && before.place >= 0 && m.place == before.place+1 {
				b.WriteString(before.After + "," + m.Before)
			} else {
				b.WriteByte(',')
			}
		}
		b.WriteString(m.text())
	}
	b.WriteByte('}')
	return b.String()
}

// last is a copy with only the last member of each name. A nil Object gives an
// empty one.
func (o *Object) last() *Object {
	out := &Object{}
	if o == nil {
		return out
	}
	at := make(map[string]int, len(o.members))
	for i := range o.members {
		at[o.members[i].Name] = i
	}
	out.members = make([]Member, 0, len(o.members)+6)
	for i, m := range o.members {
		if at[m.Name] == i {
			out.members = append(out.members, m)
		}
	}
	return out
}

// find returns the last member of a name, or nil.
func (o *Object) find(name string) *Member {
	for i := len(o.members) - 1; i >= 0; i-- {
		if o.members[i].Name == name {
			return &o.members[i]
		}
	}
	return nil
}

// get returns the text of the last member of a name, or "".
func (o *Object) get(name string) string {
	if m := o.find(name); m != nil {
		return m.value()
	}
	return ""
}

// set puts a value in the place of a member, or behind the last.
func (o *Object) set(name, value string) { o.put(Member{Name: name, Value: value}) }

func (o *Object) put(m Member) {
	m.Spelt, m.Colon, m.place = `"`+m.Name+`"`, ":", -1
	if old := o.find(m.Name); old != nil {
		*old = m
		return
	}
	o.members = append(o.members, m)
}

// setIf sets a value that is not "".
func (o *Object) setIf(name, value string) {
	if value != "" {
		o.set(name, value)
	}
}

// drop takes members away.
func (o *Object) drop(names ...string) {
	kept := o.members[:0]
	for _, m := range o.members {
		if !among(m.Name, names) {
			kept = append(kept, m)
		}
	}
	o.members = kept
}

func among(name string, names []string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}

// without is the object without members of these names, or itself if it has
// none.
func (o *Object) without(names ...string) *Object {
	if out := o.compact(names); len(out.members) < len(o.members) {
		return out
	}
	return o
}

// compact is the object without members of these names and without white space
// between members: that is how one leaves that had to be written anew.
func (o *Object) compact(drop []string) *Object {
	out := &Object{}
	for _, m := range o.members {
		if !among(m.Name, drop) {
			m.place = len(out.members)
			m.Before, m.Colon, m.After = "", ":", ""
			out.members = append(out.members, m)
		}
	}
	return out
}
