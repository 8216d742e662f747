package plan

import (
	"fmt"
	"math"
	"slices"
)

// workload is what a request is on average.
type workload struct {
	prompt, output, images, imageBytes, tensorBytes, byURL, cached quantity
	// distinct is the part of images that encode gets: one for each that is not
	// there twice.
	distinct float64
	// perRequest is how many images a request has that has some: they come together.
	perRequest float64
	// conditional: there is a conditional decode.
	conditional bool
}

// quantity is a number, and where it is from.
type quantity struct {
	value float64
	from  string
}

const (
	given    = "given"
	measured = "measured"
	assumed  = "assumed"
)

// Assumptions about requests, for what is neither given nor measured.
const (
	assumedPrompt      = 1024
	assumedOutput      = 256
	assumedImageBytes  = 300_000
	assumedTensorBytes = 1 << 20 // a megabyte an image and more
)

// choose takes what was given, else what was measured (NaN: it was not), else what is
// assumed.
func choose(said *float64, seen, otherwise float64) quantity {
	switch {
	case said != nil:
		return quantity{*said, given}
	case !math.IsNaN(seen):
		return quantity{seen, measured}
	}
	return quantity{otherwise, assumed}
}

func (p *Plan) workload(steps []string) workload {
	q, m := p.question, p.measured
	w := workload{
		prompt:      choose(q.Prompt, m.prompt(), assumedPrompt),
		output:      choose(q.Output, m.output(), assumedOutput),
		images:      choose(q.Images, m.images(), 0),
		imageBytes:  choose(q.ImageBytes, math.NaN(), assumedImageBytes),
		tensorBytes: choose(q.TensorBytes, math.NaN(), assumedTensorBytes),
		byURL:       choose(q.ByURL, m.byURL(), 1),
		cached:      quantity{0, assumed},
		distinct:    m.distinct(),
	}
	if w.conditional = slices.Contains(steps, "conditional-decode"); w.conditional {
		w.cached = choose(q.Cached, m.cached(), 0)
	}
	w.perRequest = max(1, w.images.value)
	if seen := m.imagesTogether(); q.Images == nil && !math.IsNaN(seen) {
		w.perRequest = max(1, seen)
	}
	return w
}

// tasks returns how many pieces of work a request is for on average.
func (w workload) tasks(work string) float64 {
	switch work {
	case media:
		return w.images.value * w.byURL.value
	case encode:
		return w.images.value * w.distinct * (1 - w.cached.value)
	case prefill:
		return 1 - w.cached.value
	}
	return 1 // of each request
}

// String describes a request.
func (w workload) String() string {
	s := fmt.Sprintf("a prompt of %s tokens (%s), an answer of %s tokens (%s), %s images (%s)", short(w.prompt.value), w.prompt.from,
		short(w.output.value), w.output.from, short(w.images.value), w.images.from)
	if w.images.value > 0 {
		s += fmt.Sprintf(", %s of them by URL (%s)", percent(w.byURL.value), w.byURL.from)
	}
	if w.conditional {
		s += fmt.Sprintf("; a conditional decode serves %s (%s)", percent(w.cached.value), w.cached.from)
	}
	return s
}

func percent(part float64) string { return short(part*100) + " %" }

// short writes a number with three digits, or as a whole one.
func short(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
