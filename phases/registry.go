package phases

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/llm-coordinator/coordinator/transport/gateway"
)

// Params are the parameters of one step in the configuration.
type Params interface {
	// Decode fills a struct that holds the defaults. Keys that the struct does
	// not have, values of the wrong type and the like are errors that name the
	// step and the key.
	Decode(into any) error
	// Errorf makes an error about the value of one key.
	Errorf(key, format string, args ...any) error
}

// Deps is what phases are built from.
type Deps struct {
	Prefill, Decode *gateway.Upstream
	// NewUpstream makes an upstream of an origin that only one step calls.
	NewUpstream func(gateway.OriginSettings, gateway.UpstreamSettings) (*gateway.Upstream, error)
	// KVConnector is the name of the connector of steps that name none.
	KVConnector string
	Metrics     *Metrics
	Log         *slog.Logger
}

// Factory builds a phase from its parameters; an error aborts startup.
type Factory func(deps Deps, params Params) (Phase, error)

var factories = map[string]Factory{}

// Register adds a phase under the type of its step. It is called from init
// functions and panics on a type that is taken.
func Register(step string, f Factory) {
	if factories[step] != nil {
		panic("phase registered twice: " + step)
	}
	factories[step] = f
}

// Types returns the registered types, sorted.
func Types() []string {
	types := make([]string, 0, len(factories))
	for t := range factories {
		types = append(types, t)
	}
	slices.Sort(types)
	return types
}

// Step is one step of a pipeline to be built.
type Step struct {
	Type   string
	Params Params
}

// Pipeline is the ordered list of phases that requests go through. It is
// immutable: a request keeps the one that it began with.
type Pipeline struct{ phases []Phase }

// NewPipeline builds the phases of the steps, in their order, and checks that
// they make sense together.
func NewPipeline(steps []Step, deps Deps) (*Pipeline, error) {
	p := &Pipeline{}
	for i, s := range steps {
		f := factories[s.Type]
		if f == nil {
			return nil, fmt.Errorf("unknown step type: %s (step %d; there are: %v)", s.Type, i+1, Types())
		}
		ph, err := f(deps, s.Params)
		if err != nil {
			return nil, err
		}
		p.phases = append(p.phases, ph)
	}
	return p, p.check()
}

// PipelineOf makes a pipeline of phases that are there already.
func PipelineOf(phases ...Phase) *Pipeline { return &Pipeline{phases: phases} }

// Phases returns the phases in order. The slice must not be changed.
func (p *Pipeline) Phases() []Phase { return p.phases }

// check refuses pipelines that could not serve.
func (p *Pipeline) check() error {
	at := map[string]int{}
	for i, ph := range p.phases {
		if _, twice := at[ph.Name()]; twice {
			return fmt.Errorf("pipeline: step %q is there twice", ph.Name())
		}
		at[ph.Name()] = i
	}
	d, ok := at[stepDecode]
	if !ok || d != len(p.phases)-1 {
		return fmt.Errorf("pipeline: a %q step must be there, once, as the last step", stepDecode)
	}
	f, ok := at[stepPrefill]
	if !ok {
		return nil
	}
	if r, ok := at[stepRender]; ok && r > f {
		return fmt.Errorf("pipeline: %q must come before %q, which sends the rendered prompt", stepRender, stepPrefill)
	}
	prefill, decode := p.phases[f].(*prefill), p.phases[d].(*decode)
	if a, b := prefill.kv.Name(), decode.kv.Name(); a != b {
		return fmt.Errorf("pipeline: prefill has the kv connector %s and decode %s; they must be the same", a, b)
	}
	return nil
}
