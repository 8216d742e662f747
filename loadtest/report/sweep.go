package report

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Point is the report of a run of a sweep: the same load again and again, with
// another value of what is varied.
type Point struct {
	At   float64
	File *File
}

// WriteSweep prints a sweep as a table. along names what was varied.
func WriteSweep(w io.Writer, along string, points []Point) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "%s\tok/s\tfailed/s\tfirst event p50\tp99\ttotal p50\tp99 ms\t\n", along)
	for _, p := range sorted(points) {
		f := p.File
		fmt.Fprintf(t, "%g\t%.1f\t%.1f\t%d\t%d\t%d\t%d\t\n", p.At, f.Rates.OK, failedRate(f),
			f.FirstEvent.P50/1000, f.FirstEvent.P99/1000, f.Total.P50/1000, f.Total.P99/1000)
	}
	return t.Flush()
}

// WriteSweepDrawing draws a sweep as an SVG that needs nothing beside it: what was
// served, and how long it took.
func WriteSweepDrawing(w io.Writer, along string, points []Point) error {
	if len(points) < 2 {
		return errors.New("a drawing of a sweep takes two runs at least")
	}
	points = sorted(points)
	of := func(name string, color int, value func(f *File) float64) line {
		l := line{name: name, color: color}
		for _, p := range points {
			l.x, l.y = append(l.x, p.At), append(l.y, value(p.File))
		}
		return l
	}
	both := []chart{
		{Title: "Requests each second", along: along, lines: []line{
			of("served", 1, func(f *File) float64 { return f.Rates.OK }),
			of("refused or failed", 3, failedRate)}},
		{Title: "Milliseconds to the first event, and to the end", along: along, far: true, lines: []line{
			of("end p99", 3, func(f *File) float64 { return float64(f.Total.P99) / 1000 }),
			of("end p50", 1, func(f *File) float64 { return float64(f.Total.P50) / 1000 }),
			of("first event p99", 6, func(f *File) float64 { return float64(f.FirstEvent.P99) / 1000 }),
			of("first event p50", 5, func(f *File) float64 { return float64(f.FirstEvent.P50) / 1000 })}},
	}
	_, err := io.WriteString(w, standalone(both))
	return err
}

// head is how much is above a drawing of its own: its title, and a legend.
const head = 56.0

// standalone puts charts beneath each other, with their titles and legends.
func standalone(charts []chart) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="system-ui, sans-serif" font-size="12">`,
		width, float64(len(charts))*(height+head))
	b.WriteString(sweepStyle)
	for i, c := range charts {
		fmt.Fprintf(&b, `<g transform="translate(0 %g)"><text class="title" x="%g" y="18">%s</text>`, float64(i)*(height+head), left, esc(c.Title))
		x := left
		for _, l := range c.lines {
			fmt.Fprintf(&b, `<path class="%s" d="M%g 36h18"/><text x="%g" y="40">%s</text>`, l.class(), x, x+23, esc(l.name))
			x += 40 + 6*float64(len(l.name))
		}
		fmt.Fprintf(&b, `<g transform="translate(0 %g)">%s</g></g>`, head-8, c.drawing())
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// sweepStyle is what a drawing of its own has besides.
const sweepStyle = `<style>` + style + `
svg { background: var(--back); } svg .title { fill: var(--text); font-weight: 600; font-size: 13px; }</style>`

func failedRate(f *File) float64 {
	return float64(f.Counts.Failed+f.Counts.Missed+f.Counts.Cut) / f.DurationSeconds
}

func sorted(points []Point) []Point {
	return slices.SortedFunc(slices.Values(points), func(a, b Point) int { return cmp.Compare(a.At, b.At) })
}
