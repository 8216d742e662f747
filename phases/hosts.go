package phases

import (
	"log/slog"
	"net/netip"
	"strings"
	"sync"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// advertised watches the hosts that workers name for others to fetch from. A
// worker that was not told its own address names localhost, where nobody else
// finds it: decode then waits for its KV in vain, or computes it again. The
// operator is warned, once per host.
type advertised struct {
	log     *slog.Logger
	metrics *Metrics

	mu   sync.Mutex
	seen map[string]bool
}

// maxWarned bounds the hosts that are warned about: 127.0.0.0/8 has many.
const maxWarned = 16

func newAdvertised(log *slog.Logger, m *Metrics) *advertised {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &advertised{log: log, metrics: m, seen: map[string]bool{}}
}

// look looks at a field of transfer params that names a host; "" is none. The
// advice says what to set on the worker.
func (a *advertised) look(params []byte, field, worker, advice string) {
	if field == "" {
		return
	}
	value, _ := wire.Unquote(wire.Lookup(params, field))
	host := loopback(value)
	if host == "" {
		return
	}
	a.metrics.loopbackHosts.WithLabelValues(worker).Inc()
	a.mu.Lock()
	known := a.seen[worker+host] || len(a.seen) >= maxWarned
	if !known {
		a.seen[worker+host] = true
	}
	a.mu.Unlock()
	if !known {
		a.log.Warn("a worker advertises a host that no other worker can reach: "+advice, "profile", worker, "field", field, "host", host)
	}
}

// loopback returns a host that means whoever reads it, in one spelling, or "".
// Nothing else of what a worker sent is returned.
func loopback(host string) string {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return "localhost"
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err == nil && (addr.Unmap().IsLoopback() || addr.Unmap().IsUnspecified()) {
		return addr.Unmap().WithZone("").String()
	}
	return ""
}
