package actors

import "slices"

// queue holds the tickets that wait for one pool, first in, first out, but
// those of requests that hold a place already go ahead of the others: they
// would wait behind one that waits for what they hold. Withdrawn tickets leave
// at once, so that its length is what waits.
type queue struct{ tickets []*ticket }

func (q *queue) len() int { return len(q.tickets) }

// head returns the ticket that is served next, or nil.
func (q *queue) head() *ticket {
	if len(q.tickets) == 0 {
		return nil
	}
	return q.tickets[0]
}

func (q *queue) push(t *ticket) {
	at := len(q.tickets)
	if t.holder {
		if at = slices.IndexFunc(q.tickets, func(o *ticket) bool { return !o.holder }); at < 0 {
			at = len(q.tickets)
		}
	}
	q.tickets = slices.Insert(q.tickets, at, t)
}

// blocks reports whether somebody waits whom t may not pass.
func (q *queue) blocks(t *ticket) bool {
	head := q.head()
	return head != nil && (head.holder || !t.holder)
}

// remove takes a ticket out. Those that are served stand first; those that are
// withdrawn may stand anywhere, in a queue whose length is bounded.
func (q *queue) remove(t *ticket) {
	for i, other := range q.tickets {
		if other != t {
			continue
		}
		if i == 0 {
			q.tickets[0] = nil
			q.tickets = q.tickets[1:]
		} else {
			q.tickets = slices.Delete(q.tickets, i, i+1)
		}
		break
	}
	if len(q.tickets) == 0 {
		q.tickets = nil // lets go of what was served
	}
}
