package cluster

import (
	"encoding/json"
	"net/http"
)

// prefill is the prefill worker: it computes the prompt's KV, keeps it for the
// decode to come, and answers one token and how to fetch the KV.
func (l *leg) prefill() error {
	c := l.cluster
	p, err := l.workersPrompt()
	if err != nil {
		return err
	}
	if !c.pairs() {
		if err := checkPrefill(l.api, l.body, l.sampling); err != nil {
			return err
		}
	}
	if err := l.loadMedia(p); err != nil {
		return err
	}
	if err := l.fetchEmbeddings(p); err != nil {
		return err
	}
	if c.pairs() {
		return l.prefillOfPair(p)
	}
	c.remember(p)
	if err := c.pause(l.request.Context(), c.options.PrefillDelay); err != nil {
		return err
	}
	l.nameWorker()
	text := l.newText(p, p.reply(), 1, 1)
	text.sayCached(c.options, c.options.CachedTokens)
	if text.handoff, err = l.handOff(p); err != nil {
		return err
	}
	return l.answer(http.StatusOK, text.encoded())
}

// handOff keeps the prompt's KV and returns the kv_transfer_params to answer, nil
// for null.
func (l *leg) handOff(p *prompt) (json.RawMessage, error) {
	c := l.cluster
	if l.fault.BadHandoff != nil {
		return l.fault.BadHandoff, nil
	}
	if x := exchanges[c.options.KV]; x != nil {
		given, err := x.give(l, p)
		c.mu.Lock()
		defer c.mu.Unlock()
		l.record.Handoff = given
		return given, err
	}
	if c.options.KV == KVSharedStorage {
		if !l.fault.LoseKV {
			c.store(p)
		}
		return nil, nil
	}
	if !asksForHandoff(l.transferParams("kv_transfer_params")) {
		return nil, nil
	}
	h := c.issueHandoff(p, "", l.fault.LoseKV)
	l.issued = h.id
	c.mu.Lock()
	defer c.mu.Unlock()
	l.record.Handoff = h.ticket
	return h.ticket, nil
}
