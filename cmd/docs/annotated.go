package main

import (
	"fmt"
	"regexp"
	"strings"
)

// section is a table of the annotated file, with what is said of it.
type section struct {
	// Title is its header: "[server.tls]", of a step its type, of the top of the
	// file "".
	Title string
	// Step is the type of the step whose params these are; "" is no step.
	Step string
	// Optional: the step stands there commented out.
	Optional bool
	// About are the paragraphs before the keys, Notes those behind them.
	About, Notes []string
	Keys         []key
}

// key is one key with its line of why.
type key struct {
	// Name is the full key; of a step's param the key below params.
	Name string
	// Default is its value, as TOML.
	Default string
	// Comment is what the file says of it.
	Comment string
	// Inherited: it stands there commented out, for its value comes from elsewhere.
	Inherited bool
	// Variable is the environment variable that overrides it; "" is none.
	Variable string
}

// stepsTable is the header of each step.
const stepsTable = "[[pipeline.steps]]"

var (
	tableLine = regexp.MustCompile(`^\[([a-z_.]+)\] *(?:# *(.*))?$`)
	typeLine  = regexp.MustCompile(`^type = "([a-z-]+)" *# *(.*)$`)
	keyLine   = regexp.MustCompile(`^(# )?([A-Za-z0-9_.]+) += (.*?) +# (.*)$`)
	poolLine  = regexp.MustCompile(`^\{ size = (\d+), +queue = (\d+) \}$`)
)

// parseAnnotated reads the annotated file by its lines: the TOML library would
// throw away what this is about.
func parseAnnotated(text string) ([]section, error) {
	p := annotated{sections: []section{{}}}
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if example, ok := strings.CutPrefix(line, "#   "); ok && isTOML(example) { // a step that is commented out
			line, p.optional = strings.TrimSpace(example), true
		} else if !strings.HasPrefix(line, "#") {
			p.optional = false
		}
		if err := p.line(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	p.flush(p.last())
	return p.sections, nil
}

func isTOML(line string) bool {
	return strings.HasPrefix(line, "[") || keyLine.MatchString(line) || typeLine.MatchString(line)
}

// annotated is a file being read.
type annotated struct {
	sections []section
	comment  []string // paragraphs that nobody has yet
	open     bool     // the last of them goes on
	ahead    bool     // a blank line stood before them: they are about what comes next
	parted   bool     // and another behind them
	blank    bool     // the line before was blank
	prefix   string   // of the keys of this table
	optional bool
}

func (p *annotated) last() *section { return &p.sections[len(p.sections)-1] }

// line takes the next line.
func (p *annotated) line(line string) error {
	switch {
	case line == "" && p.ahead:
		p.open, p.parted = false, true
	case line == "":
		p.flush(p.last())
	case line == "#":
		p.open = false
	case line == stepsTable:
		if p.parted { // what is said of all steps
			p.begin(section{Title: stepsTable})
		}
		p.begin(section{Optional: p.optional})
	case line == "[pipeline.steps.params]":
		// the section of the step goes on
	case typeLine.MatchString(line):
		m := typeLine.FindStringSubmatch(line)
		s := p.last()
		s.Title, s.Step = m[1], m[1]
		if m[2] != "here" { // which says it all only in the file
			s.About = append(s.About, m[2])
		}
	case tableLine.MatchString(line):
		m := tableLine.FindStringSubmatch(line)
		p.begin(section{Title: "[" + m[1] + "]"})
		p.prefix = m[1] + "."
		if m[2] != "" {
			p.last().About = append(p.last().About, m[2])
		}
	case keyLine.MatchString(line):
		p.key(keyLine.FindStringSubmatch(line))
	case strings.HasPrefix(line, "# "):
		p.say(line[2:])
	default:
		return fmt.Errorf("neither a key with a comment, nor a table, nor a comment: %s", line)
	}
	p.blank = line == ""
	return nil
}

// say adds a line of a comment.
func (p *annotated) say(text string) {
	if p.open {
		p.comment[len(p.comment)-1] += " " + text
		return
	}
	if len(p.comment) == 0 {
		p.ahead = p.blank
	}
	p.comment, p.open = append(p.comment, text), true
}

// flush gives comments to the section that they stand in.
func (p *annotated) flush(s *section) {
	if len(s.Keys) == 0 {
		s.About = append(s.About, p.comment...)
	} else {
		s.Notes = append(s.Notes, p.comment...)
	}
	p.comment, p.open, p.ahead, p.parted = nil, false, false, false
}

// begin begins a section, to which the comments before it belong.
func (p *annotated) begin(s section) {
	p.sections = append(p.sections, s)
	p.prefix = ""
	p.flush(p.last())
}

// key adds the key of a line.
func (p *annotated) key(m []string) {
	inherited, name, value, comment := m[1] != "", m[2], m[3], m[4]
	s := p.last()
	if len(p.comment) > 0 {
		p.flush(s)
	}
	if pool := poolLine.FindStringSubmatch(value); pool != nil {
		p.key([]string{"", "", name + ".size", pool[1], comment})
		p.key([]string{"", "", name + ".queue", pool[2], "tasks waiting there"})
		return
	}
	k := key{Name: p.prefix + name, Default: value, Comment: comment, Inherited: inherited}
	if !fileOnly(k.Name, value) {
		k.Variable = variable(s.Step, k.Name)
	}
	s.Keys = append(s.Keys, k)
}

// fileOnly reports whether a key can be set in the file only: tables of headers,
// and other tables whose keys are free, of which the file shows an example.
func fileOnly(name, value string) bool {
	return name == "headers" || strings.Contains(name, ".headers.") || strings.HasPrefix(value, "{") || strings.HasPrefix(value, "[{")
}

// variable names the environment variable of a key, of a step's param if step is
// not "".
func variable(step, name string) string {
	if step != "" {
		name = "steps." + step + "." + name
	}
	return "COORDINATOR_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(name))
}
