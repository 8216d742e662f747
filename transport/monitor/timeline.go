package monitor

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/llm-coordinator/coordinator/transport/journal"
)

// timeline turns moments into milliseconds since a request came. What has not
// ended ends now.
type timeline struct{ from, end time.Time }

func (t timeline) at(moment time.Time) float64 {
	if moment.IsZero() {
		moment = t.end
	}
	return max(0, ms(moment.Sub(t.from)))
}

func (t timeline) steps(e *journal.Entry) []Step {
	all := make([]Step, len(e.Steps))
	for i, s := range e.Steps {
		queued := ms(e.Queued(i))
		began, ended := t.at(s.Began), t.at(s.Ended)
		all[i] = Step{Phase: s.Phase, Began: began, Ended: ended, Queued: queued, Ran: max(0, ended-began-queued),
			Tasks: s.Tasks, Attempts: e.Attempts(i), Code: s.Code, Open: s.Ended.IsZero()}
	}
	return all
}

func (t timeline) calls(e *journal.Entry) []Call {
	all := make([]Call, len(e.Calls))
	for i, c := range e.Calls {
		all[i] = Call{Upstream: c.Upstream, ID: c.ID, Began: t.at(c.Began), Ended: t.at(c.Ended), Status: c.Status, Reason: c.Reason, Open: c.Ended.IsZero()}
		if c.Step >= 0 && c.Step < len(e.Steps) {
			all[i].Phase = e.Steps[c.Step].Phase
		}
		if !c.Answered.IsZero() {
			all[i].Answered = t.at(c.Answered)
		}
	}
	return all
}

func (t timeline) waits(e *journal.Entry) []Wait {
	all := make([]Wait, len(e.Waits))
	for i, w := range e.Waits {
		all[i] = Wait{w.Pool, t.at(w.From), t.at(w.Until)}
	}
	return all
}

// bars are the parts of the timeline: queues, calls (those of one step that are
// made beside each other are one bar), the hand-off between prefill's answer and
// decode's leg, and the stream behind the first byte.
func (t timeline) bars(e *journal.Entry, firstByte float64) []Bar {
	all := []Bar{}
	for _, w := range e.Waits {
		all = append(all, Bar{"queue", "queue of " + w.Pool, t.at(w.From), t.at(w.Until)})
	}
	var prefilled time.Time
	for i := 0; i < len(e.Calls); i++ {
		c := &e.Calls[i]
		bar, n := Bar{c.Upstream, c.Upstream, t.at(c.Began), t.at(c.Ended)}, 1
		for ; i+1 < len(e.Calls) && e.Calls[i+1].Step == c.Step && e.Calls[i+1].Upstream == c.Upstream; i++ {
			bar.Until = max(bar.Until, t.at(e.Calls[i+1].Ended))
			n++
		}
		if n > 1 {
			bar.Label += ", " + strconv.Itoa(n) + " calls"
		}
		switch {
		case c.Upstream == "prefill":
			prefilled = c.Ended
		case c.Upstream == "decode" && !prefilled.IsZero() && c.Began.After(prefilled):
			all = append(all, Bar{"handoff", "hand-off", t.at(prefilled), bar.From})
		}
		if first := firstByte; c.Upstream == "decode" && first > bar.From && first < bar.Until {
			all = append(all, Bar{"decode", "decode, to the first byte", bar.From, first}, Bar{"stream", "stream", first, bar.Until})
			continue
		}
		all = append(all, bar)
	}
	slices.SortStableFunc(all, func(a, b Bar) int { return cmp.Compare(a.From, b.From) })
	return all
}
