package assembly_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

const generatePath = "/inference/v1/generate"

// TestGenerateClients send token ids themselves: nothing is rendered, and
// workers of any age find the transfer params.
func TestGenerateClients(t *testing.T) {
	bodies := []struct{ name, body string }{
		{"plain", `{"model":"demo-model","token_ids":[1, 17,99999],"sampling_params":{"max_tokens":4,"stop":["x"],"n":1}}`},
		{"streamed", `{"token_ids":[1,17,99999],"stream":true,"stream_options":{"include_usage":true},"sampling_params":{"max_tokens":4}}`},
		{"extra args", `{"token_ids":[1,17,99999],"cache_salt":"s","sampling_params":{"max_tokens":4,"extra_args":{"mine":9007199254740993}}}`},
	}
	for _, kv := range []string{cluster.KVNixl, cluster.KVSharedStorage} {
		for _, workers := range []string{cluster.GenerateParamsOld, cluster.GenerateParamsNew, cluster.GenerateParamsChecked} {
			t.Run(kv+"/"+workers, func(t *testing.T) {
				r := newRig(t, setup{kv: kv, steps: wholeSteps, cluster: cluster.Options{GenerateParams: workers}})
				for i, b := range bodies {
					id := fmt.Sprintf("id-%d", i)
					got := r.post(generatePath, b.body, "X-Request-Id", id)
					want := r.direct(generatePath, b.body, id)
					if got.status != http.StatusOK || got.body != want {
						t.Errorf("%s: got %d %s\nwant %s", b.name, got.status, got.body, want)
					}
					legs := r.legs(id)
					if !slices.Equal(legs[:len(legs)-1], []string{"prefill", "decode"}) {
						t.Errorf("%s: legs %v", b.name, legs)
					}
				}
				r.settled()
				if st := r.cluster.State(); st.FailedLoads+st.ReusedHandoffs != 0 || st.FetchedKV != len(bodies) {
					t.Errorf("%+v", st)
				}
			})
		}
	}
}

func TestBadGenerateBodiesReachNobody(t *testing.T) {
	r := newRig(t, setup{steps: prefillStep + decodeStep})
	for name, body := range map[string]string{
		"no ids":          `{"sampling_params":{}}`,
		"empty":           `{"token_ids":[]}`,
		"negative":        `{"token_ids":[-1]}`,
		"params":          `{"token_ids":[1],"sampling_params":[]}`,
		"content parts":   `{"token_ids":[1],"content_parts":[{"type":"image_url","url":"http://10.0.0.1"}]}`,
		"no placeholders": `{"token_ids":[1],"features":{"mm_hashes":{"image":["h"]}}}`,
		"beyond":          `{"token_ids":[1],"features":{"mm_hashes":{"image":["h"]},"mm_placeholders":{"image":[{"offset":1,"length":1}]}}}`,
		"lengths":         `{"token_ids":[1,2],"features":{"mm_hashes":{"image":["h","i"]},"mm_placeholders":{"image":[{"offset":1,"length":1}]}}}`,
		"modalities":      `{"token_ids":[1,2],"features":{"mm_hashes":{"image":["h"]},"mm_placeholders":{"image":[{"offset":1,"length":1}],"audio":[]}}}`,
	} {
		got := r.post(generatePath, body)
		if got.status != 400 {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	if legs := r.legs(""); len(legs) != 0 {
		t.Errorf("legs %v", legs)
	}
}

// TestRequestsThatCannotUseRemoteKVAreServedByDecodeAlone, and counted.
func TestRequestsThatCannotUseRemoteKVAreServedByDecodeAlone(t *testing.T) {
	r := newRig(t, setup{steps: probingSteps})
	tests := []struct{ path, body, reason string }{
		{chatPath, `{"model":"demo-model","n":2,"messages":[{"role":"user","content":"hi"}]}`, "n"},
		{completionsPath, `{"model":"demo-model","prompt":"hi","prompt_logprobs":0}`, "prompt_logprobs"},
		{completionsPath, `{"model":"demo-model","prompt":"hi","truncate_prompt_tokens":-1}`, "truncate_prompt_tokens"},
		{generatePath, `{"token_ids":[1,2],"sampling_params":{"n":2}}`, "n"},
	}
	for i, tt := range tests {
		id := fmt.Sprintf("id-%d", i)
		got := r.post(tt.path, tt.body, "X-Request-Id", id)
		if got.status != 200 {
			t.Errorf("%s: %d %s", tt.body, got.status, got.body)
		}
		legs := slices.DeleteFunc(r.legs(id), func(l string) bool { return l == "render" })
		if !slices.Equal(legs, []string{"decode"}) {
			t.Errorf("%s: legs %v", tt.body, legs)
		}
	}
	if n := r.metric(t, "llm_d_coordinator_remote_kv_bypassed_total"); n != float64(len(tests)) {
		t.Errorf("counted %v", n)
	}
	r.settled()
}
