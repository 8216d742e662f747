package load

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"
)

// Report is what a run has measured. The names of its fields in JSON are stable:
// fields may be added, none is renamed or gets another meaning.
//
// Times are of requests that ended well (a status of 2xx and a whole answer),
// but for gaps, which are of all streams: errors, which are often quick, are
// counted and do not make a server look fast.
type Report struct {
	// Settings are the options of the run, with defaults filled in.
	Settings Options `json:"settings"`
	// Began is when it did.
	Began time.Time `json:"began"`
	// DurationSeconds is how long it took, to the end of the last request.
	DurationSeconds float64 `json:"duration_seconds"`
	Counts          Counts  `json:"counts"`
	Rates           Rates   `json:"rates"`
	// FirstEvent is the time to the first event of a stream, or to the first byte
	// of the body of another answer.
	FirstEvent Summary `json:"first_event"`
	// Gap is the time between two arrivals of events of one stream; events that
	// arrive together are one arrival.
	Gap Summary `json:"gap"`
	// Total is the time to the end of an answer.
	Total Summary `json:"total"`
	// Delay is how much later than it should a request began: the generator's own
	// slowness. In an open loop the other times include it.
	Delay Summary `json:"delay"`
	// Statuses are the answers by HTTP status.
	Statuses map[string]int64 `json:"statuses"`
	// Codes are the requests that failed with an answer, by error.code in its
	// body or in an event of a stream; those without one are NoCode.
	Codes map[string]int64 `json:"codes"`
	// Transport are the requests that failed without one, by kind: Refused and
	// the others.
	Transport map[string]int64 `json:"transport"`
	// Windows are the run second by second; of a long one they are wider, for there
	// are no more than 600.
	Windows []Window `json:"windows,omitempty"`
	// Process is what the process that was watched has spent, or nil.
	Process *Process `json:"process,omitempty"`
}

// Counts are of requests. Begun is the sum of OK, Failed and Cut once a run has
// ended, and of an open loop Begun and Missed are its schedule.
type Counts struct {
	Begun  int64 `json:"begun"`
	OK     int64 `json:"ok"`
	Failed int64 `json:"failed"`
	// Cut are those that the end of the run cut off.
	Cut int64 `json:"cut"`
	// Missed did not begin because Options.MaxInFlight were under way.
	Missed int64 `json:"missed"`
	// Events are those of streams, the last ([DONE]) included.
	Events int64 `json:"events"`
	// BytesRead are of the bodies of answers.
	BytesRead int64 `json:"bytes_read"`
}

// Rates are per second.
type Rates struct {
	OK     float64 `json:"ok"`
	Events float64 `json:"events"`
}

// Summary is of a histogram, in microseconds, to a thousandth; all 0 if it is
// empty.
type Summary struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean_us"`
	Min   int64   `json:"min_us"`
	P50   int64   `json:"p50_us"`
	P90   int64   `json:"p90_us"`
	P99   int64   `json:"p99_us"`
	P999  int64   `json:"p999_us"`
	Max   int64   `json:"max_us"`
}

// Process is what a process has spent in a run.
type Process struct {
	PID           int     `json:"pid"`
	UserSeconds   float64 `json:"user_seconds"`
	SystemSeconds float64 `json:"system_seconds"`
	// CPUPerRequest are microseconds of both, for each request that began.
	CPUPerRequest float64 `json:"cpu_us_per_request"`
	RSSBefore     int64   `json:"rss_before_bytes"`
	RSSAfter      int64   `json:"rss_after_bytes"`
	// PeakRSS is the most since the process began.
	PeakRSS int64 `json:"peak_rss_bytes"`
}

// NamedSummary is a summary and what it is of.
type NamedSummary struct {
	Name string
	Summary
}

// Summaries are those of a report, in the order in which they are shown.
func (r *Report) Summaries() []NamedSummary {
	return []NamedSummary{{"first event", r.FirstEvent}, {"gap", r.Gap}, {"total", r.Total}, {"begun late", r.Delay}}
}

// WriteText writes what people want to know.
func (r *Report) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	c := r.Counts
	fmt.Fprintf(w, "%d begun in %.1f s: %d ok (%.1f/s), %d failed, %d cut, %d missed; %d events (%.0f/s)\n",
		c.Begun, r.DurationSeconds, c.OK, r.Rates.OK, c.Failed, c.Cut, c.Missed, c.Events, r.Rates.Events)
	fmt.Fprintf(t, "ms\tcount\tp50\tp90\tp99\tp99.9\tmax\t\n")
	for _, line := range r.Summaries() {
		s := line.Summary
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t\n", line.Name, s.Count, ms(s.P50), ms(s.P90), ms(s.P99), ms(s.P999), ms(s.Max))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, line := range []struct {
		name   string
		counts map[string]int64
	}{{"status", r.Statuses}, {"error code", r.Codes}, {"transport", r.Transport}} {
		for _, key := range slices.Sorted(maps.Keys(line.counts)) {
			fmt.Fprintf(w, "%s %s: %d\n", line.name, key, line.counts[key])
		}
	}
	if p := r.Process; p != nil {
		fmt.Fprintf(w, "process %d: %.0f µs of CPU for each request (%.2f s user, %.2f s system), RSS %.1f MB before, %.1f MB after, %.1f MB at most\n",
			p.PID, p.CPUPerRequest, p.UserSeconds, p.SystemSeconds, mb(p.RSSBefore), mb(p.RSSAfter), mb(p.PeakRSS))
	}
	return nil
}

func ms(us int64) string     { return fmt.Sprintf("%.2f", float64(us)/1000) }
func mb(bytes int64) float64 { return float64(bytes) / (1 << 20) }
