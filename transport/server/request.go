package server

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/budget"
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
func (s *desk) receive(w http.ResponseWriter, r *http.Request, memory *budget.Account) ([]byte, *wire.Fault) {
	if f := s.refusal(r); f != nil {
		return nil, f
	}
	for _, enc := range r.Header["Content-Encoding"] {
		if enc != "" && !strings.EqualFold(enc, "identity") {
			return nil, wire.Faultf(wire.UnsupportedEncoding, "a request body must not be encoded")
		}
	}
	return s.readBody(w, r, memory)
}

// accept makes a request of a protocol of what a client has sent.
func (s *desk) accept(r *http.Request, p *wire.Protocol, id string, text []byte) (*phases.Request, *wire.Fault) {
	body, f := parse(text)
	if f != nil {
		return nil, f
	}
	return s.piped(r, p, id, body)
}

// parse takes a request's body apart.
func parse(text []byte) (*wire.Body, *wire.Fault) {
	body, err := wire.ParseBody(text)
	if err != nil {
		return nil, wire.Invalid("invalid_json", "the body is not a JSON object: %v", err)
	}
	return body, nil
}

// piped makes a request that runs through the pipeline.
func (s *desk) piped(r *http.Request, p *wire.Protocol, id string, body *wire.Body) (*phases.Request, *wire.Fault) {
	body = wire.Sanitize(body)
	singles, err := p.Singles(body, s.MaxBatch)
	if err != nil {
		return nil, wire.FaultOf(err)
	}
	var prompt wire.Prompt
	var batch *phases.Batch
	switch len(singles) {
	case 0:
		if prompt, err = p.Prompt(body); err != nil {
			return nil, wire.FaultOf(err)
		}
	case 1: // an array of one is that one
		body, prompt = singles[0].Body, singles[0].Prompt
	default:
		prompt, batch = singles[0].Prompt, phases.NewBatch(singles)
	}
	model, _ := wire.Unquote(body.Get("model"))
	return &phases.Request{
		ID: id, NamedByClient: r.Header.Get(wire.HeaderRequestID) == id, Protocol: p, Body: body, Prompt: prompt, Model: model,
		Stream: string(body.Get("stream")) == "true",
		Header: s.legHeaders(r),
		Query:  r.URL.RawQuery, LocalKV: p.LocalKV(body),
		Out: phases.NewResponse(), Batch: batch,
	}, nil
}

// readBody reads a request body under the read time-out, which it lifts if it
// has all of it. What it holds is charged as its bytes arrive.
func (s *desk) readBody(w http.ResponseWriter, r *http.Request, memory *budget.Account) ([]byte, *wire.Fault) {
	if r.ContentLength > s.MaxBody {
		return nil, s.tooLarge(w)
	}
	buf, err := budget.NewBuffer(memory, r.ContentLength)
	for err == nil {
		var room []byte
		if room, err = buf.Free(); err != nil {
			break
		}
		var n int
		n, err = r.Body.Read(room)
		buf.Filled(n)
		if int64(len(buf.Bytes())) > s.MaxBody {
			return nil, s.tooLarge(w)
		}
	}
	if err == io.EOF {
		// A deadline that stayed would end the request's context.
		http.NewResponseController(w).SetReadDeadline(time.Time{})
		return buf.Bytes(), nil
	}
	w.Header().Set("Connection", "close") // the rest is not read
	if f := (*wire.Fault)(nil); errors.As(err, &f) {
		return nil, f
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, wire.Faultf(wire.BodyTimeout, "the request body did not arrive in time")
	}
	if isConnectionError(r, err) {
		return nil, wire.Faultf(wire.Canceled, "the request body broke off")
	}
	return nil, wire.Invalid("invalid_body", "the request body is not well-formed HTTP").Because(err)
}

// isConnectionError reports whether the body of a request could not be read
// because its client left. Else what it sent makes no sense: net/http has no type
// for that.
func isConnectionError(r *http.Request, err error) bool {
	return r.Context().Err() != nil || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, new(net.Error))
}

// refusal is the fault of requests that no route takes, or nil: legs of our own,
// which a gateway that loses the profile header would send round for ever, and
// requests to speak something else than HTTP. HTTP/2 on an open port is offered
// by clients that can do without (RFC 9113, 3.1): that is not taken up.
func (s *desk) refusal(r *http.Request) *wire.Fault {
	if r.Header[wire.HeaderHop] != nil {
		return wire.Faultf(wire.RoutingLoop, "this request is one of the coordinator's own: the gateway sends legs back to it (is %s lost on the way?)", s.ProfileHeader)
	}
	for _, line := range r.Header["Upgrade"] {
		for protocol := range strings.SplitSeq(line, ",") {
			if p := strings.TrimSpace(protocol); p != "" && !strings.EqualFold(p, "h2c") {
				return wire.Invalid("upgrade_refused", "no other protocol is spoken here: leave the header Upgrade out")
			}
		}
	}
	return nil
}

// lingering is how long the rest of a body is waited for that is not wanted.
const lingering = 5 * time.Second

// leavesBody reports whether more of a body of a length, -1 if that is not known, is
// unread than net/http takes by itself, if its request is refused so.
func leavesBody(k wire.Kind, length int64) bool {
	switch k {
	case wire.TooLarge, wire.QueueFull:
		return true
	case wire.UnsupportedEncoding, wire.RoutingLoop: // it was not read at all
		return length < 0 || length > 256<<10
	}
	return false
}

// linger takes what is left of a body whose request was refused before the end of
// it, and throws it away: a client that is still writing would find its
// connection reset before it reads why.
func (s *desk) linger(w http.ResponseWriter, r *http.Request) {
	if r.Header["Expect"] != nil {
		return // it may not have begun, and then does not
	}
	rc := http.NewResponseController(w)
	rc.Flush()
	wait := lingering
	if s.ReadTimeout > 0 {
		wait = min(wait, s.ReadTimeout)
	}
	rc.SetReadDeadline(time.Now().Add(wait))
	io.CopyN(io.Discard, r.Body, s.MaxBody)
}

func (s *desk) tooLarge(w http.ResponseWriter) *wire.Fault {
	w.Header().Set("Connection", "close") // the rest is not read
	return wire.Faultf(wire.TooLarge, "the request body is larger than %d bytes", s.MaxBody)
}
