package cluster

import (
	"net/http"
	"slices"
)

// mediaMemory is what the workers remember of images over all requests. Guarded
// by Cluster.mu.
type mediaMemory struct {
	rendered bounded[string]  // URLs that the render service was given
	stored   bounded[string]  // ec-shared-storage: hashes whose embedding is stored
	pushed   map[string]*push // ec-mooncake: embeddings by their transfer_id
	pushes   bounded[string]  // the newest of them
	// seen are the hashes whose data a worker has had, by its profile.
	seen map[string]*bounded[string]
}

func newMediaMemory(limit int) mediaMemory {
	m := mediaMemory{
		rendered: newBounded[string](limit),
		stored:   newBounded[string](limit),
		seen:     map[string]*bounded[string]{},
		pushed:   map[string]*push{},
		pushes:   newBounded[string](limit),
	}
	for _, worker := range []string{Encode, Prefill, Decode} {
		m.seen[worker] = new(newBounded[string](limit))
	}
	return m
}

// loadMedia takes the prompt's images into the worker. It refuses one that came
// without data and was never here.
func (l *leg) loadMedia(p *prompt) error {
	c, worker := l.cluster, l.name
	if worker == Probe {
		worker = Decode
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.notify()
	for i := range p.images {
		im := &p.images[i]
		if im.remote != "" && !c.media.rendered.members[im.remote] {
			c.state.WorkerFetches++
		}
		if l.api.tokensIn && im.withoutPixels() {
			if err := l.checkWithoutPixels(im); err != nil {
				return err
			}
			continue
		}
		if l.api.tokensIn && im.tensors == "" {
			if !c.media.seen[worker].members[im.hash] {
				return &refusal{http.StatusInternalServerError, "InternalServerError", "Expected a cached item for mm_hash='" + im.hash + "'", ""}
			}
			continue
		}
		c.media.seen[worker].add(im.hash)
	}
	return nil
}

// noteTokens notes a leg's tokens that are not what the worker makes of its
// messages. The worker does not use them: they are for the gateway.
func (l *leg) noteTokens(p *prompt) {
	if l.api != &chatAPI && !l.api.typed || !l.body.has("tokens") {
		return
	}
	tokens, err := l.body.inner("tokens")
	if err != nil {
		l.violate("tokens: %v", err)
		return
	}
	if !same(tokens["token_ids"], encode(p.ids)) {
		l.violate("tokens.token_ids are not those of the prompt")
	}
	if len(p.images) == 0 && !tokens.has("features") {
		return
	}
	f, err := tokens.inner("features")
	if err != nil {
		l.violate("tokens: %v", err)
		return
	}
	if _, ok := f["kwargs_data"]; ok {
		l.violate("tokens.features has kwargs_data")
	}
	images, err := readFeatures(f, len(p.ids))
	if err != nil {
		l.violate("tokens.features: %v", err)
		return
	}
	differ := func(a, b image) int {
		if a.modality == b.modality && a.hash == b.hash && a.offset == b.offset && a.length == b.length {
			return 0
		}
		return 1
	}
	if slices.CompareFunc(images, p.images, differ) != 0 {
		l.violate("tokens.features are not those of the prompt")
		return
	}
	for i := range images {
		p.images[i].placeholder = images[i].placeholder
	}
}

// noteImages notes images that are not as the render service had them.
func (l *leg) noteImages(p *prompt) {
	c := l.cluster
	c.mu.Lock()
	known := c.requests.of(l.record.RequestID)
	rendered, tokens, images := known.rendered, known.tokens, known.images
	c.mu.Unlock()
	if !rendered || l.api.tokensIn && tokens != tokensKey(p.ids) {
		// A client of the generate route brings its own, under an id that may
		// have been another request's.
		return
	}
	if len(images) != len(p.images) {
		l.violate("the prompt has %d images, render was given %d", len(p.images), len(images))
		return
	}
	for i := range images {
		if breach := l.imageBreach(&p.images[i], &images[i]); breach != "" {
			l.violate("image %d: %s", i, breach)
		}
	}
}

// imageBreach says how an image is not as it was rendered; "" if it is.
func (l *leg) imageBreach(im *image, known *renderedImage) string {
	if im.placeholder != nil && string(im.placeholder) != string(known.placeholder) {
		return "its placeholder is not the one that render gave"
	}
	switch {
	case im.modality != known.modality:
		return "it is of modality " + im.modality + ", not " + known.modality
	case l.api.tokensIn && im.hash != known.hash:
		return "its hash is not the one that render gave"
	case l.api.tokensIn:
		return l.tensorBreach(im, known)
	case im.content != known.content:
		return "it is not the one that render was given"
	case l.name != Decode && im.part != known.part:
		return "its part is not the one that render was given, byte for byte"
	}
	want := known.uuid
	if h, err := readHashing(l.body); want == "" && !l.api.typed && l.name == Decode && !l.cluster.pairs() && err == nil && h.processor == "" {
		want = known.hash
	}
	if im.uuid != want && !(l.isRelease() && im.uuid == known.uuid) {
		return "its uuid is \"" + im.uuid + "\", not \"" + want + "\""
	}
	return ""
}

// isRelease reports whether a decode looks like one that is only there to fetch a
// hand-off.
func (l *leg) isRelease() bool {
	limit, _, err := l.api.tokenLimit(l.sampling)
	return l.name == Decode && string(l.sampling["ignore_eos"]) == "true" && err == nil && limit == 1
}
