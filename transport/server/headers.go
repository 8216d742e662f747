package server

import (
	"crypto/rand"
	"net/http"

	"github.com/google/uuid"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// requestHeaders returns the client's headers that go on.
func (s *desk) requestHeaders(r *http.Request) http.Header {
	h := wire.RequestHeaders(r.Header, s.ProfileHeader)
	s.withhold(h)
	return h
}

// legHeaders are those of a request's legs.
func (s *desk) legHeaders(r *http.Request) http.Header {
	h := s.requestHeaders(r)
	if len(s.Forwarded) > 0 {
		h[wire.HeaderDecisionID] = []string{decisionID()}
	}
	return h
}

// withhold takes out what only legs and their answers may say.
func (s *desk) withhold(h http.Header) {
	for _, name := range s.Forwarded {
		delete(h, name)
	}
}

// decisionID returns a new UUID (RFC 9562, version 4), whose bytes stay on the
// stack.
func decisionID() string {
	var id uuid.UUID
	rand.Read(id[:]) // it never fails
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id.String()
}
