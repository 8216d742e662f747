package assembly

import (
	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/gateway"
)

// Types of steps, by which the profiles that they call are named too.
const (
	stepRender      = "render"
	stepConditional = "conditional-decode"
	stepEncode      = "encode"
	stepPrefill     = "prefill"
	stepDecode      = "decode"
	stepPair        = "prefill-decode"
)

// unready returns why hardly any request could be served now, or "".
func (c *Coordinator) unready() string {
	for _, u := range c.current.Load().needed {
		if u.BreakerState() == "open" {
			return "the circuit breaker of " + u.Name + " is open"
		}
	}
	return ""
}

// neededOf returns the upstreams that every request needs, whatever it is:
// decode's, and those of the steps before a conditional decode, which may make
// what comes after it needless. Render counts, though who sends token ids is
// spared it; encode does not, for most requests have no images.
func neededOf(p *phases.Pipeline, upstreams []*gateway.Upstream) (needed []*gateway.Upstream) {
	names := map[string]bool{stepDecode: true}
	for _, ph := range p.Phases() {
		name := ph.Name()
		if name == stepConditional {
			break
		}
		names[name] = name != stepEncode
		if name == stepPair {
			names[stepPrefill] = true
		}
	}
	for _, u := range upstreams {
		if names[u.Name] {
			needed = append(needed, u)
		}
	}
	return needed
}
