// Package migrate writes the configuration of the llm-d coordinator, which is YAML,
// as ours, which is TOML. It knows the keys that the architecture of that
// coordinator documents; what it does not know it keeps as a comment.
package migrate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// Result is a configuration that was written anew.
type Result struct {
	// TOML is ours, with a comment on each thing that differs.
	TOML []byte
	// Warnings name what was not taken over, with its line.
	Warnings []string
}

// Convert writes a configuration of the llm-d coordinator as ours. The name of its
// file is for comments and warnings. An error means that the text is no YAML, or no
// configuration; whether the result is valid is not checked.
func Convert(name string, text []byte) (*Result, error) {
	root, more, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	c := &converter{name: name}
	if more {
		c.warnings = append(c.warnings, name+": only the first document in it is read")
	}
	c.comment(fmt.Sprintf("Written by `coordinator import` from %s, the configuration of an llm-d coordinator.", filepath.Base(name)))
	c.comment(general...)
	c.top(root)
	c.line("")
	c.comment(differences...)
	return &Result{TOML: c.out.Bytes(), Warnings: c.warnings}, nil
}

// parse reads the first document, and reports whether there are more. The nodes are
// as they were written: aliases point to what they stand for.
func parse(text []byte) (root *yaml.Node, more bool, err error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	var document yaml.Node
	switch err := d.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, false, errors.New("there is nothing in it")
	case err != nil:
		return nil, false, err
	}
	// Once into plain values: that finds keys that are there twice, and aliases
	// that never end.
	var plain map[string]any
	if err := document.Decode(&plain); err != nil {
		return nil, false, fmt.Errorf("no configuration: %w", err)
	}
	var next yaml.Node
	more = d.Decode(&next) == nil
	return resolved(document.Content[0]), more, nil
}

// general is said once, at the beginning.
var general = []string{
	"Comments say what differs here. Keys without one mean the same; what is left out has the same default,",
	"or a comment. Environment variables (COORDINATOR_ and the key's path) go on working for keys that are kept;",
	"one of a step's parameter is COORDINATOR_STEPS_, the step's type, and the parameter.",
}

// differences are what no key of theirs corresponds to.
var differences = []string{
	"Without a key there, and worth a look (conf/coordinator.toml says more of each):",
	"  server.max_request_body_size  64 MB here; there the limit is built in",
	"  server.passthrough_routes     /v1/models and others go to decode workers; [] serves the pipeline's routes only",
	"  admin.listen_addr             metrics and status have a listener of their own, 127.0.0.1:9090",
	"  gateway.profiles.decode       decode has a time-out of its own, 10m: an answer that is not streamed is a long wait",
	"  gateway.retry, .breaker       legs that failed are sent again, within a budget; profiles that keep failing are refused",
	"  actors.pools                  how much runs and waits at a time; what is beyond gets 429",
	"  decode: hold_first_event      a stream is held back up to its first text, so that a failed worker can be made good for",
}

// converter writes one configuration.
type converter struct {
	name     string
	out      bytes.Buffer
	warnings []string
	together bool // the workers answer together only
}

func (c *converter) line(text string) { c.out.WriteString(text + "\n") }

// comment writes lines of comments. What is in them of the YAML, names of keys
// above all, must not begin a line of its own.
func (c *converter) comment(lines ...string) {
	for _, l := range lines {
		c.line(strings.TrimRight("# "+oneLine(l), " "))
	}
}

// oneLine replaces control characters, which TOML does not take in comments.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, s)
}

func (c *converter) warn(at *yaml.Node, path, format string, args ...any) {
	c.warnings = append(c.warnings, oneLine(fmt.Sprintf("%s:%d: %s: %s", c.name, at.Line, path, fmt.Sprintf(format, args...))))
}

// top writes all.
func (c *converter) top(root *yaml.Node) {
	pairs := pairsOf(root)
	sections := map[string]*yaml.Node{}
	var rest []pair
	for _, p := range pairs {
		switch name := p.name(); {
		case name != "server" && name != "gateway" && name != "pipeline":
			rest = append(rest, p)
		case isNull(p.value):
		case p.value.Kind != yaml.MappingNode:
			c.keep(name, p, "is no table")
		default:
			sections[name] = p.value
		}
	}
	c.table("", rest, topKeys)
	for _, s := range []struct {
		name string
		keys []key
	}{{"server", serverKeys}, {"gateway", gatewayKeys}} {
		c.line("\n[" + s.name + "]")
		c.table(s.name, pairsOf(sections[s.name]), s.keys)
	}
	c.decodeTimeout(sections["gateway"])
	c.line("\n[pipeline]")
	var steps *pair
	var others []pair
	for _, p := range pairsOf(sections["pipeline"]) {
		if p.name() == "steps" {
			steps = &p
		} else {
			others = append(others, p)
		}
	}
	c.table("pipeline", others, pipelineKeys)
	if kv, ok := find(others, "kv_connector"); ok {
		c.together = kv.value.Value == together
	}
	if steps != nil {
		c.steps(*steps)
	}
}

// table writes the keys of a table: those that are known in our order, then the
// others as comments.
func (c *converter) table(path string, pairs []pair, known []key) {
	used := map[string]bool{}
	for _, k := range known {
		p, ok := find(pairs, k.name)
		if used[k.name] = ok; !ok || isNull(p.value) {
			c.comment(k.absent...)
			continue
		}
		c.value(path, k, p)
	}
	for _, p := range pairs {
		if !used[p.name()] {
			c.unknown(path, p)
		}
	}
}

// value writes a key that is known.
func (c *converter) value(path string, k key, p pair) {
	full := joined(path, k.name)
	if k.dropped != "" {
		c.comment(k.name + " is left out: " + k.dropped)
		return
	}
	text, problem := k.toml(p.value)
	if problem != "" {
		c.keep(full, p, problem+": the default is used")
		return
	}
	c.comment(k.note...)
	c.line(k.name + " = " + text)
}

// unknown keeps as a comment what is not known.
func (c *converter) unknown(path string, p pair) {
	why := "is not known"
	if ours(path, p.name()) {
		why = "is not known there, but there is a key of that name here: see that it means the same before you set it"
	}
	c.keep(joined(path, p.name()), p, why)
}

// keep keeps a key as a comment, and warns.
func (c *converter) keep(full string, p pair, why string) {
	c.warn(p.key, full, "%s; kept as a comment", why)
	c.comment(full + " " + why + ". It was:")
	c.comment(yamlLines(p)...)
}

func joined(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
