package cluster

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
)

type connKey struct{}

// connUse counts the requests that came over one connection.
type connUse struct{ requests atomic.Int64 }

// ConnContext is the http.Server.ConnContext that lets a cluster see whether a
// leg came over a connection that had served one before. [Cluster.Start] sets it
// by itself.
func ConnContext(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, new(connUse))
}

// countUse counts a request on its connection and reports whether it was not the
// first one there. Without ConnContext every connection looks new.
func countUse(ctx context.Context) (reused bool) {
	use, ok := ctx.Value(connKey{}).(*connUse)
	return ok && use.requests.Add(1) > 1
}

// trackConn keeps count of open connections for Close. The server reports each
// one as new before Serve can return, and as closed when its goroutine ends.
func (c *Cluster) trackConn(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		c.conns.Add(1)
	case http.StateClosed, http.StateHijacked:
		c.conns.Done()
	}
}
