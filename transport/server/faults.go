package server

import (
	"encoding/json"
	"net/http"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// shown is what a client is shown of a kind of fault.
type shown struct {
	status int
	kind   string // "type" in the error object
}

const (
	invalidRequest = "invalid_request_error"
	rateLimit      = "rate_limit_error"
	upstreamError  = "upstream_error"
	overloaded     = "overloaded_error"
	internalError  = "internal_error"

	// Those that clients of the broker's protocol know.
	apiError     = "api_error"
	timeoutError = "timeout_error"
	cancelled    = "cancelled"
)

// statuses maps every kind of fault: the only place that does.
var statuses = map[wire.Kind]shown{
	wire.Internal:            {http.StatusInternalServerError, internalError},
	wire.BadRequest:          {http.StatusBadRequest, invalidRequest},
	wire.LimitExceeded:       {http.StatusBadRequest, invalidRequest},
	wire.NotFound:            {http.StatusNotFound, invalidRequest},
	wire.MethodNotAllowed:    {http.StatusMethodNotAllowed, invalidRequest},
	wire.UnsupportedEncoding: {http.StatusUnsupportedMediaType, invalidRequest},
	wire.TooLarge:            {http.StatusRequestEntityTooLarge, invalidRequest},
	wire.BodyTimeout:         {http.StatusRequestTimeout, invalidRequest},
	wire.RoutingLoop:         {http.StatusLoopDetected, invalidRequest},
	wire.UpstreamRejected:    {http.StatusBadGateway, invalidRequest}, // the status is the upstream's
	wire.UpstreamFailed:      {http.StatusBadGateway, upstreamError},
	wire.UpstreamTimeout:     {http.StatusGatewayTimeout, upstreamError},
	wire.Unavailable:         {http.StatusServiceUnavailable, overloaded},
	wire.QueueFull:           {http.StatusTooManyRequests, overloaded},
	wire.ShuttingDown:        {http.StatusServiceUnavailable, overloaded},
	wire.Canceled:            {statusClientGone, invalidRequest},

	wire.BrokerDown:      {http.StatusServiceUnavailable, apiError},
	wire.BrokerFailed:    {http.StatusInternalServerError, apiError},
	wire.RequestGone:     {http.StatusGone, invalidRequest},
	wire.QueuedFailed:    {http.StatusBadGateway, apiError},
	wire.QueuedDropped:   {http.StatusTooManyRequests, rateLimit},
	wire.QueuedTooLate:   {http.StatusGatewayTimeout, timeoutError},
	wire.QueuedCalledOff: {statusClientGone, cancelled},
}

// statusClientGone is what logs and metrics call a request whose client left:
// nobody sees it on the wire, but of a request that was cancelled in a queue.
const statusClientGone = 499

func statusOf(f *wire.Fault) shown {
	s := statuses[f.Kind]
	if f.Kind == wire.UpstreamRejected {
		s.status = f.Status
		if f.Status == http.StatusTooManyRequests {
			s.kind = rateLimit
		}
	}
	return s
}

// errorObject is the body of an error, as OpenAI clients expect it.
type errorObject struct {
	Error errorMembers `json:"error"`
}

type errorMembers struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

func membersOf(id string, f *wire.Fault) errorMembers {
	return errorMembers{Message: f.Message + " (request_id: " + id + ")", Type: statusOf(f).kind, Code: f.ErrorCode()}
}

func errorBody(id string, f *wire.Fault) []byte {
	body, err := json.Marshal(errorObject{membersOf(id, f)})
	if err != nil { // three strings: it cannot be
		return []byte(`{"error":{"message":"internal error","type":"internal_error","param":null,"code":"internal"}}`)
	}
	return body
}

// typedError is the event that clients of the Responses API know as an error. The
// object is for those that look for that in any stream. The event has no
// sequence_number: events that go by are not counted.
type typedError struct {
	Type    string       `json:"type"` // "error"
	Code    string       `json:"code"`
	Message string       `json:"message"`
	Param   *string      `json:"param"`
	Error   errorMembers `json:"error"`
}

// errorEvent is the last event of a stream that has broken.
func errorEvent(p *wire.Protocol, id string, f *wire.Fault) string {
	if !p.Typed() {
		return "data: " + string(errorBody(id, f)) + "\n\n"
	}
	members := membersOf(id, f)
	body, err := json.Marshal(typedError{"error", members.Code, members.Message, nil, members})
	if err != nil { // strings: it cannot be
		body = errorBody(id, f)
	}
	return "event: error\ndata: " + string(body) + "\n\n"
}

// writeFault answers a request with a fault. Nothing must have been written.
func (s *Server) writeFault(w http.ResponseWriter, id string, f *wire.Fault) {
	h := w.Header()
	h.Set(wire.HeaderRequestID, id)
	h.Set("Content-Type", "application/json")
	if f.RetryAfter != "" {
		h.Set(wire.HeaderRetryAfter, f.RetryAfter)
	}
	if f.DropReason != "" {
		h.Set(wire.HeaderDropReason, f.DropReason)
	}
	w.WriteHeader(statusOf(f).status)
	w.Write(errorBody(id, f))
}
