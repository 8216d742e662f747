package main

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// notOurs are directories whose pages are not written by hand, or not here.
var notOurs = []string{".git", "bin", "dist", "node_modules", "testdata"}

// readPages reads all Markdown files below a directory, by their path from it.
func readPages(root string) (map[string]page, error) {
	pages := map[string]page{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && file != root && slices.Contains(notOurs, d.Name()) {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(file) != ".md" {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		pages[filepath.ToSlash(name)] = parsePage(string(text))
		return err
	})
	return pages, err
}

// brokenLinks returns a line for each link of a page that leads nowhere: to a file
// that is not there, out of the repository, or to a heading that its page does not
// have. Links to other sites are not followed.
func brokenLinks(root string) ([]string, error) {
	pages, err := readPages(root)
	if err != nil {
		return nil, err
	}
	var broken []string
	for name, p := range pages {
		for _, l := range p.Links {
			if why := follow(root, pages, name, l.Target); why != "" {
				broken = append(broken, fmt.Sprintf("%s:%d: %s: %s", name, l.Line, l.Target, why))
			}
		}
	}
	slices.Sort(broken)
	return broken, nil
}

// follow says why a link on a page leads nowhere, or "".
func follow(root string, pages map[string]page, from, target string) string {
	u, err := url.Parse(target)
	switch {
	case err != nil:
		return "cannot be read"
	case u.Scheme != "" || u.Host != "":
		return ""
	case strings.HasPrefix(u.Path, "/"):
		return "begins with a slash, which is another place on each site"
	}
	to := from
	if u.Path != "" {
		to = filepath.ToSlash(filepath.Join(filepath.Dir(from), filepath.FromSlash(u.Path)))
	}
	if !filepath.IsLocal(to) {
		return "leads out of the repository"
	}
	if _, err := os.Stat(filepath.Join(root, to)); err != nil {
		return "there is no such file"
	}
	if u.Fragment == "" {
		return ""
	}
	p, ok := pages[to]
	switch {
	case !ok:
		return "only a page has headings"
	case !p.Anchors[u.Fragment]:
		return "that page has no such heading"
	}
	return ""
}
