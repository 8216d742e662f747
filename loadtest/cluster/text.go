package cluster

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// text is a worker's answer before it is put in a shape.
type text struct {
	api      *api
	id       string
	model    string
	words    []string // one token each
	finish   string
	choices  int // all alike
	counted  usage
	handoff  json.RawMessage // kv_transfer_params of a whole answer; nil is null
	withUses bool            // a stream ends with the usage
}

type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	TotalTokens      int `json:"total_tokens"`
	CompletionTokens int `json:"completion_tokens"`
}

// completion is an answer, or a chunk of one. KVTransferParams are in whole
// answers only: a stream never has them.
type completion struct {
	ID               string          `json:"id"`
	Object           string          `json:"object"`
	Created          int64           `json:"created"`
	Model            string          `json:"model"`
	Choices          []any           `json:"choices"`
	Usage            *usage          `json:"usage,omitempty"`
	KVTransferParams json.RawMessage `json:"kv_transfer_params,omitempty"`
}

// newText is the answer with these words, cut off at limit.
func (l *leg) newText(p *prompt, words []string, limit, choices int) *text {
	t := &text{
		api: l.api, id: l.api.idPrefix + l.record.RequestID, model: l.cluster.options.Model,
		words: words, finish: "stop", choices: choices,
	}
	if len(words) > limit {
		t.words, t.finish = words[:limit], "length"
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

// whole is the answer that is no stream.
func (t *text) whole() []byte {
	all := t.completion(t.api.object)
	for i := range t.choices {
		all.Choices = append(all.Choices, t.api.choice(i, strings.Join(t.words, " "), t.finish))
	}
	all.Usage = &t.counted
	all.KVTransferParams = rawJSON(t.handoff)
	return encode(all)
}

func (t *text) completion(object string) completion {
	return completion{ID: t.id, Object: object, Created: created, Model: t.model, Choices: []any{}}
}

// answerSlowly sends a whole answer after the time that its tokens take.
func (l *leg) answerSlowly(t *text) error {
	c := l.cluster
	if err := c.pause(l.request.Context(), time.Duration(len(t.words))*c.options.TokenInterval); err != nil {
		return err
	}
	return l.answer(http.StatusOK, t.whole())
}
