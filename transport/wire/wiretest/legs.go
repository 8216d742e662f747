package wiretest

import "strings"

// Shape says what legs are like in a pipeline.
type Shape struct {
	// Tokens: there is a render step.
	Tokens bool
	// Inlined: there is a step that downloads images.
	Inlined bool
	// TokensIn: use_openai_format = false.
	TokensIn bool
	// Nixl: the kv connector is kv-nixl, not kv-shared-storage.
	Nixl bool
	// EC: the ec connector is ec-nixl, and encode has run.
	EC bool
	// ID is the id of the request.
	ID string
}

var (
	transferParams = []string{"kv_transfer_params", "ec_transfer_params"}
	// stripped is the contract's section 3.
	stripped = append([]string{"bootstrap_host", "bootstrap_port", "bootstrap_room", "routed_dp_rank", "data_parallel_rank",
		"disagg_prefill_dp_rank", "tokens"}, transferParams...)
	// removed and the rest of section 8's table.
	removed = []string{"min_tokens", "n", "best_of", "stop", "stop_token_ids", "logprobs", "top_logprobs", "logprob_token_ids"}
)

// sanitize is section 3, and of each name the last.
func sanitize(body *Object) *Object {
	o := body.last()
	o.drop(stripped...)
	if m := o.find("vllm_xargs"); m != nil && m.inner != nil {
		o.change(m, m.inner.without(transferParams...))
	}
	if m := o.find("sampling_params"); m != nil && m.inner != nil {
		params := &Object{members: append([]Member(nil), m.inner.members...), space: m.inner.space}
		changed := false
		for i := range params.members {
			if e := &params.members[i]; e.Name == "extra_args" && e.inner != nil {
				kept := e.inner.without(transferParams...)
				changed = changed || kept != e.inner
				e.inner = kept
			}
		}
		if changed { // written anew, like what has lost members
			o.change(m, params.compact(nil))
		}
	}
	return o
}

// change puts an object in the place of another, unless it is the same.
func (o *Object) change(m *Member, to *Object) {
	if to != m.inner {
		o.put(Member{Name: m.Name, inner: to})
	}
}

// local is section 10.
func (c *Client) local() bool {
	get := c.clean.get
	if c.Protocol == Generate {
		get = func(name string) string {
			if m := c.clean.find("sampling_params"); m != nil && m.inner != nil {
				return m.inner.get(name)
			}
			return ""
		}
	}
	is := func(name string, values ...string) bool { return among(get(name), values) }
	set := func(name string) bool { return !is(name, "", "null", "false") }
	return is("n", "2", "1e1") || is("best_of", "3") || set("use_beam_search") || set("prompt_logprobs") ||
		set("echo") && (set("logprobs") || is("max_tokens", "0")) || is("truncate_prompt_tokens", "-1") ||
		c.Protocol == Responses && is("truncation", `"auto"`, "null")
}

// Ask reports whether the client's chat format can be left.
func (c *Client) asked(s Shape) bool {
	return c.HasParts() && s.TokensIn && c.tokens.tensors
}

// tokensKnown: legs carry the prompt's token ids.
func (c *Client) tokensKnown(s Shape) bool { return s.Tokens && c.Protocol != Generate }

// base is the client's body with its media as they are on legs.
func (c *Client) base(s Shape, uuids bool) *Object {
	o := c.clean.last()
	uuids = uuids && len(c.Media) > 0 && s.Tokens && c.Protocol == Chat
	if p := strings.TrimSpace(strings.Trim(c.clean.get("mm_processor_kwargs"), "{}")); p != "" && p != "null" {
		uuids = false
	}
	downloads := false
	for i := range c.Media {
		downloads = downloads || c.Media[i].Inlined != ""
	}
	if !uuids && !(downloads && s.Inlined) {
		return o
	}
	i := -1
	o.set(c.listName(), c.text(func(im *Medium) string {
		i++
		uuid := ""
		if uuids && !im.uuid {
			uuid = `,"uuid":` + c.tokens.media[i].hash
		}
		return im.part(s) + uuid + "}"
	}))
	return o
}

// listName is the member that has the messages.
func (c *Client) listName() string {
	if c.Protocol == Responses {
		return "input"
	}
	return "messages"
}

// part is a content part, less its closing brace.
func (im *Medium) part(s Shape) string {
	if s.Inlined && im.Inlined != "" {
		return im.before + im.Inlined + im.after
	}
	return im.before + im.spelt + im.after
}

// Render is section 5.
func (c *Client) Render(s Shape) string { return c.base(s, false).leg() }

// Probe is section 6.
func (c *Client) Probe(s Shape) string {
	o := c.base(s, false)
	c.addTokens(o, s)
	return o.leg()
}

// addTokens adds the prompt's ids to chat and completions legs.
func (c *Client) addTokens(o *Object, s Shape) {
	switch {
	case !c.tokensKnown(s):
	case c.Protocol == Completions:
		o.set("prompt", c.tokens.ids)
	case c.tokens.any:
		o.set("tokens", `{"token_ids":`+c.tokens.ids+`,"features":{"mm_hashes":`+c.tokens.hashes+`,"mm_placeholders":`+c.tokens.placeholders+`}}`)
	default:
		o.set("tokens", `{"token_ids":`+c.tokens.ids+`}`)
	}
}

// Encoders are the media that are encoded: one of each hash.
func (c *Client) Encoders() (images []int) {
	seen := map[string]bool{}
	for i, im := range c.tokens.media {
		if !seen[im.hash] {
			images = append(images, i)
		}
		seen[im.hash] = true
	}
	return images
}

// LegPath is the path of encode and prefill legs, if it is not the client's.
func (c *Client) LegPath(s Shape) string {
	if c.asked(s) {
		return "/inference/v1/generate"
	}
	return ""
}

// Encode is section 7.
func (c *Client) Encode(s Shape, image int) string {
	im := c.tokens.media[image]
	ids := append([]string{c.tokens.list[0]}, c.idsAsTheyCame(im)...)
	placeholder := im.placeholder.last()
	placeholder.set("offset", "1")
	features := `{"mm_hashes":{"` + im.modality + `":[` + im.hash + `]},"mm_placeholders":{"` + im.modality + `":[` + placeholder.leg() + `]}`
	o := &Object{}
	o.setIf("model", c.clean.get("model"))
	if c.asked(s) {
		o.set("token_ids", "["+strings.Join(ids, ",")+"]")
		o.set("features", features+`,"kwargs_data":{"`+im.modality+`":[`+im.tensor+`]}}`)
		o.set("sampling_params", `{"max_tokens":1}`)
		o.set("stream", "false")
		return o.leg()
	}
	o.set(c.listName(), `[{"role":"user","content":[`+c.Media[image].part(s)+`}]}]`)
	o.set("tokens", `{"token_ids":[`+strings.Join(ids, ",")+`],"features":`+features+`}}`)
	if c.Protocol == Responses {
		o.set("max_output_tokens", "1")
		o.set("store", "false")
	} else {
		o.set("max_tokens", "1")
	}
	o.set("stream", "false")
	o.setIf("mm_processor_kwargs", c.clean.get("mm_processor_kwargs"))
	o.setIf("media_io_kwargs", c.clean.get("media_io_kwargs"))
	return o.leg()
}

// idsAsTheyCame is the span of a medium as one piece, with its white space.
func (c *Client) idsAsTheyCame(im span) []string {
	if im.length == 0 {
		return nil
	}
	isDigit := func(b byte) bool { return '0' <= b && b <= '9' }
	at, n, lo := 0, -1, 0
	for ; ; at++ {
		if isDigit(c.tokens.ids[at]) && !isDigit(c.tokens.ids[at-1]) {
			if n++; n == im.offset {
				lo = at
			}
		}
		if n == im.offset+im.length-1 && isDigit(c.tokens.ids[at]) && !isDigit(c.tokens.ids[at+1]) {
			return []string{c.tokens.ids[lo : at+1]}
		}
	}
}

const (
	nixlPrefill   = `{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`
	sharedPrefill = `{"do_remote_decode":true,"do_remote_prefill":false}`
	sharedDecode  = `{"do_remote_decode":false,"do_remote_prefill":true}`
)

// capped are the starred rows of section 8.
func capped(o *Object) {
	o.drop(removed...)
	o.set("max_tokens", "1")
	o.set("ignore_eos", "true")
}

func (c *Client) capOutput(o *Object) {
	switch c.Protocol {
	case Chat, Completions:
		capped(o)
	case Responses:
		o.drop(removed...)
		o.drop("include", "max_tool_calls")
		o.set("max_output_tokens", "1")
		o.set("ignore_eos", "true")
		o.set("store", "false")
	}
	if o.find("max_completion_tokens") != nil {
		o.set("max_completion_tokens", "1")
	}
	o.set("stream", "false")
	o.drop("stream_options")
}

// addSampling changes sampling_params: caps them, adds transfer params.
func addSampling(o, params *Object, caps bool, kv, ec string) {
	if !caps && kv+ec == "" {
		return
	}
	params = params.last()
	if caps {
		capped(params)
	}
	if kv+ec != "" {
		var extra *Object
		if m := params.find("extra_args"); m != nil {
			extra = m.inner
		}
		extra = extra.last()
		extra.setIf("kv_transfer_params", kv)
		extra.setIf("ec_transfer_params", ec)
		params.set("extra_args", extra.leg())
	}
	o.set("sampling_params", params.leg())
}

// samplingParams are the client's.
func (c *Client) samplingParams() *Object {
	if m := c.clean.find("sampling_params"); m != nil {
		return m.inner
	}
	return nil
}

// finish adds tokens and transfer params.
func (c *Client) finish(o *Object, s Shape, caps bool, kv, ec string) string {
	if c.Protocol == Generate {
		addSampling(o, c.samplingParams(), caps, kv, ec)
	}
	c.addTokens(o, s)
	o.setIf("kv_transfer_params", kv)
	o.setIf("ec_transfer_params", ec)
	return o.leg()
}

// Prefill is section 8.
func (c *Client) Prefill(s Shape) string {
	kv, ec := sharedPrefill, ""
	if s.Nixl {
		kv = nixlPrefill
	}
	if s.EC {
		ec = c.merged
	}
	if c.asked(s) {
		return c.prefillByTokens(s, kv, ec)
	}
	o := c.base(s, false)
	c.capOutput(o)
	if !c.HasParts() {
		o.set("request_id", `"`+s.ID+`"`)
	}
	if t := &c.tokens; c.Protocol == Generate && t.any && !(t.kwargs != "" && t.tensors && t.knownOnly) {
		features := t.features.last()
		features.set("kwargs_data", t.withNulls())
		o.set("features", features.leg())
	}
	return c.finish(o, s, true, kv, ec)
}

// withNulls is kwargs_data with null for what is empty or missing.
func (t *tokens) withNulls() string {
	var all []string
	for _, m := range t.byModality {
		items := make([]string, m.hashes)
		for i := range items {
			if items[i] = "null"; t.kwargs != "" && m.items[i] != `""` {
				items[i] = m.items[i]
			}
		}
		all = append(all, m.spelt+"["+strings.Join(items, ",")+"]")
	}
	return "{" + strings.Join(all, ",") + "}"
}

func (c *Client) prefillByTokens(s Shape, kv, ec string) string {
	o := &Object{}
	o.set("request_id", `"`+s.ID+`"`)
	o.setIf("model", c.clean.get("model"))
	o.set("token_ids", c.tokens.ids)
	if c.tokens.any {
		o.set("features", `{"mm_hashes":`+c.tokens.hashes+`,"mm_placeholders":`+c.tokens.placeholders+`,"kwargs_data":`+c.tokens.kwargs+`}`)
	}
	addSampling(o, nil, true, kv, ec)
	o.set("stream", "false")
	o.setIf("kv_transfer_params", kv)
	o.setIf("ec_transfer_params", ec)
	o.setIf("cache_salt", c.clean.get("cache_salt"))
	o.setIf("priority", c.clean.get("priority"))
	return o.leg()
}

// decodeParams are the transfer params of decode after a prefill, or "".
func (c *Client) decodeParams(s Shape) string {
	switch {
	case !s.Nixl:
		return sharedDecode
	case !c.Handoff:
		return ""
	}
	o := c.handoff.last()
	o.set("do_remote_decode", "false")
	o.set("do_remote_prefill", "true")
	return o.leg()
}

// Decode is section 9, after a prefill.
func (c *Client) Decode(s Shape) string {
	return c.finish(c.base(s, true), s, false, c.decodeParams(s), "")
}

// DecodeAlone is section 9 without one.
func (c *Client) DecodeAlone(s Shape) string { return c.finish(c.base(s, true), s, false, "", "") }

// Release is section 13's.
func (c *Client) Release(s Shape) string {
	o := c.base(s, true)
	c.capOutput(o)
	return c.finish(o, s, true, c.decodeParams(s), "")
}
