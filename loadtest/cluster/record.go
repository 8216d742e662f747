package cluster

import (
	"encoding/json"
	"net/http"
	"strings"
)

// Leg is the record of one call to the cluster. Header, Body, Handoff and
// Descriptors are shared with the record: do not change them.
type Leg struct {
	// ID numbers the legs since the start or the last Reset, from 1.
	ID int `json:"id"`
	// Name is Render, Probe, Encode, Prefill, Decode, Origin, Query or Unknown.
	Name   string      `json:"name"`
	Method string      `json:"method"`
	Path   string      `json:"path"`
	Query  string      `json:"query"` // raw, without "?"
	Header http.Header `json:"header"`
	// Body is what was received, byte for byte; nil with Options.OmitBodies,
	// and until it was read to its end.
	Body []byte `json:"-"`
	// RequestID is the X-Request-Id, with the "-r<n>" of a retry.
	RequestID string `json:"request_id"`
	// Reused says that the connection had served a request before.
	Reused bool `json:"reused"`
	// Status is the answer's; 0 if there was none (yet).
	Status int `json:"status"`
	// Aborted says that the client left before the answer was complete.
	Aborted bool `json:"aborted"`
	// Handoff is the kv_transfer_params that a prefill gave out, byte for byte.
	Handoff json.RawMessage `json:"handoff,omitempty"`
	// Descriptors are the ec_transfer_params that an encode gave out, likewise.
	Descriptors json.RawMessage `json:"descriptors,omitempty"`
	// Arrived and Ended are places in the one order of all arrivals and ends.
	// Ended is 0 while the leg is in flight.
	Arrived int `json:"arrived"`
	Ended   int `json:"ended"`
}

// record is a ring of the newest legs. Its entries change until they end, under
// Cluster.mu.
type record struct {
	legs     []*Leg
	max      int
	next     int // where the next leg goes once the ring is full
	arrivals int // how many legs there ever were
}

func newRecord(limit int) record { return record{max: limit} }

func (r *record) add(leg *Leg) {
	if len(r.legs) < r.max {
		r.legs = append(r.legs, leg)
		return
	}
	r.legs[r.next] = leg
	r.next = (r.next + 1) % r.max
}

// Legs returns the recorded legs of a request, in order of arrival, those of its
// retries included; "" means all requests. The newest MaxRecorded legs are kept.
// A client can have its whole answer a moment before the leg's end is recorded:
// wait for that with [Cluster.Wait].
func (c *Cluster) Legs(requestID string) []Leg {
	c.mu.Lock()
	defer c.mu.Unlock()
	var legs []Leg
	for i := range c.record.legs {
		leg := c.record.legs[(c.record.next+i)%len(c.record.legs)]
		if requestID == "" || ofRequest(leg.RequestID, requestID) {
			legs = append(legs, *leg)
		}
	}
	return legs
}

// Count returns how many legs of that name have arrived.
func (c *Cluster) Count(leg string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.Legs[leg]
}

// ofRequest reports whether a leg's id is the request's own or that of one of its
// retries, "<id>-r<n>".
func ofRequest(legID, requestID string) bool {
	rest, ok := strings.CutPrefix(legID, requestID)
	if !ok || rest == "" {
		return ok
	}
	n, ok := strings.CutPrefix(rest, "-r")
	return ok && n != "" && strings.Trim(n, "0123456789") == ""
}
