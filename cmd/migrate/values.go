package migrate

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// kind is how a value is read and written. The llm-d coordinator reads values
// loosely, so a number may be quoted, and a text may not be.
type kind int

const (
	text kind = iota
	integer
	boolean
	// positive is a duration; what is no limit there, 0, is not possible here.
	positive
	// address is a URL, which may have a password in it by mistake.
	address
)

// toml returns a value as TOML, or says what is wrong with it.
func (k kind) toml(n *yaml.Node) (value, problem string) {
	if n.Kind != yaml.ScalarNode {
		return "", "is no single value"
	}
	v := strings.TrimSpace(n.Value)
	switch k {
	case integer:
		var i int64
		if n.Decode(&i) != nil {
			var err error
			if i, err = strconv.ParseInt(v, 10, 64); err != nil {
				return "", "is no whole number"
			}
		}
		return strconv.FormatInt(i, 10), ""
	case boolean:
		var b bool
		if n.Decode(&b) != nil {
			var err error
			if b, err = strconv.ParseBool(v); err != nil {
				return "", "is neither true nor false"
			}
		}
		return strconv.FormatBool(b), ""
	case positive:
		d, err := time.ParseDuration(v)
		switch {
		case err != nil:
			return "", `is no duration with a unit, such as "30s"`
		case d <= 0:
			return "", "must be more than 0 here"
		}
		return quoted(v), ""
	case address:
		return quoted(withoutUser(n.Value)), ""
	}
	return quoted(n.Value), ""
}

// quoted writes a string for TOML, whose escapes are those of JSON, and whose
// strings hold no DEL.
func quoted(s string) string {
	text, _ := json.Marshal(s) // a string: it cannot fail
	return strings.ReplaceAll(string(text), "\x7f", `\u007f`)
}

// pair is a key and its value in a mapping.
type pair struct{ key, value *yaml.Node }

// name is the key as it is compared: there the case does not matter.
func (p pair) name() string { return strings.ToLower(p.key.Value) }

// resolved returns what an alias stands for.
func resolved(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// pairsOf returns the pairs of a mapping, those that are merged into it after its
// own; none of what is no mapping.
func pairsOf(n *yaml.Node) (pairs []pair) {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	var merged []pair
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := resolved(n.Content[i]), resolved(n.Content[i+1])
		if k.Tag != "!!merge" {
			pairs = append(pairs, pair{k, v})
			continue
		}
		if v.Kind != yaml.SequenceNode {
			merged = append(merged, pairsOf(v)...)
			continue
		}
		for _, item := range v.Content {
			merged = append(merged, pairsOf(resolved(item))...)
		}
	}
	for _, p := range merged {
		if _, own := find(pairs, p.name()); !own {
			pairs = append(pairs, p)
		}
	}
	return pairs
}

func find(pairs []pair, name string) (pair, bool) {
	i := slices.IndexFunc(pairs, func(p pair) bool { return p.name() == name })
	if i < 0 {
		return pair{}, false
	}
	return pairs[i], true
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// yamlLines writes a pair, or a list's item whose key is itself, as YAML without
// what may be a credential, and without comments.
func yamlLines(p pair) []string {
	node := plain(p.value, p.key.Value, 0)
	if p.key != p.value {
		name := *p.key
		name.HeadComment, name.LineComment, name.FootComment = "", "", ""
		node = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: []*yaml.Node{&name, node}}
	}
	out, err := yaml.Marshal(node)
	if err != nil { // it was read from YAML
		return []string{"(it cannot be written)"}
	}
	lines := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
	for i := range lines {
		lines[i] = "  " + lines[i]
	}
	return lines
}

// deepest bounds what is kept of a value. Aliases are written out, and could be
// nested without end.
const deepest = 16

// maskedText stands for what may be a credential.
const maskedText = "(left out: it may be a secret)"

// secret is the name of a key whose value may be a credential.
var secret = regexp.MustCompile(`(?i)passw(or)?d|secret|credential|token$|api[-_]?key|authorization|cookie`)

// plain copies a value for [yamlLines].
func plain(n *yaml.Node, name string, depth int) *yaml.Node {
	n = resolved(n)
	if depth > deepest {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "…"}
	}
	if n.Kind == yaml.ScalarNode {
		if secret.MatchString(name) {
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: maskedText}
		}
		return &yaml.Node{Kind: n.Kind, Tag: n.Tag, Style: n.Style, Value: withoutUser(n.Value)}
	}
	out := &yaml.Node{Kind: n.Kind, Tag: n.Tag, Style: n.Style}
	if n.Kind == yaml.MappingNode {
		for _, p := range pairsOf(n) {
			of := p.key.Value
			if secret.MatchString(name) {
				of = name // what is in a secret is one
			}
			out.Content = append(out.Content, plain(p.key, "", depth+1), plain(p.value, of, depth+1))
		}
		return out
	}
	for _, item := range n.Content {
		out.Content = append(out.Content, plain(item, name, depth+1))
	}
	return out
}

// withoutUser takes user and password out of a URL.
func withoutUser(s string) string {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return s
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	at := strings.LastIndexByte(rest[:end], '@')
	if at < 0 {
		return s
	}
	return scheme + "://(left-out)" + rest[at:]
}
