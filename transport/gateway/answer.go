package gateway

import (
	"io"
	"net/http"
	"time"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// Answer is an answer that is being streamed. It belongs to one goroutine.
type Answer struct {
	Status int
	Header http.Header

	attempt *attempt
	begun   bool
	passed  bool // on to a client
	reason  string
}

// Read reads what has arrived. The error is io.EOF at a clean end, else a
// *wire.Fault; a break has then been reported to the breaker.
//
// The idle clock runs only while something is waited for: a client that reads
// slowly is not the worker's fault.
func (a *Answer) Read(p []byte) (int, error) {
	t := a.attempt
	if a.begun && t.u.IdleTimeout > 0 {
		t.since.Store(max(1, int64(time.Since(t.began))))
	}
	n, err := t.resp.Body.Read(p)
	if n > 0 && !a.begun {
		a.begin(p[:n])
	}
	t.since.Store(0)
	if err == nil || err == io.EOF {
		return n, err
	}
	fail := t.failed(err)
	fault := fail.fault
	a.reason = fail.reason
	t.call.Failed(fail.why())
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

// begin notes the first bytes of the answer: from now on its pauses are bounded.
func (a *Answer) begin(first []byte) {
	a.begun = true
	t := a.attempt
	t.u.explainMissing(t.path, a.Status, first)
	t.timer.Stop()
	if idle := t.u.IdleTimeout; idle > 0 {
		t.idle.Store(int64(idle))
		t.timer.Reset(idle)
	}
}

// Reason names why the answer could not be read to its end, if another attempt could
// do better; else it is "".
func (a *Answer) Reason() string { return a.reason }

// Length is how many bytes the answer says that it has; -1 if it does not say.
func (a *Answer) Length() int64 { return a.attempt.resp.ContentLength }

// Limit is how many bytes of an answer are held here at most, by whoever has to read
// it whole.
func (a *Answer) Limit() int { return a.attempt.u.MaxAnswer }

// Succeed judges an answer that was held.
func (a *Answer) Succeed() { a.attempt.permit.Succeed() }

// Fail judges an answer that was held, or counts one more failure of one that
// has been judged.
func (a *Answer) Fail() {
	if p := a.attempt.permit; !p.settle(errFailure) {
		p.broke()
	}
}

// PassOn notes that some of the answer is about to go to a client: if it breaks from
// now on, that cannot be made good for, and is counted as a broken stream.
func (a *Answer) PassOn() { a.passed = true }

// Failed is Fail of an answer that broke off, and says why.
func (a *Answer) Failed(cause string) {
	a.Fail()
	a.attempt.call.Failed(cause)
	if a.passed {
		a.attempt.u.metrics.streamBroken.WithLabelValues(cause).Inc()
	}
}

// Discard reads what little an answer that nobody wants may have, so that its
// connection can be used again. Close it afterwards.
func (a *Answer) Discard() { a.attempt.discard() }

// Close frees the answer. Closing one that has not been read to its end breaks
// its connection, which tells the worker to stop.
func (a *Answer) Close() { a.attempt.end() }
