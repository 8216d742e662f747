package wiretest

import "strings"

// answers are what upstreams say.
func (c *Client) answers(r random) {
	if c.Protocol != Generate && !c.Given {
		o := r.object(2)
		o.add(r.member("token_ids", c.tokens.ids))
		switch {
		case c.tokens.features != nil:
			o.add(r.member("features", c.tokens.features.text()))
		case r.oneIn(2):
			o.add(r.member("features", pick(r, "null", "{}")))
		}
		o.add(r.member("request_id", r.str()))
		if c.Rendered = r.space() + o.text() + r.space(); c.Protocol == Completions {
			c.Rendered = r.array(o.text())
		}
	}
	if c.HasParts() {
		c.encodeAnswers(r)
	}
	o := r.object(3)
	if r.oneIn(6) {
		o.add(r.member("kv_transfer_params", r.value(1)))
	}
	given := pick(r, "null", `"x"`, "[]", "{}")
	if c.Handoff = !r.oneIn(8); c.Handoff {
		c.handoff = r.handoff()
		given = c.handoff.text()
	}
	o.add(r.member("kv_transfer_params", given))
	if r.oneIn(2) {
		o.add(r.member("choices", r.list(2)))
	}
	c.Prefilled = r.space() + o.text() + r.space()
}

// handoff are transfer params of a prefill worker, with members that nobody has
// heard of.
func (r random) handoff() *Object {
	parts := []Member{r.member("remote_engine_id", r.str()), r.member("remote_host", `"10.0.0.1"`), r.member("remote_port", pick(r, "5600", "5600.0")),
		r.member("remote_block_ids", pick(r, "[1, 2,3]", "null", "[[1],[ 2 ]]"))}
	maybe := func(name, value string) {
		if r.oneIn(2) {
			parts = append(parts, r.member(name, value))
		}
	}
	maybe("do_remote_decode", pick(r, "false", "true", "null"))
	maybe("do_remote_prefill", pick(r, "false", "true"))
	maybe("tp_size", "8")
	for range r.IntN(4) {
		parts = append(parts, r.member(pick(r, names...), r.value(3)))
	}
	return r.place(r.distinct(parts))
}

// encodeAnswers are descriptors, by hash; the same hash has the same one.
func (c *Client) encodeAnswers(r random) {
	if len(c.tokens.media) != len(c.Media) {
		panic("the media do not match the tokens")
	}
	type entry struct{ name, value string }
	known := map[string]entry{}
	var merged []string
	for _, im := range c.tokens.media {
		e, again := known[im.hash]
		if !again {
			e = entry{im.hash, pick(r, r.object(3).text(), r.object(2).text(), "null")}
			known[im.hash] = e
			if e.value != "null" {
				merged = append(merged, e.name+":"+e.value)
			}
		}
		params := &Object{}
		params.add(Member{Name: "h", Before: r.space(), Spelt: e.name, Colon: r.space() + ":" + r.space(), Value: e.value, After: r.space()})
		o := r.object(2)
		o.add(r.member("ec_transfer_params", params.text()))
		c.Encoded = append(c.Encoded, o.text())
	}
	if len(merged) > 0 {
		c.merged = "{" + strings.Join(merged, ",") + "}"
	}
}
