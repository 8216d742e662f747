package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// features say where the media of a prompt are in its token ids, as the render
// service answers and the workers take it.
type features struct {
	Hashes       map[string][]string          `json:"mm_hashes"`
	Placeholders map[string][]json.RawMessage `json:"mm_placeholders"`
	Tensors      json.RawMessage              `json:"kwargs_data,omitempty"`
	Metadata     json.RawMessage              `json:"mm_metadata,omitempty"`
}

// tensorMode is what render gives as kwargs_data.
type tensorMode int

const (
	wholeTensors tensorMode = iota
	nullTensors             // a null for each item
	noTensors               // no kwargs_data
)

// renderFeatures writes the features of a prompt with media, with metadata for the
// first of them. It fills in their placeholders, tensors and metadata.
func (c *Cluster) renderFeatures(images []image, mode tensorMode, withMetadata int) json.RawMessage {
	f := features{Hashes: map[string][]string{}, Placeholders: map[string][]json.RawMessage{}}
	items, metadata := map[string][]*string{}, map[string][]*string{}
	whole, small := tensorsOf(images, c.options.TensorBytes)
	for i := range images {
		images[i].metadata = small[i]
		if mode == wholeTensors {
			images[i].tensors = whole[i]
		}
	}
	for i := range images {
		odd := `,"x_unknown":{"b":1,"a":2}`
		if c.options.PlainFeatures {
			odd = ""
		}
		images[i].placeholder = fmt.Appendf(nil, `{"offset":%d,"length":%d%s}`, images[i].offset, images[i].length, odd)
		modality := images[i].modality
		f.Hashes[modality] = append(f.Hashes[modality], images[i].hash)
		f.Placeholders[modality] = append(f.Placeholders[modality], images[i].placeholder)
		item := &images[i].tensors
		if *item == "" {
			item = nil
		}
		items[modality] = append(items[modality], item)
		less := &small[i]
		if *less == "" || i >= withMetadata {
			less = nil
		}
		metadata[modality] = append(metadata[modality], less)
	}
	if mode != noTensors {
		f.Tensors = encode(items)
	}
	if withMetadata > 0 {
		f.Metadata = encode(metadata)
	}
	return encode(f)
}

// readFeatures reads features as a newer worker does: it refuses what does not
// fit together, or not to a prompt of so many tokens. The images come in order of
// their offsets.
func readFeatures(o object, tokens int) ([]image, error) {
	hashes, err := o.modalities("mm_hashes")
	if err != nil {
		return nil, err
	}
	placeholders, err := o.modalities("mm_placeholders")
	if err != nil {
		return nil, err
	}
	tensors, err := o.modalities("kwargs_data")
	if err != nil {
		return nil, err
	}
	metadata, err := o.modalities("mm_metadata")
	if err != nil {
		return nil, err
	}
	if err := sameShape("mm_placeholders", placeholders, hashes); err != nil {
		return nil, err
	}
	for name, items := range map[string]map[string][]json.RawMessage{"kwargs_data": tensors, "mm_metadata": metadata} {
		if !o.has(name) {
			continue
		}
		if err := sameShape(name, items, hashes); err != nil {
			return nil, err
		}
	}
	var images []image
	for modality := range hashes {
		for i := range hashes[modality] {
			im := image{modality: modality, placeholder: placeholders[modality][i]}
			if json.Unmarshal(hashes[modality][i], &im.hash) != nil || im.hash == "" {
				return nil, badSchema("features", "features.mm_hashes: Input should be a valid string")
			}
			if err := im.place(tokens); err != nil {
				return nil, err
			}
			if i < len(tensors[modality]) {
				if err := im.takeTensors(tensors[modality][i]); err != nil {
					return nil, err
				}
			}
			if i < len(metadata[modality]) {
				if err := im.takeMetadata(metadata[modality][i]); err != nil {
					return nil, err
				}
			}
			images = append(images, im)
		}
	}
	slices.SortFunc(images, func(a, b image) int { return a.offset - b.offset })
	for i := 1; i < len(images); i++ {
		if images[i].offset < images[i-1].offset+images[i-1].length {
			return nil, badValue("features", "Placeholders must not overlap.")
		}
	}
	return images, nil
}

// modalities reads an object of arrays.
func (o object) modalities(name string) (map[string][]json.RawMessage, error) {
	lists := map[string][]json.RawMessage{}
	if o.has(name) && json.Unmarshal(o[name], &lists) != nil {
		return nil, badSchema("features", "features.%s: Input should be a dictionary of lists", name)
	}
	return lists, nil
}

func sameShape(name string, a, b map[string][]json.RawMessage) error {
	same := len(a) == len(b)
	for modality := range a {
		other, ok := b[modality]
		same = same && ok && len(a[modality]) == len(other)
	}
	if !same {
		return badValue("features", "features.%s must have the modalities and lengths of mm_hashes.", name)
	}
	return nil
}

// place reads the image's placeholder.
func (im *image) place(tokens int) error {
	o, _, err := parseObject(im.placeholder)
	if err != nil {
		return badSchema("features", "features.mm_placeholders: Input should be a valid dictionary")
	}
	for name, into := range map[string]*int{"offset": &im.offset, "length": &im.length} {
		n, there, err := o.integer(name)
		if err != nil || !there {
			return badSchema("features", "features.mm_placeholders.%s: Field required, an integer", name)
		}
		*into = n
	}
	if im.offset < 0 || im.length <= 0 || im.offset >= tokens || im.length > tokens-im.offset {
		return badValue("features", "A placeholder at %d of length %d is not inside of %d tokens.", im.offset, im.length, tokens)
	}
	return nil
}

// takeTensors reads the image's item of kwargs_data.
func (im *image) takeTensors(item json.RawMessage) error {
	if string(item) == "null" {
		return nil
	}
	if json.Unmarshal(item, &im.tensors) != nil || !areTensors(im.tensors) {
		return badValue("features", "features.kwargs_data has an item that cannot be decoded.")
	}
	im.stripped = im.isStripped(im.tensors)
	return im.checkGrid(im.stripped, im.tensors)
}

// takeMetadata reads the image's item of mm_metadata.
func (im *image) takeMetadata(item json.RawMessage) error {
	if string(item) == "null" {
		return nil
	}
	if json.Unmarshal(item, &im.metadata) != nil || !areTensors(im.metadata) {
		return badValue("features", "features.mm_metadata has an item that cannot be decoded.")
	}
	return im.checkGrid(true, im.metadata)
}

// generatePrompt reads the prompt of a request of the generate route.
func generatePrompt(v *vocabulary, o object) (*prompt, error) {
	var ids []int
	if json.Unmarshal(o["token_ids"], &ids) != nil || len(ids) == 0 {
		return nil, badSchema("token_ids", "token_ids: Input should be a list of at least 1 token id")
	}
	if slices.Min(ids) < 0 {
		return nil, badValue("token_ids", "Token id %d is out of vocabulary", slices.Min(ids))
	}
	f, err := o.inner("features")
	if err != nil {
		return nil, err
	}
	images, err := readFeatures(f, len(ids))
	if err != nil {
		return nil, err
	}
	var spoken []int // the ids that stand for no medium
	from := 0
	for i := range images {
		spoken = append(spoken, ids[from:images[i].offset]...)
		from = images[i].offset + images[i].length
	}
	spoken = append(spoken, ids[from:]...)
	return newPrompt(ids, withoutTemplate(v.decode(spoken)), images), nil
}

// withoutTemplate takes the marks of the chat template out of a prompt's words,
// so that an answer does not say them back.
func withoutTemplate(words []string) []string {
	return slices.DeleteFunc(words, func(word string) bool {
		return strings.HasPrefix(word, "<|") && strings.HasSuffix(word, "|>")
	})
}
