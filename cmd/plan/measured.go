package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/llm-coordinator/coordinator/loadtest/scrape"
)

// Measured is what is known of a coordinator that has worked. Methods of nil are
// those of one that has not.
type Measured struct {
	// source says where it is from.
	source  string
	figures *scrape.Figures
	// events is how many events a stream had, or NaN: about as many tokens.
	events float64
}

// FromMetrics makes it of what a coordinator says of itself since it started.
func FromMetrics(source string, s *scrape.Snapshot) (*Measured, error) {
	return newMeasured(source, scrape.Between(nil, s), math.NaN())
}

// FromReport makes it of a report of loadtest/run.
func FromReport(source string, text []byte) (*Measured, error) {
	var r struct {
		Settings struct {
			Request struct {
				Stream bool `json:"stream"`
			} `json:"request"`
			Mix []json.RawMessage `json:"mix"`
		} `json:"settings"`
		Counts struct {
			OK     float64 `json:"ok"`
			Failed float64 `json:"failed"`
			Cut    float64 `json:"cut"`
			Events float64 `json:"events"`
		} `json:"counts"`
		Coordinator *scrape.Figures `json:"coordinator"`
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s is no report of a load test: %w", source, err)
	}
	if r.Coordinator == nil {
		return nil, fmt.Errorf("%s does not say what the coordinator did: make it with -o and -metrics (see loadtest/run)", source)
	}
	events := math.NaN()
	// Events are counted of all streams, those that broke off among them.
	if c := r.Counts; r.Settings.Request.Stream && len(r.Settings.Mix) == 0 && c.OK > 0 && c.Failed+c.Cut == 0 {
		events = max(1, r.Counts.Events/r.Counts.OK-1) // the last says only that it is the last
	}
	return newMeasured(source, r.Coordinator, events)
}

func newMeasured(source string, f *scrape.Figures, events float64) (*Measured, error) {
	if f.Mix.Requests <= 0 || f.Steps["decode"].Count+f.Steps["conditional-decode"].Count <= 0 {
		return nil, errors.New(source + ": no request has come as far as decode: there is nothing to plan from. Send some, or give -times")
	}
	return &Measured{source: source, figures: f, events: events}, nil
}

// quotient is NaN of nothing.
func quotient(a, b float64) float64 {
	if b <= 0 {
		return math.NaN()
	}
	return a / b
}

// mix is what the requests were.
func (m *Measured) mix() scrape.Mix {
	if m == nil {
		return scrape.Mix{}
	}
	return m.figures.Mix
}

func (m *Measured) prompt() float64 { return quotient(m.mix().PromptTokens, m.mix().Prompts) }
func (m *Measured) images() float64 { return quotient(m.mix().Images, m.mix().Requests) }

// imagesTogether is how many images requests have that have some.
func (m *Measured) imagesTogether() float64 { return quotient(m.mix().Images, m.mix().WithImages) }

// output is how many tokens an answer has, if that is known. Streams say so only if
// the client asks, but each of their events is about one: a report counts those. Of
// metrics alone nothing is known if there were streams among the requests.
func (m *Measured) output() float64 {
	if m == nil {
		return math.NaN()
	}
	if !math.IsNaN(m.events) {
		return m.events
	}
	const few = 0.02
	answers := m.figures.Steps["decode"].Count
	if m.mix().OutputTokens <= 0 || m.figures.FirstByte.Count > few*answers {
		return math.NaN()
	}
	return quotient(m.mix().OutputTokens, answers)
}

// byURL is the part of images that were downloaded, of requests that came so far.
func (m *Measured) byURL() float64 {
	if m == nil {
		return math.NaN()
	}
	return quotient(m.figures.Downloads["ok"].Count, m.figures.Steps["replace-media-urls"].Count*m.imagesTogether())
}

// distinct is the part of images that encode got; 1 if it was not measured.
func (m *Measured) distinct() float64 {
	if m == nil {
		return 1
	}
	if d := quotient(m.mix().Encodes, m.figures.Steps["encode"].Count*m.imagesTogether()); d > 0 {
		return min(1, d)
	}
	return 1
}

// cached is the part of requests that a conditional decode served.
func (m *Measured) cached() float64 {
	if m == nil {
		return math.NaN()
	}
	all := 0.0
	for _, n := range m.figures.Probes {
		all += n
	}
	return quotient(m.figures.Probes["served"], all)
}

// bytesEach is what a request in flight holds, if it was watched over time.
func (m *Measured) bytesEach() float64 {
	if m == nil || m.figures.Series == nil || m.figures.Series.Running.Mean < 1 {
		return math.NaN()
	}
	return m.figures.Series.Bytes.Mean / m.figures.Series.Running.Mean
}

// body is how long a request's body is.
func (m *Measured) body() float64 { return quotient(m.mix().BodyBytes, m.mix().Bodies) }

// time returns how long work took without waiting in queues, if it was measured.
// takesPlace: its step waits for a decode place, too.
func (m *Measured) time(work string, takesPlace bool) (t workTime, ok bool) {
	if m == nil {
		return t, false
	}
	var of scrape.Timing
	what := "legs"
	switch work {
	case media:
		of, what = m.figures.Downloads["ok"], "downloads"
	case probe:
		of, what = m.figures.Steps["conditional-decode"], "steps"
	case decode: // to the end of the answer
		of, what = m.figures.Steps["decode"], "steps"
	default:
		of = m.figures.Upstreams[work]
	}
	if of.Count <= 0 {
		return t, false
	}
	if takesPlace {
		of.Mean = max(0, of.Sum-m.figures.Waits[decode].Sum) / of.Count
	}
	return workTime{work, of.Mean, measured, fmt.Sprintf("mean of %.0f %s, p99 %s", of.Count, what, seconds(of.P99))}, true
}

// doubts are reasons not to trust the numbers.
func (m *Measured) doubts() (doubts []string) {
	failed, shed := 0.0, 0.0
	for _, n := range m.figures.Errors {
		failed += n
	}
	for _, n := range m.figures.Shed {
		shed += n
	}
	if shed > 0 {
		doubts = append(doubts, fmt.Sprintf("%.0f of %.0f requests were refused when it was measured: workers at their limit are slower than they have to be.",
			shed, m.mix().Requests))
	}
	if failed > shed {
		doubts = append(doubts, fmt.Sprintf("%.0f of %.0f requests failed when it was measured: their times are among the others.", failed-shed, m.mix().Requests))
	}
	if m.figures.Restarted {
		doubts = append(doubts, "The coordinator was started anew while it was measured: what was before is not known.")
	}
	return doubts
}
