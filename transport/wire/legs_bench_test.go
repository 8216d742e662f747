package wire

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// BenchmarkLegs is what shaping the legs of a chat request costs, from the
// client's text to bodies that can be sent: the body is parsed once, and a render,
// a prefill and a decode leg are made of it.
func BenchmarkLegs(b *testing.B) {
	tokens := Tokens{IDs: []byte("[1" + strings.Repeat(",12345", 511) + "]"), Count: 512}
	kv := Raw(`{"do_remote_decode":true,"do_remote_prefill":false}`)
	for _, size := range []int{1 << 10, 100 << 10, 20 << 20} {
		text := chatBody(size)
		b.Run(fmt.Sprintf("%dKB", size>>10), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				body, err := ParseBody(text)
				if err != nil {
					b.Fatal(err)
				}
				body = Sanitize(body)
				prompt, err := Chat.Prompt(body)
				if err != nil {
					b.Fatal(err)
				}
				s := Chat.Source(body, prompt, nil, tokens)
				for _, leg := range []Payload{Chat.RenderLeg(s), Chat.PrefillLeg(s, OpenAI, "id", Transfers{KV: kv}), Chat.DecodeLeg(s, Transfers{KV: kv})} {
					if leg.Size() == 0 {
						b.Fatal("an empty leg")
					}
				}
			}
		})
	}
}

// BenchmarkPayload is what sending a leg costs here: small ones are put together,
// large ones are read piece by piece.
func BenchmarkPayload(b *testing.B) {
	for _, size := range []int{4 << 10, 1 << 20} {
		body, err := ParseBody(chatBody(size))
		if err != nil {
			b.Fatal(err)
		}
		leg := body.Edit().Payload()
		b.Run(fmt.Sprintf("%dKB", size>>10), func(b *testing.B) {
			b.SetBytes(leg.Size())
			b.ReportAllocs()
			for b.Loop() {
				if _, err := io.Copy(io.Discard, leg.Reader()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkParseRender is the answer of the render service: without media, and
// with a tensor that is dropped, or kept.
func BenchmarkParseRender(b *testing.B) {
	answer := func(tensor int) []byte {
		features := "null"
		if tensor > 0 {
			features = `{"mm_hashes":{"image":["aa"]},"mm_placeholders":{"image":[{"offset":3,"length":100}]},"kwargs_data":{"image":["` + strings.Repeat("A", tensor) + `"]}}`
		}
		return []byte(`{"request_id":"r","token_ids":[1` + strings.Repeat(",12345", 511) + `],"features":` + features + `}`)
	}
	for _, tt := range []struct {
		name   string
		answer []byte
		images int
		keep   bool
	}{{"text", answer(0), 0, false}, {"1MB dropped", answer(1 << 20), 1, false}, {"1MB kept", answer(1 << 20), 1, true}} {
		b.Run(tt.name, func(b *testing.B) {
			b.SetBytes(int64(len(tt.answer)))
			b.ReportAllocs()
			media := imagesOf(b, tt.images)
			for b.Loop() {
				if _, err := Chat.ParseRender(tt.answer, media, tt.keep); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCutter is the same answer, read in blocks, as its tensor is dropped.
func BenchmarkCutter(b *testing.B) {
	answer := []byte(`{"token_ids":[1` + strings.Repeat(",12345", 511) + `],"features":{"kwargs_data":{"image":["` + strings.Repeat("A", 1<<20) + `"]}}}`)
	block := make([]byte, 64<<10)
	b.SetBytes(int64(len(answer)))
	b.ReportAllocs()
	for b.Loop() {
		c := Cutter{Keep: 4096}
		for rest := answer; len(rest) > 0; {
			n := copy(block, rest)
			rest = rest[n:]
			c.Cut(block[:n])
		}
	}
}

// BenchmarkRequestHeaders is what a client's headers cost, once for each request.
func BenchmarkRequestHeaders(b *testing.B) {
	h := http.Header{}
	for i := range 12 {
		h[http.CanonicalHeaderKey(fmt.Sprintf("X-Header-%d", i))] = []string{"value"}
	}
	h["Connection"], h["Content-Type"], h["Prefer"] = []string{"keep-alive"}, []string{"application/json"}, []string{"x"}
	b.ReportAllocs()
	for b.Loop() {
		if len(RequestHeaders(h, "EPP-Profile")) != 12 {
			b.Fatal("headers are missing")
		}
	}
}

// BenchmarkStream is what looking at a stream costs for each event: for events
// that are errors, and for where one ends.
func BenchmarkStream(b *testing.B) {
	event := []byte(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}` + "\n\n")
	var failures ErrorEvents
	var boundary Boundary
	b.SetBytes(int64(len(event)))
	b.ReportAllocs()
	for b.Loop() {
		if failures.Found(event) {
			b.Fatal("no error")
		}
		boundary.Write(event)
	}
	if !bytes.Equal([]byte(boundary.Gap()), nil) {
		b.Fatal("inside an event")
	}
}
