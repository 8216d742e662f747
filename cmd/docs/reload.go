package main

import (
	"errors"
	"regexp"
	"strings"
)

// What a reload does with a key.
const (
	inForce  = "put in force"
	half     = "bodies: put in force; headers: restart"
	restarts = "restart"
)

// reloadRules are the rows of the table in the handbook that says what a reload
// does: of a key or, if that ends with ".*", of a table. What is in none needs a
// restart.
type reloadRules map[string]string

var codeSpan = regexp.MustCompile("`([^`]+)`")

// parseReloadRules reads the table of the section Reload.
func parseReloadRules(page string) (reloadRules, error) {
	_, text, _ := strings.Cut(page, "\n## Reload\n")
	text, _, _ = strings.Cut(text, "\n## ")
	rules := reloadRules{}
	for row := range strings.Lines(text) {
		cells := strings.Split(strings.TrimSpace(row), " | ")
		if len(cells) != 2 || !strings.HasPrefix(row, "| `") {
			continue
		}
		does := restarts
		switch {
		case strings.HasPrefix(cells[1], "are put in force"):
			does = inForce
		case strings.HasPrefix(cells[1], "holds for bodies"):
			does = half
		case !strings.HasPrefix(cells[1], "need a restart"):
			return nil, errors.New("a row of the table of the section Reload is not understood: " + row)
		}
		for _, m := range codeSpan.FindAllStringSubmatch(cells[0], -1) {
			rules[m[1]] = does
		}
	}
	if len(rules) == 0 {
		return nil, errors.New("there is no section Reload with a table")
	}
	return rules, nil
}

// of returns what a reload does with a key.
func (r reloadRules) of(name string) string {
	if does, ok := r[name]; ok {
		return does
	}
	for table := name; strings.Contains(table, "."); {
		table = table[:strings.LastIndexByte(table, '.')]
		for _, row := range []string{table, table + ".*"} {
			if does, ok := r[row]; ok {
				return does
			}
		}
	}
	return restarts
}
