package plan

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
)

// Write writes the plan as TOML that can be put in the place of [actors] and
// [actors.pools], with comments that say how each number comes about.
func (p *Plan) Write(to io.Writer) error {
	var b strings.Builder
	p.head(&b)
	fmt.Fprintf(&b, "\n[actors]\n")
	comment(&b, p.inflight.why)
	fmt.Fprintf(&b, "max_inflight_requests = %d\n", p.inflight.requests)
	comment(&b, p.bytes.why)
	fmt.Fprintf(&b, "max_inflight_size = %d # MB\n\n[actors.pools]\n", p.bytes.mb)
	for _, pl := range p.pools {
		comment(&b, pl.why)
		fmt.Fprintf(&b, "%s = { size = %d, queue = %d }\n", pl.name, pl.size, pl.queue)
	}
	p.unplanned(&b)
	b.WriteString("\n")
	p.first(&b, "with these sizes", p.planned())
	with := "with the default sizes"
	if p.file != "" {
		with = "with the sizes in " + p.file
	}
	p.first(&b, with, p.present())
	p.aside(&b)
	_, err := io.WriteString(to, b.String())
	return err
}

// lineLength is how long lines of comments are.
const lineLength = 115

// comment writes text as lines of comments. Names of files are in it, and they may
// hold what TOML does not take.
func comment(b *strings.Builder, text string) {
	line := "#"
	for word := range strings.FieldsSeq(text) {
		word = strings.Map(func(r rune) rune {
			if unicode.IsControl(r) {
				return '?'
			}
			return r
		}, word)
		if len([]rune(line))+1+len([]rune(word)) > lineLength {
			b.WriteString(line + "\n")
			line = "#  "
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
}

func (p *Plan) head(b *strings.Builder) {
	q := p.question
	replicas := "one replica"
	if q.Replicas > 1 {
		replicas = fmt.Sprintf("%d replicas, %s/s for each", q.Replicas, short(p.rate()))
	}
	comment(b, fmt.Sprintf("Written by `coordinator plan`: %s requests a second, %s. Each has %s.", short(q.Rate), replicas, p.load))
	if p.measured != nil {
		comment(b, "Measured: "+p.measured.source+".")
	}
	b.WriteString("#\n# How long work takes, without waiting in queues:\n")
	rows := [][]string{}
	guessed := false
	for _, t := range p.times {
		if p.load.tasks(t.work) <= 0 {
			continue
		}
		rows = append(rows, []string{t.work, seconds(t.seconds), strings.TrimSuffix(t.from+": "+t.note, ": ")})
		guessed = guessed || t.from == assumed
	}
	columns(b, rows)
	if guessed {
		comment(b, "What is assumed is a guess, of a model of some ten billion parameters on a current GPU. Measure it: load a "+
			"coordinator with loadtest/run -metrics URL -o report.json and plan -from that, or plan -metrics URL of one that has served.")
	}
	b.WriteString("#\n")
	comment(b, fmt.Sprintf("Sizes: rate × time are busy on average (Little's law). Arrivals come by chance: %s standard deviations more, each "+
		"the root of that. × %s, for load is not spread evenly. Queues take what comes in %v.", short(q.Sigmas), short(q.Margin), q.Wait))
	for _, w := range p.warnings {
		comment(b, "Mind: "+w)
	}
}

// columns writes rows as a comment, one below the other.
func columns(b *strings.Builder, rows [][]string) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintf(w, "#   %s\n", strings.Join(row, "\t"))
	}
	w.Flush()
}

// unplanned says what of the pools the plan leaves as it is.
func (p *Plan) unplanned(b *strings.Builder) {
	left := []string{"passthrough (calls that the pipeline does not see)", "release (requests that are given up)"}
	for _, work := range []string{media, encode, prefill} {
		if p.has(work) && p.load.tasks(work) <= 0 {
			left = append(left, work+" (nothing to do for it)")
		}
	}
	comment(b, "Left as they are: "+strings.Join(left, ", ")+".")
}

// first writes what fills up as the rate grows.
func (p *Plan) first(b *strings.Builder, with string, of bounds) {
	limits := p.limits(of)
	comment(b, fmt.Sprintf("What is full on average, and at which rate, %s (%s/s are asked for); above it, requests are refused:", with, short(p.question.Rate)))
	var rows [][]string
	for i, l := range limits {
		mark := ""
		if i == 0 {
			mark = "  <- first"
		}
		if l.at < p.question.Rate {
			mark += "  too little"
		}
		rows = append(rows, []string{l.name, short(l.at) + "/s", l.what + mark})
	}
	columns(b, rows)
	b.WriteString("#\n")
}

// aside says what else has to be there.
func (p *Plan) aside(b *strings.Builder) {
	pools := p.config.Actors.Pools
	most := pools.Passthrough.Size + pools.Release.Size
	for _, pl := range p.pools {
		if pl.name == encode || pl.name == prefill || pl.name == decode {
			most += pl.size
		}
	}
	comment(b, fmt.Sprintf("Each replica has up to %d connections to the gateway, %s of them busy on average, and as many as %d clients. "+
		"The gateway, and the limit of open files, must allow that.", most, short(p.connections()), p.inflight.requests))
	comment(b, "Whether the workers can do it is not known here: pools bound what is sent to them. A fleet that is too small shows as "+
		"longer times, and so as fuller pools.")
}
