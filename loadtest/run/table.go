package main

import (
	"fmt"
	"io"
	"slices"
)

// row is a row of the table: medians of turns, and what is compared with a bound.
type row struct {
	Name string `json:"name"`
	// Unit is that of Floor and Ours.
	Unit string `json:"unit"`
	// Beside is what Floor is, if not the floor.
	Beside string  `json:"beside,omitempty"`
	Floor  float64 `json:"floor"`
	Ours   float64 `json:"coordinator"`
	// Value is made of the medians, Low and High are the least and the most of the
	// turns. It is in units of Of, which is × for a ratio.
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	Bound float64 `json:"bound"`
	Of    string  `json:"of"`
}

// Met reports whether the value is within its bound.
func (r row) Met() bool { return r.Value <= r.Bound }

// newRow makes a row of the values of turns; of makes the value of two of them.
func newRow(name, unit, of string, floor, ours []float64, bound float64, value func(floor, ours float64) float64) row {
	var turns []float64
	for i := range ours {
		turns = append(turns, value(floor[i], ours[i]))
	}
	r := row{Name: name, Unit: unit, Floor: median(floor), Ours: median(ours), Low: slices.Min(turns), High: slices.Max(turns), Bound: bound, Of: of}
	r.Value = value(r.Floor, r.Ours)
	return r
}

// ratio compares the quotient with a bound.
func ratio(name, unit string, floor, ours []float64, bound float64) row {
	return newRow(name, unit, "×", floor, ours, bound, func(floor, ours float64) float64 { return ours / max(floor, 1e-9) })
}

// difference compares what is above the floor with a bound.
func difference(name, unit string, floor, ours []float64, bound float64) row {
	return newRow(name, unit, unit, floor, ours, bound, func(floor, ours float64) float64 { return ours - floor })
}

// amount compares the coordinator's own value with a bound.
func amount(name, unit string, floor, ours []float64, bound float64) row {
	return newRow(name, unit, unit, floor, ours, bound, func(_, ours float64) float64 { return ours })
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// writeRows writes the table in Markdown.
func writeRows(w io.Writer, rows []row) {
	fmt.Fprint(w, "| what | floor | coordinator | measured (least–most) | bound | met |\n|---|--:|--:|--:|--:|---|\n")
	for _, r := range rows {
		met := "yes"
		if !r.Met() {
			met = "**no**"
		}
		floor := number(r.Floor) + " " + r.Unit
		if r.Beside != "" {
			floor += " " + r.Beside
		}
		fmt.Fprintf(w, "| %s | %s | %s %s | %s (%s–%s) | %s | %s |\n", r.Name, floor, number(r.Ours), r.Unit,
			r.in(r.Value), r.plain(r.Low), r.plain(r.High), r.in(r.Bound), met)
	}
}

// in is a value with its unit, as in 1.25× and 10 µs.
func (r row) in(v float64) string {
	if r.Of == "×" {
		return r.plain(v) + r.Of
	}
	return r.plain(v) + " " + r.Of
}

func (r row) plain(v float64) string {
	if r.Of == "×" {
		return fmt.Sprintf("%.2f", v)
	}
	return number(v)
}

// number has as many digits as matter.
func number(v float64) string {
	if v < 100 && v > -100 && v != float64(int(v)) {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// share tells what a coordinator cannot do without: its contract with the workers,
// and the actors that it is made of. There is no bound.
type share struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Floor float64 `json:"floor"`
	// Contract is of a floor that keeps the contract, Actors of one whose legs are made
	// by actors besides.
	Contract float64 `json:"contract"`
	Actors   float64 `json:"actors"`
	Ours     float64 `json:"coordinator"`
}

func writeShares(w io.Writer, shares []share) {
	fmt.Fprint(w, "\n| in steps | floor | which keeps the contract | and has actors | coordinator |\n|---|--:|--:|--:|--:|\n")
	for _, s := range shares {
		fmt.Fprintf(w, "| %s | %s %s ", s.Name, number(s.Floor), s.Unit)
		for _, v := range []float64{s.Contract, s.Actors, s.Ours} {
			fmt.Fprintf(w, "| %s %s, %.2f× ", number(v), s.Unit, v/max(s.Floor, 1e-9))
		}
		fmt.Fprintln(w, "|")
	}
}

func writeGrowth(w io.Writer, lines []growth) {
	fmt.Fprint(w, "\n| growth | floor | coordinator | ratio |\n|---|--:|--:|--:|\n")
	for _, g := range lines {
		fmt.Fprintf(w, "| %s | %s %s | %s %s | %.2f |\n", g.Name, number(g.Floor), g.Unit, number(g.Ours), g.Unit, g.Ours/max(g.Floor, 1e-9))
	}
}
