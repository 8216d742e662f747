package phases

import (
	"fmt"

	"github.com/llm-coordinator/coordinator/connectors/ec"
)

// check refuses pipelines that could not serve.
func (p *Pipeline) check() error {
	at := map[string]int{}
	for i, ph := range p.phases {
		if _, twice := at[ph.Name()]; twice {
			return fmt.Errorf("pipeline: step %q is there twice", ph.Name())
		}
		at[ph.Name()] = i
	}
	if err := p.checkLast(at); err != nil {
		return err
	}
	for _, o := range orders {
		first, ok := at[o.first]
		then, ok2 := at[o.then]
		if ok && ok2 && first > then {
			return fmt.Errorf("pipeline: %q must come before %q, %s", o.first, o.then, o.why)
		}
	}
	if err := p.checkNeeds(at); err != nil {
		return err
	}
	p.connect(at)
	return nil
}

// checkLast checks the step that answers.
func (p *Pipeline) checkLast(at map[string]int) error {
	last := stepDecode
	if _, ok := at[stepPrefillDecode]; ok {
		last = stepPrefillDecode
		for _, other := range []string{stepPrefill, stepDecode} {
			if _, ok := at[other]; ok {
				return fmt.Errorf("pipeline: %q does what %q and %q do: remove %q", last, stepPrefill, stepDecode, other)
			}
		}
	}
	if d, ok := at[last]; !ok || d != len(p.phases)-1 {
		return fmt.Errorf("pipeline: a %q step must be there, once, as the last step", last)
	}
	return nil
}

// orders are the steps of which one uses what the other finds out.
var orders = []struct{ first, then, why string }{
	{stepMedia, stepRender, "which reads the images"},
	{stepMedia, stepConditional, "which sends the images"},
	{stepMedia, stepEncode, "which sends the images"},
	{stepMedia, stepPrefill, "which sends the images"},
	{stepRender, stepConditional, "which sends the rendered prompt"},
	{stepRender, stepEncode, "which sends the rendered prompt"},
	{stepRender, stepPrefill, "which sends the rendered prompt"},
	{stepConditional, stepEncode, "which it saves if the prompt is cached"},
	{stepConditional, stepPrefill, "which it saves if the prompt is cached"},
	{stepEncode, stepPrefill, "which uses the embeddings"},
}

// checkNeeds checks what steps need of each other.
func (p *Pipeline) checkNeeds(at map[string]int) error {
	_, hasRender := at[stepRender]
	if err := p.checkDecode(at); err != nil {
		return err
	}
	e, hasEncode := at[stepEncode]
	f, hasPrefill := at[stepPrefill]
	_, hasPair := at[stepPrefillDecode]
	if hasEncode && !hasRender {
		return fmt.Errorf("pipeline: %q needs a %q step, which finds the images in the prompt", stepEncode, stepRender)
	}
	if hasEncode && !hasPrefill && !hasPair {
		return fmt.Errorf("pipeline: %q needs a %q step, which uses the embeddings", stepEncode, stepPrefill)
	}
	tokensIn, embeddings := false, ""
	switch {
	case hasPair:
		embeddings = p.phases[at[stepPrefillDecode]].(*prefillDecode).ec.Name()
	case hasPrefill:
		prefill, decode := p.phases[f].(*prefill), p.phases[at[stepDecode]].(*decode)
		if a, b := prefill.kv.Name(), decode.kv.Name(); a != b {
			return fmt.Errorf("pipeline: prefill has the kv connector %s and decode %s; they must be the same", a, b)
		}
		tokensIn, embeddings = !prefill.openAI, prefill.ec.Name()
		_, pushes := prefill.ec.(ec.Pusher)
		if prefill.strip && (prefill.openAI || !hasEncode || pushes || !prefill.ec.Described()) {
			return fmt.Errorf("pipeline: strip_pixels = true of %q needs use_openai_format = false, an %q step, and an ec connector that tells prefill where embeddings are (ec-nixl): otherwise no pixels can be left out",
				stepPrefill, stepEncode)
		}
	}
	if hasEncode {
		encode := p.phases[e].(*encode)
		if a := encode.ec.Name(); a != embeddings {
			return fmt.Errorf("pipeline: encode has the ec connector %s and prefill %s; they must be the same", a, embeddings)
		}
		tokensIn = tokensIn || !encode.openAI
	}
	if tokensIn && !hasRender {
		return fmt.Errorf("pipeline: use_openai_format = false needs a %q step, which finds the token ids", stepRender)
	}
	return p.checkNamed(at)
}

// bootstrapping is a phase that may have to know its prefill worker.
type bootstrapping interface{ bootstraps() *bootstrap }

// watched returns the header by which earlier answers are to name a prefill worker;
// "" is none.
func (p *Pipeline) watched() string {
	for _, ph := range p.phases {
		if b, ok := ph.(bootstrapping); ok && b.bootstraps().watches() != "" {
			return b.bootstraps().watches()
		}
	}
	return ""
}

// checkNamed checks that there is an earlier answer which can name the worker, of
// every request: encode has none for those without media.
func (p *Pipeline) checkNamed(at map[string]int) error {
	_, pair := at[stepPrefillDecode]
	e, encodes := at[stepEncode]
	_, probes := at[stepConditional]
	if encodes && !probes && p.phases[e].(*encode).bootstraps().watches() != "" {
		return fmt.Errorf("pipeline: bootstrap_from = %q of %q needs a %q step, whose answers have that header", fromHeader+p.watched(), stepEncode, stepConditional)
	}
	if name := p.watched(); pair && name != "" && !probes {
		return fmt.Errorf("pipeline: bootstrap_from = %q of %q needs a %q step, whose answers have that header (those of %q come only if there is media): add it, or use %q or %q",
			fromHeader+name, stepPrefillDecode, stepConditional, stepEncode, fromReserve, fromStatic+"<host>")
	}
	return nil
}

// checkDecode checks what decode is told to take over from other steps.
func (p *Pipeline) checkDecode(at map[string]int) error {
	decode, ok := p.phases[len(p.phases)-1].(*decode)
	if !ok {
		return nil
	}
	for _, need := range []struct {
		param, step, why string
		set              bool
	}{
		{"cached_tokens_from_prefill", stepPrefill, "whose answer says how many there were", decode.cached},
		{"prompt_token_ids", stepPrefill, "whose hand-off carries them", decode.ids},
		{"prompt_token_ids", stepRender, "which finds them", decode.ids},
	} {
		if _, ok := at[need.step]; need.set && !ok {
			return fmt.Errorf("pipeline: %s of %q needs a %q step, %s", need.param, stepDecode, need.step, need.why)
		}
	}
	return nil
}

// connect tells phases what they have to know of others.
func (p *Pipeline) connect(at map[string]int) {
	_, probed := at[stepConditional]
	names, tensors, whole := p.watched(), false, false
	if i, ok := at[stepPrefillDecode]; ok {
		last := p.phases[i].(*prefillDecode)
		last.probed, whole = probed, last.needs.Whole
	}
	cached := false
	if last, ok := p.phases[len(p.phases)-1].(*decode); ok {
		cached = last.cached
	}
	for _, ph := range p.phases {
		switch ph := ph.(type) {
		case *conditional:
			ph.hold, ph.whole, ph.names = p.last().hold, whole, names
		case *encode:
			ph.probed, ph.whole, ph.names = probed, whole, names
			p.last().pushes = ph.pusher != nil
			tensors = tensors || !ph.openAI
		case *prefill:
			ph.probed, ph.cached = probed, cached
			tensors = tensors || !ph.openAI
		}
	}
	for _, ph := range p.phases {
		if r, ok := ph.(*render); ok {
			r.tensors = tensors
		}
	}
}

// last returns the decode of the last step.
func (p *Pipeline) last() *decode {
	if pair, ok := p.phases[len(p.phases)-1].(*prefillDecode); ok {
		return pair.decode
	}
	return p.phases[len(p.phases)-1].(*decode)
}
