package gateway

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// noRoute begins the body of a 404 by which a worker's web framework says that it
// has no such route. A worker's own 404, for a model that it does not have, is an
// error object.
const noRoute = `{"detail":`

// scaleOutRoute reports whether a route is one that workers have only if they are
// started for it.
func scaleOutRoute(path string) bool {
	return path == wire.GeneratePath || strings.HasSuffix(path, "/render")
}

// explainMissing tells the operator, once for each route, why a worker does not
// know it: an answer of 404 alone reads like a client's mistake.
func (u *Upstream) explainMissing(path string, status int, body []byte) {
	if status != http.StatusNotFound || u.Log == nil || !scaleOutRoute(path) ||
		!bytes.HasPrefix(bytes.TrimSpace(body), []byte(noRoute)) {
		return
	}
	if _, known := u.explained.LoadOrStore(path, true); !known {
		u.Log.Warn("a worker has no such route: start it with --enable-scale-out", "profile", u.Name, "route", path)
	}
}
