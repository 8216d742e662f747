package load

import (
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// histogram holds times in microseconds, up to an hour, to a thousandth.
type histogram struct{ h *hdrhistogram.Histogram }

const longest = time.Hour

func newHistogram() histogram {
	return histogram{hdrhistogram.New(1, longest.Microseconds(), 3)}
}

func (h histogram) record(d time.Duration) {
	_ = h.h.RecordValue(min(max(d, 0), longest).Microseconds()) // it is within its range
}

func (h histogram) summary() Summary {
	if h.h.TotalCount() == 0 {
		return Summary{}
	}
	p := h.h.ValueAtPercentilesSlice([]float64{50, 90, 99, 99.9})
	return Summary{Count: h.h.TotalCount(), Mean: h.h.Mean(), Min: h.h.Min(), P50: p[0], P90: p[1], P99: p[2], P999: p[3], Max: h.h.Max()}
}

// recorder counts what happens in a run. It may be used by many goroutines: one
// for all takes less memory than one for each of thousands of clients.
type recorder struct {
	mu                       sync.Mutex
	counts                   Counts
	first, gap, total, delay histogram
	windows                  windows
	statuses                 map[string]int64
	codes                    map[string]int64
	failures                 map[string]int64
}

func newRecorder(began time.Time) *recorder {
	return &recorder{first: newHistogram(), gap: newHistogram(), total: newHistogram(), delay: newHistogram(),
		windows: windows{began: began, width: time.Second}, statuses: map[string]int64{}, codes: map[string]int64{}, failures: map[string]int64{}}
}

// begin counts a request that begins so much later than it should.
func (r *recorder) begin(delay time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Begun++
	r.windows.now().Begun++
	r.delay.record(delay)
}

func (r *recorder) miss() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Missed++
	r.windows.now().Missed++
}

func (r *recorder) recordGap(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gap.record(d)
}

// end counts what became of a request that has begun.
func (r *recorder) end(o outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, w := &r.counts, r.windows.now()
	w.end(o)
	c.Events += o.events
	c.BytesRead += o.bytesRead
	if o.status > 0 {
		r.statuses[strconv.Itoa(o.status)]++
	}
	switch {
	case o.cut:
		c.Cut++
	case o.ok():
		c.OK++
		r.first.record(o.first)
		r.total.record(o.total)
	default:
		c.Failed++
		if o.code != "" {
			r.codes[o.code]++
		} else {
			r.failures[o.failure]++
		}
	}
}

func (r *recorder) soFar() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts
}
