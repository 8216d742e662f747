package wire

// Protocol is what differs between the inbound APIs: where they are, how their
// prompt is found, and how their legs are shaped. One value per API; phases ask
// it and never look at a path.
//
// A Protocol is immutable and may be used by many goroutines.
type Protocol struct {
	// Name is how the protocol is called in logs and metrics.
	Name string
	// Path is the client's route, and the path of its prefill and decode legs.
	Path string
	// RenderPath is the path of the render leg.
	RenderPath string
	// renderList: the render service answers with a list of one object.
	renderList bool
	// prompt finds the prompt in a client's body.
	prompt func(*Body) (Prompt, error)
	// setTokens tells a leg the prompt's token ids.
	setTokens func(*Edit, Tokens)
	// idInBody: the prefill leg carries the request id in its body too.
	idInBody bool
	// hasParts: the prompt is messages, whose content may have media.
	hasParts bool
	// content reports whether an event of a stream is something that a client
	// waits for; nil: each is.
	content func(event []byte) bool
	// tokensIn: the prompt is token ids, and parameters are in sampling_params.
	tokensIn bool
	// typed: it is the Responses API, whose events say by a type what they are, and
	// whose output is limited by a member of another name.
	typed bool
	// batches: a client may send several prompts at once.
	batches bool
}

// protocols are the APIs that run through the pipeline.
var protocols = []*Protocol{Chat, Completions, Generate, Responses}

// Protocols returns the APIs that run through the pipeline.
func Protocols() []*Protocol { return protocols }

// MayWait reports whether a request may wait in the queue of a broker: those of
// the Responses API may not, nor what is passed through.
func (p *Protocol) MayWait() bool { return p.Path != "" && !p.typed }

// Typed reports whether events of the protocol's streams say by a type what they
// are.
func (p *Protocol) Typed() bool { return p.typed }

// Prompt is what a client's body says about its prompt.
type Prompt struct {
	// Given holds the token ids if the client sent the prompt as such: then
	// nothing has to be rendered.
	Given Tokens
	// Media are those of the request, or nil.
	Media *Media
}

// Prompt finds and checks the prompt in a client's body. Errors are faults of
// kind BadRequest.
func (p *Protocol) Prompt(b *Body) (Prompt, error) { return p.prompt(b) }

// Tokens are the ids of a prompt as JSON text, which is spliced into legs as
// it came. The zero value means that they are not known.
type Tokens struct {
	IDs      []byte // a JSON array of non-negative integers
	Count    int
	Features Features
}

// Known reports whether there are token ids.
func (t Tokens) Known() bool { return t.IDs != nil }

// Passthrough is for routes that do not run through the pipeline: one call to a
// decode worker, with what the client sent.
var Passthrough = &Protocol{Name: "passthrough"}

// stripped are the members that a client may not send to a worker: they point
// workers at hosts, ranks or rooms of the sender's choice, or claim a prompt
// that the endpoint picker would believe (the contract's section 3). The last
// one is only taken out on the pipeline's routes.
var stripped = []string{"kv_transfer_params", "ec_transfer_params", "bootstrap_host", "bootstrap_port", "bootstrap_room",
	"routed_dp_rank", "data_parallel_rank", "disagg_prefill_dp_rank", "tokens"}

// Sanitize returns the body without what a client may not send.
func Sanitize(b *Body) *Body { return sanitize(b, stripped) }

// SanitizePassthrough is Sanitize for routes that do not run through the
// pipeline, some of which have a member tokens of their own.
func SanitizePassthrough(b *Body) *Body { return sanitize(b, stripped[:len(stripped)-1]) }

func sanitize(b *Body, names []string) *Body {
	e := b.Edit()
	e.Delete(names...)
	e.replace("vllm_xargs", dropTransferParams)
	e.replace("sampling_params", func(params []byte) []byte {
		return mapMembers(params, func(name, value []byte) ([]byte, bool) {
			if NameIs(name, "extra_args") {
				return dropTransferParams(value), true
			}
			return value, true
		})
	})
	return &e.body
}

// replace passes the value of a member, if it is there, through f.
func (e *Edit) replace(name string, f func([]byte) []byte) {
	if old := e.body.Get(name); old != nil {
		if value := f(old); len(value) != len(old) {
			e.Set(name, Text{value})
		}
	}
}

// dropTransferParams takes the members that carry transfer params out of an
// object; other values are returned as they are.
func dropTransferParams(object []byte) []byte {
	return mapMembers(object, func(name, value []byte) ([]byte, bool) {
		return value, !NameIs(name, "kv_transfer_params") && !NameIs(name, "ec_transfer_params")
	})
}

// mapMembers passes the members of an object through f, which returns the
// value to keep. An object whose members stay as they are, and what is no
// object, is returned itself.
func mapMembers(object []byte, f func(name, value []byte) ([]byte, bool)) []byte {
	changed := false
	EachMember(object, func(name, value []byte) bool {
		kept, ok := f(name, value)
		changed = !ok || len(kept) != len(value)
		return !changed
	})
	if !changed {
		return object
	}
	out := []byte("{")
	EachMember(object, func(name, value []byte) bool {
		if kept, ok := f(name, value); ok {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(append(append(out, name...), ':'), kept...)
		}
		return true
	})
	return append(out, '}')
}
