package actors

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// PoolSettings are the bounds of one pool.
type PoolSettings struct {
	// Size is how many tasks may be at work at a time, and how many workers
	// there are.
	Size int
	// Queue is how many tasks may wait; beyond that one is refused, unless its
	// tenant has less than its share of the queue: then it displaces another.
	Queue int
}

// resize changes the bounds of a pool. Idle places that are too many go at
// once, busy ones when their task is done; missing ones are started. done is
// closed when they are there.
func (ps *pools) resize(name string, s PoolSettings) (done <-chan struct{}, err error) {
	p := ps.all[name]
	if p == nil {
		return nil, noSuchPool(name)
	}
	ps.mu.Lock()
	p.size, p.limit = s.Size, s.Queue
	var surplus []*place
	for p.workers > p.size && len(p.idle) > 0 {
		last := len(p.idle) - 1
		surplus = append(surplus, p.idle[last])
		p.idle = p.idle[:last]
		p.workers--
	}
	if len(p.idle) == 0 && p.workers > 0 {
		p.drain.start()
	}
	missing := max(0, p.size-p.workers)
	p.workers += missing
	ps.mu.Unlock()
	for _, pl := range surplus {
		ps.root.Stop(pl.pid)
	}
	started := make(chan struct{})
	ps.root.Send(p.parent, &grow{by: missing, done: started})
	return started, nil
}

// setTimeout changes how long tickets may wait that are queued from now on.
func (ps *pools) setTimeout(d time.Duration) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.timeout = d
}

func noSuchPool(name string) error {
	return wire.Faultf(wire.Internal, "internal error").Because(fmt.Errorf("there is no pool named %q", name))
}

// PoolStatus is the state of a pool at one moment.
type PoolStatus struct {
	Name string `json:"name"`
	// Size is how many tasks may be at work, Busy how many places are at work
	// or set aside, Queued how many tickets wait, Queue how many may.
	Size   int `json:"size"`
	Busy   int `json:"busy"`
	Queued int `json:"queued"`
	Queue  int `json:"queue"`
}

// status returns the state of all pools, sorted by name.
func (ps *pools) status() []PoolStatus {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	out := make([]PoolStatus, 0, len(ps.all))
	for _, p := range ps.all {
		out = append(out, PoolStatus{Name: p.name, Size: p.size, Busy: p.workers - len(p.idle), Queued: p.queue.len(), Queue: p.limit})
	}
	slices.SortFunc(out, func(a, b PoolStatus) int { return strings.Compare(a.Name, b.Name) })
	return out
}
