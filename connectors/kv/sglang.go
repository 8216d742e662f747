package kv

import (
	"crypto/rand"
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

func init() { Register("kv-sglang", func() (Connector, error) { return sglang{}, nil }) }

// sglang is SGLang's own disaggregation: decode finds the prefill worker by its
// bootstrap server, and both find each other by a room, a number that both legs
// name. Prefill answers only when decode has fetched the KV.
type sglang struct{}

func (sglang) Name() string { return "kv-sglang" }

// Needs: 8998 is what --disaggregation-bootstrap-port is by default.
func (sglang) Needs() Needs {
	return Needs{Order: Together, Peer: true, Port: Port{Default: 8998, Env: "SGLANG_BOOTSTRAP_PORT"}, Whole: true, NoGenerate: true}
}

// Pins is false: KV that no decode fetches goes with its leg.
func (sglang) Pins() bool { return false }

// HostField is empty: the host is what the coordinator says.
func (sglang) HostField() string { return "" }

// Begin mints a room. Two requests in the same room crash the schedulers of both
// workers, so that none is ever used twice.
func (sglang) Begin(p Peer) Exchange {
	host := p.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]" // an address of IPv6: workers put a colon and the port behind it
	}
	return room{
		{Name: "bootstrap_host", Value: wire.Raw(strconv.Quote(host))},
		{Name: "bootstrap_port", Value: wire.Raw(strconv.Itoa(p.Port))},
		{Name: "bootstrap_room", Value: wire.Raw(strconv.FormatUint(newRoom(), 10))},
	}
}

// newRoom returns a number below 2^63, which is what a room can hold.
func newRoom() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.NativeEndian.Uint64(b[:]) >> 1
}

// room is what both legs of an exchange are told.
type room []wire.Field

func (r room) Prefill() wire.Transfers { return wire.Transfers{Fields: r} }

// Decode is told the same, whatever prefill has answered: it has not yet.
func (r room) Decode([]byte) wire.Transfers { return wire.Transfers{Fields: r} }
