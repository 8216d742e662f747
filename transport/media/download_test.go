package media

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// image is a PNG of n bytes, more than 8.
func image(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(n)}).Read(b)
	copy(b, png)
	return b
}

// chunked spells a body as chunks of this size.
func chunked(body []byte, size int) string {
	var b strings.Builder
	for len(body) > 0 {
		n := min(size, len(body))
		fmt.Fprintf(&b, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	return b.String() + "0\r\n\r\n"
}

const head200 = "HTTP/1.1 200 OK\r\n"

// TestImagesArriveWhole, whatever their size and however they are sent.
func TestImagesArriveWhole(t *testing.T) {
	sizes := []int{9, 10, 11, 12, 13, 14, 15, 16, 1000, chunkSize - 1, chunkSize, chunkSize + 1, chunkSize + sniffed - 1, chunkSize + sniffed, chunkSize + sniffed + 1,
		2*chunkSize + sniffed, 100_000, 2_000_000}
	for _, n := range sizes {
		want := image(n)
		for how, answer := range map[string]string{
			"length":  head200 + "Content-Length: " + strconv.Itoa(n) + "\r\n\r\n" + string(want),
			"chunks":  head200 + "Transfer-Encoding: chunked\r\n\r\n" + chunked(want, 7777),
			"hang-up": head200 + "\r\n" + string(want),
			"1.0":     "HTTP/1.0 200 OK\r\n\r\n" + string(want),
		} {
			got, err := hosting(says(t, answer)).fetcher(t, func(s *Settings) { s.Allowed[wire.Image].MaxSize = 2_000_000 }).Fetch(t.Context(), wire.Image, "http://img.test/")
			if err != nil {
				t.Fatalf("%d bytes by %s: %v", n, how, err)
			}
			var uri string
			if err := json.Unmarshal(got, &uri); err != nil {
				t.Fatalf("%d bytes by %s: %v", n, how, err)
			}
			data, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(uri, "data:image/png;base64,"))
			if err != nil || !bytes.Equal(data, want) {
				t.Errorf("%d bytes by %s: other bytes (%v)", n, how, err)
			}
			if err := checkImage(got, int64(n)); err != nil {
				t.Errorf("%d bytes by %s: %v", n, how, err)
			}
			if how == "length" && cap(got) > len(got)+4096 { // what the allocator rounds up
				t.Errorf("%d bytes: %d of %d used", n, len(got), cap(got))
			}
		}
	}
}

// TestSizes around the limit. An image too large is given up early, and an
// origin that lies about it is caught.
func TestSizes(t *testing.T) {
	const limit = 100_000
	const large = "limit_exceeded"
	tests := []struct {
		name, answer string
		want         string // code, or "broken"; none: fine
		read         int    // the most that may have been taken from the origin
	}{
		{"length at the limit", head200 + "Content-Length: 100000\r\n\r\n" + string(image(limit)), "", 0},
		{"chunks at the limit", head200 + "Transfer-Encoding: chunked\r\n\r\n" + chunked(image(limit), 1000), "", 0},
		{"hang-up at the limit", head200 + "\r\n" + string(image(limit)), "", 0},
		{"length one over", head200 + "Content-Length: 100001\r\n\r\n" + string(image(limit+1)), large, 5000},
		{"length absurd", head200 + "Content-Length: 9223372036854775807\r\n\r\n" + string(image(10*limit)), large, 5000},
		{"chunks one over", head200 + "Transfer-Encoding: chunked\r\n\r\n" + chunked(image(limit+1), 1000), large, limit + 10_000},
		{"hang-up one over", head200 + "\r\n" + string(image(limit+1)), large, limit + 10_000},
		{"chunks far over", head200 + "Transfer-Encoding: chunked\r\n\r\n" + chunked(image(50*limit), 1000), large, limit + 10_000},
		{"one chunk far over", head200 + "Transfer-Encoding: chunked\r\n\r\n" + chunked(image(50*limit), 50*limit), large, limit + 10_000},
		{"no length far over", head200 + "\r\n" + string(image(50*limit)), large, limit + 10_000},
		{"longer than its length", head200 + "Content-Length: 8\r\n\r\n" + png + strings.Repeat("x", 50*limit), "", 10_000},
		{"far over and no image", head200 + "\r\n" + strings.Repeat("<html>", limit), "media_fetch_failed", 10_000},
		{"a long answer to a redirect", "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\n\r\n" + strings.Repeat("x", 50*limit), "media_fetch_failed", 10_000},
		{"headers far over", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-A: "+secret+"\r\n", 10*limit), "broken", 100_000},
		{"a long error", "HTTP/1.1 404 Not Found\r\n\r\n" + strings.Repeat("x", 50*limit), "media_fetch_failed", 10_000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			said := make(chan int, 1)
			w := hosting(raw(t, func(c *conn) {
				c.hear()
				c.say(tt.answer)
				c.Close()
				said <- c.said
			}))
			_, err := w.fetcher(t, func(s *Settings) { s.Allowed[wire.Image].MaxSize = limit }).Fetch(t.Context(), wire.Image, "http://img.test/")
			switch tt.want {
			case "":
				if err != nil {
					t.Error(err)
				}
			case large:
				wantFault(t, err, wire.LimitExceeded, large)
			case "broken":
				wantFault(t, err, wire.UpstreamFailed, "media_fetch_failed")
			default:
				wantFault(t, err, wire.BadRequest, tt.want)
			}
			if n := <-said; tt.read > 0 && n > tt.read {
				t.Errorf("%d bytes were read of %d", n, len(tt.answer))
			}
		})
	}
}

// TestTypes: the bytes decide.
func TestTypes(t *testing.T) {
	const padding = "0123456789abcdef"
	tests := []struct{ body, want string }{
		{"\xff\xd8\xff\xe0" + padding, "image/jpeg"},
		{"\xff\xd8\xff", "image/jpeg"},
		{png + padding, "image/png"},
		{"GIF87a" + padding, "image/gif"},
		{"GIF89a", "image/gif"},
		{"RIFF\x01\x02\x03\x04WEBPVP8 " + padding, "image/webp"},
		{"RIFF\x01\x02\x03\x04WEBP", "image/webp"},
		{"RIFF\x01\x02\x03\x04WAVEfmt ", ""},
		{"RIFF\x01\x02\x03\x04WEB", ""},
		{"\x89PNG\r\n\x1a", ""},
		{"\x89PNG\n\x1a\n" + padding, ""},
		{"GIF88a" + padding, ""},
		{"\xff\xd8", ""},
		{" " + png, ""},
		{"", ""},
		{"x", ""},
		{"<html>" + secret + "</html>", ""},
		{"<svg xmlns=\"http://www.w3.org/2000/svg\"/>", ""},
		{"BM" + padding, ""},
		{"II*\x00" + padding, ""},
		{"\x00\x00\x00\x1cftypavif" + padding, ""},
		{"%PDF-1.7" + padding, ""},
	}
	for _, tt := range tests {
		for _, claim := range []string{"", "image/png", "text/html", "application/octet-stream", "image/svg+xml; charset=x", "nonsense"} {
			w := hosting(says(t, head200+"Content-Type: "+claim+"\r\n\r\n"+tt.body))
			got, err := w.fetcher(t).Fetch(t.Context(), wire.Image, "http://img.test/")
			if tt.want == "" {
				wantFault(t, err, wire.BadRequest, "media_fetch_failed")
			} else if want := fmt.Sprintf(`"data:%s;base64,%s"`, tt.want, base64.StdEncoding.EncodeToString([]byte(tt.body))); err != nil || string(got) != want {
				t.Errorf("%q as %s: %s, %v, want %s", tt.body, claim, got, err, want)
			}
		}
	}
}

func TestEncodedAnswersAreRefused(t *testing.T) {
	for encoding, ok := range map[string]bool{"": true, "identity": true, " Identity ": true, "gzip": false, "br": false, "x": false, "identity, gzip": false} {
		w := hosting(says(t, head200+"Content-Encoding: "+encoding+"\r\n\r\n"+png))
		_, err := w.fetcher(t).Fetch(t.Context(), wire.Image, "http://img.test/")
		if !ok {
			wantFault(t, err, wire.BadRequest, "media_fetch_failed")
		} else if err != nil {
			t.Errorf("%q: %v", encoding, err)
		}
	}
}

// TestConcurrentDownloads of which each gets its own image.
func TestConcurrentDownloads(t *testing.T) {
	f := hosting(serve(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.RawQuery)
		w.Write(image(n))
	})).fetcher(t)
	var running sync.WaitGroup
	for i := range 50 {
		running.Go(func() {
			n := 5000 + 100*i
			got, err := f.Fetch(t.Context(), wire.Image, "http://img.test/?"+strconv.Itoa(n))
			if want := `"data:image/png;base64,` + base64.StdEncoding.EncodeToString(image(n)) + `"`; err != nil || string(got) != want {
				t.Errorf("%d: %v", n, err)
			}
		})
	}
	running.Wait()
}
