package wire

import (
	"errors"
	"fmt"
)

// Source is what is known of a request when its legs are shaped.
type Source struct {
	Body   *Body
	Media  *Media // of the request, or nil
	Tokens Tokens
	// Reduced, if set, are the tensors of a prefill by token ids, instead of those that
	// render or the client gave.
	Reduced *Reduced
}

// Source returns what legs are shaped from: the client's body, its prompt, and
// what media and render have found out (nil and zero if they did not run).
func (p *Protocol) Source(b *Body, given Prompt, inlined *Media, rendered Tokens) Source {
	s := Source{Body: b, Media: given.Media, Tokens: rendered}
	if inlined != nil {
		s.Media = inlined
	}
	if p.tokensIn {
		s.Tokens = given.Given
	}
	return s
}

// edit begins a leg with the client's body, its images inlined, and with uuids
// unless that is nil.
func (s *Source) edit(uuids []Span) *Edit {
	e := s.Body.Edit()
	s.Media.set(e, uuids)
	return e
}

// RenderLeg is the body of a render leg: the client's own, with images inlined.
func (p *Protocol) RenderLeg(s Source) Payload { return s.edit(nil).Payload() }

// ParseRender reads the answer of the render service to a request with these
// media, nil if none. It keeps nothing of the answer's memory, unless tensors are wanted
// and there are some. An error means that the answer makes no sense.
func (p *Protocol) ParseRender(answer []byte, media *Media, tensors bool) (t Tokens, err error) {
	object := answer
	if p.renderList {
		if err := Valid(answer); err != nil {
			return t, err
		}
		n := 0
		if !EachElement(answer, func(v []byte) bool { object = v; n++; return true }) || n != 1 {
			return t, fmt.Errorf("want a list of one prompt, got %d", n)
		}
	}
	var ids, found []byte
	count := 0
	err = scanObject(object, func(name, value []byte, n int) {
		switch {
		case NameIs(name, "token_ids"):
			ids, count = value, n
		case NameIs(name, "features"):
			found = value
		}
	})
	if err != nil {
		return t, err
	}
	if ok := count > 0; !ok {
		if count, ok = CountIDs(ids, 0); !ok || count == 0 {
			return t, errors.New("no token_ids in it")
		}
	}
	features, err := parseFeatures(found, count, false)
	if err != nil {
		return t, err
	}
	if err := features.arrange(media); err != nil {
		return t, err
	}
	t = Tokens{IDs: append([]byte(nil), ids...), Count: count, Features: features.clone(tensors)}
	t.Features.locate(t.IDs)
	return t, nil
}

// Format is the shape of encode and prefill legs.
type Format uint8

const (
	// OpenAI is the client's own protocol and path.
	OpenAI Format = iota
	// TokensIn is the generate protocol and its path.
	TokensIn
)

// Format returns the shape of a request's encode and prefill legs if its
// step's switch use_openai_format is as told. Completions stay completions,
// generate stays generate. It reports false if a chat request cannot have the
// shape that was asked for, because render gave no tensor for a medium: null
// would mean that the worker has it already.
func (p *Protocol) Format(openAI bool, s Source) (f Format, asked bool) {
	switch {
	case p.tokensIn:
		return TokensIn, true
	case !p.hasParts || openAI:
		return OpenAI, true
	case !s.Tokens.Features.Tensors():
		return OpenAI, false
	}
	return TokensIn, true
}

// LegPath returns the path of encode and prefill legs of a shape.
func (p *Protocol) LegPath(f Format) string {
	if f == TokensIn {
		return GeneratePath
	}
	return p.Path
}

// samplingDrops are the sampling parameters that only matter to what a
// prefill's one token is thrown away for; some would make a worker refuse it.
var samplingDrops = []string{"min_tokens", "n", "best_of", "stop", "stop_token_ids", "logprobs", "top_logprobs", "logprob_token_ids"}

// capSampling asks for one token, which may not end the text: some connectors
// drop the KV then.
func capSampling(e *Edit) {
	e.Delete(samplingDrops...)
	e.SetRaw("max_tokens", "1")
	e.SetRaw("ignore_eos", "true")
}

// capOutput asks for one token, and for no stream: transfer params are never in
// one.
func (p *Protocol) capOutput(e *Edit) {
	switch {
	case p.typed:
		capResponse(e)
	case !p.tokensIn:
		capSampling(e)
	}
	if e.Has("max_completion_tokens") {
		e.SetRaw("max_completion_tokens", "1")
	}
	e.SetRaw("stream", "false")
	e.Delete("stream_options")
}

// Transfers are what connectors tell the worker of a leg. The zero value is
// nothing.
type Transfers struct {
	// KV and EC are transfer params; nil ones are not sent.
	KV, EC Text
	// Fields are members of the body itself.
	Fields []Field
}

// Field is a member of a body: a name that needs no escapes, and its value.
type Field struct {
	Name  string
	Value Text
}

// HandOff reports whether there is anything of a KV connector.
func (t Transfers) HandOff() bool { return t.KV != nil || len(t.Fields) > 0 }

func (t Transfers) set(e *Edit) {
	t.setParams(e)
	for _, f := range t.Fields {
		e.Set(f.Name, f.Value)
	}
}

func (t Transfers) setParams(e *Edit) {
	if t.KV != nil {
		e.Set("kv_transfer_params", t.KV)
	}
	if t.EC != nil {
		e.Set("ec_transfer_params", t.EC)
	}
}

// sampling puts the sampling parameters of the generate protocol into a leg:
// capped, if so, and with transfer params, which older workers read only there.
func (t Transfers) sampling(e *Edit, capped bool) {
	if !capped && t.KV == nil && t.EC == nil {
		return
	}
	params := editOf(e.body.Get("sampling_params"))
	if capped {
		capSampling(params)
	}
	if t.KV != nil || t.EC != nil {
		extra := editOf(params.body.Get("extra_args"))
		t.setParams(extra)
		params.Set("extra_args", extra.Text())
	}
	e.Set("sampling_params", params.Text())
}

// editOf begins with an object, or with an empty one.
func editOf(object []byte) *Edit {
	if b, err := ParseBody(object); err == nil {
		return b.Edit()
	}
	return NewEdit()
}

// PrefillLeg is the body of a prefill leg: the client's with its output capped,
// the prompt's tokens, and the connectors' transfer params.
func (p *Protocol) PrefillLeg(s Source, f Format, requestID string, t Transfers) Payload {
	if f == TokensIn && !p.tokensIn {
		return p.prefillByTokens(s, requestID, t)
	}
	e := s.edit(nil)
	p.capOutput(e)
	if p.idInBody || p.tokensIn {
		e.SetRaw("request_id", `"`+requestID+`"`)
	}
	if p.tokensIn {
		tensors := nullTensors
		if s.Reduced.none() {
			tensors = withoutTensors
		}
		if features := tensors(s.Body.Get("features"), &s.Tokens.Features); features != nil {
			e.Set("features", features)
		}
	}
	return p.finish(e, s, t, true)
}

// ReserveLeg is the body by which the gateway is asked to choose the worker of a
// prefill leg: that one's, without tensors, which may be megabytes and of which an
// endpoint picker reads nothing.
func (p *Protocol) ReserveLeg(s Source, f Format, requestID string, t Transfers) Payload {
	s.Reduced = &Reduced{}
	return p.PrefillLeg(s, f, requestID, t)
}

// prefillByTokens is a chat client's prefill in the generate protocol: token
// ids and rendered tensors instead of messages.
func (p *Protocol) prefillByTokens(s Source, requestID string, t Transfers) Payload {
	e := NewEdit()
	e.SetRaw("request_id", `"`+requestID+`"`)
	e.copy(s.Body, "model")
	e.Set("token_ids", Text{s.Tokens.IDs})
	if f := &s.Tokens.Features; f.any() {
		t := Text{[]byte(`{"mm_hashes":`), f.Hashes, []byte(`,"mm_placeholders":`), f.Placeholders}
		if s.Reduced != nil {
			t = s.Reduced.appendTo(t)
		} else {
			t = append(t, []byte(`,"kwargs_data":`), f.Kwargs)
		}
		e.Set("features", append(t, closeBrace))
	}
	t.sampling(e, true)
	e.SetRaw("stream", "false")
	t.set(e)
	e.copy(s.Body, "cache_salt", "priority")
	return e.Payload()
}

// copy takes over members of a body that are there.
func (e *Edit) copy(from *Body, names ...string) {
	for _, name := range names {
		if v := from.Get(name); v != nil {
			e.Set(name, Text{v})
		}
	}
}

// finish adds the prompt's tokens, if they are known and not in the body, and
// transfer params.
func (p *Protocol) finish(e *Edit, s Source, t Transfers, capped bool) Payload {
	if p.tokensIn {
		t.sampling(e, capped)
	} else if s.Tokens.Known() {
		p.setTokens(e, s.Tokens)
	}
	t.set(e)
	return e.Payload()
}

// DecodeLeg is the body of a decode leg: the client's, with the prompt's tokens
// and transfer params. Media get their hash as uuid, so that a worker looks
// them up instead of hashing them, unless processor arguments of the client
// make it hash again.
func (p *Protocol) DecodeLeg(s Source, t Transfers) Payload {
	return p.finish(s.edit(s.uuids()), s, t, false)
}

// uuids are the media whose hashes a decode leg names as their uuids, or nil.
func (s *Source) uuids() []Span {
	if s.Media.Len() > 0 && !s.Media.unnamed && len(s.Tokens.Features.Items) == s.Media.Len() && emptyObject(s.Body.Get("mm_processor_kwargs")) {
		return s.Tokens.Features.Items
	}
	return nil
}

// emptyObject reports whether a value is absent, null or {}.
func emptyObject(value []byte) bool {
	empty := IsNull(value) || IsObject(value)
	EachMember(value, func(_, _ []byte) bool { empty = false; return false })
	return empty
}

// ProbeLeg is the body of a conditional decode: the client's with the prompt's
// tokens.
func (p *Protocol) ProbeLeg(s Source) Payload { return p.finish(s.edit(nil), s, Transfers{}, false) }

// ReleaseLeg is the body of a decode leg whose answer nobody wants: it fetches
// a hand-off, so that the prefill worker lets go of the KV, and asks for as
// little as a prefill does.
func (p *Protocol) ReleaseLeg(s Source, t Transfers) Payload {
	e := s.edit(s.uuids())
	p.capOutput(e)
	return p.finish(e, s, t, true)
}

// errFinished is why a worker's answer is a failure though its status is 200:
// some versions report a failure of their engine so, without tokens.
var errFinished = errors.New("its finish_reason is error")

// CheckAnswer checks the parsed answer of a worker: whether it is valid JSON, and
// no report of a failure.
func CheckAnswer(answer []byte) error {
	if err := Valid(answer); err != nil {
		return err
	}
	if finishedInError(answer) {
		return errFinished
	}
	return failedResponse(answer)
}

// Transfer returns the transfer params in a parsed answer: the last member
// kv_transfer_params if it is an object, else nil. Answer must be valid JSON.
func Transfer(answer []byte) []byte {
	if v := Lookup(answer, "kv_transfer_params"); IsObject(v) {
		return v
	}
	return nil
}
