package wire

import (
	"maps"
	"net/http"
	"net/textproto"
	"strings"
)

// Names of headers that the coordinator reads or sets, in canonical form.
const (
	HeaderRequestID  = "X-Request-Id"
	HeaderHop        = "X-Coordinator-Hop"
	HeaderDropReason = "X-Llm-D-Request-Dropped-Reason"
	HeaderRetryAfter = "Retry-After"
	// HeaderPin tells the gateway which prefill worker, by address and port, a leg
	// is for.
	HeaderPin = "X-Prefill-Pin-Host-Port"
	// HeaderDecisionID is the same on all legs of a request: an endpoint picker that
	// rolls out revisions chooses one for all of them.
	HeaderDecisionID = "X-Llm-D-Revision-Decision-Id"

	// destinationPrefix begins every name that addresses an endpoint directly.
	destinationPrefix = "X-Gateway-Destination-Endpoint"
)

// hopByHop are the headers that concern one connection (RFC 9110, 7.6.1).
var hopByHop = nameSet("Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade")

// routing are the headers by which workers or gateways can be told where a
// request goes. Clients may neither choose nor see that.
var routing = nameSet("X-Prefiller-Host-Port", "X-Prefiller-Url", "X-Encoder-Hosts-Ports", HeaderPin,
	"X-Data-Parallel-Rank")

// owned are the request headers that the coordinator sets itself or that
// belong to the client's own body.
var owned = nameSet("Host", "Content-Length", "Content-Type", "Content-Encoding", "Expect", "Prefer",
	HeaderRequestID, HeaderHop, HeaderDecisionID)

// fromClients and fromWorkers are what goes no further in either direction.
var (
	fromClients = union(hopByHop, routing, owned)
	fromWorkers = union(hopByHop, routing, nameSet(HeaderRequestID, HeaderDecisionID))
)

func union(sets ...map[string]bool) map[string]bool {
	all := map[string]bool{}
	for _, set := range sets {
		maps.Copy(all, set)
	}
	return all
}

// Reserved reports whether a header of a leg, named in canonical form, is the
// coordinator's to set, or concerns a connection or a body, so that no operator
// can add it. profile is the name of the header that carries the scheduling
// profile. Accept-Encoding is among them: parsed answers are not decoded.
func Reserved(name, profile string) bool {
	return owned[name] || hopByHop[name] || strings.EqualFold(name, profile) || strings.HasPrefix(name, "Content-") ||
		name == "Accept-Encoding" || name == "Proxy-Connection"
}

// IsToken reports whether s can be the name of a header (RFC 9110, 5.6.2).
func IsToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !isDigit(c) && (c|0x20 < 'a' || c|0x20 > 'z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

func nameSet(names ...string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, n := range names {
		set[n] = true
	}
	return set
}

// RequestHeaders returns the client's headers that go on every leg, with all
// their values. Accept-Encoding is among them: it is for legs whose answer goes
// to the client unread, and others must drop it. profile is the name of the
// header that carries the scheduling profile.
func RequestHeaders(client http.Header, profile string) http.Header {
	return keep(client, fromClients, http.CanonicalHeaderKey(profile))
}

// ResponseHeaders returns the headers of an answer that go to the client.
func ResponseHeaders(upstream http.Header) http.Header {
	return keep(upstream, fromWorkers, "")
}

// keep copies headers but for those of a set, those that Connection names, those
// that address an endpoint, and one more. Values are shared with in.
func keep(in http.Header, drop map[string]bool, oneMore string) http.Header {
	named := connectionNames(in)
	out := make(http.Header, len(in)+4)
	for name, values := range in {
		if drop[name] || named[name] || len(name) == len(oneMore) && strings.EqualFold(name, oneMore) {
			continue
		}
		if len(name) >= len(destinationPrefix) && strings.EqualFold(name[:len(destinationPrefix)], destinationPrefix) {
			continue
		}
		out[name] = values
	}
	return out
}

// connectionNames returns the headers that Connection names, or nil.
func connectionNames(in http.Header) map[string]bool {
	var named map[string]bool
	for _, value := range in["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			if name = textproto.TrimString(name); name == "" || strings.EqualFold(name, "close") || strings.EqualFold(name, "keep-alive") {
				continue
			}
			if named == nil {
				named = make(map[string]bool)
			}
			named[textproto.CanonicalMIMEHeaderKey(name)] = true
		}
	}
	return named
}

// maxRequestID is how long a request id may be.
const maxRequestID = 128

// ValidRequestID reports whether a client's request id is kept: 1 to 128
// letters, digits and hyphens. It travels into logs and file names of workers.
func ValidRequestID(id string) bool {
	if len(id) == 0 || len(id) > maxRequestID {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if !isDigit(c) && c != '-' && (c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	return true
}
