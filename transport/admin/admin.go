// Package admin is the operators' listener: metrics, pages, status and profiling. It
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
	"sync"
	"time"

	"github.com/julienschmidt/httprouter"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/llm-coordinator/coordinator/transport/monitor"
)

// Settings are what a server shows and does. Its functions may be called by many
// goroutines.
type Settings struct {
	Gather  prometheus.Gatherer
	Status  func() monitor.Status
	Monitor *monitor.Monitor
	// Config returns the configuration in force, without secrets, as a value that
	// encoding/json can write.
	Config func() any
	// Reload reads the configuration again; nil: there is nothing to reload. What it
	// returns is shown.
	Reload func() (any, error)
	// Drain has the coordinator say that it is not ready.
	Drain func()
	// Token returns what operators must show; nil asks for nothing.
	Token func() string
	// Host is the name that the listener was told to listen on, if any.
	Host string
	// Log, or nil for none. It names no request's content.
	Log *slog.Logger
}

// Server is the operators' listener.
type Server struct {
	settings Settings
	log      *slog.Logger
	http     *http.Server

	closing sync.Once
	closed  chan struct{}
	feeding sync.WaitGroup // those who feed pages
	mu      sync.Mutex
	open    int // pages that are fed
}

// New makes a server.
func New(settings Settings) *Server {
	s := &Server{settings: settings, log: settings.Log, closed: make(chan struct{})}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	errors := slog.NewLogLogger(s.log.Handler(), slog.LevelWarn)
	r := httprouter.New()
	r.RedirectTrailingSlash, r.RedirectFixedPath = false, false
	r.Handler(http.MethodGet, "/metrics", promhttp.HandlerFor(settings.Gather, promhttp.HandlerOpts{ErrorLog: errors, EnableOpenMetrics: true}))
	r.HandlerFunc(http.MethodGet, "/", s.page)
	r.HandlerFunc(http.MethodGet, "/page.css", asset("page.css", "text/css"))
	r.HandlerFunc(http.MethodGet, "/page.js", asset("page.js", "text/javascript"))
	// Browsers ask for an icon on their own, and note in their consoles if they get an error.
	r.HandlerFunc(http.MethodGet, "/favicon.ico", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	r.HandlerFunc(http.MethodGet, "/events", s.events)
	r.HandlerFunc(http.MethodGet, "/requests/:serial", s.request)
	r.HandlerFunc(http.MethodGet, "/requests", s.requests)
	r.HandlerFunc(http.MethodGet, "/status", func(w http.ResponseWriter, _ *http.Request) { s.writeJSON(w, http.StatusOK, settings.Status()) })
	r.HandlerFunc(http.MethodGet, "/config", func(w http.ResponseWriter, _ *http.Request) { s.writeJSON(w, http.StatusOK, settings.Config()) })
	r.HandlerFunc(http.MethodPost, "/drain", func(w http.ResponseWriter, _ *http.Request) {
		s.log.Info("not ready any more: an operator has asked for a drain")
		settings.Drain()
		s.writeJSON(w, http.StatusOK, map[string]bool{"draining": true})
	})
	r.HandlerFunc(http.MethodPost, "/reload", s.reload)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		r.HandlerFunc(method, "/debug/pprof/*profile", profile)
	}
	s.http = &http.Server{Handler: s.guarded(r), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, ErrorLog: errors}
	return s
}

// reload reads the configuration again, and shows what came of it.
func (s *Server) reload(w http.ResponseWriter, _ *http.Request) {
	if s.settings.Reload == nil {
		http.Error(w, "there is nothing to reload", http.StatusNotImplemented)
		return
	}
	done, err := s.settings.Reload()
	if err != nil {
		s.writeJSON(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
		return
	}
	s.writeJSON(w, http.StatusOK, done)
}

func (s *Server) writeJSON(w http.ResponseWriter, status int, value any) {
	body, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		s.log.Warn("an answer could not be written", "error", err)
		http.Error(w, "the answer could not be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(body, '\n'))
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

// Close closes the listener and all connections, and waits for those who feed
// pages.
func (s *Server) Close() error {
	s.closing.Do(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		close(s.closed) // under mu: nobody begins to feed a page any more
	})
	err := s.http.Close()
	s.feeding.Wait()
	return err
}
