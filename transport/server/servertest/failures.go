package servertest

import "github.com/llm-coordinator/coordinator/loadtest/cluster"

// Secret is what a client or an upstream has said; no error of the coordinator's
// holds it.
const Secret = "top-secret-text"

// Busy are the headers with which an upstream says when to come again, and why. The
// client gets them.
var Busy = map[string]string{"Retry-After": "7", "X-Llm-D-Request-Dropped-Reason": "saturated"}

// LegFailure is what a leg before decode does, and the error that its client sees.
type LegFailure struct {
	Name       string
	Fault      cluster.Fault // without its leg
	Status     int
	Type, Code string            // of the error object
	Header     map[string]string // which of Busy the client has
}

// LegFailures are the table of the contract's section 12 for what legs can do that
// are read whole. A gateway in between changes nothing: where it answers in a
// worker's stead, with 502, the coordinator makes the same of that.
var LegFailures = []LegFailure{
	{"400", cluster.Fault{Status: 400, Body: Secret}, 400, "invalid_request_error", "upstream_rejected", nil},
	{"404", cluster.Fault{Status: 404, Body: Secret}, 404, "invalid_request_error", "upstream_rejected", nil},
	{"422", cluster.Fault{Status: 422}, 422, "invalid_request_error", "upstream_rejected", nil},
	{"429", cluster.Fault{Status: 429, Headers: Busy}, 429, "rate_limit_error", "upstream_rejected", Busy},
	{"500", cluster.Fault{Status: 500, Body: Secret}, 502, "upstream_error", "upstream_failed", nil},
	{"503", cluster.Fault{Status: 503, Headers: Busy}, 502, "upstream_error", "upstream_failed", Busy},
	{"204", cluster.Fault{Status: 204}, 502, "upstream_error", "upstream_failed", nil},
	{"redirect", cluster.Fault{Redirect: "http://127.0.0.1:1/elsewhere"}, 502, "upstream_error", "upstream_failed", nil},
	{"not JSON", cluster.Fault{Garbage: true}, 502, "upstream_error", "upstream_failed", nil},
	{"no answer", cluster.Fault{Drop: true}, 502, "upstream_error", "upstream_failed", nil},
	{"too slow", cluster.Fault{Hang: true}, 504, "upstream_error", "upstream_timeout", nil},
}

// own is an answer that is nobody's but a worker's.
const own = `{"object":"error","message":"odd but the worker's own"}`

var ownHeaders = map[string]string{"Retry-After": "3", "X-Worker": "w1"}

// DecodeAnswers are errors of decode workers, which the client gets as they are:
// status, body and headers.
var DecodeAnswers = []cluster.Fault{
	{Status: 400, Body: own, Headers: ownHeaders},
	{Status: 404, Body: own, Headers: ownHeaders},
	{Status: 429, Body: own, Headers: ownHeaders},
	{Status: 429, Body: own, Headers: Busy},
	{Status: 500, Body: own, Headers: ownHeaders},
	{Status: 503, Body: own, Headers: ownHeaders},
	{Status: 307, Body: own, Headers: ownHeaders, Redirect: "http://127.0.0.1:1/elsewhere"},
}

// NoAnswer is a decode worker that gives none, and what the client sees.
type NoAnswer struct {
	Name   string
	Fault  cluster.Fault // without its leg
	Status int
	Code   string // of the coordinator's error object
	// Behind, if set, says why behind a real gateway the client may get the same
	// status in the gateway's words instead.
	Behind string
}

// NoAnswers have nothing of the worker's to pass on. The coordinator starts such a
// request again, once and with another id for the leg. Nobody else may send it
// again: no gateway can know how far the worker came.
var NoAnswers = []NoAnswer{
	{"broke off", cluster.Fault{Drop: true}, 502, "upstream_failed", "the gateway says 502 in the worker's stead, and to the coordinator that is decode's answer; " +
		"HAProxy says so to the first request on a connection only, and with those after it closes the connection as the worker did"},
	{"too slow", cluster.Fault{Hang: true}, 504, "upstream_timeout", ""},
}

// NoAnswerLegs are the ids of decode legs of a request with the id in [NoAnswers].
func NoAnswerLegs(id string) []string { return []string{id, id + "-r1"} }
