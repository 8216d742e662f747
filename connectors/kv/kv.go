// Package kv holds the KV connectors: what prefill and decode are told so that
// the decode worker finds the KV cache that the prefill worker has computed.
//
// A connector is a pure function from JSON to JSON. It must be the one that
// the workers run with; adding one is one file in this package.
package kv

import (
	"encoding/json"
	"net"
	"strconv"

	"github.com/llm-coordinator/coordinator/connectors"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// Connector is one transfer protocol. It is stateless and may be used by many
// goroutines.
type Connector interface {
	// Name is the connector's name in the configuration.
	Name() string
	// Needs says what the pipeline must give it.
	Needs() Needs
	// Begin begins an exchange with a prefill worker; it does not wait. Ids that
	// the protocol wants from whoever sends the legs are minted here.
	Begin(Peer) Exchange
	// Pins reports whether a prefill worker keeps the KV of a hand-off for one
	// reader: it can be used once, and unused it stays in GPU memory until a
	// lease ends.
	Pins() bool
	// HostField names the field of prefill's transfer params that says where the
	// worker's KV is fetched from; "" if there is none.
	HostField() string
}

// Exchange is one attempt to have a prompt's KV computed by one worker for
// another. It is begun anew for each attempt, and used by one goroutine at a time.
type Exchange interface {
	// Prefill returns what the prefill leg is told.
	Prefill() wire.Transfers
	// Decode returns what the decode leg is told. given are the transfer params
	// that prefill answered with: a JSON object, kept with all its fields and its
	// spelling, or nil. It returns none if there is no hand-off: decode is then sent
	// without and computes the prompt itself.
	Decode(given []byte) wire.Transfers
}

// Placed is an exchange whose prefill worker may be found after it was begun, when
// prefill has answered: only decode is told of it.
type Placed interface {
	Exchange
	// At returns the exchange with the worker that was found.
	At(Peer) Exchange
}

// Needs is what a connector needs.
type Needs struct {
	// Order in which the legs are sent.
	Order Order
	// Peer: the address of the prefill worker.
	Peer bool
	// Engine: the id of that worker's engine too, which its bootstrap server tells.
	Engine bool
	// Port is where the peer listens; zero without Peer.
	Port Port
	// Whole: prefill caps its output itself and decode goes on from its token, so
	// that both legs are the client's whole request, streamed if that is.
	Whole bool
	// NoGenerate: these workers have no route that takes token ids instead of text.
	NoGenerate bool
}

// Port is where all prefill workers listen for decode workers.
type Port struct {
	// Default is the engine's own.
	Default int
	// Env names the environment variable by which the engine is told another. The
	// coordinator reads it as the workers do; "" is none.
	Env string
}

// Order is when decode is sent.
type Order uint8

const (
	// Sequential: once prefill has answered. The zero value.
	Sequential Order = iota
	// Together: with prefill, which does not answer before decode has connected.
	Together
	// AnyOrder: as the pipeline likes.
	AnyOrder
)

// Peer is where a prefill worker is found by its decode worker. It is zero for a
// connector that does not need it.
type Peer struct {
	Host string
	Port int // of the worker's bootstrap or side channel
	// Engine is the id of its engine, "" unless that is needed.
	Engine string
}

// address is host and port, an IPv6 address in brackets.
func (p Peer) address() string { return net.JoinHostPort(p.Host, strconv.Itoa(p.Port)) }

// Sized is a connector whose workers have to be told how the others are split.
type Sized interface {
	Connector
	// For returns the connector for workers of these sizes.
	For(Sizes) Connector
}

// Sizes are the numbers of ranks that a model is split over: by tensors (TP) and by
// requests (DP), on prefill and on decode workers. All are at least 1.
type Sizes struct{ PrefillTP, DecodeTP, DecodeDP int }

// quoted returns a text as JSON. Ids are of base32 and names of hosts as they were
// checked, but engines are called as their operators like.
func quoted(text string) string {
	q, _ := json.Marshal(text) // a string always can be
	return string(q)
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
