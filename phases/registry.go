package phases

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/llm-coordinator/coordinator/transport/broker"
	"github.com/llm-coordinator/coordinator/transport/budget"
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
	Encode, Prefill, Decode *gateway.Upstream
	// NewUpstream makes an upstream of an origin that only one step calls.
	NewUpstream func(gateway.OriginSettings, gateway.UpstreamSettings) (*gateway.Upstream, error)
	// NewBroker opens the broker of an async-broker step.
	NewBroker func(broker.Settings) (Broker, error)
	// KVConnector and ECConnector are the names of the connectors of steps that
	// name none, UseOpenAIFormat is the format of those that say nothing.
	KVConnector, ECConnector string
	UseOpenAIFormat          bool
	// Engines knows the ids of engines, for connectors that need them.
	Engines Engines
	// LookupEnv finds environment variables; nil is os.LookupEnv.
	LookupEnv func(name string) (string, bool)
	// ForwardHeaders are the names, in canonical form, of headers that answers of
	// render, encode and prefill hand on to a request's later legs.
	ForwardHeaders []string
	// KVLease is how long a worker keeps a prefill's KV for its decode.
	KVLease time.Duration
	// Memory is charged for what requests hold; nil charges nothing.
	Memory *budget.Budget
	// OnClose registers what has to be closed when the pipeline is not used any
	// more.
	OnClose func(func())
	Metrics *Metrics
	// Log is for what concerns no one request; nil logs nothing.
	Log *slog.Logger
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
		if s.Type == stepAsync && i > 0 { // before it calls anybody
			return nil, fmt.Errorf("pipeline: %q must be the first step: it decides whether the others are run now", stepAsync)
		}
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

// Kept returns how many bytes the phases keep between requests at most, besides
// what requests hold.
func (p *Pipeline) Kept() (n int64) {
	for _, ph := range p.phases {
		if k, ok := ph.(interface{ Kept() int64 }); ok {
			n += k.Kept()
		}
	}
	return n
}

// Patience returns the longest that a task of a phase may take by a time-out of
// the phase's own.
func (p *Pipeline) Patience() (longest time.Duration) {
	for _, ph := range p.phases {
		if k, ok := ph.(interface{ Patience() time.Duration }); ok {
			longest = max(longest, k.Patience())
		}
	}
	return longest
}

// Phases returns the phases in order. The slice must not be changed.
func (p *Pipeline) Phases() []Phase { return p.phases }
