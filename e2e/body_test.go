package e2e_test

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// TestABodyOf20MB comes to every worker as it was, and is no more than the gateway
// lets through, from the client and from the coordinator.
func TestABodyOf20MB(t *testing.T) {
	image := append([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"), bytes.Repeat([]byte("pixels"), 15_000_000/6)...) // a third more as base64
	inlined := "data:image/png;base64," + base64.StdEncoding.EncodeToString(image)
	body := `{"model":"demo-model","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"` + inlined + `"}},{"type":"text","text":"what is it"}]}]}`
	want := cluster.ReplyWithImages("what is it", cluster.ImageHash(image))
	behindEach(t, func(t *testing.T, g gateway) {
		f := startFleet(t, g, plan{})
		got := f.post(chatPath, body, "X-Request-Id", "the-id")
		if got.err != nil || got.status != http.StatusOK || !strings.Contains(got.body, want) {
			t.Fatalf("%d %v %.500s, want %s", got.status, got.err, got.body, want)
		}
		legs := f.legsOf("the-id")
		if got := strings.Join(names(legs), " "); got != "render encode prefill decode" {
			t.Errorf("legs %s", got)
		}
		for _, l := range legs {
			if len(l.Body) < 20_000_000 || !bytes.Contains(l.Body, []byte(inlined)) {
				t.Errorf("%s: %d bytes, without the image as it was sent", l.Name, len(l.Body))
			}
		}
		f.settled()
	})
}

// TestALargeAnswer comes whole: the prompt said back four times.
func TestALargeAnswer(t *testing.T) {
	prompt := strings.TrimSpace(strings.Repeat(strings.Repeat("x", 1000)+" ", 2500))
	body := `{"model":"demo-model","n":4,"prompt":"` + prompt + `"}`
	behindEach(t, func(t *testing.T, g gateway) {
		f := startFleet(t, g, plan{steps: decodeStep})
		got, want := f.post(completionsPath, body, "X-Request-Id", "the-id"), f.direct(completionsPath, body, "the-id")
		if len(want.body) < 10_000_000 || got.err != nil || got.status != http.StatusOK || got.body != want.body {
			t.Errorf("%d %v: %d bytes, want %d", got.status, got.err, len(got.body), len(want.body))
		}
		f.settled()
	})
}

// TestABodyThatIsTooLarge is refused by the coordinator, in words that clients
// understand.
func TestABodyThatIsTooLarge(t *testing.T) {
	body := `{"model":"demo-model","prompt":"` + strings.Repeat("a ", 3<<20) + `"}`
	behindEach(t, func(t *testing.T, g gateway) {
		f := startFleet(t, g, plan{server: "max_request_body_size = 2\n"})
		client := singleUse()
		for range 20 {
			if got := read(send(f.ctx, client, http.MethodPost, f.url+completionsPath, body)); got.status != http.StatusRequestEntityTooLarge || codeOf(got.body) != "request_too_large" {
				t.Errorf("%d %v %s", got.status, got.err, got.body)
			}
		}
		f.settled()
	})
}
