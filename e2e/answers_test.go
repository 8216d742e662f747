package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/server/servertest"
)

// request is what a client sends, and the legs that come of it. In its body IMAGE
// is an image inlined, and LINK is one at the cluster's origin.
type request struct {
	name, path, body string
	legs             string // in alphabetical order, without a probe
}

// more are requests that need a pipeline with an encode step, or not the same legs
// as the others.
var more = []request{
	{"chat with images", chatPath, `{"model":"demo-model","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"IMAGE"}},{"type":"text","text":"which one"},{"type":"image_url","image_url":{"url":"LINK"}}]}]}`, "decode encode encode origin prefill render"},
	{"chat with an image, streamed", chatPath, `{"model":"demo-model","stream":true,"messages":[{"role":"user","content":[{"type":"text","text":"what is it"},{"type":"image_url","image_url":{"url":"LINK"}}]}]}`, "decode encode origin prefill render"},
	{"chat, two choices", chatPath, `{"model":"demo-model","n":2,"messages":[{"role":"user","content":"one or the other"}]}`, "decode render"},
	{"generate", generatePath, `{"model":"demo-model","token_ids":[1,18,99998],"sampling_params":{"max_tokens":4}}`, "decode prefill"},
	{"generate, streamed", generatePath, `{"model":"demo-model","token_ids":[1,19,99997],"stream":true,"sampling_params":{"max_tokens":4}}`, "decode prefill"},
}

// TestClientsGetWhatTheWorkerAnswers: every route, streamed and not, with images,
// by messages and by tokens, is answered byte for byte as by a decode worker.
func TestClientsGetWhatTheWorkerAnswers(t *testing.T) {
	behindEach(t, func(t *testing.T, g gateway) {
		for _, tokensIn := range []bool{false, true} {
			f := startFleet(t, g, plan{tokensIn: tokensIn})
			for i, r := range servertest.Requests {
				legs := "decode prefill render"
				if r.Given {
					legs = "decode prefill"
				}
				f.check(fmt.Sprintf("req-%d", i), request{r.Name, r.Path, r.Body, legs})
			}
			for i, r := range more {
				f.check(fmt.Sprintf("more-%d", i), r)
			}
			f.settled()
			f.everybodyServed()
		}
	})
}

// check sends a request and compares.
func (f *fleet) check(id string, r request) {
	f.t.Helper()
	inlined := cluster.DataURI("image.png", 3000)
	fill := func(link string) string { return strings.NewReplacer("IMAGE", inlined, "LINK", link).Replace(r.body) }
	got := f.post(r.path, fill(f.cluster.ImageURL(id+".png", cluster.ImageOptions{Bytes: 5000})), "X-Request-Id", id)
	if err := f.cluster.Wait(f.ctx, cluster.State.Idle); err != nil {
		f.t.Fatal(err)
	}
	var legs []string
	for _, l := range f.cluster.Legs("") {
		if l.RequestID == id || strings.HasSuffix(l.Path, id+".png") {
			legs = append(legs, l.Name)
		}
	}
	slices.Sort(legs)
	if strings.Join(legs, " ") != r.legs {
		f.t.Errorf("%s: legs %v, want %s", r.name, legs, r.legs)
	}
	want := f.direct(r.path, fill(cluster.DataURI(id+".png", 5000)), id)
	if got.err != nil || got.status != http.StatusOK || got.body != want.body {
		f.t.Errorf("%s: got %d %v %s\nwant %s", r.name, got.status, got.err, got.body, want.body)
	}
	for _, name := range []string{"Content-Type", "X-Request-Id"} {
		if wanted := map[string]string{"Content-Type": want.header.Get(name), "X-Request-Id": id}[name]; got.header.Get(name) != wanted {
			f.t.Errorf("%s: %s %q, want %q", r.name, name, got.header.Get(name), wanted)
		}
	}
}

// everybodyServed checks that the load was shared.
func (f *fleet) everybodyServed() {
	f.t.Helper()
	for role, workers := range f.workers {
		for i, w := range workers {
			if w.legs.Load() == 0 {
				f.t.Errorf("worker %d for %s got no leg", i+1, role)
			}
		}
	}
	for _, r := range f.replicas {
		if f.metric(r, "request_total") == 0 {
			f.t.Errorf("%s got no request", r.name)
		}
	}
}
