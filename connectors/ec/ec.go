// Package ec holds the EC connectors: what prefill is told so that the prefill
// worker finds the image embeddings that encode workers have computed.
//
// A connector is a pure function from JSON to JSON. It must be the one that
// the workers run with; adding one is one file in this package.
package ec

import (
	"github.com/llm-coordinator/coordinator/connectors"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// Connector shapes the ec_transfer_params of one transfer protocol. It is
// stateless and may be used by many goroutines.
type Connector interface {
	// Name is the connector's name in the configuration.
	Name() string
	// Prefill returns the transfer params of the prefill leg, or nil for none.
	// merged are the descriptors that encode workers answered with, keyed by
	// hash, in the order of the images; nil if there are none.
	Prefill(merged wire.Text) wire.Text
	// Described reports whether every encode must answer with a descriptor of
	// its image, without which prefill encodes the image itself.
	Described() bool
	// HostField names the field of a descriptor that says where the worker's
	// embedding is fetched from; "" if there is none.
	HostField() string
}

// Maker makes a connector, or says why it cannot be used.
type Maker = func() (Connector, error)

var registry = connectors.NewRegistry[Connector]("ec")

// Register adds a connector under its name. It is called from init functions
// and panics on a name that is taken.
func Register(name string, m Maker) { registry.Register(name, m) }

// New returns the connector of that name.
func New(name string) (Connector, error) { return registry.New(name) }

// Names returns the registered names, sorted.
func Names() []string { return registry.Names() }
