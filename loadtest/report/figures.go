package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/llm-coordinator/coordinator/loadtest/scrape"
)

// figure is a number of a report. Name, within its section, is what two reports are
// compared by.
type figure struct {
	section string
	name    string
	unit    string
	value   float64
}

// list collects the figures of a report.
type list struct {
	all     []figure
	section string
}

func (l *list) add(name, unit string, value float64) {
	l.all = append(l.all, figure{l.section, name, unit, value})
}

// figures returns the numbers of a report, section by section.
func figures(f *File) []figure {
	l := &list{}
	l.clients(f)
	if f.Coordinator != nil {
		l.coordinator(f)
	}
	return l.all
}

func (l *list) clients(f *File) {
	l.section = "Requests"
	c := f.Counts
	l.add("begun", "", float64(c.Begun))
	l.add("ok", "", float64(c.OK))
	l.add("failed", "", float64(c.Failed))
	l.add("cut by the end of the run", "", float64(c.Cut))
	l.add("missed", "", float64(c.Missed))
	l.add("ended well", "/s", f.Rates.OK)
	if c.Events > 0 {
		l.add("events of streams", "/s", f.Rates.Events)
	}
	l.section = "Times that clients saw"
	for _, line := range f.Summaries() {
		if s := line.Summary; s.Count > 0 {
			for _, p := range []struct {
				name string
				us   int64
			}{{"p50", s.P50}, {"p90", s.P90}, {"p99", s.P99}, {"max", s.Max}} {
				l.add(line.Name+", "+p.name, "ms", float64(p.us)/1000)
			}
		}
	}
	l.section = "Errors that clients saw"
	l.add("all", "", float64(c.Failed))
	l.counts("", f.Codes)
	l.counts("", f.Transport)
	if p := f.Process; p != nil {
		l.section = "Process"
		l.add("CPU for each request", "µs", p.CPUPerRequest)
		l.add("memory after the run", "MB", float64(p.RSSAfter)/(1<<20))
		l.add("memory at most", "MB", float64(p.PeakRSS)/(1<<20))
	}
}

func (l *list) counts(before string, counts map[string]int64) {
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		l.add(before+key, "", float64(counts[key]))
	}
}

func (l *list) coordinator(f *File) {
	c := f.Coordinator
	l.section = "Requests, as the coordinator saw them"
	m := c.Mix
	l.add("requests", "", m.Requests)
	l.add("images for each request", "", ratio(m.Images, m.Requests))
	l.add("tokens of a prompt", "", ratio(m.PromptTokens, m.Prompts))
	if m.OutputTokens > 0 {
		l.add("tokens of answers that say so, for each request", "", ratio(m.OutputTokens, m.Requests))
	}
	l.add("body of a request", "KB", ratio(m.BodyBytes, m.Bodies)/1024)
	l.floats("error ", c.Errors)
	l.floats("refused: ", c.Shed)
	l.floats("sent again: ", c.Retries)
	l.floats("conditional decodes: ", c.Probes)
	for _, s := range []struct {
		section string
		timings map[string]scrape.Timing
	}{
		{"Steps, queueing included", c.Steps}, {"Legs to upstreams", c.Upstreams}, {"Waits in the queues of pools", c.Waits},
		{"Downloads of images", c.Downloads}, {"The coordinator's own part of a request, by its path", c.Overhead},
	} {
		l.section = s.section
		for _, key := range slices.SortedFunc(maps.Keys(s.timings), inOrder) {
			t := s.timings[key]
			l.add(key+", times", "", t.Count)
			l.add(key+", mean", "ms", t.Mean*1000)
			l.add(key+", p99", "ms", t.P99*1000)
		}
	}
	if s := c.Series; s != nil {
		l.section = "Pools"
		for _, key := range slices.SortedFunc(maps.Keys(s.Pools), inOrder) {
			if p := s.Pools[key]; p.Busy.Max+p.Queue.Max > 0 {
				l.add(key+", size", "", p.Size.Max)
				l.add(key+", busy, mean", "", p.Busy.Mean)
				l.add(key+", busy, most", "", p.Busy.Max)
				l.add(key+", waiting, most", "", p.Queue.Max)
			}
		}
		l.add("requests being served, mean", "", s.Running.Mean)
		l.add("bytes in flight, mean", "MB", s.Bytes.Mean/(1<<20))
		l.add("bytes in flight, most", "MB", s.Bytes.Max/(1<<20))
	}
}

func (l *list) floats(before string, counts map[string]float64) {
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		l.add(before+key, "", counts[key])
	}
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// way is the order of steps and pools on the way of a request.
var way = []string{"media", "replace-media-urls", "render", "conditional-decode", "encode", "prefill", "prefill-decode", "decode"}

// inOrder puts names in the order of a request's way, others behind them.
func inOrder(a, b string) int {
	rank := func(name string) int {
		if i := slices.Index(way, name); i >= 0 {
			return i
		}
		return len(way)
	}
	return cmp.Or(rank(a)-rank(b), strings.Compare(a, b))
}

// digits writes a number with as many digits as matter.
func digits(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "–"
	case v == math.Trunc(v) && a < 1e15, a >= 1000:
		return fmt.Sprintf("%.0f", v)
	case a >= 100:
		return fmt.Sprintf("%.1f", v)
	case a >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// withUnit writes a number and its unit, as in 12 ms and 200/s.
func withUnit(v float64, unit string) string {
	if unit == "" || unit == "/s" || unit == "%" {
		return digits(v) + unit
	}
	return digits(v) + " " + unit
}
