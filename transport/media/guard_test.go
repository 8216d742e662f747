package media

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// TestHostsOfURLs asks for hosts that are addresses or would be taken for such:
// what is let through is dialled, and refused by nobody being there.
func TestHostsOfURLs(t *testing.T) {
	const (
		yes     = "dialled"
		no      = "refused"
		private = "dialled if private networks are"
		invalid = "no URL to us"
	)
	tests := []struct{ host, want string }{
		{"8.8.8.8", yes},
		{"1.0.0.0", yes},
		{"9.255.255.255", yes},
		{"11.0.0.0", yes},
		{"100.63.255.255", yes},
		{"100.128.0.0", yes},
		{"126.255.255.255", yes},
		{"128.0.0.0", yes},
		{"172.15.255.255", yes},
		{"172.32.0.0", yes},
		{"168.63.129.17", yes},
		{"198.17.255.255", yes},
		{"198.20.0.0", yes},
		{"223.255.255.255", yes},
		{"[2606:4700::1111]", yes},
		{"[2001:200::1]", yes},
		{"[2001:4860:4860::8888]", yes},
		{"[2003::1]", yes},
		{"[::ffff:8.8.8.8]", yes},
		{"[::ffff:808:808]", yes},

		{"0.0.0.0", no},
		{"0.1.2.3", no},
		{"127.0.0.1", no},
		{"127.255.255.255", no},
		{"169.254.0.1", no},
		{"169.254.169.254", no}, // AWS, GCP, Azure, OpenStack, …
		{"169.254.170.2", no},   // ECS
		{"168.63.129.16", no},   // Azure
		{"100.100.100.200", no}, // Alibaba
		{"192.0.0.192", no},     // Oracle
		{"[fd00:ec2::254]", no}, // AWS
		{"[fd20:ce::254]", no},  // GCP
		{"100.64.0.0", no},
		{"100.127.255.255", no},
		{"192.0.0.1", no},
		{"192.0.2.1", no},
		{"192.88.99.1", no},
		{"198.18.0.1", no},
		{"198.19.255.255", no},
		{"198.51.100.1", no},
		{"203.0.113.1", no},
		{"224.0.0.1", no},
		{"239.255.255.255", no},
		{"240.0.0.1", no},
		{"255.255.255.255", no},

		{"10.0.0.0", private},
		{"10.255.255.255", private},
		{"172.16.0.0", private},
		{"172.31.255.255", private},
		{"192.168.0.0", private},
		{"192.168.255.255", private},
		{"[::ffff:10.0.0.1]", private},
		{"[::ffff:c0a8:1]", private},

		{"[::]", no},
		{"[::1]", no},
		{"[0:0:0:0:0:0:0:1]", no},
		{"[::2]", no},
		{"[::127.0.0.1]", no},
		{"[::8.8.8.8]", no},
		{"[::ffff:127.0.0.1]", no},
		{"[::FFFF:7f00:1]", no},
		{"[::ffff:169.254.169.254]", no},
		{"[::ffff:0.0.0.0]", no},
		{"[::ffff:0:127.0.0.1]", no}, // IPv4-translated
		{"[64:ff9b::127.0.0.1]", no},
		{"[64:ff9b::8.8.8.8]", no},
		{"[64:ff9b:1::a00:1]", no},
		{"[64:ff9b:1:ffff:ffff:ffff:ffff:ffff]", no},
		{"[2002:7f00:1::]", no},
		{"[2002:808:808::1]", no},
		{"[2001::1]", no},
		{"[2001:0:4136:e378:8000:63bf:3fff:fdd2]", no}, // Teredo
		{"[2001:2::1]", no},
		{"[2001:10::1]", no},
		{"[2001:1ff:ffff::]", no},
		{"[2001:db8::1]", no},
		{"[3fff::1]", no},
		{"[100::1]", no},
		{"[5f00::1]", no},
		{"[fc00::1]", no},
		{"[fdff:ffff::1]", no},
		{"[fe80::1]", no},
		{"[febf::1]", no},
		{"[fec0::1]", no},
		{"[ff02::1]", no},
		{"[4000::1]", no},
		{"[1fff::1]", no},
		{"[fe80::1%25eth0]", invalid},
		{"[2606:4700::1111%25eth0]", invalid},

		{"0x7f.1", no},
		{"0x7f000001", no},
		{"0X7F.0.0.1", no},
		{"0x7f.0x0.0x0.0x1", no},
		{"0x", no},
		{"0", no},
		{"017700000001", no},
		{"0177.0.0.1", no},
		{"127.0.0.01", no},
		{"127.000.000.001", no},
		{"2130706433", no},
		{"134744072", no}, // 8.8.8.8
		{"127.1", no},
		{"127.0.1", no},
		{"127.0.0.1.", no},
		{"8.8.8.8.", no},
		{"8.8.8", no},
		{"1.2.3.4.5", no},
		{"256.256.256.256", no},
		{"img.test.0x7f", no},
		{"img.8", no},

		{"127。0。0。1", invalid},
		{"１２７.0.0.1", invalid},
		{"①②⑦.0.0.1", invalid},
		{"ⓔⓧample.test", invalid},
		{"münchen.test", invalid},
		{"%31%32%37.0.0.1", invalid},
		{"127.0.0.1%00.test", invalid},
		{"img.test%2f@x", invalid},
		{"", invalid},
		{".", invalid},
		{"..", invalid},
		{".img.test", invalid},
		{"img..test", invalid},
		{"img.test..", invalid},
		{"im g.test", invalid},
		{"img.test\\.evil.test", invalid},
		{"8.8.8.8,127.0.0.1", invalid},
		{"img.test:0", invalid},
		{"img.test:65536", invalid},
		{"img.test:80:80", invalid},
		{"img.test:x", invalid},
		{"::1", invalid},
		{"[8.8.8.8]", invalid},
		{"[img.test]", invalid},
		{"[::1", invalid},
		{"[]", invalid},
		{strings.Repeat("a.", 128), invalid},
		{"user@8.8.8.8", invalid},
		{"user:" + secret + "@8.8.8.8", invalid},
		{"@8.8.8.8", invalid},
		{"8.8.8.8@127.0.0.1", invalid},
		{"127.0.0.1\\@8.8.8.8", invalid},
	}
	for _, tt := range tests {
		for _, switched := range []bool{false, true} {
			t.Run(tt.host, func(t *testing.T) {
				w := new(world)
				f := w.fetcher(t, func(s *Settings) { s.AllowPrivateNetworks = switched })
				_, err := f.Fetch(t.Context(), wire.Image, "https://"+tt.host+"/a.png?"+secret)
				dial := tt.want == yes || tt.want == private && switched
				switch {
				case dial:
					wantFault(t, err, wire.UpstreamFailed, "media_fetch_failed")
				case tt.want == invalid:
					wantFault(t, err, wire.BadRequest, "invalid_media")
				default:
					wantFault(t, err, wire.BadRequest, "media_fetch_failed")
				}
				if dial != (len(w.dialed) == 1) || len(w.lookedUp) != 0 {
					t.Errorf("dialed %q, looked up %q", w.dialed, w.lookedUp)
				}
			})
		}
	}
}

// TestGuardSaysWhy: an operator reads it in the log.
func TestGuardSaysWhy(t *testing.T) {
	g, err := newGuard(Settings{})
	if err != nil {
		t.Fatal(err)
	}
	for addr, reason := range map[string]string{
		"0.0.0.0": "this host", "10.0.0.1": "private", "100.64.0.1": "shared (CGNAT)", "127.0.0.1": "loopback", "168.63.129.16": "cloud metadata",
		"169.254.169.254": "link-local, cloud metadata", "192.0.0.192": "protocol assignments, cloud metadata", "203.0.113.9": "documentation",
		"192.88.99.1": "6to4 relays", "198.18.0.1": "benchmarks", "224.0.0.1": "multicast", "255.255.255.255": "reserved, broadcast",
		"::": "unspecified", "::1": "loopback", "::7f00:1": "IPv4-compatible", "64:ff9b::1": "NAT64", "64:ff9b:1::1": "NAT64",
		"2001::1": "Teredo", "2001:2::": "protocol assignments, benchmarks", "2001:db8::": "documentation", "2002::": "6to4", "3fff::": "documentation",
		"fd00:ec2::254": "unique-local, cloud metadata", "fe80::1": "link-local", "ff02::1": "multicast", "4000::1": "not global",
	} {
		if e := g.address(netip.MustParseAddr(addr)); e == nil || e.reason != reason || e.host != addr {
			t.Errorf("%s: %v, want %s", addr, e, reason)
		}
	}
}

func TestAllowedNetworks(t *testing.T) {
	networks := func(s *Settings) {
		for _, p := range []string{"127.0.0.0/8", "169.254.169.254/32", "::1/128", "64:ff9b::/96", "::ffff:10.1.0.0/112", "10.2.9.9/16"} {
			s.AllowedNetworks = append(s.AllowedNetworks, netip.MustParsePrefix(p))
		}
	}
	for host, want := range map[string]bool{
		"127.0.0.1": true, "[::ffff:127.0.0.1]": true, "169.254.169.254": true, "[::1]": true,
		"10.1.2.3": true, "[::ffff:10.1.2.3]": true, "10.2.0.0": true, "8.8.8.8": true,
		"10.3.0.0": false, "169.254.169.253": false, "[::2]": false, "[::127.0.0.1]": false,
		"127.1": false, "0x7f.1": false, // spelt so that others may read it otherwise
	} {
		w := new(world)
		w.fetcher(t, networks).Fetch(t.Context(), wire.Image, "http://"+host)
		if got := len(w.dialed) == 1; got != want {
			t.Errorf("%s: dialed %q", host, w.dialed)
		}
	}
}

// TestNAT64: who allows the whole of it says that there is one, and no more. Its
// addresses are judged by those that they stand for.
func TestNAT64(t *testing.T) {
	const public, private, metadata, loopback = "64:ff9b::808:808", "64:ff9b::a01:203", "64:ff9b::a9fe:a9fe", "64:ff9b::7f00:1"
	for _, tt := range []struct {
		name     string
		networks []string
		private  bool
		domains  []string
		open     []string
	}{
		{"by default", nil, true, nil, nil},
		{"allowed", []string{"64:ff9b::/96"}, false, nil, []string{public}},
		{"in a larger network", []string{"64::/16"}, false, nil, []string{public}},
		{"in all", []string{"::/0"}, false, nil, []string{public}},
		{"and private", []string{"64:ff9b::/96"}, true, nil, []string{public, private}},
		{"and a network in it", []string{"64:ff9b::/96", "10.1.0.0/16"}, false, nil, []string{public, private}},
		{"one address only", []string{"64:ff9b::a9fe:a9fe/128"}, false, nil, []string{metadata}},
		{"IPv4 only", []string{"0.0.0.0/0"}, false, nil, nil},
		{"of the local kind", []string{"64:ff9b:1::/48"}, false, nil, nil},
		{"with domains", []string{"64:ff9b::/96"}, false, []string{"img.test"}, nil},
		{"with domains and a network", []string{"64:ff9b::/96", "10.1.0.0/16"}, false, []string{"img.test"}, []string{private}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			settings := func(s *Settings) {
				s.AllowPrivateNetworks, s.AllowedDomains = tt.private, tt.domains
				for _, p := range tt.networks {
					s.AllowedNetworks = append(s.AllowedNetworks, netip.MustParsePrefix(p))
				}
			}
			for _, addr := range []string{public, private, metadata, loopback} {
				w := new(world)
				_, err := w.fetcher(t, settings).Fetch(t.Context(), wire.Image, "http://["+addr+"]/")
				if got := len(w.dialed) == 1; got != slices.Contains(tt.open, addr) {
					t.Errorf("%s: dialed %q: %v", addr, w.dialed, err)
				}
			}
		})
	}
	w := &world{names: map[string][]answer{"img.test": at(private, public)}} // as a DNS64 says it
	w.fetcher(t, func(s *Settings) {
		s.AllowedNetworks, s.AllowedDomains = []netip.Prefix{nat64}, []string{"img.test"}
	}).Fetch(t.Context(), wire.Image, "http://img.test/")
	if want := []string{"[" + public + "]:80"}; !slices.Equal(w.dialed, want) {
		t.Errorf("dialed %q, want %q", w.dialed, want)
	}
	g, err := newGuard(Settings{AllowedNetworks: []netip.Prefix{nat64}})
	if err != nil {
		t.Fatal(err)
	}
	if e := g.address(netip.MustParseAddr(metadata)); e == nil || e.Error() != metadata+": NAT64 of 169.254.169.254: link-local, cloud metadata" {
		t.Errorf("%v", e)
	}
}

func TestAllowedDomains(t *testing.T) {
	const public = "93.184.216.34"
	domains := func(s *Settings) {
		s.AllowedDomains = []string{"img.test", "CDN.Example.Test.", "xn--mnchen-3ya.test"}
		s.AllowedNetworks = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	}
	for host, want := range map[string]bool{
		"img.test": true, "IMG.test": true, "img.test.": true, "a.img.test": true, "a.b.img.test:8080": true, "cdn.example.test": true,
		"x.cdn.example.TEST": true, "xn--mnchen-3ya.test": true, "10.1.2.3": true, "[::ffff:10.1.2.3]": true,
		"notimg.test": false, "img.test.evil.test": false, "example.test": false, "test": false, "img.tes": false, "img-test": false,
		public: false, "10.2.0.0": false, "[2606:4700::1111]": false,
	} {
		w := &world{names: map[string][]answer{}}
		name, _, _ := strings.Cut(host, ":")
		w.names[name] = at(public)
		w.names[strings.ToLower(name)] = at(public)
		_, err := w.fetcher(t, domains).Fetch(t.Context(), wire.Image, "http://"+host)
		if got := len(w.dialed) == 1; got != want {
			t.Errorf("%s: dialed %q: %v", host, w.dialed, err)
		}
		if !want && len(w.lookedUp) != 0 {
			t.Errorf("%s was looked up", host)
		}
	}
}

// TestAllowedDomainMustPassToo: an allowed name does not open the network.
func TestAllowedDomainMustPassToo(t *testing.T) {
	w := &world{names: map[string][]answer{"img.test": at("10.0.0.1")}}
	_, err := w.fetcher(t, func(s *Settings) { s.AllowedDomains = []string{"img.test"} }).Fetch(t.Context(), wire.Image, "http://img.test")
	wantFault(t, err, wire.BadRequest, "media_fetch_failed")
	if len(w.dialed) != 0 {
		t.Errorf("dialed %q", w.dialed)
	}
}

func TestSettingsThatAreRefused(t *testing.T) {
	good := Settings{Timeout: 1, Allowed: allowed(1)}
	if _, err := NewFetcher(good); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		edit func(*Settings)
		want string
	}{
		{func(s *Settings) { s.Timeout = 0 }, "timeout: want more than 0"},
		{func(s *Settings) { s.Allowed[wire.Image].MaxSize = 0 }, "size of an image: want more than 0"},
		{func(s *Settings) { s.AllowedNetworks = make([]netip.Prefix, 1) }, "allowed network invalid Prefix: want an address and its length, such as 10.1.0.0/16"},
		{func(s *Settings) { s.AllowedDomains = []string{""} }, `allowed domain "": want a name in ASCII; subdomains are allowed with it`},
		{func(s *Settings) { s.AllowedDomains = []string{"*.a.test"} }, `allowed domain "*.a.test": want a name in ASCII; subdomains are allowed with it`},
		{func(s *Settings) { s.AllowedDomains = []string{"http://a.test"} }, `allowed domain "http://a.test": want a name in ASCII; subdomains are allowed with it`},
		{func(s *Settings) { s.AllowedDomains = []string{"10.0.0.1"} }, `allowed domain "10.0.0.1": want a name (addresses are allowed as networks)`},
		{func(s *Settings) { s.AllowedDomains = []string{"10.1"} }, `allowed domain "10.1": want a name (addresses are allowed as networks)`},
		{func(s *Settings) { s.AllowedDomains = []string{"::1"} }, `allowed domain "::1": want a name (addresses are allowed as networks)`},
	}
	for _, tt := range tests {
		s := good
		tt.edit(&s)
		if _, err := NewFetcher(s); err == nil || err.Error() != tt.want {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
}

// TestNamesAreCheckedByTheirAddresses: one look-up, of which what may be
// dialled is, in order.
func TestNamesAreCheckedByTheirAddresses(t *testing.T) {
	tests := []struct {
		name  string
		addrs []string
		want  []string // dialled; none: refused
	}{
		{"none", nil, nil},
		{"private", []string{"10.0.0.1"}, nil},
		{"all kinds of forbidden", []string{"127.0.0.1", "::1", "fd00::1", "169.254.169.254", "64:ff9b::808:808"}, nil},
		{"mapped", []string{"::ffff:127.0.0.1"}, nil},
		{"zoned", []string{"fe80::1%eth0", "2606:4700::1%eth0", "::ffff:8.8.8.8%eth0"}, nil},
		{"mixed", []string{"127.0.0.1", "8.8.8.8", "10.0.0.1", "2606:4700::1"}, []string{"8.8.8.8:80", "[2606:4700::1]:80"}},
		{"mapped and public", []string{"::ffff:8.8.8.8", "8.8.8.8"}, []string{"8.8.8.8:80"}},
		{"many", []string{"8.0.0.1", "8.0.0.2", "8.0.0.3", "8.0.0.4", "8.0.0.5"}, []string{"8.0.0.1:80", "8.0.0.2:80", "8.0.0.3:80", "8.0.0.4:80"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := &world{names: map[string][]answer{"img.test": at(tt.addrs...)}}
			_, err := w.fetcher(t).Fetch(t.Context(), wire.Image, "http://img.test/")
			if tt.want == nil {
				wantFault(t, err, wire.BadRequest, "media_fetch_failed")
			} else {
				wantFault(t, err, wire.UpstreamFailed, "media_fetch_failed")
			}
			if !slices.Equal(w.dialed, tt.want) || len(w.lookedUp) != 1 {
				t.Errorf("dialed %q, want %q; looked up %q", w.dialed, tt.want, w.lookedUp)
			}
		})
	}
}

// TestInternalNamesCannotBeListed: a name that is there and one that is not
// give the same message.
func TestInternalNamesCannotBeListed(t *testing.T) {
	w := &world{names: map[string][]answer{"there.test": at("10.0.0.1")}}
	f := w.fetcher(t)
	message := func(name string) string {
		_, err := f.Fetch(t.Context(), wire.Image, "http://"+name)
		return strings.ReplaceAll(wire.FaultOf(err).Message, name, "NAME")
	}
	const want = "the image at http://NAME could not be fetched: its host does not exist or is not allowed"
	if a, b := message("there.test"), message("absent.test"); a != want || b != want {
		t.Errorf("%q and %q", a, b)
	}
}
