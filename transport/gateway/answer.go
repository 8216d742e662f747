package gateway

import (
	"io"
	"net/http"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// Answer is an answer that is being streamed. It belongs to one goroutine.
type Answer struct {
	Status int
	Header http.Header

	attempt *attempt
	begun   bool
}

// Read reads what has arrived. The error is io.EOF at a clean end, else a
// *wire.Fault; a break has then been reported to the breaker.
//
// The idle clock runs only while something is waited for: a client that reads
// slowly is not the worker's fault.
func (a *Answer) Read(p []byte) (int, error) {
	t := a.attempt
	idle := t.u.IdleTimeout
	if a.begun && idle > 0 {
		t.timer.Reset(idle)
	}
	n, err := t.resp.Body.Read(p)
	if n > 0 {
		if !a.begun {
			t.u.explainMissing(t.path, a.Status, p[:n])
		}
		t.timer.Stop()
		a.begun = true
	}
	if err == nil || err == io.EOF {
		return n, err
	}
	fault := t.failed(err).fault
	if t.gone() {
		return n, fault
	}
	cause := "upstream"
	if fault.Kind == wire.UpstreamTimeout {
		cause = "idle"
	}
	a.Failed(cause)
	return n, fault
}

// Succeed judges an answer that was held.
func (a *Answer) Succeed() { a.attempt.permit.Succeed() }

// Fail judges an answer that was held, or counts one more failure of one that
// has been judged.
func (a *Answer) Fail() {
	if p := a.attempt.permit; !p.settle(errFailure) {
		p.broke()
	}
}

// Failed is Fail of a stream that has begun, and counted with its cause.
func (a *Answer) Failed(cause string) {
	a.Fail()
	a.attempt.u.metrics.streamBroken.WithLabelValues(cause).Inc()
}

// Discard reads what little an answer that nobody wants may have, so that its
// connection can be used again. Close it afterwards.
func (a *Answer) Discard() { a.attempt.discard() }

// Close frees the answer. Closing one that has not been read to its end breaks
// its connection, which tells the worker to stop.
func (a *Answer) Close() { a.attempt.end() }
