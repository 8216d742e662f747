package assembly_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// prefillOf is the prefill step of a connector.
func prefillOf(kv string) string {
	switch kv {
	case cluster.KVMooncake, cluster.KVOffloading:
		return prefillStep + "params = { bootstrap_from = \"static:127.0.0.1\" }\n"
	case cluster.KVMoriio:
		return prefillStep + fmt.Sprintf("params = { fleet = { prefill_tp_size = %d, decode_tp_size = %d, decode_dp_size = %d } }\n",
			cluster.MoriioPrefillTP, cluster.MoriioDecodeTP, cluster.MoriioDecodeDP)
	}
	return prefillStep
}

// encodeOf is the encode step of a connector.
func encodeOf(ec string) string {
	if ec == cluster.ECMooncake {
		return encodeStep + "params = { bootstrap_from = \"static:127.0.0.1\", consumer_port = WORKERPORT }\n"
	}
	return encodeStep
}

// furtherKV are the connectors besides NIXL, shared storage and SGLang.
var furtherKV = []string{cluster.KVLMCache, cluster.KVMooncake, cluster.KVMoriio, cluster.KVOffloading}

// connected is a rig of these connectors, with the whole pipeline.
func connected(t *testing.T, kv, ec string, s setup) *rig {
	t.Helper()
	s.kv, s.ec = kv, ec
	s.steps = mediaStep + renderStep + encodeOf(ec) + prefillOf(kv) + decodeStep
	return newRig(t, s)
}

// legsOf are the legs of a request, without what has no request's id.
func (r *rig) legsOf(id string) []string {
	return slices.DeleteFunc(r.legs(id), func(l string) bool { return l == cluster.Origin || l == cluster.Query })
}

// TestFurtherConnectorsMoveKV of every protocol, streamed or not, in both formats.
func TestFurtherConnectorsMoveKV(t *testing.T) {
	for _, kv := range furtherKV {
		for _, openAI := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/openai=%t", kv, openAI), func(t *testing.T) {
				r := connected(t, kv, cluster.ECNixl, setup{tokensIn: !openAI})
				n := 0
				for _, q := range []struct{ path, body string }{
					{chatPath, `{"model":"demo-model","messages":[{"role":"user","content":"one two"}]%s}`},
					{completionsPath, `{"model":"demo-model","prompt":"one two"%s}`},
					{generatePath, `{"token_ids":[1,2,3],"sampling_params":{"max_tokens":3}%s}`},
				} {
					for _, more := range []string{"", `,"stream":true`} {
						id, body := fmt.Sprintf("req-%d", n), fmt.Sprintf(q.body, more)
						n++
						got := r.post(q.path, body, "X-Request-Id", id)
						want := []string{"render", "prefill", "decode"}
						if q.path == generatePath {
							want = want[1:]
						}
						if legs := r.legsOf(id); !slices.Equal(legs, want) {
							t.Errorf("%s: legs %v", q.path, legs)
						}
						if direct := r.direct(q.path, body, id); got.status != http.StatusOK || got.body != direct {
							t.Errorf("got %d %s, want %s", got.status, got.body, direct)
						}
					}
				}
				r.settled()
				st := r.cluster.State()
				want := n
				if kv == cluster.KVLMCache { // those that are sent to decode directly find it too
					want *= 2
				}
				if st.ReusedHandoffs+st.FailedLoads != 0 || st.FetchedKV != want {
					t.Errorf("%+v", st)
				}
				if m := r.metric(t, "llm_d_coordinator_kv_handoff_missing_total"); m != 0 {
					t.Errorf("%v hand-offs are counted as missing", m)
				}
			})
		}
	}
}

// TestFurtherConnectorsMoveImages of all shapes.
func TestFurtherConnectorsMoveImages(t *testing.T) {
	for _, c := range []struct{ kv, ec string }{{cluster.KVLMCache, cluster.ECNixl}, {cluster.KVMoriio, cluster.ECSharedStorage}, {cluster.KVOffloading, cluster.ECNixl},
		{cluster.KVMooncake, cluster.ECMooncake}, {cluster.KVNixl, cluster.ECMooncake}} {
		for _, openAI := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/%s/openai=%t", c.kv, c.ec, openAI), func(t *testing.T) {
				r := connected(t, c.kv, c.ec, setup{tokensIn: !openAI})
				for i, s := range shapes {
					for _, stream := range []bool{false, true} {
						id := fmt.Sprintf("req-%d-%t", i, stream)
						body := fmt.Sprintf(`{"model":"demo-model","stream":%t,"messages":%s}`, stream, r.fill(s.messages))
						got := r.post(chatPath, body, "X-Request-Id", id)
						if want := cluster.ReplyWithImages(s.text, r.hashes(s.images)...); got.status != http.StatusOK || said(t, got.body, stream) != want {
							t.Errorf("%s: got %d %s\nwant %s", s.name, got.status, got.body, want)
						}
						want := slices.DeleteFunc(wantLegs(s.images, false), func(l string) bool { return l == cluster.Origin })
						if c.ec == cluster.ECMooncake { // one for each place
							want = slices.Concat([]string{"render"}, slices.Repeat([]string{"encode"}, len(s.images)), []string{"prefill", "decode"})
						}
						if legs := r.legsOf(id); !slices.Equal(legs, want) {
							t.Errorf("%s: legs %v", s.name, legs)
						}
					}
				}
				r.settled()
				if st := r.cluster.State(); st.FailedLoads+st.LocalEncodes+st.WorkerFetches+st.Recomputed+st.UnreadPushes != 0 {
					t.Errorf("%+v", st)
				}
			})
		}
	}
}
