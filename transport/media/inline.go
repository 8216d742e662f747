package media

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

const (
	// chunkSize is read at a time; a multiple of 3, so that base64 pads nothing
	// in between.
	chunkSize = 24 << 10
	// ahead is how much memory a Content-Length is believed for.
	ahead = 1 << 20
)

// inline makes a data URI in a JSON string of an answer. It encodes as it
// reads, so that the image is in memory once.
func (d *download) inline(resp *http.Response) ([]byte, error) {
	if f := d.refusal(resp); f != nil {
		return nil, f
	}
	body := io.LimitReader(resp.Body, d.maxSize)
	chunk := make([]byte, chunkSize)
	n, err := fill(body, chunk[:sniffed])
	if err != nil && err != io.EOF {
		return nil, d.fault(err)
	}
	kind := sniff(chunk[:n])
	if kind == "" {
		return nil, d.notAnImage()
	}
	head := `"data:` + kind + `;base64,`
	out := buffer{whole: -1}
	if resp.ContentLength >= 0 {
		out.whole = len(head) + base64.StdEncoding.EncodedLen(int(resp.ContentLength)) + len(`"`)
	}
	out.add([]byte(head))
	out.encode(chunk[:n])
	for err == nil {
		n, err = fill(body, chunk)
		if err != nil && err != io.EOF {
			return nil, d.fault(err)
		}
		out.encode(chunk[:n])
	}
	if err := d.atEnd(resp.Body); err != nil {
		return nil, err
	}
	out.add([]byte(`"`))
	return out.data, nil
}

// refusal is the fault of an answer that is no good whatever its body, or nil.
func (d *download) refusal(resp *http.Response) *wire.Fault {
	switch status := resp.StatusCode; {
	case status < 200:
		return d.failed(wire.UpstreamFailed, "its origin broke off").Because(errBroke)
	case status >= 500:
		return d.failed(wire.UpstreamFailed, fmt.Sprintf("its origin answered %d", status))
	case status != http.StatusOK:
		return d.refuse("its origin answered %d", status)
	}
	for _, encoding := range resp.Header.Values("Content-Encoding") {
		if e := strings.TrimSpace(encoding); e != "" && !strings.EqualFold(e, "identity") {
			return d.refuse("its origin sent it in an encoding that was not asked for")
		}
	}
	if resp.ContentLength > d.maxSize {
		return d.tooLarge()
	}
	return nil
}

func (d *download) notAnImage() *wire.Fault {
	return d.refuse("it is no JPEG, PNG, GIF or WebP image")
}

// atEnd reports what is behind an image of the greatest size: nothing, if all
// is well.
func (d *download) atEnd(body io.Reader) error {
	var one [1]byte
	switch n, err := fill(body, one[:]); {
	case n > 0:
		return d.tooLarge()
	case err != io.EOF:
		return d.fault(err)
	}
	return nil
}

// fill reads until buf is full. The error is io.EOF only at the end of a whole
// body: io.ReadFull would make one error of that and of a broken connection.
func fill(r io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var k int
		k, err = r.Read(buf[n:])
		n += k
	}
	return n, err
}

// buffer is a data URI in the making.
type buffer struct {
	data  []byte
	whole int // its size at the end, if the origin told the truth; -1 if it told nothing
}

func (b *buffer) add(text []byte) {
	b.reserve(len(text))
	b.data = append(b.data, text...)
}

func (b *buffer) encode(image []byte) {
	b.reserve(base64.StdEncoding.EncodedLen(len(image)))
	b.data = base64.StdEncoding.AppendEncode(b.data, image)
}

// reserve makes room. It doubles from what an origin is believed for, and ends
// at the size that the origin said.
func (b *buffer) reserve(n int) {
	need := len(b.data) + n
	if need <= cap(b.data) {
		return
	}
	size := max(need, 2*cap(b.data), min(b.whole, ahead))
	if b.whole >= need {
		size = min(size, b.whole)
	}
	b.data = append(make([]byte, 0, size), b.data...)
}
