package cluster

// decode is the decode worker: it fetches the prompt's KV, or computes it, and
// answers.
func (l *leg) decode() error {
	c := l.cluster
	if err := l.check(); err != nil {
		return err
	}
	p, err := l.api.prompt(c.vocabulary, l.body)
	if err != nil {
		return err
	}
	limit, limited, err := tokenLimit(l.body)
	if err != nil {
		return err
	}
	if !limited {
		limit = maxModelLen
	}
	choices, there, err := l.body.integer("n")
	if err != nil {
		return err
	}
	if !there {
		choices = 1
	}
	words := replyWords(p.said)
	params := l.body["kv_transfer_params"]
	if !l.body.has("kv_transfer_params") {
		params = nil
	}
	how, breach := c.loadKV(params, p, l.fault.LoseKV)
	if breach != "" {
		l.violate("%s", breach)
	}
	if how == mixedUp {
		words = c.anothersWords(p)
	}
	c.remember(p)
	text := l.newText(p, words, limit, choices)
	if stream, _ := l.body.truth("stream"); stream {
		return l.stream(text, how == failed)
	}
	if how == failed {
		return loadFailed
	}
	return l.answerSlowly(text)
}
