package cluster

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
)

// longURI is from what length on a data URI is replaced by a stand-in. Shorter
// ones could be text that is to be said back.
const longURI = 64 << 10

// standInMark begins the data of a stand-in. No client knows it, and it is no
// base64.
var standInMark = "*" + rand.Text() + "*"

// withStandIns returns a body whose long data URIs are replaced by short ones that
// stand for the same bytes, and for no others. Reading megabytes of base64 once
// for each level of JSON around them would make tests wait, most of all under the
// race detector. Text that is no JSON stays none.
func withStandIns(body []byte) []byte {
	var short []byte
	copied, at := 0, 0
	for {
		start := bytes.IndexByte(body[at:], '"') + 1
		if start == 0 {
			break
		}
		start += at
		end := stringEnd(body, start)
		if end < 0 {
			break
		}
		if end-start >= longURI {
			if uri := standIn(body[start:end]); uri != "" {
				short = append(append(short, body[copied:start]...), uri...)
				copied = end
			}
		}
		at = end + 1
	}
	if copied == 0 {
		return body
	}
	return append(short, body[copied:]...)
}

// stringEnd is where the JSON string that starts here has its closing quote; less
// than 0 if it has none.
func stringEnd(text []byte, start int) int {
	for at := start; ; {
		n := bytes.IndexByte(text[at:], '"')
		if n < 0 {
			return -1
		}
		end := at + n
		escapes := len(text[start:end]) - len(bytes.TrimRight(text[start:end], `\`))
		if escapes%2 == 0 {
			return end
		}
		at = end + 1
	}
}

// standIn is the stand-in of a data URI; "" if the text is not one, or not in its
// only spelling.
func standIn(uri []byte) string {
	form, _, ok := bytes.Cut(uri[:min(len(uri), 200)], []byte(","))
	if !ok || !bytes.HasPrefix(form, []byte("data:")) || !bytes.HasSuffix(form, []byte(";base64")) {
		return ""
	}
	text := uri[len(form)+1:]
	if bytes.IndexByte(text, '\n') >= 0 || bytes.IndexByte(text, '\r') >= 0 {
		return "" // which the decoder would skip
	}
	data := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Strict().Decode(data, text)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s,%s%d*%x*%s", form, standInMark, n, data[:min(headSize, n)], ImageHash(data[:n]))
}

// readStandIn returns the size, the hash and the first of the bytes that a
// stand-in's data stand for.
func readStandIn(text string) (size int, hash string, head []byte, ok bool) {
	text, ok = strings.CutPrefix(text, standInMark)
	if ok {
		_, err := fmt.Sscanf(text, "%d*%x*%s", &size, &head, &hash)
		ok = err == nil
	}
	return size, hash, head, ok
}
