package gateway

import (
	"bytes"
	"errors"
	"net/http"
	"strings"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// noRoute begins the body of a 404 by which a worker's web framework says that it
// has no such route. A worker's own 404, for a model that it does not have, is an
// error object.
const noRoute = `{"detail":`

// ErrNoRoute is in the chain of the fault of a call that must be 200 and was
// answered by a web framework, or by something on the way, which knows no such
// route: 404 or 405 without an error object. Other errors are by who serves it.
var ErrNoRoute = errors.New("there is no such route")

// IsNoRoute reports whether an answer is one for which ErrNoRoute stands. A server that
// has other methods on paths that look alike answers 405.
func IsNoRoute(status int, body []byte) bool {
	if status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
		return false
	}
	return wire.Valid(body) != nil || wire.IsNull(wire.Lookup(body, "error")) && wire.Lookup(body, "object") == nil
}

// ScaleOutRoute reports whether a route is one that workers have only if they are
// started with --enable-scale-out. Who calls the one of the Responses API does without
// if need be.
func ScaleOutRoute(path string) bool {
	return path == wire.GeneratePath || strings.HasSuffix(path, "/render") && path != wire.Responses.RenderPath
}

// explainMissing tells the operator, once for each route, why a worker does not
// know it: an answer of 404 alone reads like a client's mistake.
func (u *Upstream) explainMissing(path string, status int, body []byte) {
	if status != http.StatusNotFound || u.Log == nil || !ScaleOutRoute(path) ||
		!bytes.HasPrefix(bytes.TrimSpace(body), []byte(noRoute)) {
		return
	}
	if _, known := u.explained.LoadOrStore(path, true); !known {
		u.Log.Warn("a worker has no such route: start it with --enable-scale-out", "profile", u.Name, "route", path)
	}
}
