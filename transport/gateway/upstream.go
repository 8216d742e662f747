package gateway

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-coordinator/coordinator/transport/budget"
	"github.com/llm-coordinator/coordinator/transport/journal"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// UpstreamSettings describe one profile of an origin.
type UpstreamSettings struct {
	// Name is the profile's name: "prefill", "decode", "render".
	Name string
	// ProfileHeader, if set, is sent with every leg and holds Profile.
	ProfileHeader, Profile string
	// Timeout of an attempt: to its response headers, to the end of an answer
	// that is read whole, to the first bytes of a streamed one. More than 0.
	Timeout time.Duration
	// IdleTimeout is the longest pause in a streamed answer after its first
	// bytes; 0 is none.
	IdleTimeout time.Duration
	Breaker     BreakerSettings
	Retries     RetrySettings
	// Budget bounds the retries of all upstreams together; nil does not.
	Budget *RetryBudget
	// MaxAnswer is the size in bytes of the largest answer that is read whole; 0
	// is 256 MB.
	MaxAnswer int
	// Log shows, at wire.LevelTrace only, what is sent and what parsed answers
	// say, redacted; nil shows nothing.
	Log *slog.Logger
}

// Upstream sends the legs of one profile. It may be used by many goroutines.
type Upstream struct {
	UpstreamSettings
	origin   *Origin
	breaker  *breaker
	budget   *RetryBudget
	metrics  *Metrics
	requests prometheus.Counter
	duration prometheus.Observer
	// explained are the routes whose absence the operator was told of.
	explained sync.Map
}

// NewUpstream makes an upstream of an origin.
func NewUpstream(o *Origin, s UpstreamSettings, m *Metrics) *Upstream {
	s.ProfileHeader = http.CanonicalHeaderKey(s.ProfileHeader)
	s.MaxAnswer = cmp.Or(s.MaxAnswer, maxAnswer)
	return &Upstream{
		UpstreamSettings: s,
		origin:           o,
		breaker:          newBreaker(s.Name, s.Breaker, m),
		budget:           s.Budget,
		metrics:          m,
		requests:         m.requests.WithLabelValues(s.Name),
		duration:         m.duration.WithLabelValues(s.Name),
	}
}

// Address returns the base URL that legs go to.
func (u *Upstream) Address() string { return u.origin.base.String() }

// Ready returns nil if the breaker would let an attempt pass now, else a fault
// of kind Unavailable. It takes no permit.
func (u *Upstream) Ready() error { return u.breaker.ready() }

// Permit takes the right to send one attempt of a request, ahead of sending it. The
// error is a fault of kind Unavailable.
func (u *Upstream) Permit(t *Trials) (*Permit, error) { return u.breaker.permit(t) }

// BreakerState names the state of the breaker: closed, half-open, open, or
// disabled.
func (u *Upstream) BreakerState() string { return u.breaker.state() }

// HalfOpenIn returns how long an open breaker lets nothing pass yet; 0 if it is not
// open.
func (u *Upstream) HalfOpenIn() time.Duration { return u.breaker.stillOpen() }

// Leg is one call to an upstream.
type Leg struct {
	// Method; "" is POST.
	Method string
	Path   string // unescaped
	// RawPath, if set, is Path as the client has escaped it.
	RawPath string
	Query   string // raw, without "?"
	// ContentType; "" is application/json.
	ContentType string
	// Header holds the client's headers that are forwarded. It is not changed.
	Header http.Header
	// ID is the request's id; the n-th attempt goes by <id>-r<n> for n > 0.
	ID string
	// Attempt counts the attempts that this leg has had before, in an earlier
	// run of its phase, or for another worker. A leg that has had some adds nothing to
	// the retry budget: it is a retry, which was taken from it.
	Attempt int
	// Body builds the body of an attempt, which goes by this id. It is built
	// anew for each, so that connectors can mint ids per attempt.
	Body func(id string) wire.Payload
	// Prefer, if set, is sent as the header Prefer.
	Prefer string
	// Pin, if set, is the address and port of the worker that the gateway is to
	// send it to.
	Pin string
	// Timeout, if set, is used instead of the upstream's.
	Timeout time.Duration
	// Permit, if set, is used for the first attempt instead of a new one.
	Permit *Permit
	// Trials, if set, are shared with the legs beside it.
	Trials *Trials
	// Resend says after which failures it may be sent again.
	Resend Resend
	// Deadline, if it is not zero, is when there is no use in another attempt.
	Deadline time.Time
	// Fresh, if set, is asked before each attempt: an error means that it must not
	// be made any more, and is the leg's.
	Fresh func() error
	// Hold leaves a streamed answer to be judged by who reads it: by Succeed or
	// Fail of the answer.
	Hold bool
	// Memory is charged for an answer that is read whole: with the capacity of
	// the slice that Call returns. Nil charges nothing.
	Memory *budget.Account
	// Check, if set, tells whether an answer that was read whole can be used. An
	// error fails the leg, and counts against the upstream; its text holds nothing
	// of the answer.
	Check func(answer []byte) error
	// Scratch has the answer thrown away when Check has seen it: Call returns none,
	// and Check may keep nothing of it.
	Scratch bool
	// Cut, if it is not 0, shortens the strings of an answer that is read whole to
	// so many bytes as they arrive: see wire.Cutter.
	Cut int
	// Journal, if set, records each attempt.
	Journal *journal.Journal
	// Unjudged leaves the breaker out: the leg passes it and is not reported.
	Unjudged bool
	// Spare is for a leg that may fail because of what is in it, and whose caller
	// then sends another: what a worker answers is not held against the upstream
	// (see Sent.WorkerFailed, and Blame).
	Spare bool

	// unread: the answer goes to the client as it is, in an encoding that the
	// client has asked for.
	unread bool
	// fresh: it goes out on a connection that has not been used.
	fresh bool
	// call is the last attempt in the journal, if one is noted.
	call  journal.Open
	noted bool
}

// NoContentType is the ContentType of a leg that has none.
const NoContentType = "none"

// attemptID is the request id of an attempt.
func attemptID(id string, n int) string {
	if n == 0 {
		return id
	}
	return id + "-r" + strconv.Itoa(n)
}

// Answers that are read whole are held in memory, errors are read only so that
// their connection can be used again.
const (
	maxAnswer      = 256 << 20
	maxErrorAnswer = 8 << 10
)

// Sent says what became of a leg on its way out.
type Sent struct {
	// Attempts is how many were made.
	Attempts int
	// Reached: for at least one of them a connection was there, and no answer in
	// which the gateway says that it dropped the leg: a worker may have seen it.
	Reached bool
	// Status and Header are those of the last answer; zero if there was none.
	Status int
	Header http.Header

	last *failure
}

// Reason names what another attempt could do better at than the last one, whose
// failure was an error or an answer that was passed on; "" is nothing.
func (s *Sent) Reason() string {
	if s.last == nil {
		return ""
	}
	return s.last.reason
}

// WorkerFailed reports whether the last attempt failed by the answer of a worker
// that has seen the leg, and did not turn it away for being busy: a leg that is
// shaped otherwise may do better.
func (s *Sent) WorkerFailed() bool { return s.last != nil && s.last.worker }

// Blame counts a failure against the upstream: that of a Spare leg that no other
// followed.
func (u *Upstream) Blame() {
	if u.breaker != nil {
		u.breaker.broke(u.breaker.era.Load())
	}
}

// Call sends a leg whose answer is read whole and must be 200, and returns the
// answer's body. Errors are *wire.Fault; they hold nothing of the body.
func (u *Upstream) Call(ctx context.Context, leg Leg) (body []byte, sent Sent, err error) {
	sent, err = u.send(ctx, leg, func(a *attempt) (fail *failure) {
		body, fail = a.whole(&leg)
		if fail == nil {
			u.duration.Observe(time.Since(a.began).Seconds())
			a.end()
		}
		return fail
	})
	return body, sent, err
}

// whole reads the answer of a leg that must be 200.
func (a *attempt) whole(leg *Leg) ([]byte, *failure) {
	u := a.u
	if a.resp.StatusCode != http.StatusOK {
		noRoute, fail := a.readError(), u.refusal(a.resp)
		if noRoute {
			fail.fault.Because(ErrNoRoute)
		}
		return nil, fail
	}
	if e := a.resp.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		a.broke()
		return nil, a.failed(errEncoded)
	}
	body, err := readAll(a.resp, u.MaxAnswer, leg)
	if f := (*wire.Fault)(nil); errors.As(err, &f) {
		return nil, &failure{fault: f} // there is no room for it here, which says nothing of the upstream
	}
	if err != nil {
		fail := a.failed(err)
		if !a.gone() {
			a.broke()
		}
		return nil, fail
	}
	if a.tracing() {
		a.trace("answer", wire.Redact(body))
	}
	if leg.Check != nil {
		if err := leg.Check(body); err != nil {
			leg.Memory.Refund(int64(cap(body)))
			if !leg.Spare {
				a.broke()
			}
			return nil, &failure{fault: wire.Faultf(wire.UpstreamFailed, "the answer of %s cannot be used", u.Name).Because(err), worker: true}
		}
	}
	if leg.Scratch {
		leg.Memory.Refund(int64(cap(body)))
		budget.Recycle(body)
		return nil, nil
	}
	return body, nil
}

// Open sends a leg whose answer goes to the client as it is, whatever its
// status, and returns once its headers are there. The caller must close the
// answer. Errors are *wire.Fault.
func (u *Upstream) Open(ctx context.Context, leg Leg) (answer *Answer, sent Sent, err error) {
	leg.unread = true
	sent, err = u.send(ctx, leg, func(a *attempt) *failure {
		u.duration.Observe(time.Since(a.began).Seconds())
		answer = &Answer{Status: a.resp.StatusCode, Header: a.resp.Header, attempt: a}
		if statusReason(a.resp.StatusCode) == "" {
			return nil
		}
		fail := u.refusal(a.resp)
		fail.answered = true
		return fail
	})
	if err != nil {
		return nil, sent, err
	}
	return answer, sent, nil
}

// refusal is the failure of an answer that should have been 200.
func (u *Upstream) refusal(resp *http.Response) *failure {
	f := wire.Faultf(wire.UpstreamFailed, "%s answered %d", u.Name, resp.StatusCode)
	if resp.StatusCode/100 == 4 {
		f.Kind, f.Status = wire.UpstreamRejected, resp.StatusCode
	}
	f.RetryAfter = resp.Header.Get(wire.HeaderRetryAfter)
	f.DropReason = resp.Header.Get(wire.HeaderDropReason)
	return &failure{fault: f, reason: statusReason(resp.StatusCode), unreached: f.DropReason != "", after: f.RetryAfter, worker: byWorker(resp)}
}

// readAll reads an answer of at most so many bytes, and charges what it holds.
func readAll(resp *http.Response, most int, leg *Leg) ([]byte, error) {
	promised, cut := resp.ContentLength, cutter{}
	if leg.Cut > 0 {
		cut.Cutter, promised = &wire.Cutter{Keep: leg.Cut}, min(promised, cutBlock)
	}
	make := budget.NewBuffer
	if leg.Scratch {
		make = budget.NewScratch
	}
	buf, err := make(leg.Memory, promised)
	if err != nil {
		return nil, err
	}
	for got := 0; ; {
		room, err := buf.Free()
		if err == nil {
			var n int
			n, err = resp.Body.Read(cut.room(room))
			got += n
			buf.Filled(cut.cut(room[:n]))
		}
		switch {
		case got > most:
			err = errAnswerTooLarge
		case err == io.EOF:
			return buf.Bytes(), nil
		}
		if err != nil {
			buf.Refund()
			return nil, err
		}
	}
}

// cutBlock is how much of an answer is read at a time while it is cut: what is
// dropped need not leave the cache.
const cutBlock = 64 << 10

// cutter is a wire.Cutter, or nothing.
type cutter struct{ *wire.Cutter }

func (c cutter) room(all []byte) []byte {
	if c.Cutter != nil && len(all) > cutBlock {
		return all[:cutBlock]
	}
	return all
}

func (c cutter) cut(text []byte) int {
	if c.Cutter != nil {
		return c.Cut(text)
	}
	return len(text)
}
