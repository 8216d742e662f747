package ec

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

func join(t wire.Text) (text string) {
	for _, piece := range t {
		text += string(piece)
	}
	return text
}

// pushOf begins a push and returns its id.
func pushOf(t *testing.T, host string, port int, hash string) (Push, string) {
	t.Helper()
	p := mooncake{}.Push(host, port, []byte(hash))
	_, after, ok := strings.Cut(join(p.Encode()), `"transfer_id":"`)
	id, _, _ := strings.Cut(after, `"`)
	if !ok || len(id) != 26 {
		t.Fatalf("no id in %s", join(p.Encode()))
	}
	return p, id
}

func TestMooncakePushesToTheChosenWorker(t *testing.T) {
	seen := map[string]bool{}
	for host, want := range map[string]string{"10.0.0.1": "tcp://10.0.0.1:29600", "fd00::1": "tcp://[fd00::1]:29600", "pod.ns": "tcp://pod.ns:29600"} {
		for range 2 { // the same image twice
			p, id := pushOf(t, host, 29600, `"h\u0061"`)
			if got := join(p.Encode()); got != `{"consumer_zmq":"`+want+`","ec_items":[{"mm_hash":"h\u0061","transfer_id":"`+id+`"}]}` || !json.Valid([]byte(got)) {
				t.Errorf("encode is told %s", got)
			}
			if seen[id] {
				t.Errorf("id %s twice", id)
			}
			seen[id] = true
		}
	}
}

func TestMooncakeItems(t *testing.T) {
	for _, tt := range []struct{ answer, item, why string }{
		{`{"ec_items":[{"x":1.0,"mm_hash":"theirs","transfer_id":"ID","image_grid_thw":[1,2]}]}`, `{"x":1.0,"mm_hash":"theirs","transfer_id":"ID","image_grid_thw":[1,2]}`, ""},
		{`{"ec_items":[{"mm_hash":"h"}],"more":1}`, `{"mm_hash":"h","transfer_id":"ID"}`, ""},
		{`{"ec_items":[{"transfer_id":null}]}`, `{"transfer_id":"ID","mm_hash":"h"}`, ""},
		{`{"ec_items":[{}]}`, `{"mm_hash":"h","transfer_id":"ID"}`, ""},
		{``, ``, ""}, {`{}`, ``, ""}, {`{"ec_items":null}`, ``, ""}, {`{"ec_items":[]}`, ``, ""}, {`{"ec_items":[null]}`, ``, ""}, {`{"ec_items":{}}`, ``, ""},
		{`{"ec_items":[{},{}]}`, ``, "another number"}, {`{"ec_items":[7]}`, ``, "another number"},
		{`{"ec_items":[{"transfer_id":"other"}]}`, ``, "another transfer_id"}, {`{"ec_items":[{"transfer_id":7}]}`, ``, "another transfer_id"},
	} {
		p, id := pushOf(t, "h", 1, `"h"`)
		item, err := p.Item([]byte(strings.ReplaceAll(tt.answer, "ID", id)))
		if got := strings.ReplaceAll(join(item), id, "ID"); got != tt.item || (err == nil) != (tt.why == "") || err != nil && !strings.Contains(err.Error(), tt.why) {
			t.Errorf("%s: %s %v", tt.answer, got, err)
		}
	}
	for want, items := range map[string][]wire.Text{
		"":                               nil,
		`{"ec_items":[{"a":1}]}`:         {nil, wire.Raw(`{"a":1}`), nil},
		`{"ec_items":[{"a":1},{"b":2}]}`: {wire.Raw(`{"a":1}`), nil, wire.Raw(`{"b":2}`)},
	} {
		if got := join(mooncake{}.Items(items)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

var _ Pusher = mooncake{}
