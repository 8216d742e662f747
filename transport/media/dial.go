package media

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"
)

// maxDials bounds how many addresses of one host are tried: a client's own
// name server may answer with as many as it likes.
const maxDials = 4

// dialer connects to hosts by addresses that it has looked up and checked
// itself. There is no second look-up that could answer differently (DNS
// rebinding).
type dialer struct {
	guard   *guard
	resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	connect func(ctx context.Context, network, address string) (net.Conn, error)
}

func newDialer(g *guard, s Settings) *dialer {
	d := &dialer{guard: g, resolve: s.Resolve, connect: s.Dial}
	if d.resolve == nil {
		d.resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	if d.connect == nil {
		d.connect = new(net.Dialer).DialContext
	}
	return d
}

// dialError is why there is no connection.
type dialError struct{ err error }

func (e *dialError) Error() string { return "no connection: " + e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// downloadKey finds the context of a download in those made of it.
type downloadKey struct{}

// withinDownload returns ctx such that the connections made for it end when it
// does.
func withinDownload(ctx context.Context) context.Context {
	return context.WithValue(ctx, downloadKey{}, ctx)
}

// dial fits http.Transport.DialContext. It is the only way out: whatever the
// rest of the package believes of a URL, address is what net/http would
// connect to.
//
// net/http lets dials and TLS handshakes go on without their request, for the
// good of a later one, and the context that it passes never ends. Here there
// is no later one.
func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if download, ok := ctx.Value(downloadKey{}).(context.Context); ok {
		ctx = download
	}
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return nil, &dialError{err}
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, &dialError{err}
	}
	addrs, err := d.lookUp(ctx, host)
	if err != nil {
		return nil, err
	}
	var first error
	for i, a := range addrs {
		conn, err := d.try(ctx, network, netip.AddrPortFrom(a, uint16(port)), len(addrs)-i)
		if err == nil {
			context.AfterFunc(ctx, func() { conn.Close() })
			return conn, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, &dialError{first}
}

// lookUp returns the addresses of a host that may be connected to, at least
// one. Those that may not are left out: a public origin may have an address for
// its own network's use too.
func (d *dialer) lookUp(ctx context.Context, host string) ([]netip.Addr, error) {
	a, err := netip.ParseAddr(host)
	if err == nil {
		if refused := d.check(a); refused != nil {
			return nil, refused
		}
		return []netip.Addr{a.Unmap()}, nil
	}
	found, err := d.resolve(ctx, host)
	if e := (*net.DNSError)(nil); errors.As(err, &e) && e.IsNotFound {
		return nil, noSuchHost(host)
	}
	if err != nil {
		return nil, &dialError{err}
	}
	var refused *hostError
	var passed []netip.Addr
	for _, a := range found {
		if refusal := d.check(a); refusal != nil {
			refused = refusal
		} else if a = a.Unmap(); len(passed) < maxDials && !slices.Contains(passed, a) {
			passed = append(passed, a)
		}
	}
	switch {
	case len(passed) > 0:
		return passed, nil
	case refused != nil:
		refused.host, refused.lookedUp = host+" at "+refused.host, true
		return nil, refused
	}
	return nil, noSuchHost(host)
}

func noSuchHost(host string) *hostError {
	return &hostError{host: host, reason: "no such host", lookedUp: true}
}

// check asks the guard of an address in any form. Zones are this machine's own
// names for its links.
func (d *dialer) check(a netip.Addr) *hostError {
	if !a.IsValid() || a.Zone() != "" {
		return &hostError{host: a.String(), reason: "no plain address"}
	}
	return d.guard.address(a.Unmap())
}

// try connects to one address. Of the time that there is it takes one part, so
// that an address that does not answer leaves some for those behind it.
func (d *dialer) try(ctx context.Context, network string, address netip.AddrPort, parts int) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok && parts > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(parts))
		defer cancel()
	}
	return d.connect(ctx, network, address.String())
}
