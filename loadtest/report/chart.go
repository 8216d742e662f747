package report

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
)

// line is a series of values, mostly over time in seconds. A value that is not there
// is NaN: the line has a gap.
type line struct {
	name  string
	x, y  []float64
	color int  // 1 to colors
	dash  bool // of the second of two runs, or a bound
}

// colors is how many the style has.
const colors = 6

// chart is a drawing of lines over the time of a run, or over what is varied from
// run to run.
type chart struct {
	Title string
	// Note says what is to be known of it.
	Note string
	unit string
	// along names what the lines are over; "" is the time of a run.
	along string
	// far: values may differ by far, and all of them matter. If they do, the lines
	// of the grid are powers of ten.
	far   bool
	lines []line
}

// The size of a drawing, in its own units, and where its lines are within. Text is
// readable if it is as wide as a phone.
const (
	width, height            = 480.0, 250.0
	left, right, top, bottom = 52.0, 468.0, 14.0, 206.0
)

// SVG draws the chart. All it says is in the tables too, so that it may be left out
// by who cannot see it.
func (c chart) SVG() template.HTML {
	return template.HTML(fmt.Sprintf(`<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, width, height, esc(c.Title)) + c.drawing() + "</svg>")
}

// drawing is what is in the drawing.
func (c chart) drawing() string {
	x, y := c.axes()
	var b strings.Builder
	for _, t := range y.ticks {
		fmt.Fprintf(&b, `<path class="grid" d="M%g %.1fH%g"/><text class="y" x="%g" y="%.1f">%s</text>`,
			left, y.at(t), right, left-6, y.at(t)+4, tick(t))
	}
	for _, t := range x.ticks {
		fmt.Fprintf(&b, `<path class="grid" d="M%.1f %gv4"/><text class="x" x="%.1f" y="%g">%s</text>`,
			x.at(t), bottom, x.at(t), bottom+18, tick(t))
	}
	fmt.Fprintf(&b, `<text class="x" x="%g" y="%g">%s</text>`, (left+right)/2, height-8, esc(cmp.Or(c.along, "seconds since the run began")))
	for _, l := range c.lines {
		b.WriteString(l.draw(x, y))
	}
	return b.String()
}

func esc(s string) string { return template.HTMLEscapeString(s) }

// tick writes the value of a tick in few letters.
func tick(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%gM", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%gk", v/1e3)
	}
	return fmt.Sprintf("%g", math.Round(v*1e9)/1e9)
}

func (c chart) axes() (x, y axis) {
	end, most, least := 0.0, 0.0, math.Inf(1)
	for _, l := range c.lines {
		for i, v := range l.y {
			end = max(end, l.x[i])
			if v > 0 {
				most, least = max(most, v), min(least, v)
			}
		}
	}
	x = exact(end, left, right, 6)
	if c.far && most > 20*least {
		return x, logarithmic(least, most, bottom, top)
	}
	return x, linear(most, bottom, top, 5)
}

// draw draws a line with its gaps. A value that stands alone is a dot.
func (l line) draw(x, y axis) string {
	var path strings.Builder
	run := 0
	for i, v := range l.y {
		if math.IsNaN(v) {
			run = 0
			continue
		}
		to := 'L'
		if run == 0 {
			to = 'M'
		}
		run++
		fmt.Fprintf(&path, "%c%.1f %.1f", to, x.at(l.x[i]), y.at(v))
		if run == 1 && (i+1 == len(l.y) || math.IsNaN(l.y[i+1])) {
			path.WriteString("h.1")
		}
	}
	if path.Len() == 0 {
		return ""
	}
	return fmt.Sprintf(`<path class="%s" d="%s"/>`, l.class(), path.String())
}

func (l line) class() string {
	if l.dash {
		return fmt.Sprintf("s%d dash", l.color)
	}
	return fmt.Sprintf("s%d", l.color)
}

// Legend says which line is what.
func (c chart) Legend() (entries []struct{ Class, Name string }) {
	for _, l := range c.lines {
		entries = append(entries, struct{ Class, Name string }{l.class(), l.name})
	}
	return entries
}

// Unit names what is drawn, and how.
func (c chart) Unit() string {
	if _, y := c.axes(); y.log {
		return c.unit + "; each line of the grid is ten times the one below"
	}
	return c.unit
}

// maxRows is how many moments the table of a chart has at most.
const maxRows = 60

// Table is the chart in numbers.
func (c chart) Table() (t table) {
	t.Head = append(t.Head, "s")
	var moments []float64
	for _, l := range c.lines {
		t.Head = append(t.Head, l.name)
		moments = append(moments, l.x...)
	}
	slices.Sort(moments)
	moments = slices.Compact(moments)
	every := (len(moments) + maxRows - 1) / maxRows
	for i := 0; i < len(moments); i += every {
		row := []string{tick(math.Round(moments[i]*10) / 10)}
		for _, l := range c.lines {
			row = append(row, digits(l.at(moments[i])))
		}
		t.Rows = append(t.Rows, row)
	}
	if every > 1 {
		t.Note = fmt.Sprintf("One of each %d moments; all are in the JSON.", every)
	}
	return t
}

// at returns the value at a moment, or NaN.
func (l line) at(moment float64) float64 {
	if i, ok := slices.BinarySearch(l.x, moment); ok {
		return l.y[i]
	}
	return math.NaN()
}

// table is text in rows.
type table struct {
	Head []string
	Rows [][]string
	Note string
}
