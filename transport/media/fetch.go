// Package media gets at the images, audio files and videos that chat requests
// name: it downloads those named by URL and checks those inlined.
//
// A URL comes from a client and is fetched from inside the operator's network,
// so every download passes a guard against server-side request forgery: a
// [Fetcher] resolves names itself, checks each address and connects to nothing
// but addresses that passed, also behind redirects.
//
// Requests that want one URL share one download, and what is downloaded may be
// kept for a while: see [Flights].
//
// Nothing of a request goes to a medium's origin: no client header, no cookie,
// no referrer. Nothing of a URL but its scheme and host gets into an error: a
// query may be a credential.
package media

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/llm-coordinator/coordinator/transport/budget"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// Settings say what may be downloaded from where.
type Settings struct {
	// Timeout of one download, redirects included. More than 0.
	Timeout time.Duration
	// Allowed is what media may be, by modality.
	Allowed [wire.Modalities]Allowed
	// AllowPrivateNetworks lets RFC 1918's networks through, and no others.
	AllowPrivateNetworks bool
	// AllowedNetworks are let through whatever the guard says of them. An
	// address in them may also be a URL's host when AllowedDomains is set.
	//
	// A network that holds all of NAT64's 64:ff9b::/96 does not open that: it
	// says that there is a NAT64, and each address in there is judged by the IPv4
	// address that it stands for.
	AllowedNetworks []netip.Prefix
	// AllowedDomains are the only hosts, with all their subdomains; none is any
	// host. Their addresses must pass all the same.
	AllowedDomains []string

	// Resolve looks a name up; nil asks net.DefaultResolver.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// Dial makes a connection; nil is net.Dialer's. address is an IP address
	// that passed the guard, and a port.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Fetcher downloads media. It may be used by many goroutines.
type Fetcher struct {
	timeout   time.Duration
	allowed   [wire.Modalities]Allowed
	guard     *guard
	dialer    *dialer
	transport *http.Transport
}

// maxRedirects is how many redirects of one download are followed.
const maxRedirects = 5

// NewFetcher checks the settings; it dials nothing.
//
// The transport ignores proxy variables: a proxy would resolve names itself,
// past the guard. It keeps no connection, so that every request has its address
// checked, and undoes no encoding, so that the limit holds for what arrives.
func NewFetcher(s Settings) (*Fetcher, error) {
	if s.Timeout <= 0 {
		return nil, errors.New("timeout: want more than 0")
	}
	for m := range wire.Modalities {
		s.Allowed[m].Modality = m
		if s.Allowed[m].MaxSize <= 0 {
			return nil, fmt.Errorf("size of %s: want more than 0", one(m))
		}
	}
	g, err := newGuard(s)
	if err != nil {
		return nil, err
	}
	d := newDialer(g, s)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &Fetcher{
		timeout: s.Timeout,
		allowed: s.Allowed,
		guard:   g,
		dialer:  d,
		transport: &http.Transport{
			DialContext:            d.dial,
			DisableKeepAlives:      true,
			DisableCompression:     true,
			Protocols:              protocols,
			MaxResponseHeaderBytes: 64 << 10,
		},
	}, nil
}

// Close frees what the fetcher holds. Downloads in flight go on: their contexts
// end them.
func (f *Fetcher) Close() { f.transport.CloseIdleConnections() }

// Fetch downloads a medium and returns it as a JSON string with its quotes,
// "data:image/png;base64,…", to be put into a body in the URL's place. Errors
// are *wire.Fault.
func (f *Fetcher) Fetch(ctx context.Context, m wire.Modality, rawURL string) ([]byte, error) {
	got, err := f.fetch(ctx, m, rawURL, nil)
	return got.uri, err
}

// fetched is a medium that was downloaded.
type fetched struct {
	uri []byte // see Fetch
	// public: nobody on the way said that it is not to be kept for others.
	public bool
}

// fetch is Fetch, and charges what the medium takes as it arrives.
func (f *Fetcher) fetch(ctx context.Context, m wire.Modality, rawURL string, memory *budget.Account) (got fetched, err error) {
	t, err := parseTarget(rawURL)
	if err != nil {
		return got, wire.Invalid(codeInvalid, "the URL of %s %v", one(m), err)
	}
	d := &download{Fetcher: f, allowed: &f.allowed[m], parent: ctx, origin: t.origin(), memory: memory}
	timed, cancel := context.WithTimeoutCause(ctx, f.timeout, errTimeout)
	defer cancel()
	d.ctx = withinDownload(timed)
	resp, err := d.get(t)
	if err != nil {
		return got, err
	}
	defer resp.Body.Close()
	got.uri, err = d.inline(resp)
	got.public = !d.unkept
	return got, err
}

// download is one medium on its way.
type download struct {
	*Fetcher
	allowed    *Allowed
	parent     context.Context // the caller's
	memory     *budget.Account
	ctx        context.Context // parent, and the time-out
	origin     string          // scheme and host of the client's URL, for messages
	redirected bool            // what is asked now is not what the client named
	unkept     bool            // an answer on the way says that it is not to be kept
}

// get asks for the medium, follows redirects, and returns the answer that is
// none.
func (d *download) get(t *target) (*http.Response, error) {
	for redirects := 0; ; redirects++ {
		if err := d.guard.host(t); err != nil {
			return nil, d.fault(err)
		}
		resp, err := d.transport.RoundTrip(t.request(d.ctx, d.allowed.Modality))
		if err != nil {
			return nil, d.fault(err)
		}
		d.unkept = d.unkept || forbidsKeeping(resp.Header)
		location := resp.Header.Get("Location")
		if !isRedirect(resp.StatusCode) || location == "" {
			return resp, nil
		}
		resp.Body.Close()
		if redirects == maxRedirects {
			return nil, d.refuse("more than %d redirects", maxRedirects)
		}
		d.redirected = true
		if t, err = t.follow(location); err != nil {
			return nil, d.refuse("a redirect's URL %v", err)
		}
	}
}

func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// request asks for the target. These are all the headers that an origin gets,
// with Host and Connection.
func (t *target) request(ctx context.Context, m wire.Modality) *http.Request {
	req := &http.Request{
		Method: http.MethodGet, URL: t.url, Host: t.url.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{
			"Accept":          {m.String() + "/*"},
			"Accept-Encoding": {"identity"},
			"User-Agent":      {"llm-coordinator"},
		},
	}
	return req.WithContext(ctx)
}

// refuse is a fault of what the client asked for.
func (d *download) refuse(format string, args ...any) *wire.Fault {
	return d.failed(wire.BadRequest, fmt.Sprintf(format, args...))
}
