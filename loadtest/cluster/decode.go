package cluster

// decode is the decode worker: it fetches the prompt's KV, or computes it, and
// answers.
func (l *leg) decode() error {
	c := l.cluster
	p, err := l.workersPrompt()
	if err != nil {
		return err
	}
	limit, limited, err := l.api.tokenLimit(l.sampling)
	if err != nil {
		return err
	}
	if !limited {
		limit = maxModelLen
	}
	choices, there, err := l.sampling.integer("n")
	if err != nil {
		return err
	}
	if !there {
		choices = 1
	}
	if l.name == Probe && !c.countProbe(p) {
		l.nameWorker()
		return l.answer(notAvailable.status, encode(notAvailable.body()))
	}
	if err := l.loadMedia(p); err != nil {
		return err
	}
	if err := l.awaitPrefill(); err != nil {
		return err
	}
	words, loaded, err := l.load(p)
	if err != nil {
		return err
	}
	c.remember(p)
	text := l.newText(p, words, limit, choices)
	cached := c.options.CachedTokens // of its own
	if l.name == Probe || l.transferParams("kv_transfer_params") != nil {
		cached = len(p.ids)
	}
	text.sayCached(c.options, cached)
	if err := l.answerText(text, loaded); err != nil {
		return err
	}
	if loaded && c.options.CacheDecodes && !l.fault.spoilsAnswer() {
		c.cachePrompt(p)
	}
	return nil
}

// load is how the worker comes by the prompt's KV, and what it says then. It is
// false if it has none.
func (l *leg) load(p *prompt) (words []string, ok bool, err error) {
	c := l.cluster
	if l.name == Probe {
		return p.reply(), true, nil // it is cached
	}
	if c.pairs() {
		return p.reply(), true, l.fetchFromPair()
	}
	params, breach := l.takePromptIDs(l.transferParams("kv_transfer_params"), p)
	if breach != "" {
		l.violate("%s", breach)
	}
	how, breach := c.loadKV(params, p, l.fault.LoseKV)
	if breach != "" {
		l.violate("%s", breach)
	}
	if how == mixedUp {
		return c.anothersWords(p), true, nil
	}
	return p.reply(), how != failed, nil
}

// answerText sends the answer, streamed or not, as the request says.
func (l *leg) answerText(text *text, loaded bool) error {
	l.storeResponse(text)
	if stream, _ := l.body.truth("stream"); stream {
		return l.stream(text, !loaded)
	}
	if !loaded {
		return loadFailed
	}
	return l.answerSlowly(text)
}

// workersPrompt does what every worker does first: it checks the request and
// reads its prompt.
func (l *leg) workersPrompt() (*prompt, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	if err := l.continues(); err != nil {
		return nil, err
	}
	p, err := l.api.prompt(l.cluster.vocabulary, l.body)
	if err != nil {
		return nil, err
	}
	l.noteTokens(p)
	l.noteImages(p)
	return p, nil
}
