package assembly_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// TestBytesInFlightAreBounded: over the limit a request gets 429, whatever holds
// the bytes, and every way out gives them back.
func TestBytesInFlightAreBounded(t *testing.T) {
	long := func(n int) string { return chatBody(strings.Repeat("x", n), false) }
	r := newRig(t, setup{ec: cluster.ECNixl, tokensIn: true, steps: strings.Replace(wholeSteps, "max_download_size = 8", "max_download_size = 9", 1),
		toml: "[actors]\nmax_inflight_size = 8\n", cluster: cluster.Options{TensorBytes: 1 << 20}})
	gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Prefill, At: cluster.AtHeaders})
	first := make(chan response)
	go func() { first <- r.post(chatPath, long(4<<20)) }() // holds 4 MB
	if err := gate.WaitFor(within(t), 1); err != nil {
		t.Fatal(err)
	}
	held := r.Memory.Used()
	if held < 4<<20 || held > 6<<20 {
		t.Errorf("%d bytes are charged", held)
	}
	refused := func(what, body string) {
		t.Helper()
		got := r.post(chatPath, body)
		if o := readError(t, got.body); got.status != http.StatusTooManyRequests || o.Error.Code != "queue_full" || got.header.Get("Retry-After") != "1" {
			t.Errorf("%s: %d %s", what, got.status, got.body)
		}
	}
	refused("a body", long(6<<20))
	image := func(n int) string {
		return fmt.Sprintf(`{"model":"demo-model","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":%q}}]}]}`,
			r.cluster.ImageURL("image.png", cluster.ImageOptions{Bytes: n}))
	}
	refused("an image", image(5<<20))
	gate.Release()
	if got := <-first; got.status != 200 {
		t.Errorf("%d %.200s", got.status, got.body)
	}
	r.settled()
	if used := r.Memory.Used(); used != 0 {
		t.Errorf("%d bytes are still charged", used)
	}
	// Tensors are kept for prefill, and charged until the request ends.
	gate = r.cluster.Hold(cluster.Gate{Leg: cluster.Prefill, At: cluster.AtHeaders})
	go func() { first <- r.post(chatPath, image(1000)) }()
	if err := gate.WaitFor(within(t), 1); err != nil {
		t.Fatal(err)
	}
	if used := r.Memory.Used(); used < 1<<20 {
		t.Errorf("only %d bytes are charged for a tensor of a megabyte", used)
	}
	gate.Release()
	if got := <-first; got.status != 200 {
		t.Errorf("%d %.200s", got.status, got.body)
	}
	r.settled()
	if used := r.Memory.Used(); used != 0 {
		t.Errorf("%d bytes are still charged", used)
	}
	if n := r.metric(t, "llm_d_coordinator_inflight_bytes_refused_total"); n != 2 {
		t.Errorf("%v refused", n)
	}
}

// TestBytesComeBackFromManyAtOnce of which some are refused and some leave.
func TestBytesComeBackFromManyAtOnce(t *testing.T) {
	r := newRig(t, setup{steps: wholeSteps, toml: "[actors]\nmax_inflight_size = 4\n"})
	var wg sync.WaitGroup
	statuses := make(chan int, 40)
	for i := range 40 {
		wg.Go(func() {
			body := fmt.Sprintf(`{"model":"demo-model","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":%q}}]}]}`,
				dataURI(picture(byte(i), 300<<10)))
			statuses <- r.post(chatPath, body).status
		})
	}
	wg.Wait()
	close(statuses)
	for s := range statuses {
		if s != 200 && s != 429 {
			t.Errorf("status %d", s)
		}
	}
	r.settled()
	if used := r.Memory.Used(); used != 0 {
		t.Errorf("%d bytes are still charged", used)
	}
}

// TestStreamsHoldNoPrompts: once its answer is on its way a request gives back
// what it was charged for.
func TestStreamsHoldNoPrompts(t *testing.T) {
	for name, s := range map[string]setup{
		"chat":      {steps: wholeSteps, tokensIn: true, cluster: cluster.Options{TensorBytes: 1 << 20}},
		"decode":    {steps: decodeStep, kv: cluster.KVSharedStorage},
		"condition": {steps: renderStep + conditionalStep + prefillStep + decodeStep},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, s)
			gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtChunk, Chunk: 2})
			answers := make(chan response)
			body := fmt.Sprintf(`{"model":"demo-model","stream":true,"messages":[{"role":"user","content":[{"type":"text","text":%q},{"type":"image_url","image_url":{"url":%q}}]}]}`,
				strings.Repeat("x", 1<<20), dataURI(picture(1, 300<<10)))
			go func() { answers <- r.post(chatPath, body) }()
			if err := gate.WaitFor(within(t), 1); err != nil {
				t.Fatal(err)
			}
			r.eventually("everything is given back", func() bool { return r.Memory.Used() == 0 })
			if n := r.Engine.Status().Inflight; n != 1 {
				t.Errorf("%d requests are in flight", n)
			}
			gate.Release()
			if got := <-answers; got.status != http.StatusOK || !strings.Contains(got.body, "[DONE]") {
				t.Errorf("%d %.200s", got.status, got.body)
			}
			r.settled()
		})
	}
}
