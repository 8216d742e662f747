// Package admin is the operators' listener: metrics, status and profiling. It
// is kept apart from the clients' listener, and on loopback unless configured
// otherwise, because what it tells is not for clients.
package admin

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/julienschmidt/httprouter"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Server is the operators' listener.
type Server struct{ http *http.Server }

// New makes a server. status returns what GET /status shows, as a value that
// encoding/json can write; it may be called by many goroutines. A nil logger
// logs nothing.
func New(gather prometheus.Gatherer, status func() any, log *slog.Logger) *Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r := httprouter.New()
	r.RedirectTrailingSlash, r.RedirectFixedPath = false, false
	r.Handler(http.MethodGet, "/metrics", promhttp.HandlerFor(gather, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), EnableOpenMetrics: true}))
	r.HandlerFunc(http.MethodGet, "/status", func(w http.ResponseWriter, _ *http.Request) {
		body, err := json.MarshalIndent(status(), "", "  ")
		if err != nil {
			log.Warn("status could not be written", "error", err)
			http.Error(w, "status could not be written", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(append(body, '\n'))
	})
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		r.HandlerFunc(method, "/debug/pprof/*profile", profile)
	}
	return &Server{http: &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}}
}

// profile serves the runtime's profiles. Their package would register them on
// http.DefaultServeMux, which nothing here serves.
func profile(w http.ResponseWriter, r *http.Request) {
	switch httprouter.ParamsFromContext(r.Context()).ByName("profile") {
	case "/cmdline":
		pprof.Cmdline(w, r)
	case "/profile":
		pprof.Profile(w, r)
	case "/symbol":
		pprof.Symbol(w, r)
	case "/trace":
		pprof.Trace(w, r)
	default:
		pprof.Index(w, r)
	}
}

// Handler returns the handler of all routes.
func (s *Server) Handler() http.Handler { return s.http.Handler }

// Serve serves connections of a listener until Close. It returns nil then.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close closes the listener and all connections.
func (s *Server) Close() error { return s.http.Close() }
