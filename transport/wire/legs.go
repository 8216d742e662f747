package wire

import (
	"bytes"
	"errors"
	"fmt"
)

// RenderLeg is the body of a render leg: the client's own.
func (p *Protocol) RenderLeg(b *Body) Payload { return b.Edit().Payload() }

// ParseRender reads the answer of the render service. It keeps nothing of the
// answer's memory. An error means that the answer makes no sense.
func (p *Protocol) ParseRender(answer []byte) (Tokens, error) {
	if err := Valid(answer); err != nil {
		return Tokens{}, err
	}
	object := trim(answer)
	if p.renderList {
		n := 0
		if !EachElement(answer, func(v []byte) bool { object = v; n++; return true }) || n != 1 {
			return Tokens{}, fmt.Errorf("want a list of one prompt, got %d", n)
		}
	}
	if !IsObject(object) {
		return Tokens{}, errNotObject
	}
	ids := Lookup(object, "token_ids")
	count, ok := CountIDs(ids, 0)
	if !ok || count == 0 {
		return Tokens{}, errors.New("no token_ids in it")
	}
	if n := countFeatures(Lookup(object, "features")); n > 0 {
		return Tokens{}, fmt.Errorf("it has %d images, the request has none", n)
	}
	return Tokens{IDs: bytes.Clone(ids), Count: count}, nil
}

// countFeatures returns how many images the features of a prompt speak of.
func countFeatures(features []byte) (n int) {
	EachElement(Lookup(Lookup(features, "mm_hashes"), "image"), func([]byte) bool { n++; return true })
	return n
}

// prefillDrops are the members that only matter to what a prefill's one token
// is thrown away for, and some would make a worker refuse it.
var prefillDrops = []string{"min_tokens", "n", "best_of", "stop", "stop_token_ids", "logprobs", "top_logprobs",
	"logprob_token_ids", "stream_options"}

// PrefillLeg is the body of a prefill leg: the client's, asking for one token,
// which may not end the text (some connectors drop the KV then), not streamed
// (transfer params are never in a stream), with the prompt's tokens and the
// connector's transfer params.
func (p *Protocol) PrefillLeg(b *Body, t Tokens, requestID string, kv Text) Payload {
	e := b.Edit()
	e.Delete(prefillDrops...)
	e.SetRaw("max_tokens", "1")
	if e.Has("max_completion_tokens") {
		e.SetRaw("max_completion_tokens", "1")
	}
	e.SetRaw("ignore_eos", "true")
	e.SetRaw("stream", "false")
	if p.idInBody {
		e.SetRaw("request_id", `"`+requestID+`"`)
	}
	if t.Known() {
		p.setTokens(e, t)
	}
	e.Set("kv_transfer_params", kv)
	return e.Payload()
}

// DecodeLeg is the body of a decode leg: the client's, with the prompt's
// tokens, and with transfer params unless kv is nil.
func (p *Protocol) DecodeLeg(b *Body, t Tokens, kv Text) Payload {
	e := b.Edit()
	if t.Known() {
		p.setTokens(e, t)
	}
	if kv != nil {
		e.Set("kv_transfer_params", kv)
	}
	return e.Payload()
}

// ReleaseLeg is the body of a decode leg whose answer nobody wants: it fetches
// a hand-off, so that the prefill worker lets go of the KV, and asks for as
// little as a prefill does.
func (p *Protocol) ReleaseLeg(b *Body, t Tokens, requestID string, kv Text) Payload {
	return p.PrefillLeg(b, t, requestID, kv)
}

// Transfer returns the transfer params in a parsed answer: the last member
// kv_transfer_params if it is an object, else nil. Answer must be valid JSON.
func Transfer(answer []byte) []byte {
	if v := Lookup(answer, "kv_transfer_params"); IsObject(v) {
		return v
	}
	return nil
}
