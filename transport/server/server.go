// Package server is the coordinator's public HTTP listener: it reads requests,
// hands them to the engine, and writes what comes back.
//
// It is the only place that knows an http.ResponseWriter, and the only one that
// turns a fault into a status.
package server

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/julienschmidt/httprouter"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/budget"
	"github.com/llm-coordinator/coordinator/transport/journal"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// Engine drives requests; see package actors.
type Engine interface {
	// Start begins to drive a request, whose answer comes by its Out. It ends with
	// its context, or when Out is told to stop. An error refuses it.
	Start(ctx context.Context, r *phases.Request) error
}

// Settings of the listener. Durations of 0 are no limit.
type Settings struct {
	// ReadTimeout is how long headers, and then a body, may take to arrive.
	ReadTimeout time.Duration
	// WriteTimeout is how long a client may take nothing of an answer. There is
	// no limit on a whole answer.
	WriteTimeout time.Duration
	// IdleTimeout is how long an unused connection is kept.
	IdleTimeout time.Duration
	// MaxBody is the size in bytes of the largest request body.
	MaxBody int64
	// MaxBatch is how many prompts a completions request may have; up to 1 arrays of
	// prompts are refused.
	MaxBatch int
	// Memory is charged for what requests hold; nil charges nothing.
	Memory *budget.Budget
	// Passthrough are the paths that are passed through to a decode worker by
	// PassthroughEngine; those that end with "/*" are for all paths below.
	Passthrough       []string
	PassthroughEngine Engine
	// Responses tells whether requests of the Responses API, if Passthrough names
	// their route, can run through the pipeline instead; nil: they cannot.
	Responses *phases.Offer
	// QueuedEngine serves calls about requests that were put into a queue; nil:
	// there are none, nor a route for them.
	QueuedEngine Engine
	// Waits tells by its headers whether a request may wait by terms of its own:
	// RequestTimeout is not for it, nor is what its client says of one. nil: none may.
	Waits func(http.Header) bool
	// ProfileHeader is the name of the header that clients may not set.
	ProfileHeader string
	// Forwarded are the names, in canonical form, of headers that legs are given
	// from the answers of others: clients may neither set nor see them. If there are
	// some, all legs of a request carry wire.HeaderDecisionID.
	Forwarded []string
	// TenantHeader is the name of the header that says whom a request is for; ""
	// means that all are for one.
	TenantHeader string
	// RequestTimeout is how long after its headers the first byte of a request's
	// answer must be there. Clients may ask for less. It becomes the request's
	// Deadline, which the engine keeps.
	RequestTimeout time.Duration
	// Unready says why no request could be served now, or "" if some could; nil
	// is always "". It is asked at each probe, and must not block.
	Unready func() string
	// Tracing has requests, and their calls, be spans of traces: see journal.Trace.
	// It returns whether a trace is recorded, new or the client's with the client's
	// Flags; nil passes on what clients send.
	Tracing func(journal.Trace) bool
	// TLS of the listener; nil is none. HTTP/2 is spoken with it.
	TLS *tls.Config
}

// Server is the public listener. Its handler may serve many requests at once.
type Server struct {
	engine   Engine
	log      *slog.Logger
	metrics  *Metrics
	http     *http.Server
	tls      bool
	desk     atomic.Pointer[desk]
	draining atomic.Bool
	serial   serial

	// Began and Finished, if set before the server is used, are called for each
	// request that is served or refused: when it has been read, and when it has
	// ended. What Began returns is told of the same request's end.
	Began    func(*Running) (finished func(Record))
	Finished func(Record)
}

// New makes a server. A nil logger logs nothing, nil metrics go nowhere.
func New(s Settings, e Engine, log *slog.Logger, m *Metrics) *Server {
	if log == nil {
		log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if m == nil {
		m = NewMetrics(nil)
	}
	srv := &Server{engine: e, tls: s.TLS != nil, log: log, metrics: m, serial: serial{start: time.Now().UnixMilli()}}
	srv.Apply(s)
	srv.http = &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { srv.desk.Load().handler.ServeHTTP(w, r) }),
		ReadHeaderTimeout: s.ReadTimeout,
		IdleTimeout:       s.IdleTimeout,
		TLSConfig:         s.TLS,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	// ReadTimeout and WriteTimeout of net/http stay off. The one would end the
	// context of a request whose answer takes longer, the other would cut long
	// streams: both are set for single reads and writes instead.
	return srv
}

// routes is the table of what clients may call.
func (s *desk) routes() http.Handler {
	r := httprouter.New()
	r.RedirectTrailingSlash = false
	r.RedirectFixedPath = false
	r.HandleOPTIONS = false
	for _, p := range wire.Protocols() {
		if p != wire.Responses {
			r.Handler(http.MethodPost, p.Path, s.pipeline(p))
		} else if s.TakesResponses() {
			r.Handler(http.MethodPost, p.Path, s.handle(p, s.engine, s.acceptResponses))
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		r.HandlerFunc(method, "/healthz", s.healthz)
		r.HandlerFunc(method, "/readyz", s.readyz)
	}
	if s.QueuedEngine != nil {
		for _, method := range []string{http.MethodGet, http.MethodDelete} {
			r.Handler(method, queuedPath, s.handle(queuedCalls, s.QueuedEngine, s.acceptQueued))
		}
	}
	passthrough := s.handle(wire.Passthrough, s.PassthroughEngine, s.acceptPassthrough)
	r.NotFound = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if s.passesThrough(req) {
			passthrough.ServeHTTP(w, req)
			return
		}
		f := s.refusal(req)
		if f == nil {
			f = wire.Faultf(wire.NotFound, "no such route")
		}
		s.writeFault(w, s.requestID(req), f)
	})
	r.MethodNotAllowed = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == wire.Responses.Path && s.passesThrough(req) {
			passthrough.ServeHTTP(w, req)
			return
		}
		// The router names OPTIONS too, which no route takes.
		allow := strings.Split(w.Header().Get("Allow"), ", ")
		allow = slices.DeleteFunc(allow, func(method string) bool { return method == http.MethodOptions })
		w.Header().Set("Allow", strings.Join(allow, ", "))
		s.writeFault(w, s.requestID(req), wire.Faultf(wire.MethodNotAllowed, "this route does not take %s", req.Method))
	})
	return r
}

// limited gives a request ReadTimeout to arrive, and after that a short answer
// WriteTimeout to be taken. Who has read a body lifts the one, who writes a long
// answer renews the other. Both stand when the handler returns: net/http then
// reads what is left of a body that was refused and writes the last bytes of
// the answer, and would wait for either for ever.
func (s *desk) limited(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc, now := http.NewResponseController(w), time.Now()
		if s.ReadTimeout > 0 {
			rc.SetReadDeadline(now.Add(s.ReadTimeout))
		}
		if s.WriteTimeout > 0 {
			rc.SetWriteDeadline(now.Add(s.ReadTimeout + s.WriteTimeout))
		}
		if s.draining.Load() {
			w.Header().Set("Connection", "close") // the next request goes to another replica
		}
		next.ServeHTTP(w, r)
	})
}

// Serve serves connections of a listener until Shutdown or Close. It returns
// nil then, and otherwise says why it stopped.
func (s *Server) Serve(l net.Listener) error {
	serve := s.http.Serve
	if s.tls {
		serve = func(l net.Listener) error { return s.http.ServeTLS(l, "", "") }
	}
	if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Handler returns the handler of all routes.
func (s *Server) Handler() http.Handler { return s.http.Handler }

// Draining reports whether the server says that it is not ready because it ends.
func (s *Server) Draining() bool { return s.draining.Load() }

// NotReady says why the server is not ready, or "" if it is.
func (s *Server) NotReady() string {
	if s.draining.Load() {
		return "shutting down"
	}
	if unready := s.desk.Load().Settings.Unready; unready != nil {
		return unready()
	}
	return ""
}

// Drain makes the server say that it is not ready, while it goes on serving.
func (s *Server) Drain() { s.draining.Store(true) }

// Shutdown closes the listener and waits until no request is left or ctx ends.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Drain()
	return s.http.Shutdown(ctx)
}

// Close closes the listener and all connections.
func (s *Server) Close() error { return s.http.Close() }

func (s *Server) healthz(w http.ResponseWriter, r *http.Request) {
	s.writeJSON(w, r, http.StatusOK, `{"ok":true}`)
}

func (s *desk) readyz(w http.ResponseWriter, r *http.Request) {
	reason := s.NotReady()
	if reason == "" {
		s.writeJSON(w, r, http.StatusOK, `{"ready":true}`)
		return
	}
	text, _ := json.Marshal(reason) // a string: it cannot fail
	s.writeJSON(w, r, http.StatusServiceUnavailable, `{"ready":false,"reason":`+string(text)+`}`)
}

func (s *Server) writeJSON(w http.ResponseWriter, r *http.Request, status int, body string) {
	w.Header().Set(wire.HeaderRequestID, s.requestID(r))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	io.WriteString(w, body)
}
