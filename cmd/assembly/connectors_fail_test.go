package assembly_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/cmd/assembly"
	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

var mintedIDs = regexp.MustCompile(`"(?:transfer_id|kv_request_id)":"([^"]+)"`)

// mintedBy are the ids that a request's legs of that name have brought.
func (r *rig) mintedBy(id, name string) (all []string) {
	for _, l := range r.cluster.Legs(id) {
		if m := mintedIDs.FindStringSubmatch(string(l.Body)); l.Name == name && m != nil {
			all = append(all, m[1])
		}
	}
	return all
}

// TestFurtherConnectorsThatFail at each leg are made good for as others are, and each
// attempt has an id of its own, which no other has had.
func TestFurtherConnectorsThatFail(t *testing.T) {
	for _, kv := range furtherKV {
		for _, tt := range []struct {
			name   string
			fault  cluster.Fault
			status int
			legs   []string
			sent   int // prefills with ids
		}{
			{"prefill 503", cluster.Fault{Leg: cluster.Prefill, Status: 503, Times: 1}, 200, []string{"render", "prefill", "prefill", "decode"}, 2},
			{"prefill drops", cluster.Fault{Leg: cluster.Prefill, Drop: true, Times: 1}, 200, []string{"render", "prefill", "prefill", "decode"}, 2},
			{"prefill 503 for good", cluster.Fault{Leg: cluster.Prefill, Status: 503}, 502, []string{"render", "prefill", "prefill", "prefill"}, 3},
			{"prefill 400", cluster.Fault{Leg: cluster.Prefill, Status: 400}, 400, []string{"render", "prefill"}, 1},
			{"prefill is no JSON", cluster.Fault{Leg: cluster.Prefill, Garbage: true}, 502, []string{"render", "prefill"}, 1},
			{"decode 500", cluster.Fault{Leg: cluster.Decode, Status: 500, Times: 1}, 200, []string{"render", "prefill", "decode", "prefill", "decode"}, 2},
			{"decode loses its KV", cluster.Fault{Leg: cluster.Decode, LoseKV: true, Times: 1}, 200, nil, 0},
			{"prefill loses its KV", cluster.Fault{Leg: cluster.Prefill, LoseKV: true, Times: 1}, 200, nil, 0},
		} {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/%t", kv, tt.name, stream), func(t *testing.T) {
					r := newRig(t, setup{kv: kv, toml: quick, steps: renderStep + prefillOf(kv) + decodeStep, cluster: cluster.Options{Lease: byHand}})
					r.cluster.AddFault(tt.fault)
					got := r.post(chatPath, chatBody("hi there", stream), "X-Request-Id", "id")
					if got.status != tt.status || tt.status == 200 && said(t, got.body, stream) != cluster.Reply("hi there") {
						t.Errorf("got %d %s", got.status, got.body)
					}
					if legs := r.legsOf("id"); tt.legs != nil && !slices.Equal(legs, tt.legs) {
						t.Errorf("legs %v, want %v", legs, tt.legs)
					}
					prefills, decodes := r.mintedBy("id", cluster.Prefill), r.mintedBy("id", cluster.Decode)
					if kv == cluster.KVLMCache && len(prefills)+len(decodes) > 0 || kv != cluster.KVLMCache && tt.sent > 0 && len(prefills) != tt.sent {
						t.Errorf("prefills %v, decodes %v", prefills, decodes)
					}
					slices.Sort(prefills)
					if n := len(prefills); len(slices.Compact(prefills)) != n {
						t.Errorf("an id is used twice: %v", prefills)
					}
					r.settled()
					if st := r.cluster.State(); st.ReusedHandoffs != 0 {
						t.Errorf("%+v", st)
					}
				})
			}
		}
	}
}

// TestPushesThatFail: an embedding can be read once. A prefill that may have read it is
// not sent again with it; the request starts again from encode, once.
func TestPushesThatFail(t *testing.T) {
	encodes := []string{"render", "encode", "encode"}
	first := append(slices.Clone(encodes), "prefill")
	again := append(slices.Clone(first), "encode", "encode", "prefill")
	dropped := map[string]string{"x-llm-d-request-dropped-reason": "full"}
	for _, tt := range []struct {
		name   string
		fault  cluster.Fault
		status int
		legs   []string
		unread int
	}{
		{"prefill 503", cluster.Fault{Leg: cluster.Prefill, Status: 503, Times: 1}, 200, append(slices.Clone(again), "decode"), 2},
		{"prefill 503, dropped by the gateway", cluster.Fault{Leg: cluster.Prefill, Status: 503, Headers: dropped, Times: 1}, 200, append(slices.Clone(first), "prefill", "decode"), 0},
		{"prefill breaks off", cluster.Fault{Leg: cluster.Prefill, BreakAfter: new(0), Times: 1}, 200, append(slices.Clone(again), "decode"), 0},
		{"prefill 503 for good", cluster.Fault{Leg: cluster.Prefill, Status: 503}, 502, again, 4},
		{"prefill 400", cluster.Fault{Leg: cluster.Prefill, Status: 400}, 400, first, 2},
		{"decode 500", cluster.Fault{Leg: cluster.Decode, Status: 500, Times: 1}, 200, append(append(append(slices.Clone(first), "decode"), again[4:]...), "decode"), 0},
		{"encode 503", cluster.Fault{Leg: cluster.Encode, Status: 503, Times: 1}, 200, append(append(slices.Clone(encodes), "encode"), "prefill", "decode"), 0},
		{"encode 400", cluster.Fault{Leg: cluster.Encode, Status: 400}, 400, nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := connected(t, cluster.KVMoriio, cluster.ECMooncake, setup{toml: quick, cluster: cluster.Options{Lease: byHand}})
			r.cluster.AddFault(tt.fault)
			got := r.post(chatPath, `{"model":"demo-model","messages":`+r.fill(shapes[5].messages)+`}`, "X-Request-Id", "id")
			if got.status != tt.status {
				t.Errorf("got %d %s", got.status, got.body)
			}
			if legs := r.legsOf("id"); tt.legs != nil && !slices.Equal(legs, tt.legs) {
				t.Errorf("legs %v, want %v", legs, tt.legs)
			}
			r.settled()
			if st := r.cluster.State(); st.UnreadPushes != tt.unread {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestPushedDescriptorsThatAreOdd: without one prefill encodes the image itself, which
// is counted; one that makes no sense fails the request.
func TestPushedDescriptorsThatAreOdd(t *testing.T) {
	for _, tt := range []struct {
		given   string
		status  int
		missing float64
	}{
		{`null`, 200, 2}, {`{}`, 200, 2}, {`[]`, 200, 2}, {`{"ec_items":[]}`, 200, 2}, {`{"ec_items":[{"transfer_id":"other"}]}`, 502, 0}, {`{"ec_items":[{},{}]}`, 502, 0},
	} {
		r := connected(t, cluster.KVLMCache, cluster.ECMooncake, setup{})
		r.cluster.AddFault(cluster.Fault{Leg: cluster.Encode, BadDescriptors: []byte(tt.given)})
		got := r.post(chatPath, `{"model":"demo-model","messages":`+r.fill(shapes[5].messages)+`}`)
		if n := r.metric(t, "llm_d_coordinator_ec_handoff_missing_total"); got.status != tt.status || n != tt.missing {
			t.Errorf("%s: got %d %s, %v counted", tt.given, got.status, got.body, n)
		}
		r.settled()
		if st := r.cluster.State(); tt.status == 200 && st.LocalEncodes != 2 {
			t.Errorf("%s: %+v", tt.given, st)
		}
	}
}

// TestHangUpsWithFurtherConnectors at each point leave nothing held.
func TestHangUpsWithFurtherConnectors(t *testing.T) {
	for _, kv := range furtherKV {
		for _, at := range []cluster.Gate{
			{Leg: cluster.Prefill}, {Leg: cluster.Prefill, At: cluster.AtHeaders}, {Leg: cluster.Decode}, {Leg: cluster.Decode, At: cluster.AtHeaders},
			{Leg: cluster.Decode, At: cluster.AtChunk, Chunk: 2}, {Leg: cluster.Encode}, {Leg: cluster.Encode, At: cluster.AtHeaders}, {Leg: cluster.Query},
		} {
			if at.Leg == cluster.Query && kv != cluster.KVMooncake {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s/%s", kv, at.Leg, at.At), func(t *testing.T) {
				r := connected(t, kv, cluster.ECMooncake, setup{})
				r.leaveAt(at, 1, fmt.Sprintf(`{"model":"demo-model","stream":true,"messages":%s}`, r.fill(shapes[1].messages)))
				if st := r.cluster.State(); st.HeldKV != 0 || st.ExpiredLeases != 0 {
					t.Errorf("%+v", st)
				}
			})
		}
	}
}

// TestReleaseOfFurtherConnectors: KV that is pinned and that no decode will fetch is
// fetched by one that is thrown away; other KV is left alone.
func TestReleaseOfFurtherConnectors(t *testing.T) {
	for _, kv := range furtherKV {
		t.Run(kv, func(t *testing.T) {
			r := newRig(t, setup{kv: kv, steps: renderStep + prefillOf(kv) + decodeStep})
			r.stopBeforeDecode()
			pins := kv == cluster.KVMooncake || kv == cluster.KVMoriio
			want := 0
			if pins {
				want = 1
			}
			if st := r.cluster.State(); st.Legs[cluster.Decode] != want || st.FetchedKV != want || st.HeldKV != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestFurtherConnectorsSayWhatTheyNeed at startup.
func TestFurtherConnectorsSayWhatTheyNeed(t *testing.T) {
	const render = "[[pipeline.steps]]\ntype = \"render\"\nparams = { address = \"http://127.0.0.1:1\" }\n"
	encode := func(params string) string {
		return render + encodeStep + "params = { " + params + " }\n" + prefillStep + decodeStep
	}
	for _, tt := range []struct{ name, pipeline, steps, want string }{
		{"mooncake", `kv_connector = "kv-mooncake"`, prefillStep + decodeStep, `bootstrap_from: kv-mooncake needs the address of the prefill worker`},
		{"offloading", `kv_connector = "kv-offloading"`, prefillStep + decodeStep, `bootstrap_from: kv-offloading needs the address of the prefill worker`},
		{"moriio, address", `kv_connector = "kv-moriio"`, prefillStep + "params = { bootstrap_from = \"static:h\" }\n" + decodeStep, `bootstrap_from: kv-moriio needs no address of the prefill worker: remove it`},
		{"moriio, sizes", `kv_connector = "kv-moriio"`, prefillStep + "params = { fleet = { decode_tp_size = 0 } }\n" + decodeStep, `fleet.decode_tp_size: must be at least 1`},
		{"moriio, pair", `kv_connector = "kv-moriio"`, pairStep(""), `kv-moriio has decode sent once prefill has answered`},
		{"lmcache, pair", `kv_connector = "kv-lmcache"`, pairStep(""), `kv-lmcache has decode sent once prefill has answered`},
		{"sizes for nobody", `kv_connector = "kv-nixl"`, prefillStep + "params = { fleet = { prefill_tp_size = 2 } }\n" + decodeStep, `fleet.prefill_tp_size: kv-nixl does not need it: remove it`},
		{"ec-mooncake, address", `ec_connector = "ec-mooncake"`, encode("consumer_port = 1"), `bootstrap_from: ec-mooncake needs the address of the prefill worker`},
		{"ec-mooncake, port", `ec_connector = "ec-mooncake"`, encode(`bootstrap_from = "static:h"`), `consumer_port: ec-mooncake needs the port where prefill workers take embeddings (their ec_port)`},
		{"ec-mooncake, bad port", `ec_connector = "ec-mooncake"`, encode(`consumer_port = 65536, bootstrap_from = "static:h"`), `consumer_port: ec-mooncake needs the port`},
		{"ec-mooncake, nobody names", `ec_connector = "ec-mooncake"`, encode(`consumer_port = 1, bootstrap_from = "header:x-w"`), `bootstrap_from = "header:X-W" of "encode" needs a "conditional-decode" step`},
		{"port for nobody", `ec_connector = "ec-nixl"`, encode("consumer_port = 1"), `consumer_port: ec-nixl pushes nothing to prefill workers: remove it`},
		{"address for nobody", `ec_connector = "ec-nixl"`, encode(`bootstrap_from = "static:h"`), `bootstrap_from: ec-nixl needs no address of the prefill worker: remove it`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, err := conf.Parse("f.toml", []byte("[pipeline]\n"+tt.pipeline+"\n"+tt.steps), nil)
			if err == nil {
				var c *assembly.Coordinator
				if c, err = assembly.New(cfg, assembly.Options{}); err == nil {
					c.Close()
				}
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}
