// Package kv holds the KV connectors: what prefill and decode are told so that
// the decode worker finds the KV cache that the prefill worker has computed.
//
// A connector is a pure function from JSON to JSON. It must be the one that
// the workers run with; adding one is one file in this package.
package kv

import (
	"github.com/llm-coordinator/coordinator/connectors"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// Connector shapes the kv_transfer_params of one transfer protocol. It is
// stateless and may be used by many goroutines.
type Connector interface {
	// Name is the connector's name in the configuration.
	Name() string
	// Prefill returns the transfer params of a prefill leg. It is asked anew
	// for each attempt.
	Prefill() wire.Text
	// Decode returns the transfer params of the decode leg. given are those
	// that prefill answered with: a JSON object, kept with all its fields and
	// its spelling, or nil. It returns nil if there is no hand-off: decode is
	// then sent without params and computes the prompt itself.
	Decode(given []byte) wire.Text
	// Pins reports whether a prefill worker keeps the KV of a hand-off for one
	// reader: it can be used once, and unused it stays in GPU memory until a
	// lease ends.
	Pins() bool
	// HostField names the field of prefill's transfer params that says where the
	// worker's KV is fetched from; "" if there is none.
	HostField() string
}

// Maker makes a connector, or says why it cannot be used.
type Maker = func() (Connector, error)

var registry = connectors.NewRegistry[Connector]("kv")

// Register adds a connector under its name. It is called from init functions
// and panics on a name that is taken.
func Register(name string, m Maker) { registry.Register(name, m) }

// New returns the connector of that name.
func New(name string) (Connector, error) { return registry.New(name) }

// Names returns the registered names, sorted.
func Names() []string { return registry.Names() }
