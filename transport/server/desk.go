package server

import "net/http"

// desk is the server under one set of settings. A request is served to its end by
// the desk that it came to, whatever is set meanwhile.
type desk struct {
	*Server
	Settings
	handler http.Handler
}

// Apply has requests that come from now on served by other settings; those that
// are being served go on by their own. It may be called while the server serves,
// by one goroutine at a time.
//
// What belongs to the listener stays as New was told: TLS, IdleTimeout, and the
// ReadTimeout of headers.
func (s *Server) Apply(settings Settings) {
	settings.TenantHeader = http.CanonicalHeaderKey(settings.TenantHeader) // once, not for each request
	d := &desk{Server: s, Settings: settings}
	d.handler = d.limited(d.routes())
	s.desk.Store(d)
}

// Settings returns the settings of requests that come now.
func (s *Server) Settings() Settings { return s.desk.Load().Settings }
