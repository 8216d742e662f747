package load

import (
	"math"
	"time"
)

// Window is what happened in a stretch of a run. Requests count where they ended
// (those that began or were missed, where that was).
type Window struct {
	// At is when it began, from the beginning of the run on.
	At float64 `json:"at_seconds"`
	// Seconds is how long it was: all are equally long, but for the last.
	Seconds float64 `json:"seconds"`
	Begun   int64   `json:"begun"`
	OK      int64   `json:"ok"`
	Failed  int64   `json:"failed"`
	Cut     int64   `json:"cut"`
	Missed  int64   `json:"missed"`
	// Events are those of the streams that ended.
	Events int64 `json:"events"`
	// Errors are the requests that failed, by code or by kind, as in Report.Codes
	// and Report.Transport.
	Errors map[string]int64 `json:"errors,omitempty"`
	// FirstEvent and Total are times of those that ended well.
	FirstEvent Spread `json:"first_event"`
	Total      Spread `json:"total"`
}

// Spread is of the times in a window, in microseconds, to a fortieth; all 0 if there
// were none.
type Spread struct {
	P50 int64 `json:"p50_us"`
	P90 int64 `json:"p90_us"`
	P99 int64 `json:"p99_us"`
}

// maxWindows is how many there are at most, however long a run lasts.
const maxWindows = 600

// windows are those of a run, up to now. They get wider as it goes on.
type windows struct {
	began time.Time
	width time.Duration
	all   []window
}

// window is one that is being counted.
type window struct {
	Window
	first, total coarse
}

// now returns the window that is now.
func (w *windows) now() *window {
	since := max(0, time.Since(w.began))
	for since/w.width >= maxWindows {
		w.widen()
	}
	at := int(since / w.width)
	for len(w.all) <= at {
		w.all = append(w.all, window{})
	}
	return &w.all[at]
}

// widen makes one of each two.
func (w *windows) widen() {
	w.width *= 2
	for i := range w.all {
		if i%2 == 1 {
			w.all[i/2].add(&w.all[i])
		} else {
			w.all[i/2] = w.all[i]
		}
	}
	half := (len(w.all) + 1) / 2
	clear(w.all[half:])
	w.all = w.all[:half]
}

// add adds what another has counted, which is not used any more.
func (w *window) add(o *window) {
	w.Begun += o.Begun
	w.OK += o.OK
	w.Failed += o.Failed
	w.Cut += o.Cut
	w.Missed += o.Missed
	w.Events += o.Events
	for code, n := range o.Errors {
		w.fail(code, n)
	}
	w.first.add(o.first)
	w.total.add(o.total)
}

func (w *window) fail(code string, n int64) {
	if w.Errors == nil {
		w.Errors = map[string]int64{}
	}
	w.Errors[code] += n
}

// end counts what became of a request.
func (w *window) end(o outcome) {
	w.Events += o.events
	switch {
	case o.cut:
		w.Cut++
	case o.ok():
		w.OK++
		w.first.record(o.first)
		w.total.record(o.total)
	default:
		w.Failed++
		if o.code != "" {
			w.fail(o.code, 1)
		} else {
			w.fail(o.failure, 1)
		}
	}
}

// report returns the windows of a run that took so long. A rest of less than half a
// window goes to the one before it: its rates would mean nothing.
func (w *windows) report(took time.Duration) (all []Window) {
	counted := w.all
	if n := len(counted); n > 1 && took-time.Duration(n-1)*w.width < w.width/2 {
		counted[n-2].add(&counted[n-1])
		counted = counted[:n-1]
	}
	for i := range counted {
		c := &counted[i]
		from := time.Duration(i) * w.width
		c.At, c.Seconds = from.Seconds(), w.width.Seconds()
		if i == len(counted)-1 {
			c.Seconds = max(took-from, time.Millisecond).Seconds()
		}
		c.FirstEvent, c.Total = c.first.spread(), c.total.spread()
		all = append(all, c.Window)
	}
	return all
}

// coarse holds times in buckets, each a twentieth wider than the one below. It is a
// hundredth of a histogram's size, for there may be many. The zero value is empty.
type coarse struct {
	counts []uint32
	n      int64
}

const widening = 1.05

var (
	perBucket  = math.Log(widening)
	maxBuckets = bucketOf(longest.Microseconds()) + 1
)

func bucketOf(us int64) int {
	if us < 1 {
		return 0
	}
	return 1 + int(math.Log(float64(us))/perBucket)
}

func (c *coarse) record(d time.Duration) {
	if c.counts == nil {
		c.counts = make([]uint32, maxBuckets)
	}
	c.counts[bucketOf(min(max(d, 0), longest).Microseconds())]++
	c.n++
}

func (c *coarse) add(o coarse) {
	if c.counts == nil {
		*c = o
		return
	}
	for i, n := range o.counts {
		c.counts[i] += n
	}
	c.n += o.n
}

func (c *coarse) spread() Spread {
	return Spread{P50: c.at(.50), P90: c.at(.90), P99: c.at(.99)}
}

// at returns the time that so great a part of all do not exceed: the middle of its
// bucket.
func (c *coarse) at(part float64) int64 {
	rank, seen := int64(math.Ceil(part*float64(c.n))), int64(0)
	for i, n := range c.counts {
		if seen += int64(n); n > 0 && seen >= rank {
			if i == 0 {
				return 0
			}
			return int64(math.Round(math.Exp((float64(i) - 0.5) * perBucket)))
		}
	}
	return 0
}
