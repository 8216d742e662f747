package broker

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// dialer connects. go-redis' own does not end with its context when it speaks
// TLS; and when dials fail, go-redis refuses all others until one of its own
// succeeds, which it tries each second, in a goroutine that outlives its
// client. The breaker does that here, so a dial never fails: the connection
// does, when it is first used.
func dialer(secure *tls.Config, limit time.Duration) func(context.Context, string, string) (net.Conn, error) {
	plain := &net.Dialer{Timeout: limit}
	dial := plain.DialContext
	if secure != nil {
		dial = (&tls.Dialer{NetDialer: plain, Config: secure}).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return &unconnected{failure: &dialError{err}}, nil
		}
		return c, nil
	}
}

// dialError says that nothing was sent.
type dialError struct{ error }

func (e *dialError) Unwrap() error { return e.error }

// unconnected is a connection that never came to be.
type unconnected struct{ failure error }

func (c *unconnected) Read([]byte) (int, error)         { return 0, c.failure }
func (c *unconnected) Write([]byte) (int, error)        { return 0, c.failure }
func (c *unconnected) Close() error                     { return nil }
func (c *unconnected) LocalAddr() net.Addr              { return nowhere{} }
func (c *unconnected) RemoteAddr() net.Addr             { return nowhere{} }
func (c *unconnected) SetDeadline(time.Time) error      { return nil }
func (c *unconnected) SetReadDeadline(time.Time) error  { return nil }
func (c *unconnected) SetWriteDeadline(time.Time) error { return nil }

// nowhere is the address of an unconnected end.
type nowhere struct{}

func (nowhere) Network() string { return "none" }
func (nowhere) String() string  { return "none" }
