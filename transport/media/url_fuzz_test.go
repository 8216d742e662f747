package media

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// mayDial is an oracle for the guard, by the standard library's own notions
// and byte by byte for the rest.
func mayDial(ip net.IP) bool {
	if ip.IsLoopback() || ip.IsPrivate() || ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() || !ip.IsGlobalUnicast() {
		return false
	}
	if b := ip.To4(); b != nil {
		three := string(b[:3])
		return b[0] != 0 && b[0] < 224 && !(b[0] == 100 && b[1]>>6 == 1) && !(b[0] == 198 && b[1]>>1 == 9) &&
			three != "\xc0\x00\x00" && three != "\xc0\x00\x02" && three != "\xc0\x58\x63" && three != "\xc6\x33\x64" && three != "\xcb\x00\x71" &&
			ip.String() != "168.63.129.16"
	}
	special := ip[0] == 0x20 && (ip[1] == 2 || ip[1] == 1 && (ip[2] < 2 || ip[2] == 0x0d && ip[3] == 0xb8)) || ip[0] == 0x3f && ip[1] == 0xff && ip[2]>>4 == 0
	return ip[0]>>5 == 1 && !special
}

// aton is what inet_aton and browsers make of a host: an address, in any of the
// forms that they know.
func aton(host string) bool {
	parts := strings.Split(strings.TrimSuffix(host, "."), ".")
	if len(parts) > 4 {
		return false
	}
	for _, p := range parts {
		p = strings.ToLower(p)
		if p == "0x" {
			continue
		}
		if len(p) > 1 && p[0] == '0' && !strings.HasPrefix(p, "0x") {
			p = "0o" + p[1:]
		}
		if _, err := strconv.ParseUint(p, 0, 32); err != nil || strings.ContainsAny(p, "_b") && !strings.HasPrefix(p, "0x") {
			return false
		}
	}
	return true
}

// FuzzURL gives a URL to the guard and an address to its host.
func FuzzURL(f *testing.F) {
	for _, u := range []string{
		"http://img.test/a.png?x=y", "https://8.8.8.8:8443", "http://0x7f.1/", "http://[::ffff:127.0.0.1]/", "http://user:pw@h", "http://127.0.0.1.",
		"http://h\\@g/", "//h", "data:image/png;base64,AA==", "http://[fe80::1%25e]/", "http://%31.1/", "http://0177.1", "http://１.1", "http://h:0", "http:h",
	} {
		f.Add(u, []byte{127, 0, 0, 1})
		f.Add(u, netip.MustParseAddr("64:ff9b::8.8.8.8").AsSlice())
	}
	f.Add("http://a", netip.MustParseAddr("::ffff:10.0.0.1").AsSlice())
	f.Add("http://a", []byte{8, 8, 8, 8})
	f.Fuzz(func(t *testing.T, raw string, addr []byte) {
		a, ok := netip.AddrFromSlice(addr)
		if !ok {
			return
		}
		fetch(t, raw, a)
	})
}

func fetch(t *testing.T, raw string, a netip.Addr) {
	resolve := func(_ context.Context, host string) ([]netip.Addr, error) {
		if _, err := netip.ParseAddr(host); err == nil || aton(host) || !strings.Contains(raw, host) || strings.ContainsAny(host, "@/\\%:[] ?#") {
			t.Errorf("%q: %q was looked up", raw, host)
		}
		return []netip.Addr{a}, nil
	}
	dial := func(_ context.Context, network, address string) (net.Conn, error) {
		to, err := netip.ParseAddrPort(address)
		if err != nil || network != "tcp" || to.Addr().Is4In6() || to.Port() == 0 || !mayDial(net.IP(to.Addr().AsSlice())) {
			t.Errorf("%q at %v: %s was dialled", raw, a, address)
		}
		if !strings.HasPrefix(strings.ToLower(raw), "http") || strings.Contains(raw, "@") && !strings.ContainsAny(raw, "/?#") {
			t.Errorf("%q was dialled", raw)
		}
		return nil, errors.New("refused")
	}
	f, err := NewFetcher(Settings{Timeout: time.Minute, Allowed: allowed(1), Resolve: resolve, Dial: dial})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const query = "?s3cr3t"
	_, err = f.Fetch(t.Context(), wire.Image, raw+query)
	fault := (*wire.Fault)(nil)
	if !errors.As(err, &fault) || fault.Kind == wire.Internal || fault.Kind == wire.UpstreamTimeout || fault.Kind == wire.Canceled {
		t.Fatalf("%q: %v", raw, err)
	}
	if !strings.Contains(raw, query) && strings.Contains(err.Error(), query[1:]) && !strings.Contains(raw, query[1:]) {
		t.Errorf("%q: error tells the query: %v", raw, err)
	}
	if bytes.ContainsFunc([]byte(fault.Message), func(r rune) bool { return r < ' ' || r == 0x7f }) {
		t.Errorf("%q: message is %q", raw, fault.Message)
	}
}
