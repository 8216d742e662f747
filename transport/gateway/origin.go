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
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/llm-coordinator/coordinator/transport/files"
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

	// TLS is for an https address only.
	TLS TLS
	// H2C speaks HTTP/2 without TLS, to an http address.
	H2C bool
	// Headers are added to each leg, in place of a client's of the same names. A
	// value is literal, env:NAME, or file:PATH, whose trailing line breaks are
	// cut off.
	Headers map[string]string
	// ProfileHeader is the name that Headers may not have.
	ProfileHeader string
	// LookupEnv finds environment variables; nil is os.LookupEnv.
	LookupEnv func(name string) (string, bool)
	// Files says how the files of TLS and Headers are looked after.
	Files files.Options
}

// TLS are the files with which an https address is called.
type TLS = files.ClientTLS

// SettingError is what is wrong with one of an origin's settings.
type SettingError struct {
	// Key is as the configuration has it, below the table of the origin:
	// address, h2c, tls.ca_file, headers.Authorization.
	Key string
	Err error
}

func (e *SettingError) Error() string { return e.Key + ": " + e.Err.Error() }
func (e *SettingError) Unwrap() error { return e.Err }

// Origin is an address with its pool of connections. It may be used by many
// goroutines.
type Origin struct {
	base      url.URL
	headers   ownHeaders
	transport *http.Transport
	// fresh makes a connection for each leg. (CloseIdleConnections of the other
	// would do as well, but can lose track of a connection whose idle time ends at
	// that moment, and leave it open.)
	fresh *http.Transport
}

// NewOrigin checks the settings, reads the files that they name, and prepares
// the pool; it dials nothing. Errors are of type *SettingError.
//
// The transport ignores proxy variables (a leg must go where the operator
// points it), asks for no compression and undoes none (what goes to the client
// goes through as it is), and follows no redirect.
func NewOrigin(s OriginSettings) (*Origin, error) {
	base, err := url.Parse(s.Address)
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") || !bare(base) {
		return nil, &SettingError{"address", errors.New("want an address such as http://host:port or https://host:port, and nothing behind it")}
	}
	secure := base.Scheme == "https"
	if err := s.checkSecurity(secure); err != nil {
		return nil, err
	}
	headers, err := newHeaders(&s)
	if err != nil {
		return nil, err
	}
	if s.Dial == nil {
		s.Dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	}
	o := &Origin{
		base:    url.URL{Scheme: base.Scheme, Host: base.Host},
		headers: headers,
		transport: &http.Transport{
			Protocols:           protocols(secure, s.H2C),
			HTTP2:               http2Config(),
			DialContext:         s.Dial,
			DisableCompression:  true,
			MaxIdleConnsPerHost: s.MaxIdle,
			WriteBufferSize:     writeBuffer,
			IdleConnTimeout:     s.IdleTimeout,
			// 1 MB of headers is net/http's own default; said here because an
			// upstream's headers are kept in memory.
			MaxResponseHeaderBytes: 1 << 20,
		},
	}
	if !s.H2C { // whose frames are no heads
		o.transport.DialContext = dialPiecewise(s.Dial)
	}
	if secure {
		if o.transport.DialTLSContext, err = s.dialTLS(base.Hostname()); err != nil {
			return nil, err
		}
	}
	o.fresh = o.transport.Clone()
	o.fresh.DisableKeepAlives = true
	return o, nil
}

// writeBuffer is how much of a leg goes out in one write: its headers, and the
// body of most. A larger body does not go through it.
const writeBuffer = 8 << 10

// checkSecurity refuses settings that would silently not be used.
func (s *OriginSettings) checkSecurity(secure bool) error {
	if secure {
		if s.H2C {
			return &SettingError{"h2c", errors.New("is for an http address; over https HTTP/2 is spoken anyway")}
		}
		return nil
	}
	for _, set := range []struct{ key, value string }{
		{"ca_file", s.TLS.CAFile}, {"cert_file", s.TLS.CertFile}, {"key_file", s.TLS.KeyFile}, {"server_name", s.TLS.ServerName},
	} {
		if set.value != "" {
			return &SettingError{"tls." + set.key, errors.New("is for an https address")}
		}
	}
	return nil
}

// dialTLS returns the function that makes the transport's TLS connections.
func (s *OriginSettings) dialTLS(host string) (func(ctx context.Context, network, address string) (net.Conn, error), error) {
	handshake, err := s.TLS.Handshake(host, s.Files)
	if bad := (*files.KeyError)(nil); errors.As(err, &bad) {
		return nil, &SettingError{"tls." + bad.Key, bad.Err}
	}
	dial := s.Dial
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		secure, err := handshake(ctx, conn)
		if err != nil {
			return nil, handshakeError{err}
		}
		return secure, nil
	}, err
}

// handshakeError is why there is no TLS connection. Its text names certificates
// and nothing else.
type handshakeError struct{ error }

func (e handshakeError) Error() string {
	switch bad := (*tls.CertificateVerificationError)(nil); {
	case errors.As(e.error, &bad):
		return "TLS handshake: " + bad.Error()
	case errors.As(e.error, new(tls.RecordHeaderError)):
		return "TLS handshake: the upstream does not speak TLS"
	case errors.Is(e.error, context.DeadlineExceeded):
		return "TLS handshake: took too long"
	}
	if op := (*net.OpError)(nil); errors.As(e.error, &op) {
		return "TLS handshake: " + op.Error()
	}
	return "TLS handshake failed"
}

func (e handshakeError) Unwrap() error { return e.error }

// bare reports whether a URL has nothing beyond scheme, host and port: the rest
// would silently not be used.
func bare(u *url.URL) bool {
	return (u.Path == "" || u.Path == "/") && u.RawQuery == "" && u.Fragment == "" && u.User == nil
}

// Close closes the unused connections. Legs in flight keep theirs.
func (o *Origin) Close() {
	o.transport.CloseIdleConnections()
	o.fresh.CloseIdleConnections()
}
