// Package conf turns one TOML file and the environment into a [Config] that has been checked in full.
//
// Three sources are laid over each other, the later one winning: the defaults of [Default], the file, and
// variables named COORDINATOR_ and the key's path in capitals. What is left to be wrong after that is reported
// all at once, each fault with its place (file and line, or the variable) and its full key.
//
// The package knows nothing about what a pipeline step does. A step's settings stay in [Params] until whoever
// builds the step decodes them into a struct of its own; names of steps and of connectors are not checked here.
//
// The TOML library parses; it does not fill our structs. It would match keys in any case, let a misspelt key
// pass without a position, and mix up the keys of neighbouring [[pipeline.steps]]. So the file becomes a plain
// tree, a scanner finds the line of each key in it, and an assigner of our own goes through both side by side.
package conf

import (
	_ "embed"
	"fmt"
	"os"
	"reflect"
)

// Annotated is the default configuration file: every key with its default and one line of why.
//
//go:embed coordinator.toml
var Annotated []byte

// Load reads and parses the file at path. The environment is given as by [os.Environ].
func Load(path string, environ []string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return Parse(path, data, environ)
}

// Parse is [Load] for text at hand; name is what positions call it.
//
// The error joins one [*Error] for each fault found, those of the file in the order of its lines, then those of
// the environment. A file that is not TOML has one fault only, the first.
func Parse(name string, data []byte, environ []string) (*Config, error) {
	tree, at, err := parseTree(name, string(data))
	if err != nil {
		return nil, err
	}
	c := Default()
	c.origins = map[string]origin{}
	var found faults
	a := assigner{
		file:      name,
		env:       newEnvironment(environ),
		envPrefix: keyPrefix,
		origins:   c.origins,
		faults:    &found,
	}
	into := reflect.ValueOf(&c).Elem()
	a.table(into, tree, at, "")
	a.environment(into)

	if len(c.Pipeline.Steps) == 0 && !found.under("pipeline") {
		where := a.place(at.child("pipeline").child("steps"))
		found.add(where, "pipeline.steps", "at least a decode step is needed")
	}
	c.validate(&found)
	if err := found.err(); err != nil {
		return nil, err
	}
	return &c, nil
}

// join appends one name to a dotted key, quoting it where TOML would want quotes.
func join(key, name string) string {
	name = tableKey(name)
	if key == "" {
		return name
	}
	return key + "." + name
}
