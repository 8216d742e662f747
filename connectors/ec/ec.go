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

// Pusher is a connector whose encode workers push embeddings to a prefill worker.
// That one is chosen before the first encode leg is sent, and there is a leg for each
// place of an image in the prompt, for each is pushed under an id of its own.
type Pusher interface {
	Connector
	// Push begins the push of an image's embedding to a worker that takes them at a
	// host and port. hash is a JSON string with its quotes. It is begun anew for each
	// attempt; it does not wait.
	Push(host string, port int, hash []byte) Push
	// Items returns what Prefill gets as merged: items of pushes, in the order of the
	// media; nil if there are none.
	Items(items []wire.Text) wire.Text
}

// Push is one attempt to have an image's embedding pushed. It is used by one
// goroutine at a time.
type Push interface {
	// Encode returns the transfer params of the encode leg.
	Encode() wire.Text
	// Item returns what prefill is told of the embedding. answer are the transfer
	// params that encode answered with, nil if it had none: nothing was pushed then,
	// and the item is nil. An error means that the answer makes no sense.
	Item(answer []byte) (wire.Text, error)
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
