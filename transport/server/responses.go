package server

import (
	"net/http"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// Why a request on the route of the Responses API is passed through, besides the
// reasons of wire.NeedsState.
const (
	insteadNoRoute = "no_render_route" // the render service is known to have none
	insteadMedia   = "media"           // it has some that are not served, and nobody knows whether the service has a route
	insteadNoJSON  = "no_json"         // it has no body, or one that no worker reads as JSON
)

// TakesResponses reports whether requests of the Responses API run through the
// pipeline, if the render service has a route for them.
func (s *Settings) TakesResponses() bool {
	return s.Responses != nil && s.passesPath(wire.Responses.Path)
}

// acceptResponses makes a request of what a client has sent to the route of the
// Responses API: one for the pipeline if it can be rendered, as far as is known,
// and is about nothing but itself; else one that is passed through, as all were if
// there were no such pipeline.
func (s *desk) acceptResponses(r *http.Request, p *wire.Protocol, id string, text []byte) (*phases.Request, *wire.Fault) {
	if len(text) == 0 || isOpaque(r.Header.Get("Content-Type")) {
		return s.insteadOf(r, id, text, nil, insteadNoJSON), nil
	}
	body, f := parse(text)
	if f != nil {
		return nil, f
	}
	if reason := wire.NeedsState(body); reason != "" {
		return s.insteadOf(r, id, text, body, reason), nil
	}
	if s.Responses.Missing() {
		return s.insteadOf(r, id, text, body, insteadNoRoute), nil
	}
	req, f := s.piped(r, p, id, body)
	if f != nil && !s.Responses.Known() {
		return s.insteadOf(r, id, text, body, insteadMedia), nil
	}
	return req, f
}

// insteadOf makes a request that is passed through though its route is the
// pipeline's. Body is nil if it goes as it came.
func (s *desk) insteadOf(r *http.Request, id string, text []byte, body *wire.Body, reason string) *phases.Request {
	req := s.passed(r, wire.Passthrough, id, text)
	req.Passed.Instead = reason
	if body != nil {
		passBody(req, wire.Sanitize(body)) // no route of a worker's has tokens here
	}
	return req
}
