package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Fault makes legs fail. Of the faults that match a leg the one added first
// applies, alone. Its fields are looked at in the order in which they stand here:
// a Delay goes before all else, a fault with Drop, Hang, Status, Redirect or
// Garbage answers in the worker's stead (so that no KV changes hands), and the
// rest spoils the worker's own answer.
type Fault struct {
	// Leg is the name of the legs to match; "" matches all.
	Leg string `json:"leg,omitempty"`
	// RequestID matches the legs of a request and their retries; "" matches all.
	RequestID string `json:"request_id,omitempty"`
	// Times is how many legs the fault hits before it is spent; 0 means that it
	// stays until it is removed.
	Times int `json:"times,omitempty"`
	// OnlyReused matches only legs on a connection that has served a request
	// before (see [ConnContext]).
	OnlyReused bool `json:"only_reused,omitempty"`

	// Delay is waited before anything else is done.
	Delay time.Duration `json:"-"`
	// Drop closes the connection without a byte of an answer.
	Drop bool `json:"drop,omitempty"`
	// Hang never answers: until the client leaves or the cluster is closed.
	Hang bool `json:"hang,omitempty"`
	// Redirect answers 307 (or Status) with this Location.
	Redirect string `json:"redirect,omitempty"`
	// Status answers with that status and Body (default: vLLM's error object).
	Status int    `json:"status,omitempty"`
	Body   string `json:"body,omitempty"`
	// Garbage answers 200 and something that is no JSON.
	Garbage bool `json:"garbage,omitempty"`

	// Headers are set on the answer, whoever gives it.
	Headers map[string]string `json:"headers,omitempty"`
	// BadHandoff is what a prefill gives as its kv_transfer_params, instead of
	// holding KV; `null` is a good value.
	BadHandoff json.RawMessage `json:"bad_handoff,omitempty"`
	// NoKwargs makes a render leave kwargs_data out, NullKwargs have only nulls
	// in it.
	NoKwargs   bool `json:"no_kwargs,omitempty"`
	NullKwargs bool `json:"null_kwargs,omitempty"`
	// NoMetadata makes a render leave mm_metadata out, OneMetadata have it for the
	// first image only and null for the others.
	NoMetadata  bool `json:"no_metadata,omitempty"`
	OneMetadata bool `json:"one_metadata,omitempty"`
	// LoseEmbeddings makes a prefill find none of the embeddings that its request
	// describes: it encodes the images itself, if it has their pixels.
	LoseEmbeddings bool `json:"lose_embeddings,omitempty"`
	// BadDescriptors are what an encode gives as its ec_transfer_params; `null` is
	// a good value. Prefill takes the descriptors in it like good ones.
	BadDescriptors json.RawMessage `json:"bad_descriptors,omitempty"`
	// FinishError answers 200 with the finish_reason "error", as some versions of
	// vLLM do when their engine fails.
	FinishError bool `json:"finish_error,omitempty"`
	// LoseKV on a prefill gives out a hand-off whose KV is gone; on a decode
	// it makes the KV that the leg presents go at that moment.
	LoseKV bool `json:"lose_kv,omitempty"`
	// BreakAfter n breaks the connection off after n chunks of a stream; of an
	// answer that is no stream half is sent, whatever n. The chunks are SSE
	// events, the role and finish chunks and [DONE] included.
	BreakAfter *int `json:"break_after,omitempty"`
	// ErrorEventAfter n goes on after n chunks of a stream with an error event
	// and [DONE], as a vLLM worker does when its engine fails.
	ErrorEventAfter *int `json:"error_event_after,omitempty"`
	// ErrorCode is what such an event says; default 500.
	ErrorCode int `json:"error_code,omitempty"`
	// EndAfter n ends a stream after n chunks, in good order but without [DONE].
	EndAfter *int `json:"end_after,omitempty"`
}

// activeFault is a fault that can still hit. Guarded by Cluster.mu.
type activeFault struct {
	Fault
	id   string
	left int // if Times > 0
}

// AddFault makes the cluster fail as told from now on, and returns the id for
// [Cluster.RemoveFault]. It panics if the fault makes no sense.
func (c *Cluster) AddFault(fault Fault) (id string) {
	id, err := c.addFault(fault)
	if err != nil {
		panic("cluster: " + err.Error())
	}
	return id
}

func (c *Cluster) addFault(fault Fault) (string, error) {
	if err := fault.validate(); err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	id := strconv.Itoa(c.nextID())
	c.faults = append(c.faults, &activeFault{Fault: fault, id: id, left: fault.Times})
	return id, nil
}

func (f *Fault) validate() error {
	if err := knownLeg(f.Leg); err != nil {
		return err
	}
	switch {
	case f.Times < 0:
		return fmt.Errorf("times is %d", f.Times)
	case f.Status != 0 && (f.Status < 200 || f.Status > 599):
		return fmt.Errorf("status is %d", f.Status)
	case f.BadHandoff != nil && !json.Valid(f.BadHandoff):
		return fmt.Errorf("bad_handoff is no JSON")
	case f.BadDescriptors != nil && !json.Valid(f.BadDescriptors):
		return fmt.Errorf("bad_descriptors is no JSON")
	}
	return nil
}

// spoilsAnswer reports whether a worker's own answer does not come to its proper
// end.
func (f *Fault) spoilsAnswer() bool {
	return f.BreakAfter != nil || f.ErrorEventAfter != nil || f.EndAfter != nil
}

// knownLeg returns an error unless name is "" or that of a leg.
func knownLeg(name string) error {
	switch name {
	case "", Render, Probe, Encode, Reserve, Prefill, Decode, Origin, Query, Unknown:
		return nil
	}
	return fmt.Errorf("no such leg: %q", name)
}

// RemoveFault takes a fault away and reports whether it was still there. Legs
// that it has hit already are not helped.
func (c *Cluster) RemoveFault(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := len(c.faults)
	c.faults = slices.DeleteFunc(c.faults, func(f *activeFault) bool { return f.id == id })
	return len(c.faults) < before
}

// ClearFaults takes all faults away.
func (c *Cluster) ClearFaults() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = nil
}

// takeFault returns the fault that hits this leg, a harmless one if none does.
// The caller holds mu.
func (c *Cluster) takeFault(leg *Leg) *Fault {
	for i, f := range c.faults {
		if f.Leg != "" && f.Leg != leg.Name ||
			f.RequestID != "" && !ofRequest(leg.RequestID, f.RequestID) ||
			f.OnlyReused && !leg.Reused {
			continue
		}
		if f.left > 0 {
			f.left--
			if f.left == 0 {
				c.faults = slices.Delete(c.faults, i, i+1)
			}
		}
		c.state.FaultedLegs++
		return &f.Fault
	}
	return &Fault{}
}
