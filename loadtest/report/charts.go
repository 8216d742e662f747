package report

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/llm-coordinator/coordinator/loadtest/load"
	"github.com/llm-coordinator/coordinator/loadtest/scrape"
)

// named is a report and what its lines are called: "" if it is the only one.
type named struct {
	*File
	name   string
	second bool
}

// line makes a line of a report.
func (n named) line(name string, color int, x, y []float64) line {
	if n.name != "" {
		name = n.name + ": " + name
	}
	return line{name: name, x: x, y: y, color: color, dash: n.second}
}

// charts draws reports, with all of them in each drawing.
func charts(reports []named) (all []chart) {
	add := func(c chart, draw func(n named) []line) {
		for _, n := range reports {
			c.lines = append(c.lines, draw(n)...)
		}
		if len(c.lines) > 0 {
			all = append(all, c)
		}
	}
	single := len(reports) == 1
	add(chart{Title: "Throughput", unit: "requests each second"}, func(n named) []line { return n.throughput(single) })
	add(chart{Title: "Time to the first event", unit: "ms", Note: "Or to the first byte of an answer that is not streamed.", far: true},
		func(n named) []line {
			return n.percentiles(single, func(w load.Window) load.Spread { return w.FirstEvent })
		})
	add(chart{Title: "Time to the end of the answer", unit: "ms", far: true},
		func(n named) []line { return n.percentiles(single, func(w load.Window) load.Spread { return w.Total }) })
	add(chart{Title: "Errors that clients saw", unit: "requests each second", Note: "By error.code, or by what became of the connection."},
		named.errors)
	for _, pool := range busyPools(reports) {
		add(chart{Title: "Pool " + pool, unit: "tasks"}, func(n named) []line { return n.pool(pool) })
	}
	add(chart{Title: "In flight", unit: "requests"}, func(n named) []line {
		return n.gauge("requests being served", 1, 1, func(s *scrape.Series) scrape.Gauge { return s.Running })
	})
	add(chart{Title: "Bytes in flight", unit: "MB", Note: "Bodies, images and tensors that requests hold."}, func(n named) []line {
		return n.gauge("bytes in flight", 1, 1<<20, func(s *scrape.Series) scrape.Gauge { return s.Bytes })
	})
	add(chart{Title: "Circuit breakers", unit: "0 closed, 1 half open, 2 open"}, named.breakers)
	return all
}

// windows returns a value of each window, a rate for rates; nil if there are none.
func (n named) windows(value func(w load.Window) float64) (x, y []float64) {
	for _, w := range n.Windows {
		x, y = append(x, w.At+w.Seconds/2), append(y, value(w))
	}
	return x, y
}

func (n named) rate(name string, color int, count func(w load.Window) int64) line {
	x, y := n.windows(func(w load.Window) float64 { return float64(count(w)) / max(w.Seconds, 1e-3) })
	return n.line(name, color, x, y)
}

// throughput has fewer lines if it is drawn with another's.
func (n named) throughput(single bool) (lines []line) {
	if len(n.Windows) == 0 {
		return nil
	}
	if single {
		lines = append(lines, n.rate("begun", 2, func(w load.Window) int64 { return w.Begun }))
	}
	lines = append(lines, n.rate("ended well", 1, func(w load.Window) int64 { return w.OK }))
	if n.Counts.Failed > 0 {
		lines = append(lines, n.rate("failed", 3, func(w load.Window) int64 { return w.Failed }))
	}
	if n.Counts.Missed > 0 {
		lines = append(lines, n.rate("missed", 4, func(w load.Window) int64 { return w.Missed }))
	}
	return lines
}

func (n named) percentiles(single bool, of func(w load.Window) load.Spread) (lines []line) {
	if n.Counts.OK == 0 {
		return nil
	}
	for i, p := range []struct {
		name  string
		value func(s load.Spread) int64
	}{
		{"p99", func(s load.Spread) int64 { return s.P99 }},
		{"p90", func(s load.Spread) int64 { return s.P90 }},
		{"p50", func(s load.Spread) int64 { return s.P50 }},
	} {
		if !single && p.name == "p90" {
			continue // six lines are too many
		}
		x, y := n.windows(func(w load.Window) float64 {
			if w.OK == 0 {
				return math.NaN()
			}
			return float64(p.value(of(w))) / 1000
		})
		if len(x) > 0 {
			lines = append(lines, n.line(p.name, 3-i, x, y))
		}
	}
	return lines
}

// errors draws the most frequent ones; the others are one line.
func (n named) errors() (lines []line) {
	totals := map[string]int64{}
	for _, w := range n.Windows {
		for code, count := range w.Errors {
			totals[code] += count
		}
	}
	codes := slices.SortedFunc(maps.Keys(totals), func(a, b string) int {
		return cmp.Or(cmp.Compare(totals[b], totals[a]), cmp.Compare(a, b))
	})
	shown := min(len(codes), colors-1)
	for i, code := range codes[:shown] {
		lines = append(lines, n.rate(code, i+1, func(w load.Window) int64 { return w.Errors[code] }))
	}
	if len(codes) > shown {
		lines = append(lines, n.rate("others", colors, func(w load.Window) (sum int64) {
			for _, code := range codes[shown:] {
				sum += w.Errors[code]
			}
			return sum
		}))
	}
	return lines
}

func (n named) series() *scrape.Series {
	if n.Coordinator == nil {
		return nil
	}
	return n.Coordinator.Series
}

// busyPools are those that had work in any of the reports.
func busyPools(reports []named) []string {
	busy := map[string]bool{}
	for _, n := range reports {
		if s := n.series(); s != nil {
			for name, p := range s.Pools {
				if p.Busy.Max+p.Queue.Max > 0 {
					busy[name] = true
				}
			}
		}
	}
	return slices.SortedFunc(maps.Keys(busy), inOrder)
}

func (n named) gauge(name string, color int, per float64, of func(s *scrape.Series) scrape.Gauge) []line {
	s := n.series()
	if s == nil {
		return nil
	}
	values := slices.Clone(of(s).Values)
	for i := range values {
		values[i] /= per
	}
	if len(values) == 0 || len(values) != len(s.At) {
		return nil
	}
	return []line{n.line(name, color, s.At, values)}
}

// pool draws how many are busy and how many wait, above the size if that is near.
func (n named) pool(name string) (lines []line) {
	if s := n.series(); s != nil {
		if p := s.Pools[name]; 3*max(p.Busy.Max, p.Queue.Max) >= p.Size.Max {
			lines = n.gauge("size", 6, 1, func(s *scrape.Series) scrape.Gauge { return s.Pools[name].Size })
		}
	}
	lines = append(lines, n.gauge("busy", 1, 1, func(s *scrape.Series) scrape.Gauge { return s.Pools[name].Busy })...)
	return append(lines, n.gauge("waiting", 3, 1, func(s *scrape.Series) scrape.Gauge { return s.Pools[name].Queue })...)
}

// breakers draws those that opened.
func (n named) breakers() (lines []line) {
	s := n.series()
	if s == nil {
		return nil
	}
	for i, profile := range slices.SortedFunc(maps.Keys(s.Breakers), inOrder) {
		lines = append(lines, n.gauge(profile, 1+i%colors, 1, func(s *scrape.Series) scrape.Gauge { return s.Breakers[profile] })...)
	}
	return lines
}
