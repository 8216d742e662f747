package wire

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// Features say where the media of a prompt stand in its token ids. The zero
// value is a prompt without media.
type Features struct {
	// Hashes, Placeholders and Kwargs are the maps by modality as they came,
	// with what we do not know in them; Kwargs, the rendered tensors, may be
	// nil.
	Hashes, Placeholders, Kwargs []byte
	// Items are the media of all modalities that we know: of a chat request in
	// the order of its entries (see [Media]), else in that of their offsets.
	Items []Span
}

// Span is the place of one medium in the token ids.
type Span struct {
	Modality       Modality
	Hash           []byte // a JSON string with its quotes
	Placeholder    []byte // the object as it came
	Kwargs         []byte // a JSON string, or nil
	Offset, Length int
	ids            []byte // those that stand for it, as they are in the array
	// Metadata is a JSON string, or nil: the tensor without what an encoder reads.
	// It is known of what render has answered.
	Metadata []byte
}

// MaxHash is how many bytes the hash of a medium may have. Hashes have 64; longer
// strings may have been cut.
const MaxHash = 4 << 10

// Tensors reports whether there is a rendered tensor for every medium.
func (f *Features) Tensors() bool {
	if f.any() && f.Kwargs == nil {
		return false
	}
	for i := range f.Items {
		if f.Items[i].Kwargs == nil {
			return false
		}
	}
	return true
}

// PlaceholderTokens returns how many token ids stand for media.
func (f *Features) PlaceholderTokens() (n int) {
	for i := range f.Items {
		n += f.Items[i].Length
	}
	return n
}

// parseFeatures reads the features of a prompt of count token ids. Modalities
// that we do not know are carried whole; with strict they are checked too.
// Nothing is copied.
func parseFeatures(text []byte, count int, strict bool) (f Features, err error) {
	if IsNull(text) {
		return f, nil
	}
	if !IsObject(text) {
		return f, errors.New("features is not an object")
	}
	text = trim(text)
	var hashes, placeholders, kwargs, metadata lists
	var metadataMap []byte
	intoObject(text, 0, func(name []byte, at int) (end int) {
		switch {
		case NameIs(name, "mm_hashes"):
			f.Hashes, end = hashes.read(text, at)
		case NameIs(name, "mm_placeholders"):
			f.Placeholders, end = placeholders.read(text, at)
		case NameIs(name, "kwargs_data"):
			f.Kwargs, end = kwargs.read(text, at)
		case NameIs(name, "mm_metadata") && !strict:
			metadataMap, end = metadata.read(text, at)
		default:
			end = skipValue(text, at)
		}
		return end
	})
	for _, m := range []*[]byte{&f.Hashes, &f.Placeholders, &f.Kwargs} {
		if IsNull(*m) {
			*m = nil
		} else if !IsObject(*m) {
			return f, errors.New("mm_hashes, mm_placeholders and kwargs_data must be objects")
		}
	}
	if !IsNull(metadataMap) && !IsObject(metadataMap) {
		return f, errors.New("mm_metadata is not an object")
	}
	for m := range Modalities {
		before := len(f.Items)
		if f.Items, err = modality(f.Items, m, hashes[m], placeholders[m], kwargs[m], count); err != nil {
			return f, err
		}
		if err = takeMetadata(f.Items[before:], metadata[m]); err != nil {
			return f, err
		}
	}
	switch {
	case strict:
		return f, f.checkAll(count)
	case f.any() && f.Placeholders == nil:
		return f, errors.New("mm_hashes need mm_placeholders")
	}
	return f, apart(f.Items)
}

// list is what a map by modality has for one: nothing if that is absent or null.
type list struct {
	all [][]byte
	bad bool // it is no array
}

// lists are those of the modalities that we know.
type lists [Modalities]list

// read reads the map by modality that begins at a place, and returns the whole and
// the place behind it.
func (l *lists) read(text []byte, at int) (all []byte, end int) {
	*l = lists{}
	if text[at] != '{' {
		end = skipValue(text, at)
		return text[at:end], end
	}
	end = intoObject(text, at, func(name []byte, at int) (end int) {
		m, known := modalityOf(name)
		if !known {
			return skipValue(text, at)
		}
		if text[at] == '[' {
			l[m].bad = false
			l[m].all, end = eachOf(text, at)
			return end
		}
		end = skipValue(text, at)
		l[m] = listOf(text[at:end])
		return end
	})
	return text[at:end], end
}

// modality appends the spans of one modality, from its lists. Errors do not quote
// its name: it may be what somebody else wrote.
func modality(spans []Span, m Modality, hashList, placeholderList, kwargsList list, count int) ([]Span, error) {
	hashes, placeholders, kwargs, ok := hashList.all, placeholderList.all, kwargsList.all, false
	switch {
	case hashList.bad || placeholderList.bad || kwargsList.bad:
		return nil, errors.New("the features of a modality are not arrays")
	case max(len(hashes), len(placeholders), len(kwargs)) > MaxMedia:
		return nil, fmt.Errorf("a modality has more than %d items", MaxMedia)
	case len(hashes) != len(placeholders):
		return nil, fmt.Errorf("a modality has %d mm_hashes and %d mm_placeholders", len(hashes), len(placeholders))
	case kwargs != nil && len(kwargs) != len(hashes):
		return nil, fmt.Errorf("a modality has %d mm_hashes and %d kwargs_data", len(hashes), len(kwargs))
	}
	for i, hash := range hashes {
		s := Span{Modality: m, Hash: hash, Placeholder: placeholders[i]}
		if s.Hash[0] != '"' || len(s.Hash) > MaxHash+len(`""`) {
			return nil, errors.New("one of mm_hashes is not a string, or too long for one")
		}
		if s.Offset, s.Length, ok = span(s.Placeholder, count); !ok {
			return nil, fmt.Errorf("one of mm_placeholders does not lie within the %d token ids", count)
		}
		if kwargs != nil && !IsNull(kwargs[i]) {
			if kwargs[i][0] != '"' {
				return nil, errors.New("one of kwargs_data is neither a string nor null")
			}
			if len(kwargs[i]) > len(`""`) {
				s.Kwargs = kwargs[i]
			}
		}
		spans = append(spans, s)
	}
	return spans, nil
}

// listOf reads a list.
func listOf(array []byte) list {
	switch array = trim(array); {
	case IsNull(array):
		return list{}
	case array[0] != '[':
		return list{bad: true}
	}
	all, _ := eachOf(array, 0)
	return list{all: all}
}

// span reads a placeholder. Unknown members are not its concern.
func span(placeholder []byte, count int) (offset, length int, ok bool) {
	if !IsObject(placeholder) {
		return 0, 0, false
	}
	offset, err := strconv.Atoi(string(Lookup(placeholder, "offset")))
	length, err2 := strconv.Atoi(string(Lookup(placeholder, "length")))
	ok = err == nil && err2 == nil && offset >= 0 && length >= 0 && offset < count && length <= count-offset
	return offset, length, ok
}

// checkAll checks all modalities: each of one map must be in the others that
// are there.
func (f *Features) checkAll(count int) (err error) {
	if f.Hashes != nil && f.Placeholders == nil {
		return errors.New("mm_hashes need mm_placeholders")
	}
	if f.Hashes == nil && (f.Placeholders != nil || f.Kwargs != nil) {
		return errors.New("mm_placeholders and kwargs_data need mm_hashes")
	}
	hashes, placeholders, kwargs := byName(f.Hashes), byName(f.Placeholders), byName(f.Kwargs)
	if max(len(hashes), len(placeholders), len(kwargs)) > maxModalities {
		return errors.New("there are too many modalities")
	}
	same := len(placeholders) == len(hashes) && (f.Kwargs == nil || len(kwargs) == len(hashes))
	var all []Span
	for name, of := range hashes {
		same = same && placeholders[name] != nil && (f.Kwargs == nil || kwargs[name] != nil)
		if same && err == nil {
			// which modality does not matter here
			all, err = modality(all, Image, listOf(of), listOf(placeholders[name]), listOf(kwargs[name]), count)
		}
	}
	if !same {
		return errors.New("a modality is not in all of mm_hashes, mm_placeholders and kwargs_data")
	}
	if err != nil {
		return err
	}
	slices.SortFunc(f.Items, byOffset)
	return apart(all)
}

// maxModalities is how many there may be of those that we do not know, too.
const maxModalities = 100

// byName returns the values of an object: of a name that stands more than once
// the last. A hostile one has a million names: there are not many more than
// maxModalities in what is returned.
func byName(object []byte) map[string][]byte {
	values := map[string][]byte{}
	EachMember(object, func(name, value []byte) bool {
		values[string(unescape(name[1:len(name)-1]))] = value
		return len(values) <= maxModalities
	})
	return values
}

// clone returns features that keep nothing of the text they were read from, but
// for the tensors if those are wanted.
func (f Features) clone(tensors bool) Features {
	if len(f.Items) == 0 {
		f.Items = nil
	}
	if !tensors || !f.any() || !f.Tensors() { // unless there are all, they are of no use
		f.Kwargs = nil
		for i := range f.Items {
			f.Items[i].Kwargs, f.Items[i].Metadata = nil, nil
		}
	}
	f.Hashes, f.Placeholders = bytes.Clone(f.Hashes), bytes.Clone(f.Placeholders)
	for i := range f.Items {
		f.Items[i].Hash, f.Items[i].Placeholder = bytes.Clone(f.Items[i].Hash), bytes.Clone(f.Items[i].Placeholder)
	}
	return f
}

// any reports whether there are media of any modality.
func (f *Features) any() bool { return f.Hashes != nil && (len(f.Items) > 0 || !emptyMap(f.Hashes)) }

// emptyMap reports whether a map by modality holds nothing.
func emptyMap(text []byte) bool {
	empty := true
	EachMember(text, func(_, v []byte) bool {
		EachElement(v, func([]byte) bool { empty = false; return false })
		return empty
	})
	return empty
}

// locate notes which ids stand for each medium, in one walk through the array.
// Spans must be apart.
func (f *Features) locate(ids []byte) {
	order := make([]*Span, len(f.Items))
	for i := range f.Items {
		order[i] = &f.Items[i]
	}
	slices.SortFunc(order, func(a, b *Span) int { return cmp.Or(a.Offset-b.Offset, a.Length-b.Length) })
	at, pos := 0, 1 // the number of the next id, and where it is looked for
	for _, s := range order {
		_, pos = idRange(ids, pos, s.Offset-at)
		s.ids, pos = idRange(ids, pos, s.Length)
		at = s.Offset + s.Length
	}
}

// idRange returns the next n token ids from a place in the array on, as they
// stand there, and the place behind them.
func idRange(ids []byte, pos, n int) ([]byte, int) {
	if n == 0 {
		return nil, pos
	}
	from := -1
	for range n {
		for !isDigit(ids[pos]) {
			pos++
		}
		if from < 0 {
			from = pos
		}
		for isDigit(ids[pos]) {
			pos++
		}
	}
	return ids[from:pos], pos
}
