package wire

import (
	"strconv"
	"strings"
	"testing"
)

func TestUsage(t *testing.T) {
	for text, want := range map[string]int{
		``: 0,
		`{"choices":[],"usage":{"prompt_tokens":3,"total_tokens":10,"completion_tokens":7}}`:                                                                                                                7,
		`{"usage": {"completion_tokens": 12 , "x":1},"more":"` + strings.Repeat("x", 500) + `"}`:                                                                                                            12,
		"data: {\"usage\":null}\n\ndata: {\"usage\":{\"completion_tokens\":5}}\n\ndata: [DONE]\n\n":                                                                                                         5,
		"data: {\"usage\":{\"completion_tokens\":1}}\n\ndata: {\"usage\":{\"completion_tokens\":2}}\n\ndata: {\"usage\":null}\n\n":                                                                          2,
		`{"content":"\"usage\":{\"completion_tokens\":99}"}`:                                                                                                                                                0,
		`{"usage":{"input_tokens":36,"input_tokens_details":{"cached_tokens":0,"input_tokens_per_turn":[],"cached_tokens_per_turn":[]},"output_tokens":87,"output_tokens_details":{"reasoning_tokens":3}}}`: 87,
		`{"usage":{"prompt_tokens":3}}`:                        0,
		`{"usage":{"completion_tokens":12`:                     0, // cut off
		`{"usage":{"completion_tokens":null}}`:                 0,
		`{"usage":{"completion_tokens":99999999999999999999}}`: 0,
	} {
		for size := 1; size <= len(text)+1; size++ {
			var u Usage
			for rest := []byte(text); len(rest) > 0; {
				n := min(size, len(rest))
				u.Look(rest[:n])
				rest = rest[n:]
			}
			if got := u.Completion(); got != want {
				t.Errorf("%d, want %d, in pieces of %d: %s", got, want, size, text)
				break
			}
		}
	}
}

func BenchmarkUsage(b *testing.B) {
	chunk := []byte("data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word " + strconv.Itoa(1) + "\"}}],\"usage\":null}\n\n")
	b.ReportAllocs()
	var u Usage
	for b.Loop() {
		u.Look(chunk)
	}
}
