package assembly_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// TestDeadConnections: a connection of the pool that turns out dead is no
// failure of the request. net/http does not send a POST again by itself; a
// render and a prefill are sent again, and so is a decode whose KV can be read
// twice. A decode with a NIXL hand-off starts again from prefill: a worker may
// have read the KV already.
func TestDeadConnections(t *testing.T) {
	tests := []struct {
		name, kv, leg string
		ids           []string // of the legs, in order, "!" marks those that died
	}{
		{"render", cluster.KVNixl, cluster.Render, []string{"!id", "id-r1", "id", "id"}},
		{"prefill", cluster.KVNixl, cluster.Prefill, []string{"id", "!id", "id-r1", "id"}},
		{"decode over shared storage", cluster.KVSharedStorage, cluster.Decode, []string{"id", "id", "!id", "id-r1"}},
		{"decode with a NIXL hand-off", cluster.KVNixl, cluster.Decode, []string{"id", "id", "!id", "id-r1", "id-r1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, setup{kv: tt.kv, cluster: cluster.Options{Lease: byHand}})
			r.post(chatPath, chatBody("warm", false), "X-Request-Id", "warm") // makes the connections
			r.cluster.AddFault(cluster.Fault{Leg: tt.leg, RequestID: "id", OnlyReused: true, Drop: true, Times: 1})
			got := r.post(chatPath, chatBody("hi", false), "X-Request-Id", "id", "Idempotency-Key", "client-says-so")
			if got.status != http.StatusOK || !strings.Contains(got.body, cluster.Reply("hi")) {
				t.Errorf("got %d %s", got.status, got.body)
			}
			var ids []string
			for _, l := range r.cluster.Legs("id") {
				id := l.RequestID
				if l.Status == 0 {
					id = "!" + id
				}
				ids = append(ids, id)
			}
			if !slices.Equal(ids, tt.ids) {
				t.Errorf("legs %v, want %v", ids, tt.ids)
			}
			if st := r.cluster.State(); st.ReusedHandoffs != 0 || st.FailedLoads != 0 {
				t.Errorf("a hand-off was used twice: %+v", st)
			}
			r.settled()
		})
	}
}

// TestDecodeIsRunAgainOnce: if it dies a second time the client is told.
func TestDecodeIsRunAgainOnce(t *testing.T) {
	r := newRig(t, setup{cluster: cluster.Options{Lease: byHand}})
	r.post(chatPath, chatBody("warm", false))
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Decode, RequestID: "id", Drop: true})
	got := r.post(chatPath, chatBody("hi", false), "X-Request-Id", "id")
	if o := readError(t, got.body); got.status != http.StatusBadGateway || o.Error.Code != "upstream_failed" {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if legs := r.legs("id"); !slices.Equal(legs, []string{"render", "prefill", "decode", "prefill", "decode"}) {
		t.Errorf("legs %v", legs)
	}
	r.settled()
}
