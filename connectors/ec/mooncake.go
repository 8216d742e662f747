package ec

import (
	"crypto/rand"
	"errors"
	"net"
	"strconv"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

func init() { Register("ec-mooncake", func() (Connector, error) { return mooncake{}, nil }) }

// mooncake is vLLM's ECMooncakeConnector: encode pushes each embedding to the
// prefill worker that its leg names, under an id that we mint. Prefill is told the
// ids, in the order of the media; it waits for what it was told of.
type mooncake struct{}

func (mooncake) Name() string                       { return "ec-mooncake" }
func (mooncake) Prefill(merged wire.Text) wire.Text { return merged }
func (mooncake) Described() bool                    { return true }

// HostField is empty: we name the host.
func (mooncake) HostField() string { return "" }

func (mooncake) Push(host string, port int, hash []byte) Push {
	return &mooncakePush{consumer: "tcp://" + net.JoinHostPort(host, strconv.Itoa(port)), hash: hash, id: rand.Text()}
}

// Items puts the items into the order of the media. One that is missing is not
// among them: prefill finds the others by their hashes then.
func (mooncake) Items(items []wire.Text) wire.Text {
	all := wire.Raw(`{"ec_items":[`)
	first := true
	for _, item := range items {
		if item == nil {
			continue
		}
		if !first {
			all = append(all, []byte(","))
		}
		first = false
		all = append(all, item...)
	}
	if first {
		return nil
	}
	return append(all, []byte("]}"))
}

type mooncakePush struct {
	consumer string
	hash     []byte // a JSON string
	id       string
}

// Encode: hosts were checked when they came in, and need no escapes.
func (p *mooncakePush) Encode() wire.Text {
	return wire.Text{[]byte(`{"consumer_zmq":"` + p.consumer + `","ec_items":[{"mm_hash":`), p.hash, []byte(`,"transfer_id":"` + p.id + `"}]}`)}
}

var (
	errItems = errors.New("encode has one image and answered with another number of ec_items")
	errOther = errors.New("encode answered with another transfer_id than it was given")
)

// Item is the one of the answer's ec_items, with what a worker need not say: its
// transfer_id, and the hash. What else is in it is handed on.
func (p *mooncakePush) Item(answer []byte) (wire.Text, error) {
	var item []byte
	n := 0
	if wire.EachElement(wire.Lookup(answer, "ec_items"), func(v []byte) bool { item = v; n++; return true }); n == 0 || wire.IsNull(item) {
		return nil, nil
	}
	if n > 1 || !wire.IsObject(item) {
		return nil, errItems
	}
	given, err := wire.ParseBody(item)
	if err != nil {
		return nil, errItems
	}
	if id := given.Get("transfer_id"); !wire.IsNull(id) {
		if text, _ := wire.Unquote(id); text != p.id {
			return nil, errOther
		}
	}
	e := given.Edit()
	if wire.IsNull(given.Get("mm_hash")) {
		e.Set("mm_hash", wire.Text{p.hash})
	}
	e.SetRaw("transfer_id", `"`+p.id+`"`)
	return e.Text(), nil
}
