package journal

import (
	"slices"
	"time"
)

// The ways that a request can take through the workers.
const (
	DecodeOnly          = "decode-only"
	PrefillDecode       = "prefill-decode"
	EncodePrefillDecode = "encode-prefill-decode"
)

// Path names the way that the request took through the workers, or is "" if no
// decode worker was called.
func (e *Entry) Path() string {
	called := func(upstream string) bool {
		return slices.ContainsFunc(e.Calls, func(c Call) bool { return c.Upstream == upstream })
	}
	switch {
	case !called("decode"):
		return ""
	case called("encode"):
		return EncodePrefillDecode
	case called("prefill"):
		return PrefillDecode
	}
	return DecodeOnly
}

// Attempts returns how many calls were made in a step.
func (e *Entry) Attempts(step int) (n int) {
	for i := range e.Calls {
		if e.Calls[i].Step == step {
			n++
		}
	}
	return n
}

// Queued returns how long something of a step waited in queues: what waited at
// the same time counts once.
func (e *Entry) Queued(step int) time.Duration {
	var spans [4]span
	all := spans[:0]
	for _, w := range e.Waits {
		if w.Step == step {
			all = append(all, span{w.From, w.Until})
		}
	}
	return union(all)
}

// Waiting returns how long, between two moments, the request waited for queues or
// for somebody else's answer. The rest is the coordinator's own.
func (e *Entry) Waiting(from, until time.Time) time.Duration {
	var spans [16]span
	all := spans[:0]
	add := func(began, ended time.Time) {
		if ended.IsZero() || ended.After(until) {
			ended = until
		}
		if began.Before(from) {
			began = from
		}
		if ended.After(began) {
			all = append(all, span{began, ended})
		}
	}
	for i := range e.Calls {
		add(e.Calls[i].Began, e.Calls[i].Ended)
	}
	for _, w := range e.Waits {
		add(w.From, w.Until)
	}
	return union(all)
}

type span struct{ from, until time.Time }

// union returns how long spans last together. It changes their order.
func union(all []span) (total time.Duration) {
	slices.SortFunc(all, func(a, b span) int { return a.from.Compare(b.from) })
	var end time.Time
	for _, s := range all {
		if s.from.After(end) {
			end = s.from
		}
		if s.until.After(end) {
			total += s.until.Sub(end)
			end = s.until
		}
	}
	return total
}
