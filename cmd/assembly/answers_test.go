package assembly_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/server/servertest"
)

// direct asks a decode worker of the cluster itself: what it answers is what a
// client of the coordinator must get, byte for byte.
func (r *rig) direct(path, body, id string) string {
	r.t.Helper()
	req, err := http.NewRequestWithContext(within(r.t), http.MethodPost, r.cluster.URL()+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	for name, value := range map[string]string{"Content-Type": "application/json", "EPP-Profile": "decode",
		"X-Coordinator-Hop": "1", "X-Request-Id": id} {
		req.Header.Set(name, value)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		r.t.Fatalf("direct: %d %v %s", resp.StatusCode, err, text)
	}
	return string(text)
}

func TestEveryPipelineAnswersWhatTheWorkerAnswers(t *testing.T) {
	pipelines := []struct {
		name, steps string
		legs        []string
	}{
		{"decode", decodeStep, []string{"decode"}},
		{"prefill-decode", prefillStep + decodeStep, []string{"prefill", "decode"}},
		{"render-decode", renderStep + decodeStep, []string{"render", "decode"}},
		{"render-prefill-decode", fullSteps, []string{"render", "prefill", "decode"}},
	}
	for _, kv := range []string{cluster.KVNixl, cluster.KVSharedStorage} {
		for _, p := range pipelines {
			t.Run(kv+"/"+p.name, func(t *testing.T) {
				r := newRig(t, setup{kv: kv, steps: p.steps})
				for i, q := range servertest.Requests {
					t.Run(q.Name, func(t *testing.T) {
						id := fmt.Sprintf("req-%d", i)
						got := r.post(q.Path, q.Body, "X-Request-Id", id)
						want := r.direct(q.Path, q.Body, id)
						if got.status != http.StatusOK || got.err != nil || got.body != want {
							t.Errorf("got %d %v\n%s\nwant\n%s", got.status, got.err, got.body, want)
						}
						if got.header.Get("X-Request-Id") != id {
							t.Errorf("X-Request-Id: %q", got.header.Get("X-Request-Id"))
						}
						want1 := p.legs
						if q.Given && want1[0] == "render" {
							want1 = want1[1:] // ids need no rendering
						}
						if legs := r.legs(id); !slices.Equal(legs[:len(legs)-1], want1) { // the last is direct's
							t.Errorf("legs %v, want %v", legs[:len(legs)-1], want1)
						}
					})
				}
				r.settled()
				st := r.cluster.State()
				if st.ReusedHandoffs != 0 || st.FailedLoads != 0 || st.ExpiredLeases != 0 {
					t.Errorf("hand-offs went wrong: %+v", st)
				}
				if fetched := st.FetchedKV > 0; fetched != slices.Contains(p.legs, "prefill") {
					t.Errorf("%d hand-offs were fetched", st.FetchedKV)
				}
			})
		}
	}
}

// TestLegsOnTheWire holds whole legs against bodies written by hand from the
// contract: IDS is the prompt's token ids, HANDOFF the transfer params of
// prefill's answer with the two flags turned round.
func TestLegsOnTheWire(t *testing.T) {
	const nixl = `{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`
	tests := []struct {
		name, kv, path, body    string
		render, prefill, decode string
	}{
		{"chat", cluster.KVNixl, chatPath,
			`{ "model" : "demo-model","temperature":1.0,  "messages":[{"content":"hi \u0041","role":"user"}],"seed":9007199254740993,"stop":["z"],"stream":true,"stream_options":{"include_usage":true},"max_completion_tokens":7 }`,
			`{"model" : "demo-model","temperature":1.0,  "messages":[{"content":"hi \u0041","role":"user"}],"seed":9007199254740993,"stop":["z"],"stream":true,"stream_options":{"include_usage":true},"max_completion_tokens":7}`,
			`{"model" : "demo-model","temperature":1.0,  "messages":[{"content":"hi \u0041","role":"user"}],"seed":9007199254740993,"stream":false,"max_completion_tokens":1,"max_tokens":1,"ignore_eos":true,"tokens":{"token_ids":IDS},"kv_transfer_params":` + nixl + `}`,
			`{"model" : "demo-model","temperature":1.0,  "messages":[{"content":"hi \u0041","role":"user"}],"seed":9007199254740993,"stop":["z"],"stream":true,"stream_options":{"include_usage":true},"max_completion_tokens":7,"tokens":{"token_ids":IDS},"kv_transfer_params":HANDOFF}`,
		},
		{"completions", cluster.KVSharedStorage, completionsPath,
			`{"prompt":"hi A","model":"demo-model","max_tokens":5,"tokens":{"token_ids":[6]},"kv_transfer_params":{"remote_host":"evil"}}`,
			`{"prompt":"hi A","model":"demo-model","max_tokens":5}`,
			`{"prompt":IDS,"model":"demo-model","max_tokens":1,"ignore_eos":true,"stream":false,"request_id":"the-id","kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false}}`,
			`{"prompt":IDS,"model":"demo-model","max_tokens":5,"kv_transfer_params":{"do_remote_decode":false,"do_remote_prefill":true}}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, setup{kv: tt.kv})
			got := r.post(tt.path+"?a=b%20c&d", tt.body, "X-Request-Id", "the-id", "X-Custom", "1", "X-Custom", "2",
				"Authorization", "Bearer k", "x-prefiller-host-port", "evil:1", "EPP-Profile", "decode", "Accept-Encoding", "gzip")
			if got.status != http.StatusOK {
				t.Fatalf("%d %s", got.status, got.body)
			}
			r.settled()
			legs := r.cluster.Legs("the-id")
			if len(legs) != 3 {
				t.Fatalf("legs: %v", r.legs(""))
			}
			ids := r.idsOf(tt.path, legs[0].Body)
			handoff := strings.NewReplacer(`"do_remote_prefill":true`, `"do_remote_prefill":true`, `"do_remote_decode":true`, `"do_remote_decode":false`).
				Replace(string(legs[1].Handoff))
			for i, want := range []string{tt.render, tt.prefill, tt.decode} {
				want = strings.NewReplacer("IDS", ids, "HANDOFF", handoff).Replace(want)
				if body := string(legs[i].Body); body != want {
					t.Errorf("%s:\ngot  %s\nwant %s", legs[i].Name, body, want)
				}
				checkHeaders(t, legs[i], tt.path)
			}
		})
	}
}

func checkHeaders(t *testing.T, l cluster.Leg, path string) {
	t.Helper()
	want := map[string]string{"render": "", "prefill": "prefill", "decode": "decode"}[l.Name]
	if got := l.Header.Values("Epp-Profile"); strings.Join(got, ",") != want {
		t.Errorf("%s: EPP-Profile %q", l.Name, got)
	}
	if got := l.Header.Values("X-Custom"); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("%s: X-Custom %q", l.Name, got)
	}
	if got := l.Header.Get("Authorization"); got != "Bearer k" {
		t.Errorf("%s: Authorization %q", l.Name, got)
	}
	if l.Header["X-Prefiller-Host-Port"] != nil {
		t.Errorf("%s: a client's routing header got through", l.Name)
	}
	if got := l.Header.Get("Accept-Encoding"); (got != "") != (l.Name == "decode") {
		t.Errorf("%s: Accept-Encoding %q", l.Name, got)
	}
	wantPath, wantQuery := path, ""
	switch l.Name {
	case "render":
		wantPath += "/render"
	case "decode":
		wantQuery = "a=b%20c&d"
	}
	if l.Path != wantPath || l.Query != wantQuery || l.Method != http.MethodPost {
		t.Errorf("%s: %s %s?%s", l.Name, l.Method, l.Path, l.Query)
	}
}

// idsOf asks the cluster's render service for the token ids of a render leg's
// body.
func (r *rig) idsOf(path string, body []byte) string {
	r.t.Helper()
	return string(r.rendered(path, body)["token_ids"])
}

// rendered is what the cluster's render service answers to a render leg's body.
func (r *rig) rendered(path string, body []byte) (one map[string]json.RawMessage) {
	r.t.Helper()
	req, _ := http.NewRequestWithContext(within(r.t), http.MethodPost, r.cluster.URL()+path+"/render", strings.NewReader(string(body)))
	for name, value := range map[string]string{"Content-Type": "application/json", "X-Request-Id": "rendered", "X-Coordinator-Hop": "1"} {
		req.Header.Set(name, value)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	text = []byte(strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(string(text)), "["), "]"))
	if err := json.Unmarshal(text, &one); err != nil || len(one["token_ids"]) < len("[1]") {
		r.t.Fatalf("%v %s", err, text)
	}
	return one
}

func TestStreamsArriveChunkByChunk(t *testing.T) {
	r := newRig(t, setup{})
	gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtChunk, Chunk: 2})
	resp, err := r.open(within(t), chatPath, chatBody("one two three", true))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	buf := make([]byte, 4096)
	got := ""
	for strings.Count(got, "data: ") < 2 { // the worker has sent no more, and waits
		n, err := resp.Body.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got += string(buf[:n])
	}
	if err := gate.WaitFor(within(t), 1); err != nil || strings.Contains(got, "three") {
		t.Errorf("%v, got %q", err, got)
	}
	gate.Release()
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
		t.Errorf("%v %q", err, rest)
	}
	r.settled()
}
