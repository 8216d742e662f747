package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// guarded asks for the token, and refuses what another site has a browser do.
func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if !s.knows(r) {
			h.Set("WWW-Authenticate", `Basic realm="coordinator"`)
			http.Error(w, "admin.token is asked for, as Bearer or as Basic password", http.StatusUnauthorized)
			return
		}
		// A name that somebody else's DNS gives this address makes their page one of
		// this origin. Who has shown the token is no such page.
		if s.settings.Token == nil && !s.ownHost(r.Host) {
			http.Error(w, "without admin.token this listener answers to its address, or localhost, only", http.StatusMisdirectedRequest)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead && !sameSite(r) {
			http.Error(w, "a page of another site may not do this", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// knows reports whether a request shows the token, if there is one.
func (s *Server) knows(r *http.Request) bool {
	if s.settings.Token == nil {
		return true
	}
	given, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !bearer {
		_, given, _ = r.BasicAuth()
	}
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(s.settings.Token()))
	return given != "" && subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// ownHost reports whether a request names this listener by an address, as
// localhost, or as it was told to listen.
func (s *Server) ownHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	return strings.EqualFold(host, "localhost") || s.settings.Host != "" && strings.EqualFold(host, s.settings.Host)
}

// sameSite reports whether a request comes from our own page, or from no page.
func sameSite(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	at, err := url.Parse(origin)
	return err == nil && strings.EqualFold(at.Host, r.Host)
}
