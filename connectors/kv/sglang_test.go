package kv

import (
	"math/big"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

func fields(told wire.Transfers) map[string]string {
	found := map[string]string{}
	for _, f := range told.Fields {
		found[f.Name] = string(text(f.Value))
	}
	return found
}

func TestSglangTellsBothLegsTheSame(t *testing.T) {
	c := connector(t, "kv-sglang")
	if n := c.Needs(); n.Order != Together || !n.Peer || !n.Whole || c.Pins() {
		t.Errorf("needs %+v", n)
	}
	for host, want := range map[string]string{"10.0.0.1": `"10.0.0.1"`, "pod.pods": `"pod.pods"`, "2001:db8::1": `"[2001:db8::1]"`} {
		x := c.Begin(Peer{Host: host, Port: 8998})
		prefill, decode := x.Prefill(), x.Decode([]byte(`{"bootstrap_room":1}`))
		a, b := fields(prefill), fields(decode)
		if a["bootstrap_host"] != want || a["bootstrap_port"] != "8998" || len(a) != 3 || prefill.KV != nil || prefill.EC != nil {
			t.Errorf("%s: %v", host, a)
		}
		for name, value := range a {
			if b[name] != value {
				t.Errorf("%s: prefill is told %s %s, decode %s", host, name, value, b[name])
			}
		}
		if !decode.HandOff() {
			t.Error("no hand-off")
		}
	}
}

// TestRoomsAreUniform: each is new, and each of the 63 bits is one as often as not,
// none is set above them, and numbers are spelt as JSON integers.
func TestRoomsAreUniform(t *testing.T) {
	const rooms = 4000
	c, seen := connector(t, "kv-sglang"), map[string]bool{}
	var ones [63]int
	for range rooms {
		spelt := fields(c.Begin(Peer{Host: "h", Port: 1}).Prefill())["bootstrap_room"]
		n, ok := new(big.Int).SetString(spelt, 10)
		if !ok || n.Sign() < 0 || n.BitLen() > 63 || strings.TrimLeft(spelt, "0") != spelt && spelt != "0" || seen[spelt] {
			t.Fatalf("room %s", spelt)
		}
		seen[spelt] = true
		for bit := range ones {
			ones[bit] += int(n.Bit(bit))
		}
	}
	for bit, n := range ones { // ten standard deviations
		if n < rooms/2-320 || n > rooms/2+320 {
			t.Errorf("bit %d is one in %d of %d rooms", bit, n, rooms)
		}
	}
}
