package wire

import (
	"bytes"
	"errors"
)

// WholeLeg is the body of a prefill or decode leg for workers that go on where the
// other has stopped, and so want the same request both: the client's with the
// prompt's tokens, and what the connectors tell.
func (p *Protocol) WholeLeg(s Source, t Transfers) Payload { return p.finish(s.edit(nil), s, t, false) }

var (
	errEventFailed = errors.New("an event of it is an error")
	errEventsCut   = errors.New("it ends without [DONE]")
)

// CheckEvents checks a stream of events that was read whole: whether it came to its
// end, and no event says that the worker failed. One that refuses the request is for
// decode's to say. A worker may also answer with one JSON object.
func CheckEvents(answer []byte) error {
	if IsObject(trim(answer)) {
		return CheckAnswer(answer)
	}
	var failed ErrorEvents
	if failed.Found(answer) {
		return errEventFailed
	}
	if !bytes.HasSuffix(trim(answer), []byte("data: [DONE]")) {
		return errEventsCut
	}
	return nil
}
