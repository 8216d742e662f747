package phases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/llm-coordinator/coordinator/connectors/kv"
	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// bootstrap finds the prefill worker of a request before its leg is sent: decode
// is told where the KV is fetched from. It is what the setting bootstrap_from says:
//
//	reserve             the gateway is asked to choose one, by a leg with the prefill
//	                    profile and Prefer: reserve-endpoint; a header of its answer,
//	                    which bootstrap_header names, says which one
//	header:<name>       a header of an earlier answer to the request says it
//	static:<host>[,…]   these, in turn
//
// Everywhere a worker is named by its HTTP endpoint, host:port. Its host is what
// decode is told; the port of its bootstrap server is the same for all workers, and
// the connector knows it. If the endpoint has a port, the prefill leg is pinned to
// it: else the gateway could choose another worker than the one decode is told of.
// A bootstrap may be used by many goroutines.
type bootstrap struct {
	text   string // the setting
	header string // of an answer, in canonical form; "" is static
	asks   bool   // reserve
	hosts  []endpoint
	turn   atomic.Uint64
	port   int
	up     *gateway.Upstream
}

// endpoint is a prefill worker.
type endpoint struct {
	peer kv.Peer
	// pin is its HTTP endpoint, as a header says it; "" if its port is not known.
	pin string
}

// text is the endpoint as a header would say it.
func (e endpoint) text() string { return cmp.Or(e.pin, e.peer.Host) }

// The forms of bootstrap_from.
const (
	fromReserve = "reserve"
	fromHeader  = "header:"
	fromStatic  = "static:"
)

const bootstrapForms = `"reserve", "header:<name>" or "static:<host>[,…]"`

// needy is a connector as far as a bootstrap has to know it.
type needy interface {
	Name() string
	Needs() kv.Needs
}

// newBootstrap reads the settings bootstrap_from and bootstrap_header of a step
// with this connector. It is nil for a connector that needs no address; then they
// must not be set.
func newBootstrap(deps Deps, params Params, from, header string, c needy) (*bootstrap, error) {
	needs := c.Needs()
	if !needs.Peer {
		for _, s := range [...]struct{ key, value string }{{"bootstrap_from", from}, {"bootstrap_header", header}} {
			if s.value != "" {
				return nil, params.Errorf(s.key, "%s needs no address of the prefill worker: remove it", c.Name())
			}
		}
		return nil, nil //nolint:nilnil // there is none
	}
	b := &bootstrap{text: from, port: bootstrapPort(deps, c), up: deps.Prefill}
	if name, ok := strings.CutPrefix(from, fromHeader); ok {
		if !wire.IsToken(name) {
			return nil, params.Errorf("bootstrap_from", "%q is no name of a header", name)
		}
		b.header = http.CanonicalHeaderKey(name)
	} else if hosts, ok := strings.CutPrefix(from, fromStatic); ok {
		if err := b.static(hosts, deps.Log); err != nil {
			return nil, params.Errorf("bootstrap_from", "%v", err)
		}
	} else if b.asks = from == fromReserve; !b.asks {
		return nil, params.Errorf("bootstrap_from", "%s needs the address of the prefill worker: want %s, not %q", c.Name(), bootstrapForms, from)
	}
	switch {
	case b.asks && !wire.IsToken(header):
		return nil, params.Errorf("bootstrap_header", "want the name of the header by which the gateway's answer to %q names the worker, not %q", fromReserve, header)
	case b.asks:
		b.header = http.CanonicalHeaderKey(header)
		b.text += " (" + b.header + ")"
	case header != "":
		return nil, params.Errorf("bootstrap_header", "is for bootstrap_from = %q: remove it", fromReserve)
	}
	return b, nil
}

// bootstrapPort is where prefill workers listen for decode workers.
func bootstrapPort(deps Deps, c needy) int {
	at, lookup := c.Needs().Port, deps.LookupEnv
	if lookup == nil {
		lookup = os.LookupEnv
	}
	value, ok := "", false
	if at.Env != "" {
		value, ok = lookup(at.Env)
	}
	if !ok {
		return at.Default
	}
	port, err := strconv.Atoi(value)
	if err != nil || port < 1 || port > maxPort {
		if deps.Log != nil {
			deps.Log.Error("an environment variable is no port, 1 to 65535: the default is used", "variable", at.Env, "value", value, "default", at.Default)
		}
		return at.Default
	}
	return port
}

const maxPort = 65535

// IsBootstrapPort reports whether an environment variable of that name says, with some
// connector, where prefill workers listen for decode workers.
func IsBootstrapPort(name string) bool {
	return name != "" && slices.ContainsFunc(kv.Names(), func(connector string) bool {
		c, err := kv.New(connector)
		return err == nil && c.Needs().Port.Env == name
	})
}

// static reads a list of endpoints.
func (b *bootstrap) static(list string, log *slog.Logger) error {
	unpinned := 0
	for text := range strings.SplitSeq(list, ",") {
		e, err := b.endpoint(strings.TrimSpace(text))
		if err != nil {
			return err
		}
		if b.hosts = append(b.hosts, e); e.pin == "" {
			unpinned++
		}
	}
	if len(b.hosts) > 1 && unpinned > 0 && log != nil {
		log.Warn("bootstrap_from names several workers, some without the port of their HTTP endpoint: " +
			"their prefill legs cannot be pinned, and the gateway must find the same worker by itself")
	}
	return nil
}

// endpoint reads host, host:port, or an address of IPv6, in brackets or not.
func (b *bootstrap) endpoint(text string) (endpoint, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = text, ""
		if inner, ok := strings.CutPrefix(text, "["); ok && strings.HasSuffix(inner, "]") {
			host = inner[:len(inner)-1]
		}
	} else if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return endpoint{}, fmt.Errorf("%q has no port of 1 to 65535", text)
	}
	if !isHost(host) {
		return endpoint{}, fmt.Errorf("%q is no host, or host:port", text)
	}
	e := endpoint{peer: kv.Peer{Host: host, Port: b.port}}
	if port != "" {
		e.pin = net.JoinHostPort(host, port)
	}
	return e, nil
}

// isHost reports whether a text is an IP address or could be the name of a host.
func isHost(s string) bool {
	if strings.Contains(s, ":") {
		_, err := netip.ParseAddr(s)
		return err == nil && !strings.Contains(s, "%") // a zone is for one machine
	}
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') && c != '-' && c != '.' && c != '_' {
			return false
		}
	}
	return s != "" && len(s) <= maxHost
}

const maxHost = 253

func (b *bootstrap) String() string { return "bootstrap from " + b.text }

// watches returns the header by which earlier answers to a request are to name its
// prefill worker; "" if they need not.
func (b *bootstrap) watches() string {
	if b == nil || b.asks {
		return ""
	}
	return b.header
}

// read returns the worker that an answer names; false if it names none, or
// nothing that makes sense.
func (b *bootstrap) read(answer http.Header) (endpoint, bool) {
	e, err := b.endpoint(answer.Get(b.header))
	return e, err == nil
}

// find finds the worker for an attempt. named is the value of the header that an
// earlier answer had, "" if none had it. leg is the prefill leg as far as it is
// known: reserve asks by it. It blocks for that call alone. The error is a fault.
func (b *bootstrap) find(ctx context.Context, named string, leg gateway.Leg) (endpoint, error) {
	switch {
	case b.asks:
		return b.reserve(ctx, leg)
	case b.header == "":
		return b.hosts[(b.turn.Add(1)-1)%uint64(len(b.hosts))], nil
	}
	e, err := b.endpoint(named)
	if err != nil {
		return e, wire.Faultf(wire.UpstreamFailed, "the prefill worker is not known").Because(
			fmt.Errorf("no earlier answer named it by the header %s of bootstrap_from", b.header))
	}
	return e, nil
}

// given is the worker that a request has been given to already, by its name. A nil
// bootstrap knows no port of its own.
func (b *bootstrap) given(named string) (endpoint, error) {
	if b == nil {
		b = &bootstrap{}
	}
	e, err := b.endpoint(named)
	if err != nil {
		return e, wire.Faultf(wire.UpstreamFailed, "the prefill worker is not known").Because(errors.New("it was named, but not as host:port"))
	}
	return e, nil
}

// reserve asks the gateway to choose a worker. It is asked again like any leg that
// does the same when it is sent twice.
func (b *bootstrap) reserve(ctx context.Context, leg gateway.Leg) (endpoint, error) {
	leg.ID += "-reserve"
	leg.Pin = "" // that of an attempt before
	leg.Prefer, leg.Resend, leg.Check, leg.Scratch = preferReserve, gateway.ResendAny, nil, true
	_, sent, err := b.up.Call(ctx, leg)
	if err != nil {
		return endpoint{}, err
	}
	e, ok := b.read(sent.Header)
	if !ok {
		cause := "has no host:port in the header " + b.header + ", which bootstrap_header names"
		return e, wire.Faultf(wire.UpstreamFailed, "no prefill worker could be reserved").Because(errors.New("the gateway's answer to " + preferReserve + " " + cause))
	}
	return e, nil
}

// preferReserve is the preference by which the gateway only chooses a worker.
const preferReserve = "reserve-endpoint"

// nameWorker remembers the prefill worker that an answer names by this header; the
// last answer to name one wins. "" is no header.
func (r *Request) nameWorker(header string, answer http.Header) {
	if header == "" {
		return
	}
	if name := answer.Get(header); name != "" {
		r.worker = &name
	}
}

// namedWorker returns what nameWorker was told.
func (r *Request) namedWorker() string { return *cmp.Or(r.worker, new(string)) }

// noSequence refuses a connector that needs both legs at once on a step that sends
// one after the other.
func noSequence(params Params, c kv.Connector) error {
	if c.Needs().Order == kv.Together {
		return params.Errorf("kv_connector", "%s needs prefill and decode in flight together: use one step %q instead of the two, or another connector",
			c.Name(), stepPrefillDecode)
	}
	return nil
}
