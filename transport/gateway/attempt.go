package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/llm-coordinator/coordinator/transport/journal"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

var (
	errTimeout        = errors.New("leg timed out")
	errAnswerTooLarge = errors.New("answer too large")
	errUnreadable     = errors.New("the answer could not be read")
	errEncoded        = errors.New("the answer has a Content-Encoding that was not asked for")
	errNoAnswer       = errors.New("the connection ended before any answer")
	errNoConnection   = errors.New("no connection could be made")
)

// ErrDeadConnection is in the chain of a fault whose leg went out on a reused
// connection that ended before any byte of an answer. It counts as a
// connection error: whether a worker had seen the leg is not known.
var ErrDeadConnection = errors.New("a reused connection was dead")

// attempt is one sending of a leg.
type attempt struct {
	u      *Upstream
	id     string // that it goes by
	path   string
	permit *Permit         // nil: nobody judges
	parent context.Context // the request's
	ctx    context.Context // parent, and the time-out
	cancel context.CancelCauseFunc
	timer  *time.Timer
	began  time.Time
	resp   *http.Response
	url    url.URL
	hooks  httptrace.ClientTrace
	flat   flatBody
	call   journal.Open

	connected, reused, answered atomic.Bool

	// idle bounds the pauses of a streamed answer, since when one lasts: nanoseconds
	// from began on, or 0 while nothing is waited for.
	idle  atomic.Int64
	since atomic.Int64
}

// send makes attempts until one succeeds or another is not worth making. use is
// given each that has response headers, and says how it failed, if it did.
func (u *Upstream) send(ctx context.Context, leg Leg, use func(*attempt) *failure) (sent Sent, err error) {
	if leg.Attempt == 0 {
		u.budget.leg()
	}
	for {
		a, fail := u.once(ctx, &leg, &sent, use)
		switch {
		case fail == nil:
			sent.last = nil
			return sent, nil
		case a == nil && fail.refused && sent.last != nil: // the breaker has opened since
			return sent, sent.last.fault
		case a == nil:
			return sent, fail.fault
		}
		sent.last = fail
		a.call.Failed(fail.why())
		if u.again(ctx, &leg, sent.Attempts, fail) {
			a.discard()
			a.end()
			continue
		}
		if fail.answered && ctx.Err() == nil {
			return sent, nil
		}
		a.end()
		if ctx.Err() != nil {
			return sent, ended(ctx)
		}
		return sent, fail.fault
	}
}

// once makes one attempt. It is nil if none was made; else it is to be ended by
// the caller if there is a failure, and by use if not.
func (u *Upstream) once(ctx context.Context, leg *Leg, sent *Sent, use func(*attempt) *failure) (a *attempt, fail *failure) {
	permit, err := u.take(leg)
	if err != nil {
		return nil, &failure{fault: wire.FaultOf(err), refused: true}
	}
	if leg.Fresh != nil {
		if err := leg.Fresh(); err != nil {
			permit.GiveBack()
			return nil, &failure{fault: wire.FaultOf(err)}
		}
	}
	a = u.begin(ctx, leg, permit)
	defer func() {
		if cause := recover(); cause != nil { // Body or Check may: a half-open breaker would wait for its permit for ever
			a.end()
			panic(cause)
		}
	}()
	if fail = a.try(leg, sent); fail == nil {
		fail = use(a)
	}
	return a, fail
}

// try sends the leg and returns when its response headers are there.
func (a *attempt) try(leg *Leg, sent *Sent) *failure {
	req := a.request(leg, leg.Attempt+sent.Attempts)
	a.permit.Sent()
	transport := a.u.origin.transport
	if leg.fresh {
		transport = a.u.origin.fresh
	}
	resp, err := transport.RoundTrip(req)
	sent.Attempts++
	if err == nil && resp.StatusCode < 200 { // 101, or a number that is no status
		resp.Body.Close()
		err = errUnreadable
	}
	if err != nil {
		sent.Reached = sent.Reached || a.connected.Load()
		if !a.gone() {
			a.permit.Fail()
		}
		return a.failed(err)
	}
	a.resp, sent.Status, sent.Header = resp, resp.StatusCode, resp.Header
	a.call.Answered(resp.StatusCode, time.Now())
	sent.Reached = sent.Reached || resp.StatusCode < 400 || resp.Header.Get(wire.HeaderDropReason) == ""
	switch {
	case leg.Hold && resp.StatusCode/100 == 2 && wire.IsEventStream(resp.Header):
	case leg.Spare && byWorker(resp) && resp.StatusCode >= 500:
	default:
		judge(a.permit, resp)
	}
	return nil
}

// gone reports whether the leg ended because what it was sent for did: its
// request, or a leg beside it. That says nothing of the upstream.
func (a *attempt) gone() bool { return a.parent.Err() != nil }

// take returns the permit for the next attempt.
func (u *Upstream) take(leg *Leg) (*Permit, error) {
	if leg.Unjudged {
		return nil, nil
	}
	if p := leg.Permit; p != nil {
		leg.Permit = nil
		return p, nil
	}
	return u.breaker.permit(leg.Trials)
}

// isBusy reports whether an answer says that there is no room for the leg now.
func isBusy(resp *http.Response) bool {
	return resp.StatusCode == http.StatusTooManyRequests ||
		resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get(wire.HeaderRetryAfter) != ""
}

// byWorker reports whether an answer is the failure of a worker that has seen the
// leg.
func byWorker(resp *http.Response) bool {
	return resp.StatusCode >= 400 && !isBusy(resp) && resp.Header.Get(wire.HeaderDropReason) == ""
}

// judge settles an attempt at its response headers. Load is not sickness: 429,
// and 503 that says when to come back, are no failures.
func judge(p *Permit, resp *http.Response) {
	if resp.StatusCode < 500 || isBusy(resp) {
		p.Succeed()
	} else {
		p.Fail()
	}
}

func (u *Upstream) begin(ctx context.Context, leg *Leg, permit *Permit) *attempt {
	a := &attempt{u: u, permit: permit, parent: ctx, began: time.Now()}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	a.timer = time.AfterFunc(cmp.Or(leg.Timeout, u.Timeout), a.ring)
	u.requests.Inc()
	return a
}

// ring ends the attempt because it took too long: to its answer, or for a pause
// in it. Between two pieces of an answer the timer is left running, and looks here
// how long the pause really is.
func (a *attempt) ring() {
	left := time.Duration(0)
	if idle := time.Duration(a.idle.Load()); idle > 0 {
		left = idle
		if since := a.since.Load(); since > 0 { // looked at once: the pause may end meanwhile
			left -= time.Since(a.began) - time.Duration(since)
		}
	}
	if left > 0 {
		a.timer.Reset(left)
		return
	}
	a.cancel(errTimeout)
}

// broke counts one more failure: the attempt broke after it had been judged.
func (a *attempt) broke() { a.permit.broke() }

// discardPatience is how long an answer that nobody wants is read.
const discardPatience = time.Second

// discard reads what little an answer that nobody wants may have, so that its
// connection can be used again. What does not come is not waited for until the
// leg's time-out: another attempt, or another phase, is waiting.
func (a *attempt) discard() {
	if a.resp != nil {
		a.timer.Reset(discardPatience)
		io.CopyN(io.Discard, a.resp.Body, maxErrorAnswer)
	}
}

// end frees what the attempt holds.
func (a *attempt) end() {
	a.call.End(time.Now())
	a.idle.Store(0) // if the timer rings just now, it is for the last time
	a.timer.Stop()
	a.cancel(nil)
	a.permit.GiveBack()
	if a.resp != nil {
		a.resp.Body.Close()
	}
}

// request builds the attempt's request. It has no GetBody: net/http would send
// a POST again by itself otherwise, past our own rules, if a client's header
// Idempotency-Key says that it may.
func (a *attempt) request(leg *Leg, n int) *http.Request {
	a.id, a.path = attemptID(leg.ID, n), leg.Path
	a.call = leg.note(a)
	payload := leg.Body(a.id)
	if a.tracing() {
		a.trace("leg", payload.Redacted())
	}
	a.url = a.u.origin.base
	a.url.Path, a.url.RawPath, a.url.RawQuery = leg.Path, leg.RawPath, leg.Query
	body := a.flat.of(payload)
	_, inPieces := body.(pieces)
	a.hooks = httptrace.ClientTrace{
		// net/http may take another connection if nothing was written on one.
		GetConn: func(string) { a.connected.Store(false); a.reused.Store(false) },
		GotConn: func(c httptrace.GotConnInfo) {
			a.reused.Store(c.Reused)
			a.connected.Store(true)
			if conn, ok := c.Conn.(*piecewise); ok {
				conn.take(inPieces)
			}
		},
		GotFirstResponseByte: func() { a.answered.Store(true) },
		WroteRequest:         a.flat.sent,
	}
	req := blank.WithContext(httptrace.WithClientTrace(a.ctx, &a.hooks))
	req.Method, req.URL, req.Host = cmp.Or(leg.Method, http.MethodPost), &a.url, a.url.Host
	req.Header, req.Body, req.ContentLength = a.header(leg, a.id), body, payload.Size()
	return req
}

// note has the journal know of an attempt.
func (leg *Leg) note(a *attempt) journal.Open {
	if leg.noted {
		leg.call = leg.call.Again(a.id, a.began)
	} else {
		leg.call, leg.noted = leg.Journal.Begin(a.u.Name, a.id, a.began), true
	}
	return leg.call
}

// blank is what every request begins with.
var blank = &http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}

// header adds to the client's headers what the coordinator says itself.
func (a *attempt) header(leg *Leg, id string) http.Header {
	h := make(http.Header, len(leg.Header)+len(a.u.origin.headers)+5)
	for name, values := range leg.Header {
		h[name] = values
	}
	if !leg.unread {
		delete(h, "Accept-Encoding")
	}
	a.u.origin.headers.addTo(h)
	one := [...]string{cmp.Or(leg.ContentType, "application/json"), id, "1", a.u.Profile}
	h["Content-Type"], h[wire.HeaderRequestID], h[wire.HeaderHop] = one[0:1:1], one[1:2:2], one[2:3:3]
	if a.u.ProfileHeader != "" {
		h[a.u.ProfileHeader] = one[3:4:4]
	}
	if leg.ContentType == NoContentType {
		delete(h, "Content-Type")
	}
	if leg.Journal != nil && leg.Journal.Trace.Ours {
		h["Traceparent"] = []string{leg.Journal.Trace.Traceparent(a.call.Span)}
		if leg.Journal.Trace.Parent == (journal.SpanID{}) {
			delete(h, "Tracestate") // it belongs to no trace, or to one that could not be read
		}
	}
	if leg.Prefer != "" {
		h["Prefer"] = []string{leg.Prefer}
	}
	if leg.Pin != "" {
		h[wire.HeaderPin] = []string{leg.Pin}
	}
	if h["User-Agent"] == nil {
		h["User-Agent"] = []string{""} // net/http would add its own name
	}
	return h
}

// ended is the fault of what was sent for a request that has ended.
func ended(ctx context.Context) *wire.Fault {
	cause := context.Cause(ctx)
	if f := (*wire.Fault)(nil); errors.As(cause, &f) {
		return f
	}
	return wire.Faultf(wire.Canceled, "the client left").Because(cause)
}

// failed says what an error of this attempt means, and whether another could do
// better. Its text holds nothing of an answer: net/http quotes malformed answers
// in its errors.
func (a *attempt) failed(err error) *failure {
	if a.parent.Err() != nil {
		return &failure{fault: ended(a.parent)}
	}
	if context.Cause(a.ctx) == errTimeout {
		return &failure{fault: wire.Faultf(wire.UpstreamTimeout, "%s took too long", a.u.Name), reason: reasonTimeout,
			unreached: !a.connected.Load()}
	}
	f := &failure{fault: wire.Faultf(wire.UpstreamFailed, "%s could not be reached or broke off", a.u.Name)}
	switch {
	case errors.Is(err, errAnswerTooLarge), errors.Is(err, errEncoded):
		f.fault.Because(err)
	case a.answered.Load():
		if isBroken(err) {
			f.fault.Because(io.ErrUnexpectedEOF)
			f.reason = reasonBroken
		} else {
			f.fault.Because(errUnreadable)
		}
	case !a.connected.Load():
		f.fault.Because(dialFailed(err))
		f.reason, f.unreached = reasonConnect, true
	case a.reused.Load() && !errors.As(err, new(streamReset)):
		f.fault.Because(ErrDeadConnection)
		f.reason = reasonDead
	default:
		f.fault.Because(noAnswer(err))
		f.reason = reasonBroken
	}
	return f
}

// isBroken reports whether an answer ended because its connection did. Else what
// came makes no sense.
func isBroken(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, new(net.Error)) || errors.As(err, new(streamReset))
}

// noAnswer says why a connection ended without an answer, if TLS did: what a
// server has against a client's certificate comes only after the handshake.
func noAnswer(err error) error {
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "remote error" {
		return fmt.Errorf("%w: %w", errNoAnswer, op)
	}
	return errNoAnswer
}

// dialFailed says why there is no connection, if the network did: that names
// addresses and nothing else.
func dialFailed(err error) error {
	if bad := (handshakeError{}); errors.As(err, &bad) {
		return fmt.Errorf("%w: %w", errNoConnection, bad)
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		return fmt.Errorf("%w: %w", errNoConnection, op)
	}
	return errNoConnection
}
