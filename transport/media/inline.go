package media

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// chunkSize is read at a time; a multiple of 3, so that base64 pads nothing in
// between.
const chunkSize = 24 << 10

// inline makes a data URI in a JSON string of an answer. It encodes as it
// reads, so that the medium is in memory once.
func (d *download) inline(resp *http.Response) ([]byte, error) {
	if f := d.refusal(resp); f != nil {
		return nil, f
	}
	body := io.LimitReader(resp.Body, d.allowed.MaxSize)
	chunk := make([]byte, chunkSize)
	n, err := fill(body, chunk[:sniffed])
	if err != nil && err != io.EOF {
		return nil, d.fault(err)
	}
	kind := sniff(d.allowed.Modality, chunk[:n])
	if !slices.Contains(d.allowed.Types, kind) {
		return nil, d.refuse("it is none of %s", enumerated(d.allowed.Types))
	}
	out := newBuffer(d.memory, `"data:`+kind+`;base64,`, resp.ContentLength)
	for {
		if full := out.encode(chunk[:n]); full != nil {
			return nil, full
		}
		if err != nil {
			break
		}
		n, err = fill(body, chunk)
		if err != nil && err != io.EOF {
			return nil, d.fault(err)
		}
	}
	if err := d.atEnd(resp.Body); err != nil {
		return nil, err
	}
	return out.finish()
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
	if resp.ContentLength > d.allowed.MaxSize {
		return d.tooLarge()
	}
	return nil
}

// atEnd reports what is behind a medium of the greatest size: nothing, if all
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
