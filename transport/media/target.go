package media

import (
	"errors"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// maxURL is how long a URL may be. Signed URLs of object stores have 2 KB.
const maxURL = 16 << 10

// The rest of a sentence that begins with "the URL". None holds any of it.
var (
	errURLLength = errors.New("is too long")
	errURLSyntax = errors.New("cannot be read")
	errURLScheme = errors.New("is neither http nor https")
	errURLUser   = errors.New("has a user name or password")
	errURLHost   = errors.New("has no host that can be read (names in other scripts are written in their ASCII form, xn--…)")
	errURLPort   = errors.New("has a port that cannot be")
)

// target is a URL that may be asked for as far as its form goes.
type target struct {
	url  *url.URL
	name string     // the host in lower case without a dot at its end, if it is a name
	addr netip.Addr // the host, if it is an address
}

func parseTarget(raw string) (*target, error) {
	if len(raw) > maxURL {
		return nil, errURLLength
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errURLSyntax // err quotes the URL
	}
	return newTarget(u)
}

// follow returns the target that a redirect's Location names.
func (t *target) follow(location string) (*target, error) {
	if len(location) > maxURL {
		return nil, errURLLength
	}
	u, err := t.url.Parse(location)
	if err != nil {
		return nil, errURLSyntax
	}
	return newTarget(u)
}

func newTarget(u *url.URL) (*target, error) {
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errURLScheme
	case u.User != nil: // origins would log it
		return nil, errURLUser
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, errURLPort
		}
	}
	u.Fragment, u.RawFragment = "", ""
	u.RawPath, u.RawQuery = escape(u.RawPath), escape(u.RawQuery)
	t := &target{url: u}
	host := u.Hostname()
	addr, err := netip.ParseAddr(host)
	switch bracketed := strings.HasPrefix(u.Host, "["); {
	case err == nil && bracketed == addr.Is6() && addr.Zone() == "":
		t.addr = addr.Unmap()
	case bracketed || !isName(host):
		return nil, errURLHost
	default:
		t.name = strings.TrimSuffix(strings.ToLower(host), ".")
	}
	return t, nil
}

// escape writes as escapes what may not stand in a request line, and nothing
// else: "%2F" and "/" are two things to some origins. net/http would send a
// query as it is, and spell a path anew as a whole.
func escape(s string) string {
	odd := func(c byte) bool { return c <= ' ' || c >= 0x7f || strings.IndexByte("\"<>\\^`{|}", c) >= 0 }
	n := 0
	for i := range len(s) {
		if odd(s[i]) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	out := make([]byte, 0, len(s)+2*n)
	for i := range len(s) {
		if odd(s[i]) {
			out = append(out, '%', "0123456789ABCDEF"[s[i]>>4], "0123456789ABCDEF"[s[i]&15])
		} else {
			out = append(out, s[i])
		}
	}
	return string(out)
}

// origin names scheme and host.
func (t *target) origin() string { return t.url.Scheme + "://" + t.url.Host }

// isName reports whether a host is made of what names in the DNS are made of
// (underscores are in use). Anything else, such as letters that other programs
// would turn into digits or dots, is refused rather than understood.
func isName(host string) bool {
	host = strings.TrimSuffix(host, ".")
	if host == "" || len(host) > 253 || host[0] == '.' || strings.Contains(host, "..") || strings.HasSuffix(host, ".") {
		return false
	}
	for i := range len(host) {
		if c := host[i]; !isAlphanumeric(c) && c != '.' && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// isNumber reports whether a name in lower case would be taken for an IPv4
// address by inet_aton or a browser: if its last part is a number, be it
// hexadecimal. No top-level domain is.
func isNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	digits := "0123456789"
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		last, digits = hex, "0123456789abcdef"
	}
	return strings.Trim(last, digits) == ""
}
