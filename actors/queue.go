package actors

import (
	"container/list"
	"slices"
)

// queue holds the tickets that wait for one pool. Withdrawn tickets leave at
// once, so that its length is what waits.
//
// Tickets of requests that hold a place already go ahead of all others, first
// in, first out: they would wait behind one that waits for what they hold. The
// others are served by tenants in turn, and within a tenant first in, first out.
// A tenant that comes takes the last turn; one of whom nobody waits any more has
// none, and is forgotten.
//
// A ticket for several pools waits in the queue of each, and is served when it
// is the head of all. If each queue went by its own turns alone, two such tickets
// could be the heads of two queues and each wait for ever to become the head of
// the other's. So a turn that falls to a ticket for several pools goes to the
// tenant of the one that came first of all those in this queue, and the two
// tenants swap turns. Then none is stuck: of all tickets for several pools that
// wait anywhere, consider the one that came first. In each of its queues the
// turns of others go by, as long as they fall to tickets for one pool, which are
// served; the first that does not is its tenant's. Ahead of it in its tenant's
// lane are only tickets that came before it, and those are for one pool. So it
// becomes the head of all its queues, and stays it.
//
// With one tenant all this is first in, first out.
type queue struct {
	holders []*ticket
	lanes   map[string]*lane
	turns   list.List // of *lane; the first is served next
	several []*ticket // of lanes, those for several pools, in the order they came
	length  int
}

// lane is the tickets of one tenant in a queue, in the order they came. It has
// at least one.
type lane struct {
	tickets []*ticket
	turn    *list.Element
}

func (q *queue) len() int { return q.length }

// head returns the ticket that is served next, or nil.
func (q *queue) head() *ticket {
	if len(q.holders) > 0 {
		return q.holders[0]
	}
	if l := q.next(); l != nil {
		return l.tickets[0]
	}
	return nil
}

// next returns the lane that is served next, or nil.
func (q *queue) next() *lane {
	front := q.turns.Front()
	if front == nil {
		return nil
	}
	l := front.Value.(*lane)
	if len(l.tickets[0].pools) > 1 {
		l = q.lanes[q.several[0].tenant]
	}
	return l
}

// blocks reports whether somebody waits whom t may not pass.
func (q *queue) blocks(t *ticket) bool {
	head := q.head()
	return head != nil && (head.holder || !t.holder)
}

// push lets a ticket wait.
func (q *queue) push(t *ticket) {
	q.length++
	if t.holder {
		q.holders = append(q.holders, t)
		return
	}
	l := q.lanes[t.tenant]
	if l == nil {
		if q.lanes == nil {
			q.lanes = make(map[string]*lane)
		}
		l = &lane{}
		l.turn = q.turns.PushBack(l)
		q.lanes[t.tenant] = l
	}
	l.tickets = append(l.tickets, t)
	if len(t.pools) > 1 {
		q.several = append(q.several, t)
	}
}

// serve takes out the head, and uses up the turn of its tenant.
func (q *queue) serve(t *ticket) {
	if !t.holder {
		l, front := q.next(), q.turns.Front()
		if l.turn != front {
			other := front.Value.(*lane)
			other.turn, l.turn = l.turn, front
			other.turn.Value, l.turn.Value = other, l
		}
		q.turns.MoveToBack(l.turn)
	}
	q.remove(t)
}

// remove takes out a ticket. Those that are served stand first in their lane;
// those that are withdrawn may stand anywhere, in a queue whose length is
// bounded.
func (q *queue) remove(t *ticket) {
	q.length--
	if t.holder {
		q.holders = without(q.holders, t)
		return
	}
	l := q.lanes[t.tenant]
	l.tickets = without(l.tickets, t)
	if len(l.tickets) == 0 {
		q.turns.Remove(l.turn)
		delete(q.lanes, t.tenant)
	}
	if len(t.pools) > 1 {
		q.several = without(q.several, t)
	}
}

// without takes a ticket out of tickets. It is cheap for the first and the last.
func without(tickets []*ticket, t *ticket) []*ticket {
	last := len(tickets) - 1
	switch {
	case last == 0:
		return nil // lets go of what was served
	case tickets[0] == t:
		tickets[0] = nil
		return tickets[1:]
	case tickets[last] == t:
		tickets[last] = nil
		return tickets[:last]
	}
	i := slices.Index(tickets, t)
	return slices.Delete(tickets, i, i+1)
}

// ahead returns how many tickets are served before a newcomer. It is exact but
// for tenants that come later, and for turns that tickets for several pools
// swap.
func (q *queue) ahead(t *ticket) int {
	n := len(q.holders)
	if t.holder {
		return n
	}
	own, before := q.lanes[t.tenant], 0
	if own != nil {
		before = len(own.tickets)
	}
	turns := before + 1 // of those whose turn comes before its tenant's
	for el := q.turns.Front(); el != nil; el = el.Next() {
		if l := el.Value.(*lane); l == own {
			turns--
		} else {
			n += min(len(l.tickets), turns)
		}
	}
	return n + before
}
