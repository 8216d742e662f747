package plan

import (
	"fmt"
	"math"
)

// bytes is what requests may hold together.
type bytes struct {
	mb int
	// each is what a request holds on average.
	each float64
	why  string
}

// Assumptions about what a request holds.
const (
	bytesPerToken = 5   // of text
	bytesPerID    = 7   // of a token id in a body
	bytesOfJSON   = 512 // what else is in one
	base64        = 4.0 / 3
	leastMB       = 256
)

// held is what a request holds: text and token ids, what an image adds, and what the
// mean comes to. guessed: images are as large as is assumed.
type held struct {
	text, image, each float64
	what              string
	guessed           bool
}

// held works out what a request holds, or takes what was measured of requests like
// those that are planned for.
func (p *Plan) held(tensors bool) (h held) {
	w, q := p.load, p.question
	h.text = w.prompt.value*(bytesPerToken+bytesPerID) + bytesOfJSON
	h.image = w.imageBytes.value * base64
	h.guessed = w.images.value > 0 && w.imageBytes.from == assumed
	image := fmt.Sprintf("%s of image in base64 (%s)", size(h.image), w.imageBytes.from)
	if tensors {
		h.image += w.tensorBytes.value * base64
		h.guessed = h.guessed || w.images.value > 0 && w.tensorBytes.from == assumed
		image += fmt.Sprintf(" and %s of tensor (%s)", size(w.tensorBytes.value*base64), w.tensorBytes.from)
	}
	h.each = h.text + w.images.value*h.image
	h.what = size(h.text) + " of text and token ids (assumed)"
	if w.images.value > 0 {
		h.what += fmt.Sprintf(" + %s × %s", short(w.images.value), image)
	}
	if q.Prompt != nil || q.Images != nil || q.ImageBytes != nil || q.TensorBytes != nil {
		return h
	}
	if each := p.measured.bytesEach(); each > 0 {
		h.each, h.what, h.guessed = each, measured, false
	} else if body := p.measured.body(); body > 0 && w.images.value*w.byURL.value == 0 && !tensors {
		h.each, h.guessed = body+w.prompt.value*bytesPerID, false
		h.what = fmt.Sprintf("a body of %s (measured), and token ids", size(body))
	}
	return h
}

// sizeBytes leaves room for all that may be in flight, each as large as they are on
// average, and for chance: few large ones among many small ones count for more.
func (p *Plan) sizeBytes(tensors bool) {
	w, b, f := p.load, &p.bytes, p.inflight
	h := p.held(tensors)
	b.each = h.each
	share := min(1, w.images.value/w.perRequest)
	square := (1-share)*h.text*h.text + share*math.Pow(h.text+w.perRequest*h.image, 2)
	square *= math.Pow(h.each/(h.text+w.images.value*h.image), 2) // what was measured is as spread as is thought
	needed := (float64(f.requests)*h.each + p.question.Sigmas*math.Sqrt(f.busy*square)) * p.question.Margin
	least, because := max(leastMB, 2*p.config.Server.MaxRequestBodySize), "for two of the largest bodies"
	if present := p.config.Actors.MaxInflightSize; h.guessed && present > least {
		least, because = present, "as it is: how large images are is a guess (-image-bytes)"
	}
	b.mb = max(least, int(math.Ceil(needed/(1<<20))))
	b.why = fmt.Sprintf("bytes: until its answer begins a request holds %s (%s); × %d requests, room for chance, and × %s: %s", size(h.each), h.what, f.requests,
		short(p.question.Margin), size(needed))
	if float64(least)*(1<<20) > needed {
		b.why += fmt.Sprintf("; not less than %d MB, %s", least, because)
	}
}

// size writes bytes in a unit that suits them.
func size(bytes float64) string {
	switch {
	case bytes >= 1<<20:
		return short(bytes/(1<<20)) + " MB"
	case bytes >= 1<<10:
		return short(bytes/(1<<10)) + " KB"
	}
	return short(bytes) + " bytes"
}
