package cluster

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// text is a worker's answer before it is put in a shape.
type text struct {
	api        *api
	vocabulary *vocabulary
	id         string
	model      string
	words      []string // one token each
	finish     string
	choices    int // all alike
	counted    usage
	handoff    json.RawMessage // kv_transfer_params of a whole answer; nil is null
	embedding  json.RawMessage // ec_transfer_params of an encode's answer, likewise
	withUses   bool            // a stream ends with the usage
}

type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	TotalTokens      int `json:"total_tokens"`
	CompletionTokens int `json:"completion_tokens"`

	Details *promptDetails `json:"prompt_tokens_details,omitempty"`
}

// promptDetails are there only with vLLM's --enable-prompt-tokens-details.
type promptDetails struct {
	AudioTokens  *int `json:"audio_tokens"`
	CachedTokens int  `json:"cached_tokens"`
}

// sayCached has the usage say how much of the prompt was cached, if workers do.
func (t *text) sayCached(o Options, tokens int) {
	if o.CachedTokens > 0 {
		t.counted.Details = &promptDetails{CachedTokens: tokens}
	}
}

// completion is an answer of the chat or completions route, or a chunk of one.
// Transfer params are in whole answers only: a stream never has them.
type completion struct {
	ID               string          `json:"id"`
	Object           string          `json:"object"`
	Created          int64           `json:"created"`
	Model            string          `json:"model"`
	Choices          []any           `json:"choices"`
	Usage            *usage          `json:"usage,omitempty"`
	KVTransferParams json.RawMessage `json:"kv_transfer_params,omitempty"`
	ECTransferParams json.RawMessage `json:"ec_transfer_params,omitempty"` // of an encode
}

// newText is the answer with these words, cut off at limit.
func (l *leg) newText(p *prompt, words []string, limit, choices int) *text {
	t := &text{
		api: l.api, vocabulary: l.cluster.vocabulary,
		id: l.api.idPrefix + l.record.RequestID, model: l.cluster.options.Model,
		words: words, finish: "stop", choices: choices,
	}
	if len(words) > limit {
		t.words, t.finish = words[:limit], "length"
	}
	if l.fault.FinishError {
		t.words, t.finish = nil, "error"
	}
	t.counted = usage{PromptTokens: len(p.ids), CompletionTokens: len(t.words) * choices}
	t.counted.TotalTokens = t.counted.PromptTokens + t.counted.CompletionTokens
	if echo, _ := l.body.truth("echo"); echo && l.api == &completionsAPI {
		t.words = append(append([]string{}, p.said...), t.words...)
	}
	options, _ := l.body.inner("stream_options")
	t.withUses, _ = options.truth("include_usage")
	return t
}

// completed is a whole answer of the chat or completions route.
func (t *text) completed() completion {
	all := t.completion(t.api.object)
	all.Choices = t.allChoices()
	all.Usage = &t.counted
	all.KVTransferParams = rawJSON(t.handoff)
	all.ECTransferParams = t.embedding
	return all
}

// completionChunk is a chunk of a stream of these routes.
func completionChunk(t *text, choices []any, counted *usage) any {
	chunk := t.completion(t.api.event)
	chunk.Choices, chunk.Usage = choices, counted
	return chunk
}

func (t *text) completion(object string) completion {
	return completion{ID: t.id, Object: object, Created: created, Model: t.model}
}

// allChoices are the choices of a whole answer.
func (t *text) allChoices() []any {
	choices := []any{}
	for i := range t.choices {
		choices = append(choices, t.api.choice(i, t))
	}
	return choices
}

func (t *text) joined() string { return strings.Join(t.words, " ") }

// encoded is the whole answer that is no stream.
func (t *text) encoded() []byte { return encode(t.api.whole(t)) }

// answerSlowly sends a whole answer after the time that its tokens take.
func (l *leg) answerSlowly(t *text) error {
	c := l.cluster
	if err := c.pause(l.request.Context(), time.Duration(len(t.words))*c.options.TokenInterval); err != nil {
		return err
	}
	return l.answer(http.StatusOK, t.encoded())
}
