package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"unicode/utf8"
)

func TestParseBodyRefusesWhatIsNoObject(t *testing.T) {
	for _, text := range []string{`[]`, `"a"`, `1`, `null`, ` true `, `[{}]`} {
		if b, err := ParseBody([]byte(text)); !errors.Is(err, errNotObject) || b != nil {
			t.Errorf("ParseBody(%q) = %v, %v", text, b, err)
		}
	}
	for _, text := range []string{``, ` `, `{`, `{"a":1`, `{"a":1}}`, `{"a":1} {}`, `{} x`, `[`, `nul`, `{"a":tru}`, `{"a":1,}`, "{\"a\":\"\xff\"}"} {
		b, err := ParseBody([]byte(text))
		if syntax := (*SyntaxError)(nil); !errors.As(err, &syntax) || b != nil {
			t.Errorf("ParseBody(%q) = %v, %v, want nil and a SyntaxError", text, b, err)
		}
	}
}

func TestUnchangedBodyLeavesAsItCame(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{` {} `, `{}`},
		{"\n{ }", `{}`},
		{`{"a":1}`, `{"a":1}`},
		{"{ \"b\" :\t[ 1.0 , 9007199254740993 ] ,\n \"a\": {\"z\":1, \"y\" : 1e2}\r\n} ", "{\"b\" :\t[ 1.0 , 9007199254740993 ] ,\n \"a\": {\"z\":1, \"y\" : 1e2}}"},
		{`{"\u0061":"\/\u00e9é"}`, `{"\u0061":"\/\u00e9é"}`},
		// Inside a value repeated names are not ours to judge.
		{`{"a":{"x":1,"x":2}}`, `{"a":{"x":1,"x":2}}`},
		{`{"a":1, "b":2 , "a":3}`, `{"b":2 , "a":3}`},
		{`{"a":1 , "a":2 , "a":3 }`, `{"a":3}`},
		{`{"a":1, "b":2, "c":3, "b":4}`, `{"a":1,"c":3, "b":4}`},
	} {
		if got := string(mustParse(t, tt.text).Edit().Payload().Append(nil)); got != tt.want {
			t.Errorf("%q leaves as %q, want %q", tt.text, got, tt.want)
		}
	}
}

func TestLastOfRepeatedNamesWins(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []string // the members that are kept
	}{
		{`{"n":1,"\u006e":2}`, []string{`"\u006e":2`}},
		{`{"\u006e":1,"n":2}`, []string{`"n":2`}},
		{`{"\u006E":1,"\u006e":2,"N":3}`, []string{`"\u006e":2`, `"N":3`}},
		{`{"a/b":1,"a\/b":2}`, []string{`"a\/b":2`}},
		{`{"a\nb":1,"a\u000ab":2,"a\\nb":3}`, []string{`"a\u000ab":2`, `"a\\nb":3`}},
		{`{"é":1,"\u00e9":2,"e\u0301":3}`, []string{`"\u00e9":2`, `"e\u0301":3`}},
		{`{"😀":1,"\ud83d\ude00":2,"\uD83D\uDE00":3}`, []string{`"\uD83D\uDE00":3`}},
		{`{"\ud800":1,"\ud801":2,"\udc00":3,"\ufffd":4}`, []string{`"\ud800":1`, `"\ud801":2`, `"\udc00":3`, `"\ufffd":4`}},
		{`{"\ud800":1,"\uD800":2}`, []string{`"\uD800":2`}},
		{`{"\ud83dx\ude00":1,"😀":2,"\ude00\ud83d":3}`, []string{`"\ud83dx\ude00":1`, `"😀":2`, `"\ude00\ud83d":3`}},
		{`{"\ud83d\ud83d\ude00":1,"\ud83d😀":2}`, []string{`"\ud83d😀":2`}},
		{`{"":1,"\u0000":2,"":3}`, []string{`"\u0000":2`, `"":3`}},
	} {
		for _, filler := range []int{0, 2 * manyMembers} {
			text, want := strings.TrimSuffix(tt.text, "}"), slices.Clone(tt.want)
			for i := range filler {
				m := fmt.Sprintf(`"filler%d":%d`, i, i)
				text, want = text+","+m, append(want, m)
			}
			got := mustParse(t, text+"}").Edit().Payload().Append(nil)
			if string(got) != "{"+strings.Join(want, ",")+"}" {
				t.Errorf("with %d more members %s leaves as %.300s", filler, tt.text, got)
			}
		}
	}
}

// The map for many members and the search for few must agree at the border
// between them, wherever the repeated names stand.
func TestManyMembersAreTreatedLikeFew(t *testing.T) {
	for n := manyMembers - 2; n <= manyMembers+2; n++ {
		for seed := range uint64(50) {
			rnd := rand.New(rand.NewPCG(seed, uint64(n)))
			var parts []string
			for i := range n {
				parts = append(parts, fmt.Sprintf(`"%c":%d`, 'a'+rnd.IntN(20), i))
			}
			checkBody(t, []byte("{"+strings.Join(parts, " , ")+"}"))
		}
	}
}

func TestMillionKeysAreRefused(t *testing.T) {
	var distinct strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&distinct, `"%d":1,`, i)
	}
	for _, text := range []string{strings.Repeat(`"a":1,"\u0061":1,`, 500_000), distinct.String(), strings.Repeat(`"a":1,`, MaxMembers)} {
		b, err := ParseBody([]byte("{" + text + `"z":2}`))
		if syntax := (*SyntaxError)(nil); !errors.As(err, &syntax) || b != nil {
			t.Errorf("%d bytes: %v, %v", len(text), b, err)
		}
	}
}

func TestManyRepeatedKeys(t *testing.T) {
	text := "{" + strings.Repeat(`"a":1,"\u0061":1,`, MaxMembers/2-1) + `"y":1,"z":2}`
	if got := string(mustParse(t, text).Edit().Payload().Append(nil)); got != `{"\u0061":1,"y":1,"z":2}` {
		t.Errorf("what is left is %.100s", got)
	}
	var distinct strings.Builder
	for i := range MaxMembers/2 - 1 {
		fmt.Fprintf(&distinct, `"%d":1,`, i)
	}
	text = "{" + distinct.String() + distinct.String() + `"y":1,"z":2}`
	e := mustParse(t, text).Edit()
	e.Delete(stripped...)
	if got, want := e.Payload().Size(), int64(distinct.Len()+len(`{"y":1,"z":2}`)); got != want {
		t.Errorf("%d bytes are left, want %d", got, want)
	}
}

func TestGetFindsWhatAnEditHasSet(t *testing.T) {
	b := mustParse(t, `{"a": [1, 2] , "\u0062":"x"}`)
	e := b.Edit()
	e.SetRaw("a", "7")
	e.Set("c", Text{[]byte("["), []byte("1"), []byte("]")})
	for name, want := range map[string]string{"a": "7", "b": `"x"`, "c": "[1]", "d": "", `\u0062`: ""} {
		if got := string(e.body.Get(name)); got != want {
			t.Errorf("the edit's %q is %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]string{"a": "[1, 2]", "b": `"x"`, "c": ""} {
		if got := string(b.Get(name)); got != want {
			t.Errorf("the body's %q has become %q, want %q", name, got, want)
		}
	}
}

func TestEditKeepsPlacesAndSpelling(t *testing.T) {
	const text = `{ "a":1 , "b" : 2.0 , "\u0063":3 , "d":{ "x" : 1 } , "e":5 }`
	for _, tt := range []struct {
		name string
		edit func(*Edit)
		want string
	}{
		{"none", func(*Edit) {}, `{"a":1 , "b" : 2.0 , "\u0063":3 , "d":{ "x" : 1 } , "e":5}`},
		{"set first", func(e *Edit) { e.SetRaw("a", "9") }, `{"a":9,"b" : 2.0 , "\u0063":3 , "d":{ "x" : 1 } , "e":5}`},
		{"set middle", func(e *Edit) { e.SetRaw("b", "9") }, `{"a":1,"b":9,"\u0063":3 , "d":{ "x" : 1 } , "e":5}`},
		{"set escaped", func(e *Edit) { e.SetRaw("c", "9") }, `{"a":1 , "b" : 2.0,"c":9,"d":{ "x" : 1 } , "e":5}`},
		{"set last", func(e *Edit) { e.SetRaw("e", "9") }, `{"a":1 , "b" : 2.0 , "\u0063":3 , "d":{ "x" : 1 },"e":9}`},
		{"set twice", func(e *Edit) { e.SetRaw("e", "8"); e.SetRaw("e", "9") }, `{"a":1 , "b" : 2.0 , "\u0063":3 , "d":{ "x" : 1 },"e":9}`},
		{"add two", func(e *Edit) { e.SetRaw("g", "7"); e.SetRaw("f", "6") }, `{"a":1 , "b" : 2.0 , "\u0063":3 , "d":{ "x" : 1 } , "e":5,"g":7,"f":6}`},
		{"delete first", func(e *Edit) { e.Delete("a") }, `{"b" : 2.0 , "\u0063":3 , "d":{ "x" : 1 } , "e":5}`},
		{"delete middle and last", func(e *Edit) { e.Delete("c", "e", "none") }, `{"a":1 , "b" : 2.0,"d":{ "x" : 1 }}`},
		{"delete and add again", func(e *Edit) { e.Delete("b"); e.SetRaw("b", "9") }, `{"a":1,"\u0063":3 , "d":{ "x" : 1 } , "e":5,"b":9}`},
		{"delete all", func(e *Edit) { e.Delete("a", "b", "c", "d", "e") }, `{}`},
		{"delete all, add", func(e *Edit) { e.Delete("a", "b", "c", "d", "e"); e.SetRaw("f", "6") }, `{"f":6}`},
		{"pieces", func(e *Edit) { e.Set("b", Text{[]byte("["), []byte("1,2"), []byte("]")}) }, `{"a":1,"b":[1,2],"\u0063":3 , "d":{ "x" : 1 } , "e":5}`},
	} {
		b := mustParse(t, text)
		e := b.Edit()
		tt.edit(e)
		if got := string(e.Payload().Append(nil)); got != tt.want {
			t.Errorf("%s: %s\nwant %s", tt.name, got, tt.want)
		}
		if got := string(b.Edit().Payload().Append(nil)); got != `{"a":1 , "b" : 2.0 , "\u0063":3 , "d":{ "x" : 1 } , "e":5}` {
			t.Errorf("%s: the edit has changed the body it is of: %s", tt.name, got)
		}
	}
}

func TestEditTextIsAValueOfAnother(t *testing.T) {
	inner := NewEdit()
	inner.SetRaw("x", "1")
	outer := NewEdit()
	outer.Set("a", inner.Text())
	outer.SetRaw("b", "2")
	p := outer.Payload()
	if got := string(p.Append(nil)); got != `{"a":{"x":1},"b":2}` || p.Size() != int64(len(got)) {
		t.Errorf("it is %s of size %d", got, p.Size())
	}
}

// A model of an Edit: what a map and an order of names would hold.
type model struct {
	order []string // keys
	held  map[string]rawMember
}

func newModel(members []rawMember) *model {
	m := &model{held: make(map[string]rawMember)}
	for _, i := range lastOfEach(members) {
		m.order = append(m.order, members[i].key())
		m.held[members[i].key()] = members[i]
	}
	return m
}

func (m *model) set(name, value string) {
	member := rawMember{`"` + name + `"`, value}
	if _, ok := m.held[member.key()]; !ok {
		m.order = append(m.order, member.key())
	}
	m.held[member.key()] = member
}

func (m *model) delete(names ...string) {
	for _, name := range names {
		key := rawMember{name: `"` + name + `"`}.key()
		delete(m.held, key)
		m.order = slices.DeleteFunc(m.order, func(k string) bool { return k == key })
	}
}

func (m *model) members() []rawMember {
	var out []rawMember
	for _, key := range m.order {
		out = append(out, m.held[key])
	}
	return out
}

// checkBody compares ParseBody and an Edit without changes with the oracle.
func checkBody(t *testing.T, text []byte) (*Body, []rawMember) {
	t.Helper()
	body, err := ParseBody(text)
	members, where, ok := split(text)
	if ok = ok && utf8.Valid(text); ok != (err == nil) {
		t.Fatalf("ParseBody(%q): %v, the oracle takes it: %v", text, err, ok)
	}
	if !ok {
		return nil, nil
	}
	kept := lastOfEach(members)
	var want []byte
	for n, i := range kept {
		switch {
		case n > 0 && kept[n-1] == i-1:
			want = append(want, text[where[i-1][1]:where[i][0]]...) // what stood between them
		case n > 0:
			want = append(want, ',')
		}
		want = append(want, text[where[i][0]:where[i][1]]...)
	}
	want = append(append([]byte("{"), want...), '}')
	p := body.Edit().Payload()
	if got := p.Append(nil); !bytes.Equal(got, want) || p.Size() != int64(len(got)) {
		t.Fatalf("%q leaves as %q (size %d), want %q", text, got, p.Size(), want)
	}
	return body, members
}

func FuzzBody(f *testing.F) {
	f.Add([]byte(`{"a":1, "b" :[2] ,"\u0061":{"x":"y"}}`), []byte("\x00\x01\x02\x03\x04\x05\x06\x07"))
	f.Add([]byte(`{"max_tokens":5,"stream":true,"\ud800":1,"\ud801":2,"\ud83d\ude00":3}`), []byte("sdgA"))
	f.Add([]byte(" {\"n\"\n:\t1.0}\r"), []byte{})
	f.Add([]byte(`{"0":0,"1":0,"2":0,"3":0,"4":0,"5":0,"6":0,"7":0,"8":0,"9":0,"a":0,"b":0,"c":0,"d":0,"e":0,"f":0,"g":0,"h":0,"i":0,"j":0,"k":0,"l":0,"m":0,"n":0,"o":0,"\u0031":1}`), []byte("abcdef"))
	names := []string{"a", "b", "", "max_tokens", "é", "n"}
	values := []string{"1", `"x"`, "[1,2]", `{"a":1}`}
	f.Fuzz(func(t *testing.T, text, ops []byte) {
		body, members := checkBody(t, text)
		if body == nil {
			return
		}
		edit, want := body.Edit(), newModel(members)
		for i, op := range ops {
			name, value := names[int(op>>2)%len(names)], values[int(op)%len(values)]
			switch {
			case op&0x80 != 0 && i%7 == 6: // an edit of what an edit has made
				edit = edit.body.Edit()
			case op&0x80 != 0:
				edit.Delete(name, "b")
				want.delete(name, "b")
			case op&0x40 != 0:
				edit.Set(name, Text{[]byte(value[:1]), nil, []byte(value[1:])})
				want.set(name, value)
			default:
				edit.SetRaw(name, value)
				want.set(name, value)
			}
		}
		p := edit.Payload()
		got, _, ok := split(p.Append(nil))
		if !ok || !slices.Equal(got, want.members()) {
			t.Fatalf("%q after %q is %q, want the members %q", text, ops, p.Append(nil), want.members())
		}
		for _, m := range want.members() {
			if name, ok := Unquote([]byte(m.name)); !ok || string(edit.body.Get(name)) != m.value || !edit.Has(name) {
				t.Fatalf("the value of %s is %q, want %q", m.name, edit.body.Get(name), m.value)
			}
		}
		checkReader(t, p)
		checkBody(t, text) // the edit has not changed the text
	})
}

// checkReader reads a payload in several ways.
func checkReader(t *testing.T, p Payload) {
	t.Helper()
	want := p.Append(nil)
	if p.Size() != int64(len(want)) {
		t.Fatalf("Size is %d, the payload has %d bytes", p.Size(), len(want))
	}
	for range 2 {
		if err := iotest.TestReader(p.Reader(), want); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPayloadIsReadAgainAndAgain(t *testing.T) {
	e := mustParse(t, `{"a":1,"b":"`+strings.Repeat("long ", 1000)+`","c":3}`).Edit()
	e.Set("b2", Text{nil, []byte("["), {}, []byte("1"), []byte("]"), nil})
	e.Delete("a")
	for name, p := range map[string]Payload{
		"edited": e.Payload(), "one piece": NewPayload([]byte(`{"a":1}`)), "empty": {},
		"empty piece": NewPayload(nil), "two empty": {pieces: [][]byte{nil, {}}},
	} {
		t.Run(name, func(t *testing.T) { checkReader(t, p) })
	}
}

func TestPayloadReadsWithSmallBuffers(t *testing.T) {
	e := mustParse(t, `{"a":1,"bcdef":"ghijklmnop","q":3}`).Edit()
	e.SetRaw("bcdef", `"0123456789"`)
	p := e.Payload()
	for size := 1; size < 40; size++ {
		var got []byte
		r, buf := p.Reader(), make([]byte, size)
		for {
			n, err := r.Read(buf)
			got = append(got, buf[:n]...)
			if err == io.EOF {
				break
			}
			if n == 0 || err != nil {
				t.Fatalf("buffer of %d: Read = %d, %v", size, n, err)
			}
			if n < size && len(got) < int(p.Size()) {
				t.Fatalf("buffer of %d: a read in the middle filled %d", size, n)
			}
		}
		if !bytes.Equal(got, p.Append(nil)) {
			t.Errorf("buffer of %d: %q", size, got)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestPayloadIsReadByManyAtOnce(t *testing.T) {
	body := mustParse(t, `{"a":1,"b":"`+strings.Repeat("long ", 10_000)+`","c":3}`)
	e := body.Edit()
	e.SetRaw("a", "2")
	p := e.Payload()
	want := p.Append(nil)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			got, err := io.ReadAll(p.Reader())
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			other := body.Edit() // legs are built from one body at once
			other.SetRaw("c", "4")
			other.Delete("b")
			if got := string(other.Payload().Append(nil)); got != `{"a":1,"c":4}` {
				t.Errorf("another edit gives %s", got)
			}
		})
	}
	wg.Wait()
}

// TestRestIsWhatHasNotBeenRead, wherever reading stopped, and nothing is read
// after it.
func TestRestIsWhatHasNotBeenRead(t *testing.T) {
	var p Payload
	for i := range 5 {
		p.add(bytes.Repeat([]byte{byte('a' + i)}, 10_000*i+1))
	}
	want := p.Append(nil)
	for _, n := range []int{0, 1, 2, 10_001, 10_002, 50_000, len(want)} {
		r := p.Reader()
		if _, err := io.CopyN(io.Discard, r, int64(n)); err != nil {
			t.Fatal(err)
		}
		rest := r.(interface{ Rest() [][]byte }).Rest()
		if got := bytes.Join(rest, nil); !bytes.Equal(got, want[n:]) {
			t.Errorf("behind %d bytes: %d bytes, want %d", n, len(got), len(want)-n)
		}
		if k, err := r.Read(make([]byte, 1)); k != 0 || err != io.EOF {
			t.Errorf("%d bytes are read twice, %v", k, err)
		}
	}
	if !bytes.Equal(p.Append(nil), want) {
		t.Error("the payload has changed")
	}
}
