package cluster

import (
	"context"
	"net"
	"sync"
)

// PipeListener is a net.Listener whose connections are in-memory pipes: a server
// and a client over it need no port, and under testing/synctest all their
// waiting is durable. Create it inside the bubble. It is safe for concurrent use.
//
// The pipes have no buffer: a write returns when the other side has read it.
type PipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

var _ net.Listener = (*PipeListener)(nil)

// NewPipeListener returns an open listener.
func NewPipeListener() *PipeListener {
	return &PipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// DialContext connects to the listener, whatever network and address say. It fits
// http.Transport.DialContext. It waits until the connection is accepted, ctx ends
// or the listener is closed.
func (l *PipeListener) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	var err error
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		err = &net.OpError{Op: "dial", Net: "pipe", Addr: l.Addr(), Err: net.ErrClosed}
	case <-ctx.Done():
		err = ctx.Err()
	}
	client.Close()
	server.Close()
	return nil, err
}

// Accept waits for the next dial.
func (l *PipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and all dials that wait; accepted connections stay open.
func (l *PipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr is a made-up address that is good in a URL.
func (l *PipeListener) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "cluster.test" }
