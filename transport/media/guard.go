package media

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// guard decides which hosts are asked for images and which addresses are
// connected to.
type guard struct {
	private  bool
	networks []netip.Prefix
	domains  []string
	// translates: the operator has a NAT64.
	translates bool
}

// hostError is why a host is not asked. Its text is for the log.
type hostError struct {
	host, reason string
	lookedUp     bool // the reason was found by looking a name up
}

func (e *hostError) Error() string { return e.host + ": " + e.reason }

func newGuard(s Settings) (*guard, error) {
	g := &guard{private: s.AllowPrivateNetworks}
	for _, p := range s.AllowedNetworks {
		if !p.IsValid() {
			return nil, fmt.Errorf("allowed network %v: want an address and its length, such as 10.1.0.0/16", p)
		}
		if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
		}
		if holdsNAT64(p) {
			g.translates = true
		}
		g.networks = append(g.networks, p.Masked())
	}
	for _, d := range s.AllowedDomains {
		name := strings.TrimSuffix(strings.ToLower(d), ".")
		switch _, err := netip.ParseAddr(name); {
		case err == nil || isName(name) && isNumber(name):
			return nil, fmt.Errorf("allowed domain %q: want a name (addresses are allowed as networks)", d)
		case !isName(name):
			return nil, fmt.Errorf("allowed domain %q: want a name in ASCII; subdomains are allowed with it", d)
		}
		g.domains = append(g.domains, name)
	}
	return g, nil
}

// host judges the host of a URL before it is looked up. Its address, if it is
// one, is judged like any other when it is dialled.
func (g *guard) host(t *target) error {
	if t.addr.IsValid() {
		if len(g.domains) == 0 || g.allowed(t.addr) {
			return nil
		}
		return &hostError{host: t.addr.String(), reason: "not an allowed domain"}
	}
	if isNumber(t.name) {
		return &hostError{host: t.name, reason: "a number, but no address in its usual form"}
	}
	if len(g.domains) == 0 || slices.ContainsFunc(g.domains, func(d string) bool {
		return t.name == d || strings.HasSuffix(t.name, "."+d)
	}) {
		return nil
	}
	return &hostError{host: t.name, reason: "not an allowed domain"}
}

// allowed reports whether the operator lets an address through.
func (g *guard) allowed(a netip.Addr) bool {
	translated := nat64.Contains(a)
	return slices.ContainsFunc(g.networks, func(p netip.Prefix) bool { return p.Contains(a) && !(translated && holdsNAT64(p)) }) ||
		translated && g.translates && g.allowed(embedded(a))
}

// address judges an address, which is neither mapped nor zoned.
func (g *guard) address(a netip.Addr) *hostError {
	if g.allowed(a) {
		return nil
	}
	if g.translates && nat64.Contains(a) {
		if e := g.address(embedded(a)); e != nil {
			return &hostError{host: a.String(), reason: "NAT64 of " + e.Error()}
		}
		return nil
	}
	for _, n := range closed {
		if n.Contains(a) && !(n.private && g.private) {
			return &hostError{host: a.String(), reason: n.use}
		}
	}
	if a.Is4() || globalV6.Contains(a) {
		return nil
	}
	return &hostError{host: a.String(), reason: "not global"}
}

// network is addresses that no public origin has.
type network struct {
	netip.Prefix
	use     string
	private bool
}

// nat64 is where a NAT64 puts all of IPv4. A name server beside it gives an
// address in there to each name that has none in IPv6.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

func holdsNAT64(p netip.Prefix) bool { return p.Bits() <= nat64.Bits() && p.Contains(nat64.Addr()) }

// embedded returns the address that one in nat64 stands for.
func embedded(a netip.Addr) netip.Addr {
	b := a.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}

// globalV6 is all of IPv6 that is given out for use in the public internet.
var globalV6 = netip.MustParsePrefix("2000::/3")

// closed are IANA's special-purpose registries for IPv4, and for IPv6 what is
// special within globalV6 or deserves a name in the log. Tunnels and
// translations are closed whatever address they hold, unless the operator says
// that there is a NAT64: what they lead to is the network's affair. Cloud metadata services are link-local, unique-local
// (fd00:ec2::254), shared (100.100.100.200) or in 192.0.0.0/24, but for one.
var closed = []network{
	closedTo("0.0.0.0/8", "this host"),
	{netip.MustParsePrefix("10.0.0.0/8"), "private", true},
	closedTo("100.64.0.0/10", "shared (CGNAT)"),
	closedTo("127.0.0.0/8", "loopback"),
	closedTo("168.63.129.16/32", "cloud metadata"), // Azure's, though the address is public
	closedTo("169.254.0.0/16", "link-local, cloud metadata"),
	{netip.MustParsePrefix("172.16.0.0/12"), "private", true},
	closedTo("192.0.0.0/24", "protocol assignments, cloud metadata"),
	closedTo("192.0.2.0/24", "documentation"),
	closedTo("192.88.99.0/24", "6to4 relays"),
	{netip.MustParsePrefix("192.168.0.0/16"), "private", true},
	closedTo("198.18.0.0/15", "benchmarks"),
	closedTo("198.51.100.0/24", "documentation"),
	closedTo("203.0.113.0/24", "documentation"),
	closedTo("224.0.0.0/4", "multicast"),
	closedTo("240.0.0.0/4", "reserved, broadcast"),

	closedTo("::/128", "unspecified"),
	closedTo("::1/128", "loopback"),
	closedTo("::/96", "IPv4-compatible"),
	{nat64, "NAT64", false},
	closedTo("64:ff9b:1::/48", "NAT64"),
	closedTo("2001::/32", "Teredo"),
	closedTo("2001::/23", "protocol assignments, benchmarks"),
	closedTo("2001:db8::/32", "documentation"),
	closedTo("2002::/16", "6to4"),
	closedTo("3fff::/20", "documentation"),
	closedTo("fc00::/7", "unique-local, cloud metadata"),
	closedTo("fe80::/10", "link-local"),
	closedTo("ff00::/8", "multicast"),
}

func closedTo(prefix, use string) network {
	return network{Prefix: netip.MustParsePrefix(prefix), use: use}
}
