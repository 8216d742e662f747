package wire

import (
	"errors"
	"fmt"
)

// Reduced are the tensors of a prompt's media as a prefill worker needs them that
// fetches their embeddings: what an encoder would read is left out. Media differ
// in that: one whose embedding is not there keeps its tensor.
type Reduced struct {
	// kwargs and metadata are maps by modality with null for what is in the other;
	// nil: it would be null throughout.
	kwargs, metadata Text
}

// none reports whether no tensors are sent.
func (r *Reduced) none() bool { return r != nil && r.kwargs == nil && r.metadata == nil }

// Reduction is what is sent in place of a rendered tensor: its metadata, or a
// smaller tensor. Both are JSON strings; of the zero value the tensor is sent.
type Reduction struct{ Kwargs, Metadata []byte }

// Reduce returns the tensors with these reductions, one for each of the Items,
// which must have tensors. It copies none of them.
func (f *Features) Reduce(to []Reduction) *Reduced {
	at := make(map[*byte]*Reduction, len(to)) // by where the tensor is: the lists may have another order
	for i := range to {
		at[&f.Items[i].Kwargs[0]] = &to[i]
	}
	anyKwargs, anyMetadata := false, false
	kwargs := mapItems(f.Kwargs, func(item []byte) []byte {
		switch r := at[&item[0]]; {
		case r == nil:
		case r.Metadata != nil:
			return null
		case r.Kwargs != nil:
			item = r.Kwargs
		}
		anyKwargs = anyKwargs || !IsNull(item)
		return item
	})
	metadata := mapItems(f.Kwargs, func(item []byte) []byte {
		if r := at[&item[0]]; r != nil && r.Metadata != nil {
			anyMetadata = true
			return r.Metadata
		}
		return null
	})
	r := &Reduced{}
	if anyKwargs {
		r.kwargs = kwargs
	}
	if anyMetadata {
		r.metadata = metadata
	}
	return r
}

// mapItems passes each item of a map by modality through a function.
func mapItems(byModality []byte, f func(item []byte) []byte) Text {
	t := Text{openBrace}
	EachMember(byModality, func(name, list []byte) bool {
		if len(t) > 1 {
			t = append(t, comma)
		}
		if t = append(t, name); list[0] != '[' { // null, or of a modality that we do not know
			t = append(t, []byte(":"), list)
			return true
		}
		t = append(t, []byte(":["))
		first := true
		EachElement(list, func(item []byte) bool {
			if !first {
				t = append(t, comma)
			}
			first = false
			t = append(t, f(item))
			return true
		})
		t = append(t, []byte("]"))
		return true
	})
	return append(t, closeBrace)
}

// appendTo appends the members of features that are there.
func (r *Reduced) appendTo(t Text) Text {
	if r.kwargs != nil {
		t = append(append(t, []byte(`,"kwargs_data":`)), r.kwargs...)
	}
	if r.metadata != nil {
		t = append(append(t, []byte(`,"mm_metadata":`)), r.metadata...)
	}
	return t
}

// takeMetadata takes the metadata of the media of one modality from its list in
// mm_metadata. Like kwargs_data it may be missing or null, as a whole and in each
// place.
func takeMetadata(spans []Span, metadata list) error {
	switch {
	case metadata.bad:
		return errors.New("the mm_metadata of a modality is not an array")
	case metadata.all != nil && len(metadata.all) != len(spans):
		return fmt.Errorf("a modality has %d mm_hashes and %d mm_metadata", len(spans), len(metadata.all))
	}
	for i, item := range metadata.all {
		if IsNull(item) {
			continue
		}
		if item[0] != '"' {
			return errors.New("one of mm_metadata is neither a string nor null")
		}
		if len(item) > len(`""`) {
			spans[i].Metadata = item
		}
	}
	return nil
}

// Descriptor returns what merged descriptors (see [MergeDescriptors]) hold for a
// hash, which is a JSON string; nil if they do not.
func Descriptor(merged Text, hash []byte) []byte {
	want, ok := Unquote(hash)
	for i := 1; ok && i+2 < len(merged); i += 4 { // name, colon, value, comma
		if name, _ := Unquote(merged[i]); name == want {
			return merged[i+2]
		}
	}
	return nil
}
