package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestLinksLeadSomewhere in all pages of the repository.
func TestLinksLeadSomewhere(t *testing.T) {
	broken, err := brokenLinks(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range broken {
		t.Error(b)
	}
	pages, err := readPages(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(pages) < 10 || len(pages["README.md"].Links) < 5 {
		t.Errorf("only %d pages were read, and %d links in README.md", len(pages), len(pages["README.md"].Links))
	}
}

// TestBrokenLinksAreFound, and those that are not broken are not.
func TestBrokenLinksAreFound(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("README.md", strings.Join([]string{
		"# Top",
		"[a](docs/page.md) [b](docs/page.md#what-it-is-really) [c](#top) [d](docs) ![e](docs/picture.svg \"title\")",
		"[f](docs/gone.md) and `[not a link](nowhere.md)` and ``[nor `this`](nowhere.md)``",
		"[g](docs/page.md#gone)",
		"[h](#gone)",
		"[i](../outside.md)",
		"[j](/docs/page.md)",
		"[k](docs/picture.svg#part)",
		"[l]: docs/missing.md",
		`<a href="docs/away.md">m</a> <a id="set"></a> [n](#set)`,
		"[o](https://example.com/x) [p](mailto:a@example.com) [q](docs/page.md#twice-1)",
		"```sh run",
		"echo '[no link](nowhere.md)' # no heading",
		"```",
		"[r](#no-heading)",
	}, "\n"))
	write("docs/page.md", "# A page\n## What *it* is, `really`?\n## Twice\n## Twice\n[up](../README.md#top)\n")
	write("docs/picture.svg", "<svg/>")
	write("testdata/page.md", "[not looked at](nowhere.md)")
	got, err := brokenLinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"README.md:10: docs/away.md: there is no such file",
		"README.md:15: #no-heading: that page has no such heading",
		"README.md:3: docs/gone.md: there is no such file",
		"README.md:4: docs/page.md#gone: that page has no such heading",
		"README.md:5: #gone: that page has no such heading",
		"README.md:6: ../outside.md: leads out of the repository",
		"README.md:7: /docs/page.md: begins with a slash, which is another place on each site",
		"README.md:8: docs/picture.svg#part: only a page has headings",
		"README.md:9: docs/missing.md: there is no such file",
	}
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestAnchors are as GitHub makes them of headings.
func TestAnchors(t *testing.T) {
	for heading, want := range map[string]string{
		"What clients see when something fails": "what-clients-see-when-something-fails",
		"`[gateway.tls]`":                       "gatewaytls",
		"Probes, and the end of a process":      "probes-and-the-end-of-a-process",
		"A [link](x.md) in it":                  "a-link-in-it",
		"Step `replace-media-urls`":             "step-replace-media-urls",
		"CoordinatorBreakerOpen":                "coordinatorbreakeropen",
		"snake_case – and dashes":               "snake_case--and-dashes",
	} {
		if got := anchorOf(heading); got != want {
			t.Errorf("%s: %s, want %s", heading, got, want)
		}
	}
}
