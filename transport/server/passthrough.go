package server

import (
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// passedMethods are those that workers have routes for.
var passedMethods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// passesThrough reports whether a request is for a route that is passed
// through. Workers have others, to load adapters or to sleep, that clients must
// not reach: a path that anything on the way could read as another is none of
// ours.
func (s *desk) passesThrough(r *http.Request) bool {
	return slices.Contains(passedMethods, r.Method) && plain(r.URL.Path) && s.passesPath(r.URL.Path)
}

// passesPath reports whether a path is one of a route that is passed through.
func (s *Settings) passesPath(path string) bool {
	return slices.ContainsFunc(s.Passthrough, func(route string) bool {
		below, isPrefix := strings.CutSuffix(route, "*")
		return path == route || isPrefix && strings.HasPrefix(path, below) && len(path) > len(below)
	})
}

// plain reports whether a path, and what it is after another unescaping, has no
// dot segments, empty segments, backslashes or control characters.
func plain(path string) bool {
	again, err := url.PathUnescape(path)
	if err != nil {
		again = path // a % that escapes nothing is only a %
	}
	for _, p := range []string{path, again} {
		if strings.ContainsFunc(p, func(c rune) bool { return c < ' ' || c == 0x7f || c == '\\' }) {
			return false
		}
		for segment := range strings.SplitSeq(strings.TrimPrefix(p, "/"), "/") {
			if segment == "" || segment == "." || segment == ".." {
				return false
			}
		}
	}
	return true
}

// acceptPassthrough makes a request of what a client has sent to a route that is
// passed through. A JSON object loses what a client may not send; other bodies
// go as they came if no worker would read them as JSON, and are refused
// otherwise: they could hold the same in a spelling that we do not read.
func (s *desk) acceptPassthrough(r *http.Request, p *wire.Protocol, id string, text []byte) (*phases.Request, *wire.Fault) {
	req := s.passed(r, p, id, text)
	if len(text) == 0 || isOpaque(req.Passed.ContentType) {
		return req, nil
	}
	body, f := parse(text)
	if f != nil {
		return nil, f
	}
	passBody(req, wire.SanitizePassthrough(body))
	return req, nil
}

// passed makes a request that is passed through as it came.
func (s *desk) passed(r *http.Request, p *wire.Protocol, id string, text []byte) *phases.Request {
	return &phases.Request{
		ID: id, Protocol: p, Header: s.requestHeaders(r), Query: r.URL.RawQuery, Out: phases.NewResponse(),
		Passed: &phases.Passed{Method: r.Method, Path: r.URL.Path, RawPath: r.URL.EscapedPath(),
			ContentType: r.Header.Get("Content-Type"), Body: wire.NewPayload(text)},
	}
}

// passBody gives a request that is passed through its JSON object, which holds
// nothing any more that a client may not send.
func passBody(req *phases.Request, body *wire.Body) {
	req.Passed.Body = body.Edit().Payload()
	req.Model, _ = wire.Unquote(body.Get("model"))
	req.Stream = string(body.Get("stream")) == "true"
}

// isOpaque reports whether a body of this type is never read as JSON.
func isOpaque(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false
	}
	kind, _, _ := strings.Cut(media, "/")
	return kind == "multipart" || kind == "audio" || kind == "image" || kind == "video" || media == "application/octet-stream"
}
