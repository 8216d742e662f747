package wiretest

import "strings"

// chat are the members of a chat request, messages above all.
func (c *Client) chat(r random, origin string) (members []Member) {
	maybe := func(name string, values ...string) {
		if r.oneIn(5) {
			members = append(members, r.member(name, pick(r, values...)))
		}
	}
	maybe("mm_processor_kwargs", "{}", "{ }", "null", `{ "size" : {"longest_edge":1.0} }`)
	maybe("media_io_kwargs", `{"image": {"x":1.0}}`, "null")
	maybe("prompt", r.value(1))
	maybe("token_ids", r.value(1))
	maybe("features", r.value(2))
	return append(members, c.list(r, "messages", origin))
}

// responses are the members of a Responses request, the input above all.
func (c *Client) responses(r random, origin string) (members []Member) {
	maybe := func(n int, name string, values ...string) {
		if r.oneIn(n) {
			members = append(members, r.member(name, pick(r, values...)))
		}
	}
	maybe(2, "max_output_tokens", "9", "null", "1e3")
	maybe(4, "include", `["message.output_text.logprobs"]`, "[ ]", "null")
	maybe(6, "max_tool_calls", "3", "null")
	maybe(4, "store", "false", "null")
	maybe(8, "truncation", `"disabled"`, `"dis\u0061bled"`, `"auto"`, "null")
	maybe(8, "previous_response_id", "null")
	maybe(8, "background", "false", "null")
	maybe(4, "instructions", r.str())
	maybe(4, "metadata", `{ "b":"1" ,"a":"2"}`)
	maybe(5, "mm_processor_kwargs", "{}", "null", `{ "size" : {"longest_edge":1.0} }`)
	maybe(5, "media_io_kwargs", `{"image": {"x":1.0}}`, "null")
	return append(members, c.list(r, "input", origin))
}

// list is the member that has the messages.
func (c *Client) list(r random, name, origin string) Member {
	m := r.member(name, "")
	c.messages = append(c.messages, "["+r.space())
	for i := range r.IntN(4) {
		if i > 0 {
			c.put(r.space() + "," + r.space())
		}
		c.message(r, origin)
	}
	c.put(r.space() + "]")
	m.Value = c.text(func(im *Medium) string { return im.before + im.spelt + im.after + "}" })
	return m
}

// put adds to the text behind the last medium.
func (c *Client) put(text string) { c.messages[len(c.messages)-1] += text }

// text is the messages with media as part writes them.
func (c *Client) text(part func(*Medium) string) string {
	var b strings.Builder
	for i, between := range c.messages {
		if i > 0 {
			b.WriteString(part(&c.Media[i-1]))
		}
		b.WriteString(between)
	}
	return b.String()
}

func (c *Client) message(r random, origin string) {
	parts := []func(){}
	extra := func(name, value string) {
		m := r.member(name, value)
		parts = append(parts, func() { c.put(m.text()) })
	}
	extra("role", pick(r, `"user"`, `"system"`, `"tool"`, `"assistant"`, r.str()))
	if r.oneIn(3) {
		extra("tool_calls", r.list(3))
	}
	if r.oneIn(3) {
		extra(pick(r, names...), r.value(3))
	}
	switch r.IntN(6) {
	case 0: // none
	case 1:
		extra("content", "null")
	case 2:
		extra("content", r.str())
		if r.oneIn(4) {
			extra("content", r.str())
		}
	default:
		parts = append(parts, func() {
			c.put(r.spell("content") + r.space() + ":" + r.space() + "[" + r.space())
			for i := range r.IntN(5) {
				if i > 0 {
					c.put(r.space() + "," + r.space())
				}
				if r.oneIn(3) {
					c.medium(r, origin)
				} else {
					c.put(r.part())
				}
			}
			c.put(r.space() + "]")
		})
	}
	r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	c.put("{" + r.space())
	for i, p := range parts {
		if i > 0 {
			c.put(r.space() + "," + r.space())
		}
		p()
	}
	c.put(r.space() + "}")
}

// part is a content part without media.
func (r random) part() string {
	if r.oneIn(8) {
		return pick(r, r.str(), r.number(), "null", "[]", "{}", "true")
	}
	o := &Object{}
	typed := pick(r, "text", "refusal", "thinking", "input_text", "tool_result", "brand_new", "")
	o.add(r.member("type", r.spell(typed)))
	o.add(r.member(pick(r, "text", "refusal", "x"), r.str()))
	if r.oneIn(6) {
		o.add(r.member("image_url", "null"))
	}
	if r.oneIn(3) {
		o.add(r.member(pick(r, names...), r.value(3)))
	}
	r.Shuffle(len(o.members), func(i, j int) { o.members[i], o.members[j] = o.members[j], o.members[i] })
	return o.text()
}
