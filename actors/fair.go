package actors

import "errors"

// Fairness between tenants. Where there is a bound on how many may wait or be in
// flight, each tenant's share of it is the bound divided by the tenants that are
// there. As long as there is room anybody may take more; when there is none, a
// newcomer of a tenant below its share displaces the newest of the tenant that
// is most above its own, which is refused in its stead. So a tenant that sends
// much cannot keep others out, and a newcomer of a tenant that has its share is
// refused as if it were alone.

// maxTenants is how many tenants are told apart in one place: tenants are named
// by clients, who could name any number.
const maxTenants = 1000

// others is the tenant that all are taken for who come when maxTenants are
// there. It cannot be in a header.
const others = "\x00"

// known returns the name by which a newcomer's tenant goes among those that are
// there.
func known[V any](there map[string]V, tenant string) string {
	if _, ok := there[tenant]; !ok && len(there) >= maxTenants {
		return others
	}
	return tenant
}

// share returns what each of some tenants may have of a bound. It is one at
// least, so that the first of a tenant can displace the second of another.
func share(bound, tenants int) int { return max(1, bound/tenants) }

// errDisplaced is the cause of a fault, for the log.
var errDisplaced = errors.New("displaced by a newcomer of a tenant below its share")

// yields returns the ticket that makes room for a newcomer of a tenant in a queue
// that is full, or nil if the newcomer has no right to any. Of tenants that have
// as much, the newest yields. One that insists is left: it is owed to work that
// its request has done.
func (q *queue) yields(tenant string, bound int) (found *ticket) {
	have, tenants := 0, len(q.lanes)
	if l := q.lanes[tenant]; l != nil {
		have = len(l.tickets)
	} else {
		tenants++
	}
	most := share(bound, tenants)
	if have >= most {
		return nil
	}
	for _, l := range q.lanes {
		have := len(l.tickets)
		if have < most || have == most && found == nil {
			continue
		}
		t := l.newest(func(t *ticket) bool { return !t.insists })
		if t != nil && (have > most || t.number > found.number) {
			found, most = t, have
		}
	}
	return found
}

// newest returns the last ticket of a lane of which a condition is true, or nil.
func (l *lane) newest(cond func(*ticket) bool) *ticket {
	for i := len(l.tickets) - 1; i >= 0; i-- {
		if cond(l.tickets[i]) {
			return l.tickets[i]
		}
	}
	return nil
}

// room has waiting tickets make room for a newcomer in all queues that it needs
// and that are full, or none of them: then a fault refuses the newcomer. A task
// whose request can wait with it displaces nobody. The lock is held.
func (ps *pools) room(t *ticket) (yield []*ticket, fault error) {
	if t.insists {
		return nil, nil
	}
	for _, p := range t.pools {
		if p.queue.len() < p.limit || waitIn(yield, p) {
			continue
		}
		var y *ticket
		if !t.patient {
			y = p.queue.yields(t.tenant, p.limit)
		}
		if y == nil {
			return nil, p.full()
		}
		yield = append(yield, y)
	}
	return yield, nil
}

// waitIn reports whether one of the tickets waits in a pool's queue.
func waitIn(tickets []*ticket, p *pool) bool {
	for _, t := range tickets {
		for _, in := range t.pools {
			if in == p {
				return true
			}
		}
	}
	return false
}

// handedOut notes that something of a request's current step was handed out that
// has no ticket.
func (ps *pools) handedOut(s *supervisor) {
	ps.mu.Lock()
	s.out = true
	ps.mu.Unlock()
}

// displace takes out a request that waits, of the tenant that weighs most if
// that is more than a limit, and of those the newest. It cancels it with a fault,
// and reports nil if there is none. A request is only taken if it holds no place
// and nothing of its current step was handed out: then nothing is begun upstream
// that would be lost.
//
// It is cancelled under the lock. So if another of its tickets is granted at that
// moment, the worker finds its context ended and sends nothing.
func (ps *pools) displace(weigh func(*supervisor) int, limit int, fault error) (*supervisor, verdicts) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var found *ticket
	for _, p := range ps.all {
		for _, l := range p.queue.lanes {
			t := l.newest(func(t *ticket) bool { return t.owner != nil && !t.owner.out && weigh(t.owner) > 0 })
			if t == nil {
				continue
			}
			if w := weigh(t.owner); w > limit || found != nil && w == limit && t.number > found.number {
				found, limit = t, w
			}
		}
	}
	if found == nil {
		return nil, verdicts{}
	}
	found.owner.cancel(fault)
	return found.owner, verdicts{served: ps.void(found), void: []*refused{{found, fault, "displaced"}}}
}
