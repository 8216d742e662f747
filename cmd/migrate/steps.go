package migrate

import (
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"
)

// stepPath begins the path of a step's parameters; the step's type follows.
const stepPath = "pipeline.steps."

// steps writes the pipeline's steps.
func (c *converter) steps(p pair) {
	if isNull(p.value) {
		return
	}
	if p.value.Kind != yaml.SequenceNode {
		c.keep("pipeline.steps", p, "is no list")
		return
	}
	for _, item := range p.value.Content {
		c.step(resolved(item))
	}
}

// Of a pipeline with this connector the steps prefill and decode are one.
const (
	together     = "kv-sglang"
	stepTogether = "prefill-decode"
)

func (c *converter) step(step *yaml.Node) {
	c.line("")
	whole := pair{key: step, value: step}
	kind, _ := find(pairsOf(step), "type")
	name := ""
	if kind.value != nil && kind.value.Kind == yaml.ScalarNode {
		name = kind.value.Value
	}
	if c.together && name == "decode" {
		name = stepTogether
	}
	_, known := stepKeys[name]
	switch {
	case c.together && name == "prefill":
		c.comment("The step prefill is in the step " + stepTogether + " below.")
		return
	case name == "":
		c.keepStep(whole, "a step", "it has no type")
		return
	case !known:
		c.keepStep(whole, name, "a step of this type is not known; if it is one of your own write it as a phase (docs/adding-a-phase.md)")
		return
	}
	c.comment(stepNotes[name]...)
	c.line("[[pipeline.steps]]")
	c.line("type = " + quoted(name))
	var params []pair
	for _, p := range pairsOf(step) {
		switch {
		case p.name() == "type":
		case p.name() != "params":
			c.keep(stepPath+name+": "+p.name(), p, "is not known")
		case isNull(p.value):
		case p.value.Kind != yaml.MappingNode:
			c.keep(stepPath+name+": params", p, "is no table")
		default:
			params = pairsOf(p.value)
		}
	}
	c.line("[pipeline.steps.params]")
	c.table(stepPath+name, params, keysOf(name))
}

// keepStep keeps a whole step as a comment.
func (c *converter) keepStep(p pair, name, why string) {
	c.warn(p.key, "pipeline.steps", "%s is left out: %s; kept as a comment", name, why)
	c.comment(fmt.Sprintf("The step %s is left out: %s. It was:", name, why))
	c.comment(yamlLines(p)...)
}

// decodeDefault is how long a decode may take here up to its headers.
const decodeDefault = 10 * time.Minute

// decodeTimeout gives decode the gateway's time-out if it would have less by
// default: there one holds for all legs.
func (c *converter) decodeTimeout(gateway *yaml.Node) {
	p, ok := find(pairsOf(gateway), "timeout")
	if !ok || p.value.Kind != yaml.ScalarNode {
		return
	}
	if d, err := time.ParseDuration(p.value.Value); err == nil && d > decodeDefault {
		c.line("\n[gateway.profiles.decode]")
		c.comment("the default is 10m here, which is less than the time-out that held for all legs")
		c.line("timeout = " + quoted(p.value.Value))
	}
}
