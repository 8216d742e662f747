package explain

import (
	"fmt"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// notReached begins the reason of a step that was not asked.
const notReached = "not reached"

// phases says which steps run and why. That they run is what the coordinator did;
// the reasons are told from the request.
func (o *observed) phases() []Phase {
	all := []Phase{}
	over := "" // why no further step is run
	if o.answer.status/100 != 2 && len(o.record.Steps) == 0 {
		over = "the request is refused at the door"
	}
	for _, step := range o.config.Pipeline.Steps {
		p := Phase{Name: step.Type}
		ran, code := o.ran(step.Type)
		switch {
		case over != "":
			p.Why = notReached + ": " + over
		case !ran:
			p.Why = o.whySkipped(step.Type)
		default:
			p.Runs, p.Why = true, o.whyRun(step.Type)
			if step.Type == stepAsync && len(o.queue.submitted) > 0 {
				over = "the request waits for a broker to send it"
			}
			if code != "" {
				p.Why += "; the request is refused here"
				over = "the request is refused in " + step.Type
			}
		}
		all = append(all, p)
	}
	return all
}

// ran reports whether a step had work, and the code of the error that it ended
// with.
func (o *observed) ran(kind string) (ran bool, code string) {
	for _, s := range o.record.Steps {
		if s.Phase == kind {
			ran, code = true, s.Code // of the last run
		}
	}
	return ran, code
}

// whyRun says what a step that runs is for.
func (o *observed) whyRun(kind string) string {
	switch kind {
	case stepAsync:
		return o.queue.why(o.async.ModeHeader)
	case stepMedia:
		why := fmt.Sprintf("%s to check: %d inlined, %d by URL", o.mediaOf(o.prompt.Media.Len(), ""), o.prompt.Media.Len()-o.byURL, o.byURL)
		if o.byURL > 0 {
			why += fmt.Sprintf(" (%s to download, here replaced by placeholders)", plural(len(o.pictures), "distinct one"))
		}
		return why
	case stepRender:
		return "the prompt is not token ids yet"
	case stepConditional:
		return "a decode worker may have the prompt in its cache (assumed: it has not, and answers 412)"
	case stepEncode:
		return o.mediaOf(o.count(stepEncode), "distinct ") + ", one leg for each"
	case stepPrefill:
		return "a prefill worker computes the KV of the prompt; a place in the pool decode is taken first"
	case stepPair:
		return "a prefill worker computes the KV of the prompt while a decode worker waits for it, and writes the answer; a place in each of their pools is taken first"
	case stepDecode:
		if o.localKV != "" {
			return "a decode worker serves the request alone: it computes the prompt itself"
		}
		if o.count(stepPrefill) == 0 {
			return "there was no prefill: a decode worker computes the prompt itself"
		}
		return "a decode worker writes the answer, with the KV that prefill has computed"
	}
	return "it has work for this request"
}

// count returns how many legs a phase has sent.
func (o *observed) count(name string) (n int) {
	for i := range o.legs {
		if o.legName(&o.legs[i]) == name {
			n++
		}
	}
	return n
}

// whySkipped says why a step has no work.
func (o *observed) whySkipped(kind string) string {
	local := "the request cannot use the KV of another worker (" + bypass(o.localKV) + "): decode alone serves it"
	switch {
	case kind == stepAsync:
		if o.Request.Header.Get(o.async.ModeHeader) != "" {
			return o.queue.why(o.async.ModeHeader)
		}
		return "the request does not say that it may wait"
	case o.localKV != "" && !o.pair && (kind == stepConditional || kind == stepEncode || kind == stepPrefill):
		return local
	case kind == stepRender && o.prompt.Given.Known():
		return "the client has sent the prompt as token ids"
	case kind == stepMedia || kind == stepEncode:
		switch o.protocol {
		case wire.Completions:
			return "completions have no media"
		case wire.Generate:
			return "media of the generate API come rendered, and prefill encodes them"
		}
		return "the request has no media"
	}
	return "it has no work for this request"
}

// bypass says what in the request a code of wire.Protocol.LocalKV stands for.
func bypass(code string) string {
	switch code {
	case "n", "best_of":
		return code + " > 1"
	case "use_beam_search", "prompt_logprobs":
		return code + " is set"
	case "echo_logprobs":
		return "echo with logprobs"
	case "echo_max_tokens":
		return "echo with max_tokens 0"
	case "truncate_prompt_tokens":
		return "truncate_prompt_tokens is negative"
	case "truncation":
		return "truncation is not disabled"
	}
	return code
}

// mediaOf counts media of the request: as images if it has no others.
func (o *observed) mediaOf(n int, what string) string {
	switch m := o.prompt.Media; {
	case m.Count(wire.Image) == m.Len():
		return plural(n, what+"image")
	case n == 1:
		return "1 " + what + "medium"
	}
	return fmt.Sprintf("%d %smedia", n, what)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// assumed says what the report takes for granted.
func (o *observed) assumed(r *Report) []string {
	all := []string{"nothing is called: each upstream is up, its breaker closed, its pool's queue empty, and takes its leg (a worker may refuse what the coordinator passes on)"}
	if o.byURL > 0 {
		all = append(all, o.mediaOf(o.byURL, "")+" by URL can be fetched, and may be by the rules of the step: neither was tried, and a placeholder stands in for each")
	}
	if ran, _ := o.ran(stepRender); ran {
		all = append(all, fmt.Sprintf("the limits of render are judged by the fewest tokens that such a prompt can have: %d", 1+o.prompt.Media.Len()))
	}
	if o.count(stepRender) > 0 && o.protocol == wire.Responses {
		all = append(all, "the render service has "+wire.Responses.RenderPath+"; if it has not, decode alone serves the first such request, and others are passed through")
	}
	if o.count(stepConditional) > 0 {
		all = append(all, "no decode worker has the prompt cached; if one has, it answers, and no leg follows")
	}
	if o.Request.Header.Get(wire.HeaderRequestID) == "" && len(r.Legs) > 0 {
		all = append(all, "the request id is made up: the client sends none")
	}
	if o.protocol != nil && len(o.real.Pipeline.ForwardResponseHeaders) > 0 && len(r.Legs) > 0 {
		all = append(all, "x-llm-d-revision-decision-id is made up, as it is for each request; no answer has a header of pipeline.forward_response_headers, which later legs would carry")
	}
	return all
}
