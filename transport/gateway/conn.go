package gateway

import (
	"context"
	"io"
	"net"
)

// piecewise is a TCP connection of HTTP/1.1 that sends a leg's body as it is: in
// pieces, of which the kernel takes all at once, and the head with them. net/http
// would copy the body through a buffer of 32 KB, one write for each, and send the
// head before it by itself.
//
// It belongs to one leg at a time, as net/http gives it out. That net/http flushes
// the head of a body that it cannot see into, and then has the connection read that
// body, is what it counts on; a leg just above flatSize in the tests would show if
// not.
type piecewise struct {
	*net.TCPConn
	// holds: what net/http writes is the head of a leg whose body it then has read
	// by ReadFrom.
	holds bool
	head  []byte
}

// pieces is a body that can be had so.
type pieces interface {
	// Rest returns what has not been read, and counts it as read.
	Rest() [][]byte
}

// take begins a leg, whose body comes in pieces or not. Nothing is left of the
// leg before: net/http closes a connection that it has not written all of a leg to.
func (c *piecewise) take(inPieces bool) { c.holds, c.head = inPieces, c.head[:0] }

// Write implements io.Writer.
func (c *piecewise) Write(p []byte) (int, error) {
	if !c.holds {
		return c.TCPConn.Write(p)
	}
	c.head = append(c.head, p...)
	return len(p), nil
}

// ReadFrom implements io.ReaderFrom, which net/http looks for.
func (c *piecewise) ReadFrom(r io.Reader) (int64, error) {
	head := c.head
	c.holds, c.head = false, nil
	if limited, ok := r.(*io.LimitedReader); ok {
		if body, ok := limited.R.(pieces); ok {
			n, err := c.writeAll(head, body.Rest())
			limited.N -= n
			return n, err
		}
	}
	if len(head) > 0 {
		if _, err := c.TCPConn.Write(head); err != nil {
			return 0, err
		}
	}
	return c.TCPConn.ReadFrom(r)
}

// writeAll writes a head and a body, and returns how much of the body.
func (c *piecewise) writeAll(head []byte, body [][]byte) (int64, error) {
	all := net.Buffers(append([][]byte{head}, body...))
	n, err := all.WriteTo(c.TCPConn)
	return max(0, n-int64(len(head))), err
}

// dialPiecewise makes connections that are piecewise where they can be.
func dialPiecewise(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if tcp, ok := conn.(*net.TCPConn); ok && err == nil {
			return &piecewise{TCPConn: tcp}, nil
		}
		return conn, err
	}
}
