// Package gateway calls the coordinator's upstreams: the Inference Gateway,
// once per scheduling profile, and the render service.
//
// An [Origin] is an address with its keep-alive pool. An [Upstream] is an
// origin seen through one profile: it has a time-out and a circuit breaker of
// its own, sends legs, and turns what comes back into an answer or a
// *wire.Fault. It knows nothing of phases.
package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"
)

// OriginSettings say how an address is reached.
type OriginSettings struct {
	// Address is the base URL, http or https, without path, query and user.
	Address string
	// MaxIdle is how many unused connections are kept.
	MaxIdle int
	// IdleTimeout is how long an unused connection is kept; 0 is for ever.
	IdleTimeout time.Duration
	// Dial makes connections; nil dials TCP. Tests pass in-memory pipes.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Origin is an address with its pool of connections. It may be used by many
// goroutines.
type Origin struct {
	base      url.URL
	transport *http.Transport
}

// NewOrigin checks the address and prepares the pool; it dials nothing.
//
// The transport ignores proxy variables (a leg must go where the operator
// points it), asks for no compression and undoes none (what goes to the client
// goes through as it is), and follows no redirect.
func NewOrigin(s OriginSettings) (*Origin, error) {
	base, err := url.Parse(s.Address)
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") || !bare(base) {
		return nil, errors.New("want an address such as http://host:port or https://host:port, and nothing behind it")
	}
	if s.Dial == nil {
		s.Dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	}
	return &Origin{
		base: url.URL{Scheme: base.Scheme, Host: base.Host},
		transport: &http.Transport{
			DialContext:         s.Dial,
			DisableCompression:  true,
			MaxIdleConnsPerHost: s.MaxIdle,
			IdleConnTimeout:     s.IdleTimeout,
			TLSHandshakeTimeout: 10 * time.Second,
			// 1 MB of headers is net/http's own default; said here because an
			// upstream's headers are kept in memory.
			MaxResponseHeaderBytes: 1 << 20,
		},
	}, nil
}

// bare reports whether a URL has nothing beyond scheme, host and port: the rest
// would silently not be used.
func bare(u *url.URL) bool {
	return (u.Path == "" || u.Path == "/") && u.RawQuery == "" && u.Fragment == "" && u.User == nil
}

// Close closes the unused connections. Legs in flight keep theirs.
func (o *Origin) Close() { o.transport.CloseIdleConnections() }
