package phases

import "fmt"

// check refuses pipelines that could not serve.
func (p *Pipeline) check() error {
	at := map[string]int{}
	for i, ph := range p.phases {
		if _, twice := at[ph.Name()]; twice {
			return fmt.Errorf("pipeline: step %q is there twice", ph.Name())
		}
		at[ph.Name()] = i
	}
	if d, ok := at[stepDecode]; !ok || d != len(p.phases)-1 {
		return fmt.Errorf("pipeline: a %q step must be there, once, as the last step", stepDecode)
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
	e, hasEncode := at[stepEncode]
	f, hasPrefill := at[stepPrefill]
	if hasEncode && !hasRender {
		return fmt.Errorf("pipeline: %q needs a %q step, which finds the images in the prompt", stepEncode, stepRender)
	}
	if hasEncode && !hasPrefill {
		return fmt.Errorf("pipeline: %q needs a %q step, which uses the embeddings", stepEncode, stepPrefill)
	}
	if !hasPrefill {
		return nil
	}
	prefill, decode := p.phases[f].(*prefill), p.phases[at[stepDecode]].(*decode)
	if a, b := prefill.kv.Name(), decode.kv.Name(); a != b {
		return fmt.Errorf("pipeline: prefill has the kv connector %s and decode %s; they must be the same", a, b)
	}
	tokensIn := !prefill.openAI
	if hasEncode {
		encode := p.phases[e].(*encode)
		if a, b := encode.ec.Name(), prefill.ec.Name(); a != b {
			return fmt.Errorf("pipeline: encode has the ec connector %s and prefill %s; they must be the same", a, b)
		}
		tokensIn = tokensIn || !encode.openAI
	}
	if tokensIn && !hasRender {
		return fmt.Errorf("pipeline: use_openai_format = false needs a %q step, which finds the token ids", stepRender)
	}
	return nil
}

// connect tells phases what they have to know of others.
func (p *Pipeline) connect(at map[string]int) {
	_, probed := at[stepConditional]
	tensors := false
	for _, ph := range p.phases {
		switch ph := ph.(type) {
		case *conditional:
			ph.hold = p.phases[at[stepDecode]].(*decode).hold
		case *encode:
			ph.probed = probed
			tensors = tensors || !ph.openAI
		case *prefill:
			ph.probed = probed
			tensors = tensors || !ph.openAI
		}
	}
	for _, ph := range p.phases {
		if r, ok := ph.(*render); ok {
			r.tensors = tensors
		}
	}
}
