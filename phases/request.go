package phases

import (
	"net/http"
	"time"

	"github.com/llm-coordinator/coordinator/transport/budget"
	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/journal"
	"github.com/llm-coordinator/coordinator/transport/media"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// Request is everything known of one request, from its arrival to its end. It
// keeps three things apart: what came in, what each phase found out, and the
// way out.
//
// It belongs to its supervisor: only Plan, Join and their like, which the
// supervisor calls, may read or write it; tasks must not.
type Request struct {
	// What came in. It is never changed, but for Header, which is replaced.

	ID       string // X-Request-Id, the client's or ours
	Protocol *wire.Protocol
	Body     *wire.Body  // without what a client may not send
	Header   http.Header // those that go on every leg
	Query    string      // raw
	Model    string
	Prompt   wire.Prompt
	Received time.Time
	// Tenant is whom the request is for: places are shared fairly among tenants.
	Tenant string
	// Deadline is when the first byte of the answer must be there; zero is no
	// limit.
	Deadline time.Time
	// LocalKV, if set, is why the request cannot use a KV that another worker
	// has computed: decode alone serves it. Render sets it too, for a request that
	// it could not render and need not.
	LocalKV string

	// Passed is what came in on a route that does not run through the pipeline, or nil.
	Passed *Passed
	// Queued names the queued request that a call is about, or nil.
	Queued *Queued
	// Batch is set if the request has several prompts, or is one of a request that
	// has; nil: it has one.
	Batch *Batch

	Stream        bool
	NamedByClient bool // ID is the client's own

	// How it is served.

	// Aside: the request will be answered by the phase that said so at the door,
	// which takes nothing of what the others need. It does not count among those
	// in flight, whose bound is for decode's sake, but among those that wait.
	Aside bool
	// What has been counted, once per request.
	fellBack, bypassed bool
	// Reruns is how often it was started again from an earlier phase: once at most, and
	// each prompt of a batch once.
	Reruns uint16

	// What each phase found out: written by the phase alone, anew if it is run
	// again.

	Fetched   Fetched
	Rendered  Rendered
	Encoded   Encoded
	Prefilled Prefilled
	Decoded   Decoded

	// Memory is charged for what the request holds.
	Memory *budget.Account

	// Out is the way out.
	Out *Response

	// Journal is what happened when; nil records nothing. Tasks may write it.
	Journal *journal.Journal

	// forwarded is what answers have said that later legs carry, nil: nothing.
	forwarded *forwarded
	// async is how the request stands with async-broker, nil: not at all.
	async *async

	// decodePermit is the right to send decode, taken with its place.
	decodePermit *gateway.Permit
	// worker is what an earlier answer called the request's prefill worker, or nil.
	worker *string
	// fetching is what replace-media-urls has under way, images what it has got:
	// they stay charged until their seats are left.
	fetching *fetching
	images   media.Seats
}

// keep has what the request is charged with stay charged until done is called,
// though the request ends before: for a task that outlives it. It is called once
// at most.
func (r *Request) keep() (done func()) {
	memory, images := r.Memory.Keep(), r.images
	r.images = nil
	return func() {
		images.Leave()
		memory()
	}
}

// bypass counts a request that decode alone serves.
func (r *Request) bypass(m *Metrics) {
	if !r.bypassed {
		r.bypassed = true
		m.bypassed.WithLabelValues(r.LocalKV).Inc()
		r.note("decode alone: " + r.LocalKV)
	}
}

// Passed is a call that is passed through.
type Passed struct {
	Method        string
	Path, RawPath string // unescaped, and as the client escaped it
	ContentType   string // "" is none
	Body          wire.Payload
	// Instead is why a request on a route of the pipeline is passed through; "" on
	// other routes.
	Instead string
}

// Queued is a call about a request that was put into a queue.
type Queued struct {
	Method string
	ID     string // that the request was put there by
}

// source is what legs are shaped from.
func (r *Request) source() wire.Source {
	return r.Protocol.Source(r.Body, r.Prompt, r.Fetched.Media, r.Rendered.Tokens)
}

// note adds what the request's log line says about a way that was not the one
// asked for.
func (r *Request) note(text string) { r.Journal.Note(text) }

// Fetched is what replace-media-urls found out.
type Fetched struct {
	// Media are the request's images, inlined; nil if there was nothing to do.
	Media *wire.Media
}

// Encoded is what encode found out.
type Encoded struct {
	// Descriptors are those of all images, by hash, or nil.
	Descriptors wire.Text
}

// Rendered is what render found out.
type Rendered struct {
	Tokens wire.Tokens
}

// Prefilled is what prefill found out.
type Prefilled struct {
	// Ran: there was a prefill, and decode is told so.
	Ran bool
	// cached is how many tokens of the prompt it says it had cached, and one more; 0
	// is that it does not say, or was not asked.
	cached int32
	// Handoff is what decode is told, made of the answer; nil is no hand-off.
	Handoff *wire.Transfers
	// At is when the answer came.
	At time.Time
	// Attempts counts the legs sent, over all runs.
	Attempts int
}

// Decoded is what decode found out.
type Decoded struct {
	// Status of the answer; 0 if there was none.
	Status int
	// Attempts counts the legs sent, over all runs.
	Attempts int
	// reached is set by decode's task once a worker may have the hand-off.
	reached *handoffState
}

// trials are what its legs share with those of the other parts of a batch.
func (r *Request) trials() *gateway.Trials {
	if r.Batch == nil || r.Batch.merge == nil {
		return nil
	}
	return &r.Batch.merge.trials
}

// LetGo drops what came in and what was made of it, and gives its bytes back:
// the answer is on its way, and nothing will be sent again. An answer may take
// minutes, which a long prompt or large images need not lie in memory for. What
// only a release could need is kept if there is going to be one.
func (r *Request) LetGo() {
	if r.unread() != nil {
		return
	}
	r.Body, r.Prompt, r.Passed = nil, wire.Prompt{}, nil
	r.Fetched, r.Rendered, r.Encoded, r.Prefilled.Handoff = Fetched{}, Rendered{}, Encoded{}, nil
	r.images.Leave()
	r.images = nil
	if r.Batch.letsGo() {
		r.Memory.Empty()
	}
}

// Close gives back what the request still holds. The supervisor calls it once,
// when all tasks are home.
func (r *Request) Close() {
	r.decodePermit.GiveBack()
	r.decodePermit = nil
	r.fetching.leave()
	r.fetching = nil
	r.images.Leave()
	r.images = nil
}
