package gateway

import (
	"context"
	"io"
	"net"
)

// piecewise is a TCP connection that sends a leg's body as it is: in pieces, of
// which the kernel takes all at once. net/http would copy it through a buffer of
// 32 KB, one write for each.
type piecewise struct{ *net.TCPConn }

// pieces is a body that can be had so.
type pieces interface {
	// Rest returns what has not been read, and counts it as read.
	Rest() [][]byte
}

// ReadFrom implements io.ReaderFrom, which net/http looks for.
func (c piecewise) ReadFrom(r io.Reader) (int64, error) {
	limited, ok := r.(*io.LimitedReader)
	if !ok {
		return c.TCPConn.ReadFrom(r)
	}
	body, ok := limited.R.(pieces)
	if !ok {
		return c.TCPConn.ReadFrom(r)
	}
	rest := net.Buffers(body.Rest())
	n, err := rest.WriteTo(c.TCPConn)
	limited.N -= n
	return n, err
}

// dialPiecewise makes connections that are piecewise where they can be.
func dialPiecewise(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if tcp, ok := conn.(*net.TCPConn); ok && err == nil {
			return piecewise{tcp}, nil
		}
		return conn, err
	}
}
