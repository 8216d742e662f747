package assembly_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// TestPromptIDsGoWithTheHandOff of a chat of text, and of nothing else: the
// cluster's decode compares them with the prompt.
func TestPromptIDsGoWithTheHandOff(t *testing.T) {
	const idsDecode = decodeStep + "params = { prompt_token_ids = true }\n"
	lost := &cluster.Fault{Leg: cluster.Decode, Status: 500, Times: 1}
	for _, tt := range []struct {
		name, path, body string
		steps            string
		fault            *cluster.Fault
		want             bool
	}{
		{name: "a chat", path: chatPath, body: chatBody("one two", false), want: true},
		{name: "a streamed chat", path: chatPath, body: chatBody("one two", true), want: true},
		{name: "a chat that runs again", path: chatPath, body: chatBody("one two", true), fault: lost, want: true},
		{name: "not asked for", path: chatPath, body: chatBody("one two", false), steps: wholeSteps},
		{name: "images", path: chatPath, body: imagesBody(dataURI(picture(1, 100)))},
		{name: "no hand-off", path: chatPath, body: chatBody("one two", false), fault: &cluster.Fault{Leg: cluster.Prefill, BadHandoff: json.RawMessage("null")}},
		{name: "decode alone", path: chatPath, body: strings.Replace(chatBody("one two", false), "{", `{"n":2,`, 1)},
		{name: "completions", path: completionsPath, body: `{"model":"demo-model","prompt":"one two"}`},
		{name: "generate", path: generatePath, body: `{"model":"demo-model","token_ids":[1,17,99999],"sampling_params":{"max_tokens":4}}`},
	} {
		connectors := []string{cluster.KVNixl, cluster.KVSharedStorage}
		if tt.fault != nil && tt.fault.BadHandoff != nil {
			connectors = connectors[:1] // the other needs no hand-off
		}
		for _, kv := range connectors {
			t.Run(fmt.Sprintf("%s, %s", tt.name, kv), func(t *testing.T) {
				steps := tt.steps
				if steps == "" {
					steps = mediaStep + renderStep + encodeStep + prefillStep + idsDecode
				}
				r := newRig(t, setup{kv: kv, steps: steps, toml: quick, cluster: cluster.Options{PromptIDs: true, Lease: byHand}})
				if tt.fault != nil {
					r.cluster.AddFault(*tt.fault)
				}
				if got := r.post(tt.path, tt.body, "X-Request-Id", "id"); got.status != http.StatusOK {
					t.Errorf("got %d %s", got.status, got.body)
				}
				r.settled()
				legs := r.cluster.Legs("id")
				for _, l := range legs {
					ids := ""
					if l.Name == cluster.Decode && tt.want {
						ids = `"prompt_token_ids":` + r.idsOf(tt.path, legs[0].Body)
					}
					if body := string(l.Body); strings.Contains(body, "prompt_token_ids") != (ids != "") || !strings.Contains(body, ids) {
						t.Errorf("%s: %s\nwant %q in it", l.Name, body, ids)
					}
				}
			})
		}
	}
}
