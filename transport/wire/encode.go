package wire

import (
	"bytes"
	"fmt"
)

// EncodeLeg is the body of the encode leg of one medium: that alone, and
// of the prompt's token ids the first one (BOS) and those that stand for it.
func (p *Protocol) EncodeLeg(s Source, f Format, item int) Payload {
	return p.encode(s, f, item).Payload()
}

// PushLeg is that of a connector that has to tell encode something: its transfer
// params, in both places of the generate protocol.
func (p *Protocol) PushLeg(s Source, f Format, item int, params Text) Payload {
	e := p.encode(s, f, item)
	if f == TokensIn {
		t := Text{[]byte(`{"max_tokens":1,"extra_args":{"ec_transfer_params":`)}
		e.Set("sampling_params", append(append(t, params...), []byte(`}}`)))
	}
	e.Set("ec_transfer_params", params)
	return e.Payload()
}

func (p *Protocol) encode(s Source, f Format, item int) *Edit {
	im := &s.Tokens.Features.Items[item]
	first, _ := idRange(s.Tokens.IDs, 1, 1)
	ids := append([]byte("["), first...)
	if im.Length > 0 {
		span := im.ids
		if span == nil { // not from an answer of render
			_, pos := idRange(s.Tokens.IDs, 1, im.Offset)
			span, _ = idRange(s.Tokens.IDs, pos, im.Length)
		}
		ids = append(append(ids, ','), span...)
	}
	ids = append(ids, ']')
	placeholder := editOf(im.Placeholder)
	placeholder.SetRaw("offset", "1")

	e := NewEdit()
	e.copy(s.Body, "model")
	if f == TokensIn {
		e.Set("token_ids", Text{ids})
		e.Set("features", oneItem(im, placeholder.Text(), true))
		e.SetRaw("sampling_params", `{"max_tokens":1}`)
	} else {
		t := s.Media.part(Text{[]byte(`[{"role":"user","content":[`)}, item, nil)
		e.Set(s.Media.member, append(t, []byte(`]}]`)))
		t = Text{[]byte(`{"token_ids":`), ids, []byte(`,"features":`)}
		t = append(t, oneItem(im, placeholder.Text(), false)...)
		e.Set("tokens", append(t, closeBrace))
		if p.typed {
			e.SetRaw("max_output_tokens", "1")
			e.SetRaw("store", "false")
		} else {
			e.SetRaw("max_tokens", "1")
		}
	}
	e.SetRaw("stream", "false")
	if f == OpenAI { // they decide the pixels, and so the hash
		e.copy(s.Body, "mm_processor_kwargs", "media_io_kwargs")
	}
	return e
}

// oneItem are the features of one medium.
func oneItem(im *Span, placeholder Text, tensor bool) Text {
	list := `":{"` + im.Modality.String() + `":[`
	t := Text{[]byte(`{"mm_hashes` + list), im.Hash, []byte(`]},"mm_placeholders` + list)}
	t = append(t, placeholder...)
	t = append(t, []byte(`]}`))
	if tensor {
		t = append(t, []byte(`,"kwargs_data`+list), im.Kwargs, []byte(`]}`))
	}
	return append(t, closeBrace)
}

// Descriptors returns the ec_transfer_params of an encode's answer, an object
// keyed by hash, or nil. It reports false if they are there and no object.
// Answer must be valid JSON.
func Descriptors(answer []byte) (params []byte, ok bool) {
	v := Lookup(answer, "ec_transfer_params")
	if IsObject(v) {
		return v, true
	}
	return nil, IsNull(v)
}

// MergeDescriptors merges the descriptors of several answers in their order. A
// null one is dropped. It returns nil if none is left, and an error if answers
// differ about a hash.
func MergeDescriptors(answers [][]byte) (Text, error) {
	type seen struct{ name, value []byte }
	var all []seen
	at := map[string]int{}
	var err error
	for _, a := range answers {
		EachMember(a, func(name, value []byte) bool {
			if IsNull(value) {
				return true
			}
			key := string(unescape(name[1 : len(name)-1]))
			i, known := at[key]
			if known && !bytes.Equal(all[i].value, value) {
				err = fmt.Errorf("encode workers gave two descriptors for one medium")
				return false
			}
			if !known {
				at[key] = len(all)
				all = append(all, seen{name, value})
			}
			return true
		})
	}
	if err != nil || len(all) == 0 {
		return nil, err
	}
	t := Text{openBrace}
	for i, s := range all {
		if i > 0 {
			t = append(t, comma)
		}
		t = append(t, s.name, []byte(":"), s.value)
	}
	return append(t, closeBrace), nil
}
