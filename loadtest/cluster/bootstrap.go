package cluster

import (
	"net"
	"net/http"
	"strconv"
	"strings"
)

// Query is a call to the bootstrap server of kv-mooncake's prefill worker. It is
// at the cluster's own address, without a profile, and counts like a leg.
const Query = "query"

// queryPath is where a bootstrap server tells the ids of its engines.
const queryPath = "/query"

// prefillAddress is the host and port that a decode or encode worker must be told
// of the prefill worker. The caller holds mu.
func (c *Cluster) prefillAddress() string {
	if c.options.PrefillAddress != "" {
		return c.options.PrefillAddress
	}
	return strings.TrimPrefix(c.url, "http://")
}

func (c *Cluster) prefillHostPort() (host string, port int) {
	host, number, _ := net.SplitHostPort(c.prefillAddress())
	port, _ = strconv.Atoi(number)
	return host, port
}

// chooses reports whether the gateway is asked for a prefill worker before its leg
// is sent: other workers are told of it.
func (c *Cluster) chooses() bool {
	return c.pairs() || c.options.KV == KVMooncake || c.options.KV == KVOffloading || c.options.EC == ECMooncake
}

// endpoint is the address by which the gateway names the prefill worker.
func (c *Cluster) endpoint() string {
	if c.pairs() {
		return prefillEndpoint
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.prefillAddress()
}

// query answers as the bootstrap server does: the engines by their DP ranks.
func (l *leg) query() error {
	type engine struct {
		ID string `json:"engine_id"`
	}
	return l.answer(http.StatusOK, encode(map[string]engine{"0": {l.cluster.engineID}}))
}
