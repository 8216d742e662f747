package wire

import "bytes"

// ErrorEvents finds events in a running stream by which a worker says that it
// failed. It reads no JSON: an event that begins with an error begins like that
// with every worker. Its zero value stands at the start of a stream.
type ErrorEvents struct {
	// Typed: events of the stream say what they are in a line of their own. It is
	// set before anything is read.
	Typed bool

	tail [len(failedLine) - 1]byte // the last bytes of what was read before
	n    int
}

// What an event that is an error begins with, behind a line end: in any stream,
// and in one of typed events. Within JSON there is no line end.
const (
	errorEvent = "\ndata: {\"error\":"
	errorLine  = "\nevent: error"
	failedLine = "\nevent: response.failed"
)

// Found reports whether such an event begins in a chunk, or between it and the
// one before.
func (e *ErrorEvents) Found(chunk []byte) bool {
	if len(chunk) == 0 {
		return false
	}
	if e.n == 0 {
		e.n = copy(e.tail[:], "\n") // the start of the stream is the start of a line
	}
	found := e.begins(errorEvent, chunk) || e.Typed && (e.begins(errorLine, chunk) || e.begins(failedLine, chunk))
	e.keep(chunk)
	return found
}

// begins reports whether a mark ends in a chunk.
func (e *ErrorEvents) begins(mark string, chunk []byte) bool {
	var seam [2 * len(failedLine)]byte
	n := copy(seam[:], e.tail[max(0, e.n-len(mark)+1):e.n])
	n += copy(seam[n:], chunk[:min(len(chunk), len(mark)-1)])
	return bytes.Contains(seam[:n], []byte(mark)) || bytes.Contains(chunk, []byte(mark))
}

// keep keeps the last bytes, for the next seam.
func (e *ErrorEvents) keep(chunk []byte) {
	if len(chunk) >= len(e.tail) {
		e.n = copy(e.tail[:], chunk[len(chunk)-len(e.tail):])
		return
	}
	old := min(e.n, len(e.tail)-len(chunk))
	copy(e.tail[:], e.tail[e.n-old:e.n])
	e.n = old + copy(e.tail[old:], chunk)
}
