package cluster

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
)

// rendering is the render service's answer for one prompt: a request that the
// generate route of a worker would take.
type rendering struct {
	RequestID        string          `json:"request_id"`
	TokenIDs         []int           `json:"token_ids"`
	Features         json.RawMessage `json:"features"`
	SamplingParams   json.RawMessage `json:"sampling_params"`
	Model            string          `json:"model"`
	Stream           bool            `json:"stream"`
	StreamOptions    json.RawMessage `json:"stream_options"`
	CacheSalt        json.RawMessage `json:"cache_salt"`
	Priority         int             `json:"priority"`
	KVTransferParams json.RawMessage `json:"kv_transfer_params"`
	ECTransferParams json.RawMessage `json:"ec_transfer_params"`
}

// render is the render service: it tokenizes.
func (l *leg) render() error {
	c := l.cluster
	if err := l.check(); err != nil {
		return err
	}
	if l.api.typed && l.body.has("previous_response_id") {
		return badValue("previous_response_id", "previous_response_id is not supported here: nothing is remembered.")
	}
	if _, err := l.body.text("prompt"); l.api == &completionsAPI && err != nil {
		return badValue("prompt", "Only a single text prompt can be rendered here.")
	}
	p, err := l.api.prompt(c.vocabulary, l.body)
	if err != nil {
		return err
	}
	features := l.rememberRender(p)
	if err := c.pause(l.request.Context(), c.options.RenderDelay); err != nil {
		return err
	}
	return l.answer(http.StatusOK, encode(l.api.rendered(rendering{
		RequestID:      l.api.idPrefix + rand.Text(),
		TokenIDs:       p.ids,
		Features:       features,
		SamplingParams: json.RawMessage("{}"),
		Model:          c.options.Model,
		CacheSalt:      rawJSON(l.body["cache_salt"]),
	})))
}

// withMetadata is for how many of a prompt's images render answers mm_metadata.
func (l *leg) withMetadata(images int, unwanted bool) int {
	switch {
	case unwanted || !l.cluster.options.Metadata || l.fault.NoMetadata:
		return 0
	case l.fault.OneMetadata:
		return min(images, 1)
	}
	return images
}

// rememberRender notes what is rendered, for the legs to come, and returns the
// features to answer, nil for null.
func (l *leg) rememberRender(p *prompt) json.RawMessage {
	c := l.cluster
	mode := wholeTensors
	switch unwanted := string(l.body["return_mm_kwargs"]) == "false"; {
	case l.fault.NoKwargs || c.options.NoKwargs || unwanted:
		mode = noTensors
	case l.fault.NullKwargs:
		mode = nullTensors
	}
	var features json.RawMessage
	if len(p.images) > 0 {
		features = c.renderFeatures(p.images, mode, l.withMetadata(len(p.images), string(l.body["return_mm_kwargs"]) == "false"))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.requests.renew(l.record.RequestID)
	r.rendered, r.tokens = true, tokensKey(p.ids)
	for _, im := range p.images {
		known := renderedImage{image: im, ids: p.span(&im), tensorSum: sumOf(im.tensors)}
		known.tensors = "" // it is large; its metadata is not
		r.images = append(r.images, known)
		if im.remote != "" {
			c.media.rendered.add(im.remote)
		}
	}
	return features
}
