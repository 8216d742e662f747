package wiretest

import (
	"math/rand/v2"
	"slices"
)

// Protocols that a client can speak.
const (
	Chat        = "chat"
	Completions = "completions"
	Generate    = "generate"
	Responses   = "responses"
)

// Client is a request of a client, and what upstreams have to say about it.
type Client struct {
	Protocol string
	Body     string
	// Media are those of a chat or Responses request, in document order.
	Media []Medium
	// Local: the request cannot use a remote KV (section 10).
	Local bool
	// Given: the client sent token ids, nothing has to be rendered.
	Given bool
	// Rendered is the answer of the render service.
	Rendered string
	// Encoded are the answers of encode workers, by medium.
	Encoded []string
	// Prefilled is the answer of a prefill worker. Handoff: kv-nixl can use it.
	Prefilled string
	Handoff   bool

	body     *Object // as it came
	clean    *Object // last of each name, without what a client may not send
	messages []string
	tokens   tokens
	merged   string // descriptors
	handoff  *Object
}

// Medium is a content part with an image, audio or video.
type Medium struct {
	Modality string
	// URL as the client means it, and the data URI that takes its place, as a
	// JSON string; "" if the URL is one already. Of an input_audio URL is the data,
	// and Format not "".
	URL, Inlined, Format string

	before, spelt, after string // the part, less the closing brace
	uuid                 bool
}

// tokens are what is known of the prompt.
type tokens struct {
	ids                          string
	list                         []string
	hashes, placeholders, kwargs string // maps by modality; "" if they are not there
	media                        []span
	any                          bool // there are some, of whatever modality
	tensors                      bool // there is one for each of media
	features                     *Object
	knownOnly                    bool
	byModality                   []modality
}

type span struct {
	hash, tensor   string
	modality       string
	placeholder    *Object
	offset, length int
}

type modality struct {
	spelt  string // name and colon in mm_hashes
	hashes int
	items  []string // of kwargs_data
}

// New makes the request of a number. Images that are named by URL are at origin.
func New(seed, n uint64, origin string) *Client {
	r := random{rand.New(rand.NewPCG(seed, n))}
	c := &Client{Protocol: pick(r, Chat, Chat, Completions, Generate, Responses)}
	members := c.common(r)
	switch c.Protocol {
	case Chat:
		members = append(members, c.chat(r, origin)...)
		c.tokens = r.tokens(c.modalities(), true)
	case Responses:
		members = append(members, c.responses(r, origin)...)
		c.tokens = r.tokens(c.modalities(), true)
	case Completions:
		c.tokens = r.tokens(nil, false)
		prompt := r.str()
		if c.Given = r.oneIn(2); c.Given {
			prompt = c.tokens.ids
		}
		members = append(members, r.member("prompt", prompt))
	case Generate:
		c.Given = true
		members = append(members, c.generate(r)...)
	}
	c.body = r.place(members)
	c.Body = r.space() + c.body.text() + r.space()
	c.clean = sanitize(c.body)
	c.Local = c.local()
	c.answers(r)
	return c
}

// HasParts reports whether the client's protocol is one whose messages may have
// images.
func (c *Client) HasParts() bool { return c.Protocol == Chat || c.Protocol == Responses }

// modalities are those of the media, in document order.
func (c *Client) modalities() (kinds []string) {
	for i := range c.Media {
		kinds = append(kinds, c.Media[i].Modality)
	}
	return kinds
}

// common are members that any client may send.
func (c *Client) common(r random) (members []Member) {
	maybe := func(name string, values ...string) {
		if r.oneIn(3) {
			members = append(members, r.member(name, pick(r, values...)))
		}
	}
	maybe("model", `"demo-model"`, r.str(), `"\ud800"`)
	maybe("stream", "true", "false", "null")
	maybe("stream_options", `{ "include_usage" : true }`, "null")
	maybe("cache_salt", r.str())
	maybe("priority", r.number())
	maybe("request_id", r.str())
	if r.oneIn(4) {
		members = append(members, r.member("tools", r.array(r.tool(), r.tool())))
	}
	if r.oneIn(8) {
		members = append(members, r.member("response_format", r.schema(pick(r, 1, 2, 3, 8))))
	}
	if c.Protocol != Generate {
		members = append(members, c.sampling(r)...)
	}
	for range r.IntN(5) {
		members = append(members, r.member(pick(r, names...), r.value(4)))
	}
	for range max(0, r.IntN(5)-2) {
		members = append(members, r.member(pick(r, stripped...), r.value(3)))
	}
	if r.oneIn(6) {
		members = append(members, r.withParams("vllm_xargs"))
	}
	if c.Protocol != Generate && r.oneIn(6) {
		members = append(members, r.samplingParams(nil))
	}
	if r.oneIn(200) {
		depth := 100
		if r.oneIn(10) {
			depth = 9_999 // as deep as can be
		}
		members = append(members, r.member("deep", r.deep(depth)))
	}
	return slices.Clip(r.distinct(members))
}

// distinct keeps one member of each name: place adds others.
func (r random) distinct(members []Member) []Member {
	seen := map[string]bool{}
	return slices.DeleteFunc(members, func(m Member) bool {
		twice := seen[m.Name]
		seen[m.Name] = true
		return twice
	})
}

func (r random) tool() string {
	o, function := &Object{}, &Object{}
	function.add(r.member("parameters", r.schema(pick(r, 1, 2, 3))))
	function.add(r.member("name", r.str()))
	o.add(r.member("function", function.text()))
	o.add(r.member("type", `"function"`))
	return o.text()
}

// sampling are the parameters that a prefill changes, and those that decide
// whether there may be one.
func (c *Client) sampling(r random) (members []Member) {
	maybe := func(n int, name string, values ...string) {
		if r.oneIn(n) {
			members = append(members, r.member(name, pick(r, values...)))
		}
	}
	maybe(2, "max_tokens", "9", "0", "null", "1e3", "123456789012345678901")
	maybe(4, "max_completion_tokens", "9", "null", "7.0")
	maybe(4, "min_tokens", "2", "null")
	maybe(4, "n", "1", "1.0", "null", "1", "1", "2", "1e1")
	maybe(6, "best_of", "1", "null", "1", "3")
	maybe(4, "stop", `["\n",  "x"]`, `"."`, "null")
	maybe(6, "stop_token_ids", "[1, 2]", "[]")
	maybe(6, "logprobs", "true", "false", "0", "5", "null")
	maybe(6, "top_logprobs", "1", "null")
	maybe(6, "logprob_token_ids", "[ 7 ]")
	maybe(6, "ignore_eos", "false", "true")
	maybe(20, "use_beam_search", "true", "false", "null")
	maybe(20, "prompt_logprobs", "0", "1", "null", "false")
	maybe(20, "echo", "true", "false")
	maybe(20, "truncate_prompt_tokens", "-1", "5", "null")
	maybe(3, "temperature", "0.70", "1e0", "null")
	maybe(3, "top_p", "0.95")
	maybe(4, "seed", "9007199254740993")
	maybe(4, "logit_bias", `{"50256":-100, "1": 1.0}`)
	return members
}

// withParams is an object with transfer params of a client's own in it, which
// may be in it twice.
func (r random) withParams(name string) Member {
	o := r.object(3)
	for range r.IntN(3) {
		o.add(r.member(pick(r, transferParams...), r.value(2)))
	}
	if r.oneIn(2) {
		o.add(r.member(pick(r, names...), r.value(2)))
	}
	m := r.member(name, "")
	m.inner = o
	return m
}

// samplingParams is that object, with others of the name extra_args that count
// for no one.
func (r random) samplingParams(members []Member) Member {
	for range r.IntN(4) {
		members = append(members, r.member(pick(r, names...), r.value(2)))
	}
	if r.oneIn(6) {
		members = append(members, r.withParams("extra_args"))
	}
	o := &Object{}
	r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	for _, m := range members {
		o.add(m)
	}
	switch r.IntN(3) {
	case 0:
		o.add(r.withParams("extra_args"))
	case 1:
		if r.oneIn(4) {
			o.add(r.member("extra_args", "null"))
		}
	}
	m := r.member("sampling_params", "")
	m.inner = o
	return m
}

// generate are the members of a generate request.
func (c *Client) generate(r random) (members []Member) {
	var media []string
	for range max(0, r.IntN(5)-2) {
		media = append(media, pick(r, "image", "image", "audio", "video"))
	}
	c.tokens = r.tokens(media, false)
	members = append(members, r.member("token_ids", c.tokens.ids))
	switch {
	case c.tokens.features != nil:
		m := r.member("features", "")
		m.inner = c.tokens.features
		members = append(members, m)
	case r.oneIn(4):
		members = append(members, r.member("features", pick(r, "null", "{}")))
	}
	switch r.IntN(8) {
	case 0:
	case 1:
		members = append(members, r.member("sampling_params", "null"))
	default:
		inner := c.sampling(r)
		if r.oneIn(10) {
			inner = append(inner, r.member("temperature", "1.0"), r.member("top_p", "0.5")) // twice
		}
		members = append(members, r.samplingParams(inner))
	}
	if r.oneIn(6) {
		members = append(members, r.member("content_parts", "null"))
	}
	if r.oneIn(6) {
		members = append(members, r.member("max_completion_tokens", pick(r, "9", "null")))
	}
	return members
}
