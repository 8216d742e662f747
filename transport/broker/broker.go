// Package broker is the side of Redis that requests which may wait go through:
// it puts them into the queue of an llm-d-async broker, looks for their
// results, and tells who waits that one has come. It speaks the protocol of
// that broker: its keys, its envelope, its mailboxes and its quota counters.
// It knows nothing of HTTP, and never decodes what a client sent.
package broker

import (
	"time"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// Key names a request: a tenant, which holds no colon, and an id of its own.
type Key struct{ Tenant, ID string }

func (k Key) String() string { return k.Tenant + ":" + k.ID }

// State is what is known of a request.
type State int

// The states of a request. One whose result was taken, or was never asked for,
// is Unknown.
const (
	Unknown State = iota
	Pending
	Ready
)

// Result is what a broker left in a request's mailbox.
type Result struct {
	// Status is the HTTP status of the upstream's answer; 0: it gave none.
	Status int
	// Payload is the text of that answer, as it was.
	Payload []byte
	// Code and Message say why there is no answer.
	Code, Message string
	// Malformed says that what is in the mailbox could not be read. Nothing
	// else is set then.
	Malformed bool
}

// Submission is a request to be put into a queue.
type Submission struct {
	Key
	// Queue is the sorted set that a broker reads; Endpoint is the path that
	// it forwards the request to.
	Queue, Endpoint string
	// Payload is the client's body. It goes into the envelope as it is, so it
	// must be JSON.
	Payload wire.Payload
	// Metadata and Headers may be nil.
	Metadata, Headers map[string]string
	Created, Deadline time.Time
}
