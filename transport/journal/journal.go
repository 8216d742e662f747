// Package journal records what happens in one request, and when: for its log
// line, its trace, the metrics and the operators' pages. It knows nothing of what
// a request or an answer says.
package journal

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Journal is the record of one request. Its methods may be called by many
// goroutines at once; those of a nil Journal record nothing.
type Journal struct {
	// Trace is fixed before anybody else has the Journal.
	Trace Trace

	closed bool // the entry has been handed out; guarded by mu, like what is below
	mu     sync.Mutex
	entry  Entry
	parts  *[]*Journal // of a request that has some; else nil
}

// Entry is what a Journal holds. Times are those of this process.
type Entry struct {
	// Phase is the one that the request is in, or ended in.
	Phase string
	Steps []Step
	Calls []Call
	Waits []Wait
	// Notes name each way that the request took and that was not asked for; NotedAt
	// says when, of each.
	Notes   []string
	NotedAt []time.Time
	// TokensIn is how many token ids the prompt has; 0 is not known. TokensOut is
	// what the worker says that the answer has.
	TokensIn, TokensOut int
}

// Step is one run of a phase that had work to do.
type Step struct {
	Phase string
	// Began is when the phase was planned, Sent when a worker began with its first
	// task (zero: none did), Ended when it was joined or failed (zero: not yet).
	Began, Sent, Ended time.Time
	Tasks              int
	// Code of the error that it failed with, or "".
	Code string
}

// Call is one attempt of a leg, or a download.
type Call struct {
	// Upstream is a profile, "render", or "media".
	Upstream string
	// ID is the request id that it went by.
	ID string
	// Step is the index of the step that it belongs to, -1 for none.
	Step int
	// Began is when it was sent, Answered when its headers came, Ended when its
	// answer was over or given up. Zero: not yet.
	Began, Answered, Ended time.Time
	// Status of the answer; 0: there was none.
	Status int
	// Reason why it failed, or "": "connect", "timeout", "503", a code of an error.
	Reason string
	// Span is its id in a trace of ours: all attempts of a leg have the same, for
	// what a worker did for the first belongs to the leg too.
	Span SpanID
}

// Wait is a time in the queue of a pool.
type Wait struct {
	Pool        string
	Step        int
	From, Until time.Time
}

// write has f change the entry, unless it has been handed out. It reports whether
// it did.
func (j *Journal) write(f func(*Entry)) bool {
	if j == nil {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.closed {
		f(&j.entry)
	}
	return !j.closed
}

// Trim gives back what was set aside for more to be noted: nothing will be for a
// while.
func (j *Journal) Trim() {
	j.write(func(e *Entry) {
		e.Steps, e.Calls = slices.Clone(e.Steps), slices.Clone(e.Calls)
		e.Waits = slices.Clone(e.Waits)
	})
}

// last is the step that is under way.
func (e *Entry) last() *Step { return &e.Steps[len(e.Steps)-1] }

// BeginStep notes that a phase has been planned.
func (j *Journal) BeginStep(phase string, at time.Time) {
	j.write(func(e *Entry) {
		e.Phase = phase
		if e.Steps == nil {
			e.Steps = make([]Step, 0, 6)
		}
		e.Steps = append(e.Steps, Step{Phase: phase, Began: at})
	})
}

// SkipStep takes the last step back: the phase does not apply.
func (j *Journal) SkipStep() {
	j.write(func(e *Entry) { e.Steps = e.Steps[:len(e.Steps)-1] })
}

// Sent notes when a worker began with a task of the last step.
func (j *Journal) Sent(at time.Time) {
	if at.IsZero() {
		return
	}
	j.write(func(e *Entry) {
		if s := e.last(); s.Sent.IsZero() || at.Before(s.Sent) {
			s.Sent = at
		}
	})
}

// EndStep notes that the last step was joined, or failed with a code.
func (j *Journal) EndStep(tasks int, code string, at time.Time) {
	j.write(func(e *Entry) {
		s := e.last()
		s.Tasks, s.Code, s.Ended = tasks, code, at
	})
}

// Waited notes a time in a queue.
func (j *Journal) Waited(pool string, from, until time.Time) {
	j.write(func(e *Entry) { e.Waits = append(e.Waits, Wait{pool, len(e.Steps) - 1, from, until}) })
}

// Note notes a way that was not asked for.
func (j *Journal) Note(text string) {
	j.write(func(e *Entry) { e.Notes, e.NotedAt = append(e.Notes, text), append(e.NotedAt, time.Now()) })
}

// SetTokensIn notes how many token ids the prompt has.
func (j *Journal) SetTokensIn(n int) { j.write(func(e *Entry) { e.TokensIn = n }) }

// SetTokensOut notes how many tokens the answer has.
func (j *Journal) SetTokensOut(n int) { j.write(func(e *Entry) { e.TokensOut = n }) }

// Begin notes that a call is made.
func (j *Journal) Begin(upstream, id string, at time.Time) Open {
	if j == nil {
		return Open{}
	}
	c := Open{journal: j}
	if j.Trace.Ours {
		c.Span = NewSpanID()
	}
	return c.begin(upstream, id, at)
}

// Again notes that the leg of a call that has ended is sent once more.
func (o *Open) Again(id string, at time.Time) Open {
	upstream := ""
	o.note(func(c *Call) { upstream = c.Upstream })
	return Open{Span: o.Span, journal: o.journal}.begin(upstream, id, at)
}

// begin adds a call. Where it is not recorded it notes nothing.
func (o Open) begin(upstream, id string, at time.Time) Open {
	if !o.journal.write(func(e *Entry) {
		if e.Calls == nil {
			e.Calls = make([]Call, 0, 6)
		}
		o.index = len(e.Calls)
		e.Calls = append(e.Calls, Call{Upstream: upstream, ID: id, Step: len(e.Steps) - 1, Began: at, Span: o.Span})
	}) {
		o.journal = nil
	}
	return o
}

// Open is a call that has not ended. The zero value notes nothing.
type Open struct {
	// Span is the call's id in a trace of ours.
	Span    SpanID
	journal *Journal
	index   int
}

func (o *Open) note(f func(*Call)) {
	o.journal.write(func(e *Entry) { f(&e.Calls[o.index]) })
}

// Answered notes the headers of an answer.
func (o *Open) Answered(status int, at time.Time) {
	o.note(func(c *Call) { c.Status, c.Answered = status, at })
}

// Failed notes why the call failed.
func (o *Open) Failed(reason string) { o.note(func(c *Call) { c.Reason = reason }) }

// End notes that the call is over; the first counts.
func (o *Open) End(at time.Time) {
	o.note(func(c *Call) {
		if c.Ended.IsZero() {
			c.Ended = at
		}
	})
}

// Entry returns a copy of what has been noted so far.
func (j *Journal) Entry() Entry {
	if j == nil {
		return Entry{}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.entry
	e.Steps, e.Calls, e.Waits = slices.Clone(e.Steps), slices.Clone(e.Calls), slices.Clone(e.Waits)
	e.Notes, e.NotedAt = slices.Clone(e.Notes), slices.Clone(e.NotedAt)
	for i, part := range j.allParts() {
		e.add(i, part.Entry())
	}
	return e
}

// Phase returns the phase that the request is in.
func (j *Journal) Phase() string {
	if j == nil {
		return ""
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	phase := j.entry.Phase
	for _, part := range j.allParts() {
		phase = cmp.Or(phase, part.Phase())
	}
	return phase
}

// Close returns what has been noted, and ends the record: a download that others
// share may end later, and is not noted any more.
func (j *Journal) Close() Entry {
	if j == nil {
		return Entry{}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
	e := j.entry
	for i, part := range j.allParts() {
		e.add(i, part.Close())
	}
	return e
}
