package main

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const (
	runbook = "docs/runbook.md"
	alerts  = "deploy/observability/alerts.yaml"
)

// TestEveryAlertHasItsRunbook, which it names, with the parts that whoever is
// woken by it looks for; and the page has no alert that is none any more.
func TestEveryAlertHasItsRunbook(t *testing.T) {
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(readFile(t, alerts)), &rules); err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for part := range strings.SplitSeq(readFile(t, runbook), "\n## ") {
		title, text, _ := strings.Cut(part, "\n")
		if strings.HasPrefix(title, "Coordinator") {
			sections[title] = text
		}
	}
	found := 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			found++
			text, ok := sections[r.Alert]
			if !ok {
				t.Errorf("%s has no section %q", runbook, r.Alert)
			}
			delete(sections, r.Alert)
			for _, part := range []string{"**It means**", "**Look first**", "**Usual causes**", "**What to do**"} {
				if ok && !strings.Contains(text, part) {
					t.Errorf("%s: %s has no %s", runbook, r.Alert, part)
				}
			}
			if url := r.Annotations["runbook_url"]; !strings.HasSuffix(url, "/"+runbook+"#"+anchorOf(r.Alert)) {
				t.Errorf("%s: runbook_url is %q", r.Alert, url)
			}
		}
	}
	for title := range sections {
		t.Errorf("%s is in %s, but no alert", title, runbook)
	}
	if found < 10 {
		t.Errorf("only %d alerts were found", found)
	}
}
