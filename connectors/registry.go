// Package connectors holds what the kinds of connectors, in kv and ec, have in
// common: they are found by name.
package connectors

import (
	"fmt"
	"slices"
	"strings"
)

// Registry holds the makers of one kind of connector by name. It is filled by
// init functions and only read afterwards.
type Registry[T any] struct {
	kind   string
	makers map[string]func() (T, error)
}

// NewRegistry makes a registry of a kind: "kv", "ec".
func NewRegistry[T any](kind string) *Registry[T] {
	return &Registry[T]{kind: kind, makers: map[string]func() (T, error){}}
}

// Register adds a connector under its name. It panics on a name that is taken.
func (r *Registry[T]) Register(name string, maker func() (T, error)) {
	if r.makers[name] != nil {
		panic(r.kind + " connector registered twice: " + name)
	}
	r.makers[name] = maker
}

// New makes the connector of that name. A maker may say why its connector
// cannot be used.
func (r *Registry[T]) New(name string) (T, error) {
	if maker := r.makers[name]; maker != nil {
		return maker()
	}
	var none T
	return none, fmt.Errorf("unknown %s connector %q (there are: %s)", r.kind, name, strings.Join(r.Names(), ", "))
}

// Names returns the registered names, sorted.
func (r *Registry[T]) Names() []string {
	names := make([]string, 0, len(r.makers))
	for n := range r.makers {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}
