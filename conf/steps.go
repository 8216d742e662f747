package conf

import (
	"fmt"
	"maps"
	"reflect"
)

// Step is one entry of [[pipeline.steps]].
type Step struct {
	// Type names the phase that runs. It is not empty; whether there is such a phase is not checked here.
	Type string
	// Line is where the step begins in the file.
	Line int
	// Params are the step's settings, to be decoded by its phase. [Parse] never leaves it nil.
	Params *Params
}

// stepKeys are the keys a step may have, for suggestions.
var stepKeys = []field{{name: "type"}, {name: "params"}}

// steps assigns the pipeline. It goes by hand through the tables rather than by tags: what is in params is not
// known yet.
func (a *assigner) steps(into reflect.Value, value any, at *node, key string) {
	tables, ok := tablesOf(value)
	if !ok {
		a.fault(a.place(at), key, "want a list of tables, each headed [[%s]], got %s", key, describe(value))
		return
	}
	steps := make([]Step, len(tables))
	for i, table := range tables {
		steps[i] = a.step(table, at.item(i), fmt.Sprintf("%s[%d]", key, i+1))
	}
	into.Set(reflect.ValueOf(steps))
}

// step reads one step; key is pipeline.steps[n], counted from 1 as an operator counts.
func (a *assigner) step(table map[string]any, at *node, key string) Step {
	step := Step{Line: at.line}
	params := &Params{file: a.file, key: key, at: at, env: a.env, origins: map[string]origin{}}
	for name, value := range table {
		here := a.place(at.child(name))
		switch name {
		case "type":
			if step.Type, _ = value.(string); step.Type == "" {
				a.fault(here, join(key, name), "want the name of a phase, got %s", describe(value))
			}
		case "params":
			params.at = at.child(name)
			var ok bool
			if params.tree, ok = value.(map[string]any); !ok {
				a.fault(here, join(key, name), "want a table, got %s", describe(value))
			}
		default:
			hint := suggest(name, stepKeys)
			if hint == "" {
				hint = " (a step's settings go under [pipeline.steps.params])"
			}
			a.fault(here, join(key, name), "unknown key%s", hint)
		}
	}
	if _, ok := table["type"]; !ok {
		a.fault(a.place(at), join(key, "type"), "missing: which phase is this step?")
	}
	params.line, params.stepType = step.Line, step.Type
	step.Params = params
	return step
}

// tablesOf returns the elements of an array if all are tables. The library gives arrays under [[headers]] and
// arrays written inline different types.
func tablesOf(value any) ([]map[string]any, bool) {
	switch v := value.(type) {
	case []map[string]any:
		return v, true
	case []any:
		tables := make([]map[string]any, len(v))
		for i, element := range v {
			var ok bool
			if tables[i], ok = element.(map[string]any); !ok {
				return nil, false
			}
		}
		return tables, true
	default:
		return nil, false
	}
}

// Params are the settings of one step. They are read while the process starts, by one goroutine.
//
// Nil Params are those of a step that has none.
type Params struct {
	file     string
	key      string // pipeline.steps[n]
	stepType string
	line     int // of the step
	tree     map[string]any
	at       *node // of the params table, or of the step if it has none
	env      environment

	origins map[string]origin
	changes []Change
	decoded reflect.Value // the struct last decoded into, as it was then
}

// Decode lays the step's params over the struct that into points at, which holds the defaults: first those of the
// file, then those of the environment (COORDINATOR_STEPS_, the step's type, and the key, all in capitals). A key
// that the struct does not have is an error, as is a value of the wrong type; all are reported together, and what
// into holds then is of no use.
//
// A phase without params decodes into an empty struct, so that keys are refused there too.
func (p *Params) Decode(into any) error {
	target := reflect.ValueOf(into)
	if target.Kind() != reflect.Pointer || target.IsNil() || target.Elem().Kind() != reflect.Struct {
		return p.Errorf("params", "cannot be decoded into %T, only into a pointer to a struct", into)
	}
	if p == nil {
		return nil
	}
	target = target.Elem()
	defaults := reflect.New(target.Type()).Elem()
	defaults.Set(target)

	clear(p.origins)
	p.changes, p.decoded = nil, reflect.Value{}
	var found faults
	a := assigner{
		file:      p.file,
		label:     p.label(),
		env:       p.env,
		envPrefix: variable(stepPrefix, p.stepType) + "_",
		origins:   p.origins,
		faults:    &found,
	}
	a.table(target, p.tree, p.at, "")
	a.environment(target)
	if err := found.err(); err != nil {
		return err
	}
	p.changes = changesOf(defaults, target, p.origins, p.key)
	p.decoded = reflect.New(target.Type()).Elem()
	p.decoded.Set(target)
	return nil
}

// With returns params in which a key that holds a string has this value, whatever the file and the environment say.
func (p *Params) With(key, value string) *Params {
	with := *p
	with.tree, with.env = maps.Clone(p.tree), maps.Clone(p.env)
	if with.tree == nil {
		with.tree = map[string]any{}
	}
	with.tree[key] = value
	delete(with.env, variable(variable(stepPrefix, p.stepType)+"_", key))
	with.origins, with.changes, with.decoded = map[string]origin{}, nil, reflect.Value{}
	return &with
}

// Errorf returns an error about the value of a key (dotted, as in the struct last decoded into) that says where
// the value came from: its line, its variable, or the line of the step if the value is the default.
func (p *Params) Errorf(key, format string, args ...any) error {
	e := &Error{Key: key, Message: fmt.Sprintf(format, args...)}
	if p == nil {
		e.Origin = "default"
		return e
	}
	at, ok := p.origins[key]
	if !ok {
		at = filePlace(p.file, p.line)
	}
	e.Origin, e.line, e.Key = at.text, at.line, p.label()+key
	return e
}

// label names the step in errors.
func (p *Params) label() string {
	return p.key + " (" + join("", p.stepType) + "): "
}
