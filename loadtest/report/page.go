package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/llm-coordinator/coordinator/loadtest/load"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page is what the template shows.
type page struct {
	Title string
	Lines []string
	// Summary are the tables above the drawings, More those below.
	Summary, More []section
	Charts        []chart
	Notes         []string
	Style         template.CSS
}

// section is a table with a title.
type section struct {
	Title string
	Table table
}

// WritePage writes a report as a page.
func WritePage(w io.Writer, f *File) error {
	p := page{Title: "Load test of " + f.Settings.URL, Lines: described(f), Charts: charts([]named{{File: f}}), Notes: notes(f)}
	p.split(sections([]string{""}, [][]figure{figures(f)}, func(values []figure) []string {
		return []string{withUnit(values[0].value, values[0].unit)}
	}))
	return p.write(w)
}

// split puts what clients saw above the drawings.
func (p *page) split(all []section) {
	const above = 3
	n := min(above, len(all))
	p.Summary, p.More = all[:n], all[n:]
}

func (p page) write(w io.Writer) error {
	p.Style = style
	return pageTemplate.Execute(w, p)
}

// described says what a run was.
func described(f *File) []string {
	s := f.Settings
	r := s.Request
	loop := fmt.Sprintf("%d clients, each with one request at a time", s.Clients)
	if s.Rate > 0 {
		loop = fmt.Sprintf("%g requests a second, whatever the server does", s.Rate)
	}
	way := "whole answers"
	if r.Stream {
		way = "streams"
	}
	each := fmt.Sprintf("Each: %s, %s", r.Kind, way)
	if len(s.Mix) > 0 {
		each = "Kinds: " + mixOf(s.Mix)
	}
	return []string{
		fmt.Sprintf("%s, for %.1f s: %s.", f.Began.Format(time.RFC3339), f.DurationSeconds, loop),
		fmt.Sprintf("%s, a prompt of %d bytes%s, at most %d tokens of answer.", each, r.PromptBytes, withImages(r), r.MaxTokens),
	}
}

// mixOf says what shares a mix has; those with images have as many of one size.
func mixOf(mix []load.Share) string {
	shares := make([]string, len(mix))
	for i, s := range mix {
		shares[i] = s.String() + withImages(s.Request)
	}
	return strings.Join(shares, "; ")
}

func withImages(r load.Request) string {
	if r.Images == 0 {
		return ""
	}
	return fmt.Sprintf(", %d images of %d bytes", r.Images, r.ImageBytes)
}

// notes say how to read a report.
func notes(f *File) (notes []string) {
	if n := len(f.Windows); n > 0 {
		notes = append(notes, fmt.Sprintf("A point of throughput, times and errors stands for %g s. Requests count where they ended; times are of those that ended well, to a fortieth.",
			f.Windows[0].Seconds))
	}
	c := f.Coordinator
	if c == nil {
		return append(notes, "The coordinator's metrics were not read: run with -metrics for its pools and steps.")
	}
	notes = append(notes, "Pools, bytes and breakers are what /metrics said about once a second: what is over sooner may not show. "+
		"The times of steps, legs and waits are from histograms: their percentiles are as good as the buckets are narrow.")
	if c.Restarted {
		notes = append(notes, "The coordinator was started anew during the run: its figures are those since then.")
	}
	if c.Series != nil && c.Series.Missed > 0 {
		notes = append(notes, fmt.Sprintf("%d readings of /metrics failed.", c.Series.Missed))
	}
	return notes
}

// sections makes tables of the figures of reports: a row for each that any of them
// has. cells writes a row's values, one of each report; its value is NaN where a
// report has none.
func sections(head []string, reports [][]figure, cells func(values []figure) []string) (all []section) {
	for _, row := range joined(reports) {
		if n := len(all); n == 0 || all[n-1].Title != row[0].section {
			all = append(all, section{Title: row[0].section, Table: table{Head: append([]string{""}, head...)}})
		}
		t := &all[len(all)-1].Table
		t.Rows = append(t.Rows, append([]string{row[0].name}, cells(row)...))
	}
	return all
}
