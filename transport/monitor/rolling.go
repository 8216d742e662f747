package monitor

import (
	"slices"
	"time"

	"github.com/llm-coordinator/coordinator/transport/journal"
	"github.com/llm-coordinator/coordinator/transport/server"
)

// window is of what time the figures of phases are.
const window = time.Minute

// samples are the last steps of one phase: as many as make a p99, and the seconds
// in which some failed. Those that came before others fall out first.
type samples struct {
	at     [512]time.Time
	took   [512]time.Duration
	n      int
	failed [60]struct {
		second int64
		n      int
	}
}

func (s *samples) add(at time.Time, took time.Duration, failed bool) {
	i := s.n % len(s.at)
	s.at[i], s.took[i] = at, took
	s.n++
	if failed {
		second := at.Unix()
		f := &s.failed[int(second)%len(s.failed)]
		if f.second != second {
			f.second, f.n = second, 0
		}
		f.n++
	}
}

// last returns percentiles, in milliseconds, and failures per second of the last
// minute.
func (s *samples) last(now time.Time) (p50, p99, errors float64) {
	var took []time.Duration
	for i := range min(s.n, len(s.at)) {
		if now.Sub(s.at[i]) < window {
			took = append(took, s.took[i])
		}
	}
	failed := 0
	for _, f := range s.failed {
		if now.Unix()-f.second < int64(len(s.failed)) {
			failed += f.n
		}
	}
	slices.Sort(took)
	return percentile(took, 50), percentile(took, 99), float64(failed) / window.Seconds()
}

// percentile returns a percentile of sorted durations in milliseconds, 0 of none.
func percentile(sorted []time.Duration, p int) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return ms(sorted[(len(sorted)*p+99)/100-1])
}

// chart is the last 15 minutes in parts of 10 seconds.
type chart struct {
	parts [90]part
}

const partLength = 10 * time.Second

type part struct {
	number         int64 // since 1970
	requests, shed int
	first          [128]time.Duration // times to the first byte of streams, some of them
	firsts         int
}

func (c *chart) add(now time.Time, rec *server.Record) {
	number := now.UnixNano() / int64(partLength)
	p := &c.parts[int(number)%len(c.parts)]
	if p.number > number {
		return // from before a clock was set back
	}
	if p.number != number {
		*p = part{number: number}
	}
	p.requests++
	if shed(rec) {
		p.shed++
	}
	if rec.Stream && rec.FirstByte > 0 && rec.Status < 400 {
		// When it is full the new ones take the places of old ones in turn.
		p.first[p.firsts%len(p.first)] = rec.FirstByte
		p.firsts++
	}
}

// shed reports whether a request was refused before a worker did anything for it.
// To render a prompt, or to download an image, is no worker's work.
func shed(rec *server.Record) bool {
	return outcome(rec) == Refused && !slices.ContainsFunc(rec.Calls, func(c journal.Call) bool {
		return c.Upstream != "render" && c.Upstream != "media" && c.Status/100 == 2
	})
}

// points returns the whole parts of the chart, oldest first, and the one that is
// under way.
func (c *chart) points(now time.Time) []Point {
	last := now.UnixNano() / int64(partLength)
	points := make([]Point, 0, len(c.parts))
	for number := last - int64(len(c.parts)) + 1; number <= last; number++ {
		at := time.Unix(0, number*int64(partLength))
		point := Point{At: at}
		if p := &c.parts[int(number)%len(c.parts)]; p.number == number {
			seconds := min(partLength, max(now.Sub(at), time.Second)).Seconds()
			point.Requests, point.Shed = float64(p.requests)/seconds, float64(p.shed)/seconds
			first := slices.Clone(p.first[:min(p.firsts, len(p.first))])
			slices.Sort(first)
			point.P50, point.P99 = percentile(first, 50), percentile(first, 99)
		}
		points = append(points, point)
	}
	return points
}
