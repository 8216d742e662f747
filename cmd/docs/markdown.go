package main

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// page is what is read of a Markdown file.
type page struct {
	// Anchors are the names that a link may have behind "#".
	Anchors map[string]bool
	Links   []link
	Blocks  []block
}

// link is a link to somewhere.
type link struct {
	Target string
	Line   int
}

// block is a fenced block of code.
type block struct {
	// Info is what stands behind the opening fence: "sh", "sh run".
	Info string
	Text string
	Line int // of the opening fence
}

var (
	fenceLine   = regexp.MustCompile("^ {0,3}(```+|~~~+) *([^`]*)$")
	headingLine = regexp.MustCompile(`^ {0,3}#{1,6} +(.*?)(?: +#+)? *$`)
	inlineCode  = regexp.MustCompile("(``+).*?[^`]``+|`[^`]*`")
	inlineLink  = regexp.MustCompile(`\]\(\s*<?([^)\s>]+)>?(?:\s+"[^"]*")?\s*\)`)
	namedLink   = regexp.MustCompile(`^ {0,3}\[[^\]]+\]:\s+<?(\S+?)>?(?:\s|$)`)
	htmlLink    = regexp.MustCompile(`<a [^>]*href="([^"]+)"|<img [^>]*src="([^"]+)"`)
	htmlAnchor  = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	linkText    = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
)

// parsePage reads a Markdown file, as GitHub would show it.
func parsePage(text string) page {
	p := page{Anchors: map[string]bool{}}
	fence, open := "", block{}
	for i, line := range strings.Split(text, "\n") {
		m := fenceLine.FindStringSubmatch(line)
		switch {
		case fence == "" && m != nil:
			fence, open = m[1], block{Info: strings.TrimSpace(m[2]), Line: i + 1}
		case fence == "":
			p.prose(line, i+1)
		case m != nil && m[2] == "" && strings.HasPrefix(m[1], fence):
			p.Blocks = append(p.Blocks, open)
			fence = ""
		default:
			open.Text += line + "\n"
		}
	}
	return p
}

// prose takes a line that is no code.
func (p *page) prose(line string, number int) {
	if m := headingLine.FindStringSubmatch(line); m != nil {
		p.heading(m[1])
	}
	line = inlineCode.ReplaceAllStringFunc(line, func(code string) string { return strings.Repeat("x", len(code)) })
	for _, m := range htmlAnchor.FindAllStringSubmatch(line, -1) {
		p.Anchors[m[1]] = true
	}
	for _, pattern := range []*regexp.Regexp{inlineLink, namedLink, htmlLink} {
		for _, m := range pattern.FindAllStringSubmatch(line, -1) {
			p.Links = append(p.Links, link{Target: strings.Join(m[1:], ""), Line: number})
		}
	}
}

// heading adds a heading's anchor, which has a number if there is one like it
// before.
func (p *page) heading(text string) {
	name := anchorOf(text)
	for n, first := 1, name; p.Anchors[name]; n++ {
		name = first + "-" + strconv.Itoa(n)
	}
	p.Anchors[name] = true
}

// anchorOf returns the anchor that GitHub gives to a heading: letters and digits
// in lower case, hyphens for spaces, and nothing else but hyphens and underscores.
func anchorOf(heading string) string {
	heading = linkText.ReplaceAllString(heading, "$1")
	return strings.Map(func(c rune) rune {
		switch {
		case c == ' ':
			return '-'
		case c == '-' || c == '_' || unicode.IsLetter(c) || unicode.IsDigit(c):
			return unicode.ToLower(c)
		}
		return -1
	}, heading)
}
