package journal

import (
	"fmt"
	"time"
)

// Part begins the record of a part of the request, in the same trace: what it says is
// in the request's own entry, part by part. It may be called until the request's
// record has ended.
func (j *Journal) Part() *Journal {
	if j == nil {
		return nil
	}
	part := &Journal{Trace: j.Trace}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.parts == nil {
		j.parts = new([]*Journal)
	}
	*j.parts = append(*j.parts, part)
	return part
}

// allParts returns the parts. The lock is held.
func (j *Journal) allParts() []*Journal {
	if j.parts == nil {
		return nil
	}
	return *j.parts
}

// add adds what the i-th part of the request says. The entry's slices are not shared
// with anybody.
func (e *Entry) add(i int, part Entry) {
	before := len(e.Steps)
	moved := func(step int) int {
		if step < 0 {
			return step
		}
		return before + step
	}
	if first, ok := e.failedFirst(); e.Phase == "" || part.fails(first, ok) {
		e.Phase = part.Phase
	}
	e.Steps = append(e.Steps, part.Steps...)
	for _, c := range part.Calls {
		c.Step = moved(c.Step)
		e.Calls = append(e.Calls, c)
	}
	for _, w := range part.Waits {
		w.Step = moved(w.Step)
		e.Waits = append(e.Waits, w)
	}
	for k, note := range part.Notes {
		e.Notes, e.NotedAt = append(e.Notes, fmt.Sprintf("prompt %d: %s", i, note)), append(e.NotedAt, part.NotedAt[k])
	}
	e.TokensIn, e.TokensOut = e.TokensIn+part.TokensIn, e.TokensOut+part.TokensOut
}

// failedFirst returns when the first step failed, if one did.
func (e *Entry) failedFirst() (at time.Time, ok bool) {
	for i := range e.Steps {
		if s := &e.Steps[i]; s.Code != "" && (!ok || s.Ended.Before(at)) {
			at, ok = s.Ended, true
		}
	}
	return at, ok
}

// fails reports whether a step failed before a time, if there is one.
func (e *Entry) fails(before time.Time, ok bool) bool {
	at, failed := e.failedFirst()
	return failed && (!ok || at.Before(before))
}
