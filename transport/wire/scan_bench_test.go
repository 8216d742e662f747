package wire

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// chatBody is a chat request of about size bytes: half of it text, half of it
// one inlined image.
func chatBody(size int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"model":"m","stream":true,"max_tokens":64,"temperature":0.7,"messages":[{"role":"system","content":"You are helpful."},{"role":"user","content":[{"type":"text","text":"%s"},{"type":"image_url","image_url":{"url":"data:image/png;base64,%s"}}]}]}`,
		strings.Repeat("lorem ipsum ", size/24), strings.Repeat("AwMD", size/8))
	return b.Bytes()
}

// tokenBody is a body whose weight is a token array.
func tokenBody(size int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"token_ids":[1`)
	for b.Len() < size {
		fmt.Fprintf(&b, ",%d", 1000+b.Len()%90000)
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

// BenchmarkScan compares our scanner with jsontext, which it was chosen over.
func BenchmarkScan(b *testing.B) {
	for _, size := range []int{1 << 10, 100 << 10, 20 << 20} {
		for name, body := range map[string][]byte{"chat": chatBody(size), "tokens": tokenBody(size)} {
			b.Run(fmt.Sprintf("%s/%dKB/ours", name, size>>10), func(b *testing.B) {
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					if err := Valid(body); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(fmt.Sprintf("%s/%dKB/jsontext", name, size>>10), func(b *testing.B) {
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					d := jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true))
					if err := d.SkipValue(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
