package wire

import (
	"errors"
	"fmt"
)

// Kind is what went wrong, in the terms of the table that clients are shown
// (the server maps it to status, type and code in one place).
type Kind uint8

// The kinds of faults.
const (
	Internal            Kind = iota // a bug of ours
	BadRequest                      // the client's request cannot be served as it is
	LimitExceeded                   // over a limit that the operator set
	NotFound                        // no such route
	MethodNotAllowed                // a route with another method
	UnsupportedEncoding             // a request body with a Content-Encoding
	TooLarge                        // a request body over the limit
	BodyTimeout                     // a request body that did not arrive in time
	RoutingLoop                     // our own leg came back to us
	UpstreamRejected                // a parsed leg answered 4xx
	UpstreamFailed                  // a leg answered 3xx or 5xx, broke off, or made no sense
	UpstreamTimeout                 // a leg took too long
	Unavailable                     // a breaker is open
	QueueFull                       // a queue is full, or was waited in for too long
	ShuttingDown                    // the process is ending
	Canceled                        // the client left: nobody is there to be told

	// Of requests that wait in the queue of a broker.

	BrokerDown      // it could not be put into the queue
	BrokerFailed    // what is known of it could not be read or deleted
	RequestGone     // nothing is known of it (any more)
	QueuedFailed    // it was taken from the queue, and got no answer
	QueuedDropped   // the broker has dropped it
	QueuedTooLate   // its deadline has passed
	QueuedCalledOff // it was cancelled by its own client
)

var kindNames = [...]string{"internal", "bad request", "limit exceeded", "not found", "method not allowed",
	"unsupported encoding", "too large", "body timeout", "routing loop", "upstream rejected", "upstream failed",
	"upstream timeout", "unavailable", "queue full", "shutting down", "canceled",
	"broker down", "broker failed", "request gone", "queued failed", "queued dropped", "queued too late", "queued called off"}

func (k Kind) String() string { return kindNames[k] }

// codes are the kinds' own codes in the error object.
var codes = [...]string{"internal", "bad_request", "limit_exceeded", "not_found", "method_not_allowed",
	"unsupported_encoding", "request_too_large", "request_timeout", "routing_loop", "upstream_rejected", "upstream_failed",
	"upstream_timeout", "upstream_unavailable", "queue_full", "shutting_down", "client_closed_request",
	// Those of the broker's own protocol, whose clients know them in capitals.
	"ENQUEUE_FAILED", "LOOKUP_FAILED", "UNKNOWN_REQUEST", "INFERENCE_ERROR", "GATE_DROPPED", "DEADLINE_EXCEEDED", "CANCELLED"}

// Fault is an error that a client may be shown. Its message is for the client
// and names no address, no body and nothing of other requests; the cause is
// for the log.
type Fault struct {
	Kind    Kind
	Code    string // overrides the kind's own code, if set ("invalid_prompt")
	Message string
	// Quoted: Message is what another service says, and is for the client alone. It
	// is not logged, for it may hold anything.
	Quoted bool
	// Label, if set, is what the fault is counted as instead of its code: one that
	// somebody else has chosen.
	Label string
	// Status is the upstream's status for UpstreamRejected, else 0.
	Status int
	// RetryAfter and DropReason are the upstream's headers Retry-After and
	// x-llm-d-request-dropped-reason, passed on if set.
	RetryAfter, DropReason string
	// Cause is what was found out, for the log. It holds no upstream body.
	Cause error
}

// Faultf makes a Fault of a kind with a message.
func Faultf(kind Kind, format string, args ...any) *Fault {
	return &Fault{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// Invalid makes a BadRequest with a code such as "invalid_prompt".
func Invalid(code, format string, args ...any) *Fault {
	f := Faultf(BadRequest, format, args...)
	f.Code = code
	return f
}

// Because sets the cause and returns f.
func (f *Fault) Because(cause error) *Fault {
	f.Cause = cause
	return f
}

// ErrorCode returns the code of the error object: the fault's own, or its
// kind's.
func (f *Fault) ErrorCode() string {
	if f.Code != "" {
		return f.Code
	}
	return codes[f.Kind]
}

// Counted returns the code by which the fault is counted.
func (f *Fault) Counted() string {
	if f.Label != "" {
		return f.Label
	}
	return f.ErrorCode()
}

func (f *Fault) Error() string {
	message := f.Message
	if f.Quoted {
		message = "as the client was told by another service"
	}
	if f.Cause == nil {
		return message
	}
	return message + ": " + f.Cause.Error()
}

func (f *Fault) Unwrap() error { return f.Cause }

// FaultOf returns the Fault in err's chain, or one of kind Internal that hides
// err from the client.
func FaultOf(err error) *Fault {
	if f := (*Fault)(nil); errors.As(err, &f) {
		return f
	}
	return Faultf(Internal, "internal error").Because(err)
}
