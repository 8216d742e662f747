package gateway

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// flatSize is how large a body is at most that is copied into one piece. net/http
// knows such a reader, and sends it with the headers in one write, if both have
// room in its buffer. A larger one goes out by piecewise.
const flatSize = writeBuffer - 2<<10

// flatBody is the body of a leg in one piece, in a buffer that others use again
// when the leg is sent: the answer may stream for minutes after that.
type flatBody struct {
	reader bytes.Reader
	buffer *[]byte
}

var flatBuffers = sync.Pool{New: func() any { return new([]byte) }}

// of returns a payload as the body of a request.
func (f *flatBody) of(p wire.Payload) io.ReadCloser {
	switch {
	case p.Size() == 0:
		return http.NoBody // a GET with a body of no bytes is not a GET to everybody
	case p.Size() > flatSize:
		return p.Reader()
	}
	f.buffer = flatBuffers.Get().(*[]byte)
	*f.buffer = p.Append((*f.buffer)[:0])
	f.reader.Reset(*f.buffer)
	return io.NopCloser(&f.reader)
}

// sent is net/http's news that the leg has been written, by the goroutine that
// wrote it. The buffer of one that was not is left alone: somebody may read on.
func (f *flatBody) sent(wrote httptrace.WroteRequestInfo) {
	if f.buffer == nil || wrote.Err != nil || f.reader.Len() > 0 {
		return
	}
	f.reader.Reset(nil)
	flatBuffers.Put(f.buffer)
	f.buffer = nil
}
