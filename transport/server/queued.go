package server

import (
	"net/http"

	"github.com/julienschmidt/httprouter"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// queuedPath is the route of calls about requests that were put into a queue.
const queuedPath = "/v1/requests/:id"

// queuedCalls is for these calls: it has no prompt and no legs.
var queuedCalls = &wire.Protocol{Name: "queued-requests"}

// acceptQueued makes a request of a call about a queued one. What it may have as a
// body is not looked at.
func (s *desk) acceptQueued(r *http.Request, p *wire.Protocol, id string, _ []byte) (*phases.Request, *wire.Fault) {
	return &phases.Request{
		ID: id, Protocol: p, Header: s.requestHeaders(r), Out: phases.NewResponse(),
		Queued: &phases.Queued{Method: r.Method, ID: httprouter.ParamsFromContext(r.Context()).ByName("id")},
	}, nil
}
