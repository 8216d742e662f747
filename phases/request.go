package phases

import (
	"net/http"
	"time"

	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// Request is everything known of one request, from its arrival to its end. It
// keeps three things apart: what came in, what each phase found out, and the
// way out.
//
// It belongs to its supervisor: only Plan, Join and their like, which the
// supervisor calls, may read or write it; tasks must not.
type Request struct {
	// What came in. It is never changed.

	ID       string // X-Request-Id, the client's or ours
	Protocol *wire.Protocol
	Body     *wire.Body  // without what a client may not send
	Header   http.Header // those that go on every leg
	Query    string      // raw
	Model    string
	Stream   bool
	Prompt   wire.Prompt
	Received time.Time

	// What each phase found out: written by its Join alone, anew if the phase
	// is run again.

	Rendered  Rendered
	Prefilled Prefilled
	Decoded   Decoded

	// Out is the way out.
	Out *Response

	// Trace is what happened when, for logs and the operator's pages. The
	// supervisor writes it.
	Trace Trace

	// decodePermit is the right to send decode, taken with its place.
	decodePermit *gateway.Permit
}

// Rendered is what render found out.
type Rendered struct {
	Tokens wire.Tokens
}

// Prefilled is what prefill found out.
type Prefilled struct {
	// Ran: there was a prefill, and decode is told so.
	Ran bool
	// Transfer are the transfer params of the answer, or nil.
	Transfer []byte
	// Attempts counts the legs sent, over all runs.
	Attempts int
	// At is when the answer came: the lease of its KV begins.
	At time.Time
}

// Decoded is what decode found out.
type Decoded struct {
	// Status of the answer; 0 if there was none.
	Status int
	// Attempts counts the legs sent, over all runs.
	Attempts int
	// Reruns counts how often the request was started again from prefill.
	Reruns int
	// reached is set by decode's task once a worker may have the hand-off.
	reached *handoffState
}

// Trace is the course of a request.
type Trace struct {
	Steps []StepTrace
	// Phase is the phase that the request is in or ended in.
	Phase string
}

// StepTrace is the course of one run of a phase that had work to do.
type StepTrace struct {
	Phase string
	// Began is when the phase was planned, Sent when its first task was handed
	// to a worker (zero if none was), Ended when it was joined or failed.
	Began, Sent, Ended time.Time
	Tasks              int
	Err                error
}

// Close gives back what the request still holds. The supervisor calls it once,
// when all tasks are home.
func (r *Request) Close() {
	r.decodePermit.GiveBack()
	r.decodePermit = nil
}
