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

// countFeatures returns how many images the features of a prompt speak of, in
// whichever of their lists names most.
func countFeatures(features []byte) (most int) {
	for _, list := range []string{"mm_hashes", "mm_placeholders", "kwargs_data"} {
		n := 0
		EachElement(Lookup(Lookup(features, list), "image"), func([]byte) bool { n++; return true })
		most = max(most, n)
	}
	return most
}

// prefillDrops are the members that only matter to what a prefill's one token
// is thrown away for, and some would make a worker refuse it.
var prefillDrops = []string{"min_tokens", "n", "best_of", "stop", "stop_token_ids", "logprobs", "top_logprobs",
	"logprob_token_ids", "stream_options"}

// capOutput begins a leg that asks for one token, which may not end the text
// (some connectors drop the KV then), and for no stream (transfer params are
// never in one).
func capOutput(b *Body) *Edit {
	e := b.Edit()
	e.Delete(prefillDrops...)
	e.SetRaw("max_tokens", "1")
	if e.Has("max_completion_tokens") {
		e.SetRaw("max_completion_tokens", "1")
	}
	e.SetRaw("ignore_eos", "true")
	e.SetRaw("stream", "false")
	return e
}

// finish adds the prompt's tokens, if they are known, and transfer params
// unless kv is nil.
func (p *Protocol) finish(e *Edit, t Tokens, kv Text) Payload {
	if t.Known() {
		p.setTokens(e, t)
	}
	if kv != nil {
		e.Set("kv_transfer_params", kv)
	}
	return e.Payload()
}

// PrefillLeg is the body of a prefill leg: the client's with its output
// capped, the prompt's tokens, and the connector's transfer params.
func (p *Protocol) PrefillLeg(b *Body, t Tokens, requestID string, kv Text) Payload {
	e := capOutput(b)
	if p.idInBody {
		e.SetRaw("request_id", `"`+requestID+`"`)
	}
	return p.finish(e, t, kv)
}

// DecodeLeg is the body of a decode leg: the client's, with the prompt's
// tokens, and with transfer params unless kv is nil.
func (p *Protocol) DecodeLeg(b *Body, t Tokens, kv Text) Payload {
	return p.finish(b.Edit(), t, kv)
}

// ReleaseLeg is the body of a decode leg whose answer nobody wants: it fetches
// a hand-off, so that the prefill worker lets go of the KV, and asks for as
// little as a prefill does.
func (p *Protocol) ReleaseLeg(b *Body, t Tokens, kv Text) Payload {
	return p.finish(capOutput(b), t, kv)
}

// Transfer returns the transfer params in a parsed answer: the last member
// kv_transfer_params if it is an object, else nil. Answer must be valid JSON.
func Transfer(answer []byte) []byte {
	if v := Lookup(answer, "kv_transfer_params"); IsObject(v) {
		return v
	}
	return nil
}
