package server

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// requestID returns the client's request id if it is a good one, else a new
// one.
func (s *Server) requestID(r *http.Request) string {
	given := r.Header.Get(wire.HeaderRequestID)
	if wire.ValidRequestID(given) {
		return given
	}
	if given != "" {
		s.log.Debug("a client's request id was replaced", "length", len(given))
	}
	return uuid.NewString()
}

// receive reads what every request must be to be served. The fault it returns is
// for the client.
func (s *Server) receive(w http.ResponseWriter, r *http.Request) ([]byte, *wire.Fault) {
	if r.Header[wire.HeaderHop] != nil {
		return nil, wire.Faultf(wire.RoutingLoop, "this request is one of the coordinator's own: the gateway sends legs back to it (is %s lost on the way?)", s.ProfileHeader)
	}
	for _, enc := range r.Header["Content-Encoding"] {
		if enc != "" && !strings.EqualFold(enc, "identity") {
			return nil, wire.Faultf(wire.UnsupportedEncoding, "a request body must not be encoded")
		}
	}
	return s.readBody(w, r)
}

// accept makes a request of a protocol of what a client has sent.
func (s *Server) accept(r *http.Request, p *wire.Protocol, id string, text []byte) (*phases.Request, *wire.Fault) {
	body, err := wire.ParseBody(text)
	if err != nil {
		return nil, wire.Invalid("invalid_json", "the body is not a JSON object: %v", err)
	}
	body = wire.Sanitize(body)
	prompt, err := p.Prompt(body)
	if err != nil {
		return nil, wire.FaultOf(err)
	}
	model, _ := wire.Unquote(body.Get("model"))
	return &phases.Request{
		ID: id, Protocol: p, Body: body, Prompt: prompt, Model: model,
		Stream: string(body.Get("stream")) == "true",
		Header: wire.RequestHeaders(r.Header, s.ProfileHeader),
		Query:  r.URL.RawQuery, LocalKV: p.LocalKV(body),
		Out: phases.NewResponse(),
	}, nil
}

// readBody reads a request body under the read time-out, which it lifts if it
// has all of it. What Content-Length promises is reserved ahead up to a megabyte
// only.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, *wire.Fault) {
	const ahead = 1 << 20
	if r.ContentLength > s.MaxBody {
		return nil, s.tooLarge(w)
	}
	size := min(max(r.ContentLength, 512), ahead)
	buf := make([]byte, 0, size+1) // one more, so that the end is seen without growing
	for {
		n, err := r.Body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case int64(len(buf)) > s.MaxBody:
			return nil, s.tooLarge(w)
		case err == io.EOF:
			// A deadline that stayed would end the request's context.
			http.NewResponseController(w).SetReadDeadline(time.Time{})
			return buf, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			w.Header().Set("Connection", "close")
			return nil, wire.Faultf(wire.BodyTimeout, "the request body did not arrive in time")
		case err != nil:
			return nil, wire.Faultf(wire.Canceled, "the request body broke off")
		case len(buf) == cap(buf):
			buf = append(buf, 0)[:len(buf)]
		}
	}
}

func (s *Server) tooLarge(w http.ResponseWriter) *wire.Fault {
	w.Header().Set("Connection", "close") // the rest is not read
	return wire.Faultf(wire.TooLarge, "the request body is larger than %d bytes", s.MaxBody)
}
