package broker

import (
	"net"
	"sync"
	"testing"
)

// proxy is between a broker and its Redis, and misbehaves when it is told to.
type proxy struct {
	net.Listener
	to    string
	alive sync.WaitGroup

	mu       sync.Mutex
	held     chan struct{} // closed when what arrives is passed on again; nil: it is
	breaking bool          // the next that is heard breaks its connection
	conns    map[net.Conn]bool
}

func startProxy(t *testing.T, s *server) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l, to: "127.0.0.1:" + s.port, conns: map[net.Conn]bool{}}
	p.alive.Go(p.accept)
	t.Cleanup(func() {
		p.Close()
		p.forward()
		p.cut()
		p.alive.Wait()
	})
	return p
}

func (p *proxy) url() string { return "redis://" + p.Addr().String() }

func (p *proxy) accept() {
	for {
		in, err := p.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.to)
		if err != nil {
			in.Close()
			continue
		}
		p.mu.Lock()
		p.conns[in], p.conns[out] = true, true
		p.mu.Unlock()
		p.alive.Go(func() { p.pass(in, out, true) })
		p.alive.Go(func() { p.pass(out, in, false) })
	}
}

func (p *proxy) pass(from, to net.Conn, fromClient bool) {
	defer func() {
		from.Close()
		to.Close()
		p.mu.Lock()
		delete(p.conns, from)
		p.mu.Unlock()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil || p.breaks(fromClient) {
			return
		}
		p.mu.Lock()
		held := p.held
		p.mu.Unlock()
		if held != nil {
			<-held
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *proxy) breaks(fromClient bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.breaking && fromClient
	if now {
		p.breaking = false
	}
	return now
}

// breakNext breaks the connection on which something is heard next.
func (p *proxy) breakNext() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.breaking = true
}

// hold passes nothing on.
func (p *proxy) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = make(chan struct{})
}

// forward passes on what was held.
func (p *proxy) forward() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		close(p.held)
		p.held = nil
	}
}

// cut breaks all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}
