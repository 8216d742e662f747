package wire

import "bytes"

// ErrorEvents finds events in a running stream by which a worker says that it
// failed. It reads no other JSON: an event that begins with an error begins like that
// with every worker. One that refuses the request is none; what does not come in one
// piece is taken for a failure. Its zero value stands at the start of a stream.
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
	found := e.failed(errorEvent, chunk) || e.Typed && (e.failed(errorLine, chunk) || e.failed(failedLine, chunk))
	e.keep(chunk)
	return found
}

// failed reports whether a mark ends in a chunk, of an event that is a failure.
func (e *ErrorEvents) failed(mark string, chunk []byte) bool {
	var seam [2 * len(failedLine)]byte
	before := copy(seam[:], e.tail[max(0, e.n-len(mark)+1):e.n])
	n := before + copy(seam[before:], chunk[:min(len(chunk), len(mark)-1)])
	if i := bytes.Index(seam[:n], []byte(mark)); i >= 0 {
		if e.isFailure(append([]byte(mark[1:]), chunk[i+len(mark)-before:]...)) {
			return true
		}
	}
	for {
		i := bytes.Index(chunk, []byte(mark))
		if i < 0 {
			return false
		}
		if e.isFailure(chunk[i+1:]) {
			return true
		}
		chunk = chunk[i+len(mark):]
	}
}

// isFailure reports whether the event that a text begins with says that a worker
// failed, and not that it refuses the request.
func (e *ErrorEvents) isFailure(text []byte) bool {
	for _, blank := range [...]string{"\n\n", "\r\n\r\n"} {
		if i := bytes.Index(text, []byte(blank)); i >= 0 {
			text = text[:i]
		}
	}
	event := trim(EventData(text))
	if Valid(event) != nil || !IsObject(event) {
		return true
	}
	if failure := Lookup(event, "error"); !IsNull(failure) {
		return isServerError(failure)
	}
	return judgeTyped(event) == Failed
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
