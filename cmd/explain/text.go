package explain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// JSON prints the report as indented JSON.
func (r *Report) JSON(to io.Writer) error {
	e := json.NewEncoder(to)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Text prints the report for people.
func (r *Report) Text(to io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s: ", r.Method, r.Route)
	if r.Accepted {
		b.WriteString("accepted\n")
	} else {
		fmt.Fprintf(&b, "refused\n  %d, type %s, code %s\n  %s\n", r.Refused.Status, r.Refused.Type, r.Refused.Code, r.Refused.Message)
	}
	if r.Batch != "" {
		fmt.Fprintf(&b, "\n%s\n", r.Batch)
	}
	items(&b, "assumed", r.Assumed)
	items(&b, "noted in the log", r.Notes)
	if len(r.Removed) > 0 {
		fmt.Fprintf(&b, "\nremoved from the body, for clients may not send it: %s\n", strings.Join(r.Removed, ", "))
	}
	if len(r.NotForwarded) > 0 {
		fmt.Fprintf(&b, "\nheaders of the client that no leg has as they came: %s\n", strings.Join(r.NotForwarded, ", "))
	}
	r.phaseText(&b)
	for i := range r.Legs {
		r.Legs[i].text(&b, i+1)
	}
	r.limitText(&b)
	_, err := to.Write(b.Bytes())
	return err
}

func items(b *bytes.Buffer, title string, all []string) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n", title)
	for _, item := range all {
		fmt.Fprintf(b, "  - %s\n", item)
	}
}

func (r *Report) phaseText(b *bytes.Buffer) {
	if len(r.Phases) == 0 {
		return
	}
	b.WriteString("\nphases\n")
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for i, p := range r.Phases {
		what := "skipped: "
		if p.Runs {
			what = "runs: "
		} else if strings.HasPrefix(p.Why, notReached) {
			what = ""
		}
		fmt.Fprintf(w, "  %d\t%s\t%s%s\n", i+1, p.Name, what, p.Why)
	}
	_ = w.Flush() // to a buffer
}

func (l *Leg) text(b *bytes.Buffer, n int) {
	fmt.Fprintf(b, "\nleg %d: %s, upstream %s\n  %s %s%s", n, l.Name, l.Upstream, l.Method, l.Address, l.Path)
	if l.Query != "" {
		b.WriteString("?" + l.Query)
	}
	b.WriteByte('\n')
	for _, name := range slices.Sorted(maps.Keys(l.Headers)) {
		fmt.Fprintf(b, "  %s: %s\n", name, l.Headers[name])
	}
	if len(l.Forwarded) > 0 {
		fmt.Fprintf(b, "  passed on as the client sent them: %s\n", strings.Join(l.Forwarded, ", "))
	}
	if len(l.Placeholders) > 0 {
		fmt.Fprintf(b, "  PLACEHOLDERS: %s\n", strings.Join(l.Placeholders, "; "))
	}
	fmt.Fprintf(b, "  body, %d bytes:\n    ", l.BodyBytes)
	_ = json.Indent(b, l.Body, "    ", "  ") // what cut made is JSON
	b.WriteByte('\n')
}

func (r *Report) limitText(b *bytes.Buffer) {
	b.WriteString("\nlimits\n")
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, l := range r.Limits {
		value := l.Value
		if l.Note != "" {
			value += " (" + l.Note + ")"
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\n", l.Of, l.Key, value)
	}
	_ = w.Flush() // to a buffer
}
