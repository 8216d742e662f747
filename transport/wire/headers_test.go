package wire

import (
	"bufio"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// received makes headers as net/http does from a message: names in canonical
// form.
func received(lines ...string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return h
}

func wantHeaders(t *testing.T, got, want http.Header) {
	t.Helper()
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("headers are %v\nwant %v", got, want)
	}
}

func TestRequestHeadersAreForwardedWithAllTheirValues(t *testing.T) {
	in := received("Authorization: Bearer a", "X-Custom: 1", "x-custom: 2", "X-Custom: 1", "Accept: text/event-stream",
		"Accept-Encoding: gzip", "Cookie: a=b", "User-Agent: curl", "traceparent: 00-1-2-3", "X-Empty: ", "X-Forwarded-For: 10.0.0.1",
		"Cache-Control: no-cache", "X-Gateway-Inference-Objective: high", "X-Prefiller: kept", "Hostile: kept", "X-Request-Id-2: kept")
	wantHeaders(t, RequestHeaders(in, "EPP-Profile"), in)
}

func TestRequestHeadersThatStay(t *testing.T) {
	for _, name := range []string{
		// of one connection
		"connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "TE", "Trailer", "Transfer-Encoding", "Upgrade",
		// of the client's own message
		"Host", "Content-Length", "Content-Type", "Content-Encoding", "Expect",
		// the coordinator's
		"EPP-Profile", "epp-profile", "Prefer", "X-Request-Id", "x-request-ID", "X-Coordinator-Hop",
		// those that choose a worker
		"x-prefiller-host-port", "x-prefiller-url", "x-encoder-hosts-ports", "x-prefill-pin-host-port", "x-data-parallel-rank",
		"x-gateway-destination-endpoint", "X-Gateway-Destination-Endpoint-Served", "x-gateway-destination-endpointX",
	} {
		in := received("Authorization: kept", name+": a", name+": b")
		wantHeaders(t, RequestHeaders(in, "EPP-Profile"), received("Authorization: kept"))
	}
}

func TestHeadersThatConnectionNamesStay(t *testing.T) {
	in := received("Connection: close, X-One ,x-two", "Connection: ,X-THREE,", "Connection: keep-alive",
		"X-One: 1", "X-Two: 2", "x-three: 3", "X-Four: 4", "Close: 5")
	want := received("X-Four: 4", "Close: 5")
	wantHeaders(t, RequestHeaders(in, "EPP-Profile"), want)
	wantHeaders(t, ResponseHeaders(in), want)
}

func TestProfileHeaderCanBeNamedOtherwise(t *testing.T) {
	in := received("EPP-Profile: decode", "X-My-Profile: decode")
	wantHeaders(t, RequestHeaders(in, "x-my-profile"), received("EPP-Profile: decode"))
	wantHeaders(t, RequestHeaders(in, "X-MY-Profile"), received("EPP-Profile: decode"))
}

// A name that net/http could not put into canonical form is compared without
// case where a prefix or a configured name is meant.
func TestNamesThatAreNotCanonical(t *testing.T) {
	in := http.Header{"x-gateway-destination-endpoint-subset": {"a"}, "epp-profile": {"a"}, "x-other": {"b"}}
	wantHeaders(t, RequestHeaders(in, "EPP-Profile"), http.Header{"x-other": {"b"}})
}

func TestResponseHeadersGoToTheClient(t *testing.T) {
	kept := received("Content-Type: text/event-stream", "Content-Length: 5", "Content-Encoding: gzip", "Set-Cookie: a=1", "Set-Cookie: b=2",
		"X-Worker: w", "Retry-After: 3", "x-llm-d-request-dropped-reason: full", "Vary: *")
	in := kept.Clone()
	for _, name := range []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "TE", "Trailer", "Transfer-Encoding", "Upgrade",
		"x-prefiller-host-port", "x-prefiller-url", "x-encoder-hosts-ports", "x-prefill-pin-host-port", "x-data-parallel-rank",
		"x-gateway-destination-endpoint", "x-gateway-destination-endpoint-served", "X-Request-Id"} {
		in.Set(name, "a")
	}
	wantHeaders(t, ResponseHeaders(in), kept)
}

func TestFilteredHeadersAreACopy(t *testing.T) {
	in := received("X-A: 1", "Expect: 100-continue")
	out := RequestHeaders(in, "EPP-Profile")
	out.Set("X-A", "2")
	out.Set("X-B", "3")
	wantHeaders(t, in, received("X-A: 1", "Expect: 100-continue"))
}

func TestRequestIDsThatAreKept(t *testing.T) {
	for _, id := range []string{"a", "Z", "0", "-", "azAZ09-", "0b0e7c1e-6f3a-4f0e-9b8e-1d2c3b4a5f60", strings.Repeat("x", 128)} {
		if !ValidRequestID(id) {
			t.Errorf("%q is refused", id)
		}
	}
	for _, id := range []string{"", strings.Repeat("x", 129), "a b", "a_b", "a.b", "a/b", "a\n", "a\x00", "é", "a@", "a[", "a`", "a{", "{", "@", "\"", "a:", "\xc1", "\xe1"} {
		if ValidRequestID(id) {
			t.Errorf("%q is kept", id)
		}
	}
}

// stays says by itself, in lower case and word by word of wire.md, whether a
// client's header goes no further.
func stays(name, profile string, connection []string) bool {
	name = strings.ToLower(name)
	for _, dropped := range strings.Fields(`connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade
		host content-length content-type content-encoding expect prefer x-request-id x-coordinator-hop
		x-prefiller-host-port x-prefiller-url x-encoder-hosts-ports x-prefill-pin-host-port x-data-parallel-rank`) {
		if name == dropped {
			return true
		}
	}
	if strings.HasPrefix(name, "x-gateway-destination-endpoint") || name == strings.ToLower(profile) {
		return true
	}
	for _, line := range connection {
		for _, named := range strings.Split(line, ",") {
			named = strings.ToLower(strings.Trim(named, " \t"))
			if named == name && named != "close" && named != "keep-alive" {
				return true
			}
		}
	}
	return false
}

// FuzzRequestHeaders: headers as net/http reads them from a connection lose what
// wire.md names, however it is spelt, repeated or named by Connection, and
// nothing else; all values of the rest are there, in order.
func FuzzRequestHeaders(f *testing.F) {
	for _, block := range []string{
		"Authorization: a\r\nX-A: 1\r\nx-a: 2\r\n",
		"Connection: x-b , close\r\nConnection: ,X-C\r\nX-B: 1\r\nx-c: 2\r\nx-d: 3\r\n",
		"X-Prefiller-Url: a\r\nx-PREFILLER-url: b\r\nX-Prefiller-Urls: c\r\nx_prefiller_url: d\r\n",
		"x-gateway-destination-endpoint-served: a\r\nX-Gateway-Destination-Endpoint: b\r\nX-Gateway-Destination: c\r\n",
		"EPP-Profile: decode\r\nepp-profile: prefill\r\nPrefer: if-available\r\nX-Request-Id: x\r\nX-Coordinator-Hop: 1\r\n",
		"Te: trailers\r\nUpgrade: h2c\r\nAccept-Encoding: gzip\r\nCookie: a\r\nCookie: b\r\nCookie:\r\n",
		"Connection: keep-alive, \"x\"\r\nKeep-Alive: 1\r\nClose: 2\r\n: x\r\n",
	} {
		f.Add(block, "EPP-Profile")
	}
	f.Add("X-Which: a\r\n", "x-which")
	f.Fuzz(func(t *testing.T, block, profile string) {
		read, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET / HTTP/1.1\r\nHost: h\r\n" + block + "\r\n")))
		if err != nil {
			return
		}
		in := read.Header
		before := in.Clone()
		out := RequestHeaders(in, profile)
		for name, values := range in {
			switch got := out[name]; {
			case stays(name, profile, in["Connection"]):
				if got != nil {
					t.Errorf("%q goes on: %q", name, got)
				}
			case !slices.Equal(got, values):
				t.Errorf("%q: %q has become %q", name, values, got)
			}
		}
		for name := range out {
			if in[name] == nil {
				t.Errorf("%q is new", name)
			}
		}
		if !maps.EqualFunc(in, before, slices.Equal) {
			t.Errorf("%v has become %v", before, in)
		}
	})
}
