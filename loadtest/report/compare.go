package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
)

// Named is a report to be compared, and what it is called.
type Named struct {
	Name string
	*File
}

// joined puts together the figures of reports that are of the same thing: rows with
// one of each report, section by section. Where a report has none the value is NaN.
func joined(reports [][]figure) (rows [][]figure) {
	type key struct{ section, name string }
	at := map[key][]figure{}
	var order []string // of sections
	of := map[string][][]figure{}
	for i, all := range reports {
		for _, f := range all {
			k := key{f.section, f.name}
			if at[k] == nil {
				row := make([]figure, len(reports))
				for j := range row {
					row[j] = f
					row[j].value = math.NaN()
				}
				at[k] = row
				if !slices.Contains(order, f.section) {
					order = append(order, f.section)
				}
				of[f.section] = append(of[f.section], row)
			}
			at[k][i].value = f.value
		}
	}
	for _, section := range order {
		rows = append(rows, of[section]...)
	}
	return rows
}

// compared writes two values of the same thing and how they differ.
func compared(values []figure) []string {
	a, b := values[0], values[1]
	return []string{withUnit(a.value, a.unit), withUnit(b.value, b.unit), signed(b.value-a.value, a.unit), percent(a.value, b.value)}
}

func signed(v float64, unit string) string {
	text := withUnit(v, unit)
	if v > 0 {
		text = "+" + text
	}
	if math.IsNaN(v) {
		return "–"
	}
	return text
}

func percent(a, b float64) string {
	if a == 0 || math.IsNaN(a) || math.IsNaN(b) {
		return "–"
	}
	return fmt.Sprintf("%+.1f%%", (b/a-1)*100)
}

// WriteComparison writes two reports beside each other as text.
func WriteComparison(w io.Writer, a, b Named) error {
	for _, n := range []Named{a, b} {
		fmt.Fprintf(w, "%s:\n", n.Name)
		for _, l := range described(n.File) {
			fmt.Fprintf(w, "  %s\n", l)
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, s := range comparison(a, b) {
		fmt.Fprintf(t, "\n%s\n", s.Title)
		fmt.Fprintf(t, "\t%s\t%s\tdifference\t\t\n", a.Name, b.Name)
		for _, row := range s.Table.Rows {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t\n", row[0], row[1], row[2], row[3], row[4])
		}
	}
	return t.Flush()
}

func comparison(a, b Named) []section {
	return sections([]string{a.Name, b.Name, "difference", ""}, [][]figure{figures(a.File), figures(b.File)}, compared)
}

// WriteComparisonPage writes two reports as a page, with both in each drawing.
func WriteComparisonPage(w io.Writer, a, b Named) error {
	p := page{Title: "Two load tests: " + a.Name + " and " + b.Name,
		Charts: charts([]named{{File: a.File, name: a.Name}, {File: b.File, name: b.Name, second: true}})}
	p.split(comparison(a, b))
	for _, n := range []Named{a, b} {
		for _, l := range described(n.File) {
			p.Lines = append(p.Lines, n.Name+": "+l)
		}
		for _, note := range notes(n.File) {
			p.Notes = append(p.Notes, n.Name+": "+note)
		}
	}
	return p.write(w)
}
