package wiretest

import "strconv"

// apart are so many spans that share no id, in any order, and how many ids there
// are.
func (r random) apart(n int) (spans []span, count int) {
	at := 0
	for range n {
		at += r.IntN(3)
		s := span{hash: pick(r, `"hash-1"`, `"h\/2"`, `"é"`, `"\ud800"`), offset: at, length: r.IntN(4)}
		s.placeholder = r.placeholder(s)
		spans = append(spans, s)
		at += s.length
	}
	r.Shuffle(n, func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
	return spans, at + 1 + r.IntN(12)
}

// tokens are token ids with media of these modalities among them.
func (r random) tokens(media []string, rendered bool) (t tokens) {
	unknown, extra := pick(r, "hologram", "x\xed\xa0\x80"), 0
	if len(media) > 0 && r.oneIn(4) {
		extra = 1 + r.IntN(2)
	}
	spans, count := r.apart(len(media) + extra)
	for range count {
		t.list = append(t.list, pick(r, "0", "1", "17", "151643", "9007199254740993"))
	}
	t.ids = r.array(t.list...)
	t.media = spans[:len(media)]
	f := featureMaps{kind: r.IntN(4)}
	t.tensors, t.knownOnly = true, true
	for _, name := range []string{"image", "audio", "video"} {
		var of []*span
		for i := range media {
			if media[i] == name {
				of = append(of, &t.media[i])
			}
		}
		if len(of) > 0 || name == "image" && (len(media) > 0 || rendered && r.oneIn(4)) {
			f.add(r, &t, name, of)
		}
	}
	if extra > 0 {
		of := []*span{}
		for i := range spans[len(media):] {
			of = append(of, &spans[len(media)+i])
		}
		whole := t.tensors // what we do not know is not counted
		f.add(r, &t, unknown, of)
		t.tensors, t.knownOnly = whole, false
	}
	if len(f.hashes.members) > 0 {
		f.put(r, &t)
	}
	return t
}

// featureMaps are the maps by modality in the making. Kind 0 has no kwargs_data, 1
// has null in it, others whole.
type featureMaps struct {
	kind                         int
	hashes, placeholders, kwargs Object
}

// add adds a modality.
func (f *featureMaps) add(r random, t *tokens, name string, of []*span) {
	var hs, ps, ks []string
	for i, s := range of {
		item := pick(r, `"AAAA"`, `"a\/bc"`, `"Zm9v"`)
		if f.kind == 1 && (i == 0 || r.oneIn(2)) {
			item = pick(r, "null", `""`)
		}
		hs, ps, ks = append(hs, s.hash), append(ps, s.placeholder.text()), append(ks, item)
		s.modality = name
		if s.tensor = item; f.kind == 0 || len(item) < 3 || item == "null" {
			s.tensor, t.tensors = "", false
		}
		t.any = true
	}
	m := r.member(name, r.array(hs...))
	f.hashes.add(m)
	f.placeholders.add(r.member(name, r.array(ps...)))
	f.kwargs.add(r.member(name, r.array(ks...)))
	t.byModality = append(t.byModality, modality{spelt: m.Spelt + m.Colon, hashes: len(of), items: ks})
}

// put makes the features of the maps.
func (f *featureMaps) put(r random, t *tokens) {
	t.hashes, t.placeholders = f.hashes.text(), f.placeholders.text()
	t.features = &Object{}
	parts := []Member{r.member("mm_hashes", t.hashes), r.member("mm_placeholders", t.placeholders)}
	if f.kind > 0 {
		t.kwargs = f.kwargs.text()
		parts = append(parts, r.member("kwargs_data", t.kwargs))
	}
	if r.oneIn(3) {
		parts = append(parts, r.member(pick(r, names...), r.value(2)))
	}
	r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	for _, m := range parts {
		t.features.add(m)
	}
	if t.any && f.kind == 0 {
		t.tensors = false
	}
}

// placeholder says where a medium stands, and more that nobody knows yet.
func (r random) placeholder(s span) *Object {
	o := &Object{}
	for range r.IntN(3) {
		o.add(r.member(pick(r, "is_embed", "is_embed", "z", ""), r.value(2)))
	}
	o.add(r.member("offset", strconv.Itoa(s.offset)))
	if r.oneIn(2) {
		o.add(r.member(pick(r, "x", "Offset"), r.value(1)))
	}
	o.add(r.member("length", strconv.Itoa(s.length)))
	return o
}
