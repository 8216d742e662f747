package migrate

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// Kinds of values that have parts. They are written on one line.
const (
	// texts is a list of texts.
	texts kind = iota + 100
	// record is a table with the keys of key.of.
	record
	// records is a list of such.
	records
	// named is a table of values of the kind of key.of[0], with any names.
	named
)

// toml returns a key's value as TOML, or says what is wrong with it.
func (k key) toml(n *yaml.Node) (value, problem string) {
	switch k.kind {
	case texts:
		return list(n, key{kind: text})
	case records:
		return list(n, key{kind: record, of: k.of})
	case record:
		return inlineTable(n, func(name string) (key, bool) {
			for _, part := range k.of {
				if part.name == name {
					return part, true
				}
			}
			return key{}, false
		}, pair.name)
	case named:
		return inlineTable(n, func(string) (key, bool) { return k.of[0], true }, func(p pair) string { return p.key.Value })
	}
	return k.kind.toml(n)
}

func list(n *yaml.Node, of key) (value, problem string) {
	if n.Kind != yaml.SequenceNode {
		return "", "is no list"
	}
	var parts []string
	for _, item := range n.Content {
		part, problem := of.toml(resolved(item))
		if problem != "" {
			return "", "has an element that " + problem
		}
		parts = append(parts, part)
	}
	return "[" + strings.Join(parts, ", ") + "]", ""
}

// inlineTable writes a mapping. keyOf says what is under a name, or that nothing may be.
func inlineTable(n *yaml.Node, keyOf func(name string) (key, bool), nameOf func(pair) string) (value, problem string) {
	if n.Kind != yaml.MappingNode {
		return "", "is no table"
	}
	var parts []string
	for _, p := range pairsOf(n) {
		name := nameOf(p)
		k, known := keyOf(name)
		if !known {
			return "", "has a key " + quoted(name) + " that is not known"
		}
		if isNull(p.value) {
			continue
		}
		part, problem := k.toml(p.value)
		if problem != "" {
			return "", quoted(name) + " " + problem
		}
		parts = append(parts, bareOrQuoted(name)+" = "+part)
	}
	if len(parts) == 0 {
		return "{}", ""
	}
	return "{ " + strings.Join(parts, ", ") + " }", ""
}

// bareOrQuoted writes a key of TOML, in quotes if it needs them.
func bareOrQuoted(name string) string {
	if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
		return quoted(name)
	}
	return name
}
