package cluster

import (
	"encoding/base64"
	"encoding/binary"
	"net/http"
)

// withoutPixels reports whether an item came with what is left of a tensor only.
func (im *image) withoutPixels() bool {
	return im.stripped || im.tensors == "" && im.metadata != ""
}

// checkWithoutPixels refuses an image without pixels where no embedding can stand
// for them. Metadata alone is only taken with ec_transfer_params, at the top level.
func (l *leg) checkWithoutPixels(im *image) error {
	params, _, err := parseObject(l.body["ec_transfer_params"])
	if im.tensors == "" && (err != nil || len(params) == 0) {
		return badValue("features", "metadata-only multimodal items require ec_transfer_params")
	}
	return nil
}

// encodeLocally is what becomes of images whose embedding could not be fetched. A
// worker notices only then that there are no pixels to encode.
func (l *leg) encodeLocally(presented object, p *prompt) error {
	l.cluster.mu.Lock()
	defer l.cluster.mu.Unlock()
	for i := range p.images {
		im := &p.images[i]
		if _, ok := presented[im.hash]; !ok && im.withoutPixels() && !l.cluster.media.stored.members[im.hash] {
			return refusalOf(http.StatusInternalServerError)
		}
	}
	return nil
}

// tensorBreach says how what a leg has of an image's tensors is not what render
// gave; "" if it is. Only a prefill may leave the pixels out.
func (l *leg) tensorBreach(im *image, known *renderedImage) string {
	switch {
	case im.metadata != "" && im.metadata != known.metadata:
		return "its mm_metadata are not those that render gave"
	case im.metadata != "" && im.tensors != "":
		return "it has both kwargs_data and mm_metadata"
	case im.stripped && im.tensors != known.metadata:
		return "its stripped kwargs_data are not what is kept of those that render gave"
	case l.name == Prefill && im.withoutPixels():
		return ""
	case known.tensorSum != sumOf(im.tensors):
		return "its kwargs_data are not those that render gave"
	}
	return ""
}

// isStripped reports whether an item has a grid of the medium's modality and
// nothing else.
func (im *image) isStripped(item string) bool {
	entries, ok := unpackItem(item)
	_, grid := entries[namesOf(im.modality).small]
	return ok && grid && len(entries) == 1
}

// checkGrid refuses an item without pixels unless it holds the grid of the image:
// positions are computed from it. Two by two patches make one token.
func (im *image) checkGrid(without bool, item string) error {
	if !without {
		return nil
	}
	bad := badValue("features", "An item without pixels needs the %s of its placeholder.", namesOf(im.modality).small)
	entries, ok := unpackItem(item)
	entry, isEntry := entries[namesOf(im.modality).small].(map[string]any)
	if !ok || !isEntry || len(entries) != 1 || !namesOf(im.modality).kept {
		return bad
	}
	tensor, _ := entry["data"].([]any)
	field, _ := entry["field"].([]any)
	if len(tensor) != 3 || tensor[0] != "int64" || len(field) != 2 || field[0] != "batched" {
		return bad
	}
	raw, _ := tensor[2].([]byte)
	if len(raw) != 3*8 {
		return bad
	}
	patches := uint64(1)
	for i := range 3 {
		patches *= binary.LittleEndian.Uint64(raw[8*i:])
	}
	if patches != 4*uint64(im.length) {
		return bad
	}
	return nil
}

// unpackItem reads an item of kwargs_data or mm_metadata: all of it must be one
// map in msgpack.
func unpackItem(item string) (map[string]any, bool) {
	data, err := base64.StdEncoding.DecodeString(item)
	if err != nil {
		return nil, false
	}
	u := unpacker{rest: data}
	v, ok := u.value(0)
	entries, isMap := v.(map[string]any)
	return entries, ok && isMap && len(u.rest) == 0
}
