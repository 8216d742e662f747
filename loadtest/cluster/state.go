package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// maxViolations is how many texts of violations are kept; the rest is counted.
const maxViolations = 100

// State is a snapshot of what a cluster counted since its start or last Reset.
// Maps are keyed by leg name; a leg that did not occur is missing, which reads
// as 0.
type State struct {
	// Legs counts those that arrived, InFlight those not yet ended, Aborted
	// those whose client left before the answer was complete.
	Legs     map[string]int `json:"legs"`
	InFlight map[string]int `json:"in_flight"`
	Aborted  map[string]int `json:"aborted"`
	// BytesIn sums the bodies of their requests.
	BytesIn map[string]int64 `json:"bytes_in"`

	// HeldKV is how many prompts' KV prefill keeps pinned for a decode.
	HeldKV int `json:"held_kv"`
	// FetchedKV counts KV that a decode read, FreedKV what was freed unread
	// because its leg was aborted or refused, ExpiredLeases what nobody came for.
	FetchedKV     int `json:"fetched_kv"`
	FreedKV       int `json:"freed_kv"`
	ExpiredLeases int `json:"expired_leases"`
	// ReusedHandoffs counts decodes that presented a hand-off that was used
	// before, and got another request's text.
	ReusedHandoffs int `json:"reused_handoffs"`
	// FailedLoads counts decodes whose hand-off was unknown, lost, expired or
	// altered.
	FailedLoads int `json:"failed_loads"`
	// Rooms counts those in which a prefill and a decode have met (KVSGLang).
	Rooms int `json:"rooms"`
	// AloneInRooms is how many legs wait in a room for the other of their pair.
	AloneInRooms int `json:"alone_in_rooms"`
	// Recomputed counts decodes that computed their prompt themselves.
	Recomputed int `json:"recomputed"`

	// EncodeCalls counts images that an encode worker has encoded, LocalEncodes
	// those that prefill had to encode itself because nothing, or nothing yet,
	// was there for it to fetch.
	EncodeCalls  int `json:"encode_calls"`
	LocalEncodes int `json:"local_encodes"`
	// UnreadPushes is how many embeddings that encode has pushed (ec-mooncake) no
	// prefill has read: their memory is taken until a lease of minutes ends, which
	// is not simulated.
	UnreadPushes int `json:"unread_pushes"`
	// WorkerFetches counts http URLs of images that reached a worker though the
	// render service had never seen them: had it been a real one, a download.
	WorkerFetches int `json:"worker_fetches"`
	// ProbeHits and ProbeMisses count probes that were served, and answered 412.
	ProbeHits   int `json:"probe_hits"`
	ProbeMisses int `json:"probe_misses"`

	// FaultedLegs counts legs that a fault matched, WaitingAtGates those that
	// stand at a gate now.
	FaultedLegs    int `json:"faulted_legs"`
	WaitingAtGates int `json:"waiting_at_gates"`

	// Violations are breaches of the wire contract that a real cluster would
	// not always notice, in the words of the cluster: the first 100 of
	// ViolationCount.
	Violations     []string `json:"violations"`
	ViolationCount int      `json:"violation_count"`
}

func newState() State {
	return State{Legs: map[string]int{}, InFlight: map[string]int{}, Aborted: map[string]int{}, BytesIn: map[string]int64{}, Violations: []string{}}
}

func (s State) clone() State {
	s.Legs, s.InFlight, s.Aborted = maps.Clone(s.Legs), maps.Clone(s.InFlight), maps.Clone(s.Aborted)
	s.BytesIn = maps.Clone(s.BytesIn)
	s.Violations = slices.Clone(s.Violations)
	return s
}

// Quiet reports whether no leg is in flight.
func (s State) Quiet() bool {
	for _, n := range s.InFlight {
		if n != 0 {
			return false
		}
	}
	return true
}

// Idle reports whether no leg is in flight and no KV is held.
func (s State) Idle() bool { return s.Quiet() && s.HeldKV == 0 }

// State returns a snapshot that is the caller's to keep.
func (c *Cluster) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.clone()
}

// Wait returns nil once ok is true of the state. ok is called with a fresh
// snapshot at first and after changes (of which several may have come together),
// in the caller's goroutine and with no lock held. It returns ctx's error or
// [ErrClosed] if that comes first.
func (c *Cluster) Wait(ctx context.Context, ok func(State) bool) error {
	for {
		c.mu.Lock()
		state, changed := c.state.clone(), c.nextChange()
		c.mu.Unlock()
		if ok(state) {
			return nil
		}
		if err := await(ctx, c, changed); err != nil {
			return err
		}
	}
}

// nextChange returns a channel that is closed at the next change. The caller
// holds mu.
func (c *Cluster) nextChange() <-chan struct{} {
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

// notify wakes all who wait for a change. The caller holds mu.
func (c *Cluster) notify() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// await waits for event, unless ctx or the cluster ends first.
func await[T any](ctx context.Context, c *Cluster, event <-chan T) error {
	select {
	case <-event:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.closing:
		return ErrClosed
	}
}

// violate notes a breach of the contract by the leg with the given name and
// request id.
func (c *Cluster) violate(leg, requestID, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.ViolationCount++
	if len(c.state.Violations) < maxViolations {
		c.state.Violations = append(c.state.Violations, fmt.Sprintf("%s %s: ", leg, requestID)+fmt.Sprintf(format, args...))
	}
	c.notify()
}
