package actors

import "slices"

// queue holds the tickets that wait for one pool, first in, first out.
// Withdrawn tickets leave at once, so that its length is what waits.
type queue struct{ tickets []*ticket }

func (q *queue) len() int { return len(q.tickets) }

// head returns the ticket that is served next, or nil.
func (q *queue) head() *ticket {
	if len(q.tickets) == 0 {
		return nil
	}
	return q.tickets[0]
}

func (q *queue) push(t *ticket) { q.tickets = append(q.tickets, t) }

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
