package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/budget"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// pipeline is the handler of a protocol's route.
func (s *desk) pipeline(p *wire.Protocol) http.Handler { return s.handle(p, s.engine, s.accept) }

// accepter makes a request of what a client has sent.
type accepter func(r *http.Request, p *wire.Protocol, id string, body []byte) (*phases.Request, *wire.Fault)

// handle is the handler of requests that an engine serves. Its frame lies below
// all that a request does on this goroutine, for as long as its stream is open: it
// is kept small.
func (s *desk) handle(p *wire.Protocol, engine Engine, accept accepter) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.metrics.running.Inc()
		defer s.metrics.running.Dec()
		memory := s.Memory.Open()
		defer memory.Close() // if something panics; else when nothing of the request is left
		a := s.opened(w, r, p, accept, memory)
		refused := a.fault
		if a.req.Passed != nil { // though the route may be the pipeline's
			a.serve(r.Context(), s.PassthroughEngine)
		} else {
			a.serve(r.Context(), engine)
		}
		memory.Close()
		s.finish(a)
		if refused != nil && leavesBody(refused.Kind, r.ContentLength) {
			s.linger(w, r)
		}
		if a.abort {
			panic(http.ErrAbortHandler) // the only way to end an answer that is not whole
		}
	})
}

// open reads a request and checks it: what it is refused for is the answer's
// fault.
//
//go:noinline
func (s *desk) open(w http.ResponseWriter, r *http.Request, p *wire.Protocol, accept accepter, memory *budget.Account) *answering {
	received := time.Now()
	id := s.requestID(r)
	var req *phases.Request
	body, fault := s.receive(w, r, memory)
	if fault == nil {
		s.trace(id, body)
		req, fault = accept(r, p, id, body)
	}
	if fault == nil {
		req.Received = received
		fault = s.setTerms(req, r.Header)
	}
	if fault != nil {
		req = &phases.Request{ID: id, Protocol: p, Received: received, Tenant: s.tenant(r.Header)}
	}
	req.Memory, req.Journal = memory, s.journal(r)
	a := &answering{server: s, w: w, rc: http.NewResponseController(w), req: req, running: s.begun(r, req, len(body)), fault: fault,
		http2: r.ProtoMajor >= 2}
	if s.Began != nil {
		a.finished = s.Began(a.running)
	}
	return a
}

// trace shows a request's body, redacted, at the level for that.
func (s *Server) trace(id string, body []byte) {
	if ctx := context.Background(); s.log.Enabled(ctx, wire.LevelTrace) {
		s.log.Log(ctx, wire.LevelTrace, "request body", "request_id", id, "body", wire.Redact(body))
	}
}

// answering is the writing of one answer. It belongs to the handler's
// goroutine.
type answering struct {
	server  *desk
	w       http.ResponseWriter
	rc      *http.ResponseController
	req     *phases.Request
	running *Running
	// finished is told of the end; nil: nobody is.
	finished func(Record)

	long     bool // the request may wait
	started  bool // the engine has the request
	http2    bool
	begun    bool // the head is written
	events   bool // the answer is a stream of events that can be added to
	boundary wire.Boundary
	status   int
	bytes    int64
	length   int64     // that the head says; -1: none
	first    time.Time // when the first byte of the body went out
	fault    *wire.Fault
	abort    bool
	extended time.Time // when the client was given its time to take what is written
	last     time.Time // when the last piece of a stream came
}

// serve answers the request, unless it is refused. It returns when nothing of the
// request is left. A panic on the way is a bug: the request fails, like any other.
func (a *answering) serve(ctx context.Context, engine Engine) {
	defer func() {
		if cause := recover(); cause != nil {
			a.crashed(cause)
		}
	}()
	if a.fault != nil {
		a.fail(a.fault)
	} else {
		a.run(ctx, engine)
	}
}

// crashed ends a request whose handler has panicked. What it panicked with may
// hold what a client sent: only the runtime's own errors are logged by their text.
func (a *answering) crashed(cause any) {
	what := fmt.Sprintf("a value of type %T", cause)
	if err, ok := cause.(runtime.Error); ok {
		what = err.Error()
	}
	a.server.log.Error("the handler of a request panicked", "request_id", a.req.ID, "panic", what, "stack", string(debug.Stack()))
	f := wire.Faultf(wire.Internal, "internal error").Because(errors.New("the request's handler crashed"))
	a.req.Out.Stop(f)
	if a.started {
		a.discard(a.req.Out)
		a.abort = false // a client that is there sees the error
	}
	a.fail(f)
}

// run hands the request to the engine and writes what comes back.
func (a *answering) run(ctx context.Context, engine Engine) {
	if err := a.start(ctx, engine); err != nil {
		a.fail(wire.FaultOf(err))
		return
	}
	a.started = true
	a.relieve()
	out := a.req.Out
	for {
		select {
		case it := <-out.Items():
			if err := a.write(it); err != nil {
				out.Stop(wire.Faultf(wire.Canceled, "the client takes nothing any more").Because(err))
				a.discard(out)
				return
			}
		case <-out.Done():
			a.end(out)
			return
		}
	}
}

// write writes an item, flushes unless there is another, and relays the rest of
// the answer if that is in it.
func (a *answering) write(it phases.Item) error {
	now := time.Now()
	a.extend(now)
	if it.Head != nil {
		a.head(it.Head)
	}
	if it.Fault != nil {
		a.fail(it.Fault)
		a.begun = true
	}
	if it.Chunk != nil {
		err := a.pieces(it.Chunk.Bytes(), now)
		it.Chunk.Free()
		if err != nil {
			return err
		}
	}
	if len(a.req.Out.Items()) > 0 && it.Wrote == nil {
		return nil
	}
	if err := a.flush(); err != nil {
		return err
	}
	if it.Wrote != nil {
		it.Wrote()
	}
	if it.Rest == nil {
		return nil
	}
	return it.Rest.Relay(func(b []byte, at time.Time) error {
		a.extend(at)
		a.pause(at)
		if err := a.piece(b, at); err != nil {
			return err
		}
		return a.flush()
	})
}

// pause counts the time since the last piece of a stream of events.
func (a *answering) pause(at time.Time) {
	if a.events && !a.last.IsZero() {
		a.server.metrics.chunks.Observe(at.Sub(a.last).Seconds())
	}
	a.last = at
}

// mostAtOnce is how much a client is given one WriteTimeout to take.
const mostAtOnce = 64 << 10

// pieces writes what may be a whole answer: a client is dropped for taking nothing,
// and not for the time that all of it takes.
func (a *answering) pieces(b []byte, now time.Time) error {
	for ; len(b) > mostAtOnce; b = b[mostAtOnce:] {
		if err := a.piece(b[:mostAtOnce], now); err != nil {
			return err
		}
		a.extend(time.Now())
	}
	return a.piece(b, now)
}

// piece writes a piece of the answer's body. Of nothing it writes nothing: net/http
// takes that ill of answers without a body.
func (a *answering) piece(b []byte, now time.Time) error {
	if len(b) == 0 {
		return nil
	}
	if a.bytes == 0 {
		a.first = now
	}
	n, err := a.w.Write(b)
	a.bytes += int64(n)
	if a.events {
		a.boundary.Write(b)
	}
	return err
}

// extend gives a client another WriteTimeout to take what is written next, and up
// to a sixteenth more, so that it need not be done for each piece of a fast
// answer.
func (a *answering) extend(now time.Time) {
	if w := a.server.WriteTimeout; w > 0 && (a.http2 || now.Sub(a.extended) > w/16) {
		a.rc.SetWriteDeadline(now.Add(w + w/16))
		a.extended = now
	}
}

// relieve takes the deadline back while nothing is written: over HTTP/2 it would end
// the stream all the same.
func (a *answering) relieve() {
	if a.http2 && a.server.WriteTimeout > 0 {
		a.rc.SetWriteDeadline(time.Time{})
	}
}

// flush has the client get what was written.
func (a *answering) flush() error {
	if err := a.rc.Flush(); err != nil {
		return err
	}
	a.relieve()
	return nil
}

// head writes the head of decode's answer.
func (a *answering) head(head *phases.Head) {
	h := a.w.Header()
	for name, values := range head.Header {
		h[name] = values
	}
	a.server.withhold(h)
	h.Set(wire.HeaderRequestID, a.req.ID)
	if h["Content-Type"] == nil {
		h["Content-Type"] = nil // net/http would guess one
	}
	a.w.WriteHeader(head.Status)
	a.begun, a.status = true, head.Status
	a.length = -1
	if n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64); err == nil {
		a.length = n
	}
	a.events = wire.IsEventStream(head.Header)
}

// end writes what is left when the request is over, and its outcome if that is
// a failure.
func (a *answering) end(out *phases.Response) {
	a.extend(time.Now()) // also for net/http, which writes the very end
	for {
		select {
		case it := <-out.Items():
			if err := a.write(it); err != nil {
				a.discard(out)
				return
			}
			continue
		default:
		}
		break
	}
	if err := out.Err(); err != nil {
		a.fail(wire.FaultOf(err))
		return
	}
	if !a.begun {
		a.fail(wire.Faultf(wire.Internal, "internal error").Because(errors.New("the pipeline ended without an answer")))
	}
}

// discard waits for the end of a request whose client is gone.
func (a *answering) discard(out *phases.Response) {
	a.abort = true
	a.fault = wire.Faultf(wire.Canceled, "the client takes nothing any more")
	for {
		select {
		case it := <-out.Items():
			it.Free()
		case <-out.Done():
			return
		}
	}
}

// fail ends the answer with a fault: as an error object if nothing was written
// yet, as one more event in a stream of events, and never as a clean end, unless the
// client has all of the answer.
func (a *answering) fail(f *wire.Fault) {
	a.fault = f
	if !a.begun {
		a.status = statusOf(f).status
		if f.Kind == wire.Canceled {
			a.abort = true
			return
		}
		a.server.writeFault(a.w, a.req.ID, f)
		return
	}
	if a.events && a.boundary.Done() || a.length >= 0 && a.bytes >= a.length {
		return // the client has all of it, and may have put its connection by for the next request
	}
	a.abort = true
	if !a.events || f.Kind == wire.Canceled {
		return
	}
	event := a.boundary.Gap() + errorEvent(a.req.Protocol, a.req.ID, f)
	n, _ := a.w.Write([]byte(event))
	a.bytes += int64(n)
	a.rc.Flush()
}
