package cluster

import (
	"context"
	"fmt"
	"slices"
	"strconv"
)

// Position is a place in the life of a leg where a gate can stand.
type Position string

const (
	// AtArrival is when the request was read and nothing was done about it.
	AtArrival Position = "arrival"
	// AtHeaders is when the work is done and nothing was answered.
	AtHeaders Position = "headers"
	// AtChunk is in a stream, when the gate's number of chunks has been sent.
	AtChunk Position = "chunk"
)

// Gate says which legs are to be held, and where.
type Gate struct {
	// Leg is the name of the legs to hold; "" holds all.
	Leg string `json:"leg,omitempty"`
	// RequestID holds the legs of one request and their retries; "" holds all.
	RequestID string `json:"request_id,omitempty"`
	// At is where they are held; "" means AtArrival.
	At Position `json:"at,omitempty"`
	// Chunk is how many chunks (SSE events) have gone out before an AtChunk
	// gate; 0 is after the headers.
	Chunk int `json:"chunk,omitempty"`
	// Times is how many legs are held in all; 0 means all until the release.
	Times int `json:"times,omitempty"`
}

// Held is a gate that was put up. A leg that waits at it still ends when its
// client hangs up or the cluster is closed. Its methods may be called at any time
// from any goroutine.
type Held struct {
	cluster *Cluster
	id      string
	gate    Gate
	reached chan struct{}

	// Guarded by Cluster.mu.
	held    int             // legs that were ever held
	waiting []chan struct{} // one for each leg that stands here; closed to let it go
	credits int             // legs to let through that have not come yet
	open    bool
}

// Hold puts up a gate, which holds until it is released. It panics if the gate
// makes no sense.
func (c *Cluster) Hold(gate Gate) *Held {
	held, err := c.hold(gate)
	if err != nil {
		panic("cluster: " + err.Error())
	}
	return held
}

func (c *Cluster) hold(gate Gate) (*Held, error) {
	if gate.At == "" {
		gate.At = AtArrival
	}
	if err := gate.validate(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	held := &Held{cluster: c, id: strconv.Itoa(c.nextID()), gate: gate, reached: make(chan struct{})}
	c.gates = append(c.gates, held)
	c.gateByID[held.id] = held
	return held, nil
}

func (g *Gate) validate() error {
	if err := knownLeg(g.Leg); err != nil {
		return err
	}
	switch {
	case g.At != AtArrival && g.At != AtHeaders && g.At != AtChunk:
		return fmt.Errorf("no such position: %q", g.At)
	case g.Times < 0 || g.Chunk < 0:
		return fmt.Errorf("times and chunk must not be negative")
	case g.Chunk > 0 && g.At != AtChunk:
		return fmt.Errorf("chunk is given but at is %q", g.At)
	}
	return nil
}

// ID names the gate on the control route.
func (h *Held) ID() string { return h.id }

// Waiting is how many legs stand at the gate now.
func (h *Held) Waiting() int {
	h.cluster.mu.Lock()
	defer h.cluster.mu.Unlock()
	return len(h.waiting)
}

// Reached is closed when the first leg comes to the gate.
func (h *Held) Reached() <-chan struct{} { return h.reached }

// WaitFor waits until at least n legs stand at the gate. It returns ctx's error
// or [ErrClosed] if that comes first.
func (h *Held) WaitFor(ctx context.Context, n int) error {
	return h.cluster.Wait(ctx, func(State) bool { return h.Waiting() >= n })
}

// Release lets all legs go that wait, and all that are to come, for good.
func (h *Held) Release() {
	h.cluster.mu.Lock()
	defer h.cluster.mu.Unlock()
	h.release()
}

// ReleaseOne lets the leg go that has waited longest; if none waits, the next one
// to come.
func (h *Held) ReleaseOne() {
	h.cluster.mu.Lock()
	defer h.cluster.mu.Unlock()
	if len(h.waiting) == 0 {
		h.credits++
		return
	}
	h.letGo(h.waiting[0])
}

// Remove releases the gate and makes the control route forget it.
func (h *Held) Remove() {
	h.cluster.mu.Lock()
	defer h.cluster.mu.Unlock()
	h.release()
	delete(h.cluster.gateByID, h.id)
}

// release is Release for a caller that holds mu.
func (h *Held) release() {
	h.open = true
	for len(h.waiting) > 0 {
		h.letGo(h.waiting[0])
	}
	h.cluster.gates = slices.DeleteFunc(h.cluster.gates, func(other *Held) bool { return other == h })
}

// letGo takes a leg out of the waiting ones and wakes it. It does nothing for
// one that is out already. The caller holds mu.
func (h *Held) letGo(leg chan struct{}) {
	i := slices.Index(h.waiting, leg)
	if i < 0 {
		return
	}
	h.waiting = slices.Delete(h.waiting, i, i+1)
	close(leg)
	h.cluster.state.WaitingAtGates--
	h.cluster.notify()
}

// stop makes a leg wait here: until the returned channel is closed. nil means
// that it need not. The caller holds mu.
func (h *Held) stop() chan struct{} {
	if h.open || h.gate.Times > 0 && h.held >= h.gate.Times {
		return nil
	}
	h.held++
	if h.held == 1 {
		close(h.reached)
	}
	if h.credits > 0 {
		h.credits--
		return nil
	}
	leg := make(chan struct{})
	h.waiting = append(h.waiting, leg)
	h.cluster.state.WaitingAtGates++
	h.cluster.notify()
	return leg
}

// passGates holds a leg at each gate that stands at its position, one after the
// other. It returns an error if the leg's client or the cluster went meanwhile.
func (c *Cluster) passGates(ctx context.Context, leg *Leg, at Position, chunk int) error {
	for _, held := range c.gatesAt(leg, at, chunk) {
		c.mu.Lock()
		free := held.stop()
		c.mu.Unlock()
		if free == nil {
			continue
		}
		err := await(ctx, c, free)
		if err != nil {
			c.mu.Lock()
			held.letGo(free)
			c.mu.Unlock()
			return err
		}
	}
	return nil
}

func (c *Cluster) gatesAt(leg *Leg, at Position, chunk int) []*Held {
	c.mu.Lock()
	defer c.mu.Unlock()
	var gates []*Held
	for _, held := range c.gates {
		g := &held.gate
		if g.At == at && g.Chunk == chunk && (g.Leg == "" || g.Leg == leg.Name) &&
			(g.RequestID == "" || ofRequest(leg.RequestID, g.RequestID)) {
			gates = append(gates, held)
		}
	}
	return gates
}
