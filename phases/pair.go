package phases

import (
	"context"
	"sync"
	"time"

	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// pair is one attempt at a prefill and a decode that run together. Two tasks share
// it, and it is what they know of each other:
//
//   - Prefill's finds the worker and begins the exchange; decode's waits for that.
//   - The first to fail decides: the other is ended, and says nothing of its own,
//     so that its error, which the end of its partner may be all the reason for,
//     hides no other. If that is prefill, decode's answer is broken off.
//   - Once decode has answered with an error, which goes to the client, or to its
//     end, it does not matter any more what becomes of prefill.
//
// What of it outlasts the sending of the legs is its fate.
type pair struct {
	*prefillDecode
	*fate
	worker      string // as find has it
	pushed      bool   // it has been sent the embeddings of the request's images
	rerun       string // the step from which the request can start again
	prefillLeg  gateway.Leg
	prefillBody func(id string, told wire.Transfers) wire.Payload
	asking      func(id string) wire.Payload // as prefilling's
	decoding    *decoding

	told    chan struct{} // closed when handoff is there
	handoff wire.Transfers
}

// fate is what has been decided of a pair. It holds nothing of the request: decode's
// stream keeps it to its end. A nil fate is no prefill beside decode.
type fate struct {
	mu         sync.Mutex
	decided    decided
	endPrefill context.CancelFunc // nil until it runs, and again when it has ended
	endDecode  context.CancelFunc
	patience   *time.Timer // until prefill is ended
}

// decided is which leg's outcome counts.
type decided uint8

const (
	undecided     decided = iota
	prefillFailed         // before decode did
	decodeStands          // prefill's does not count
)

// besideDecode is the result of prefill's task: "" is well, else what became of it
// though decode's answer was good.
type besideDecode string

const (
	ignoredFailure besideDecode = "failed"
	ignoredCut     besideDecode = "cut" // it had not ended in time
)

// errDropped is decode's, which prefill's failure has ended: it is not seen.
var errDropped = wire.Faultf(wire.UpstreamFailed, "prefill failed")

// runPrefill is prefill's task.
func (x *pair) runPrefill(parent context.Context) (Result, error) {
	ctx, end := context.WithCancel(parent)
	defer end()
	if !x.enter(&x.endPrefill, end, decodeStands) {
		return besideDecode(""), nil
	}
	at, fail := x.locate(ctx)
	if fail == nil {
		fail = x.send(ctx, at)
	}
	x.mu.Lock()
	ignored, cut := x.decided == decodeStands, x.patience != nil
	if !ignored && fail != nil {
		x.decided = prefillFailed
	}
	if x.patience != nil {
		x.patience.Stop()
	}
	x.endPrefill = nil
	endDecode := x.endDecode
	x.mu.Unlock()
	switch {
	case fail == nil:
		return besideDecode(""), nil
	case ignored:
		return whyIgnored(cut && parent.Err() == nil, ctx), nil
	case endDecode != nil:
		endDecode()
	}
	return nil, x.worthAgain(parent, fail)
}

// send begins the exchange with a worker, and sends it the leg.
func (x *pair) send(ctx context.Context, at endpoint) *lost {
	exchange := x.kv.Begin(at.peer)
	told, handoff := exchange.Prefill(), exchange.Decode(nil)
	x.handoff = handoff
	close(x.told)
	leg := x.prefillLeg
	leg.Pin, leg.Body = at.pin, func(id string) wire.Payload { return x.prefillBody(id, told) }
	_, sent, err := x.prefill.Call(ctx, leg)
	state := x.decoding.state
	state.prefills.Store(int32(sent.Attempts))
	if err != nil {
		return &lost{err, rerunReason(&sent), wire.FaultOf(err).RetryAfter}
	}
	if x.kv.Pins() && handoff.HandOff() {
		state.kept.Store(&Prefilled{Ran: true, At: time.Now(), Handoff: &handoff})
	}
	return nil
}

// locate finds the worker, if the connector needs to know it, and anew if what its
// engine is called is not known. One that has been pushed something is the only one
// that will do: the request has to start again for another.
func (x *pair) locate(ctx context.Context) (endpoint, *lost) {
	for tries := 1; ; tries++ {
		at, err := x.find(ctx, tries)
		if err != nil {
			return at, &lost{err: err}
		}
		at.peer, err = identified(ctx, x.engines, at.peer, x.needs, x.decoding.spent || tries > 1)
		switch {
		case err == nil:
			return at, nil
		case x.pushed:
			return at, &lost{err: err, reason: lostEngine}
		case !x.prefill.Retry(ctx, tries, lostEngine, "", x.prefillLeg.Deadline):
			return at, &lost{err: err}
		}
	}
}

func (x *pair) find(ctx context.Context, tries int) (endpoint, error) {
	switch {
	case x.pushed:
		return x.boot.given(x.worker)
	case x.boot == nil:
		return endpoint{}, nil
	}
	leg := x.prefillLeg
	leg.Attempt += tries - 1
	leg.Body = x.asking
	return x.boot.find(ctx, x.worker, leg)
}

// whyIgnored says what became of a prefill that failed when it did not matter. It
// is nothing to speak of if decode's answer was none that needed it, or its client
// has left with it.
func whyIgnored(good bool, ctx context.Context) besideDecode {
	switch {
	case !good:
		return ""
	case ctx.Err() != nil:
		return ignoredCut
	}
	return ignoredFailure
}

// worthAgain says what a failed prefill makes of the request: nothing of decode has
// come to the client, and another attempt could do better.
func (x *pair) worthAgain(ctx context.Context, fail *lost) error {
	if fail.reason == "" || x.decoding.spent || x.decoding.way.begun() ||
		!x.prefill.Retry(ctx, 1, fail.reason, fail.after, x.prefillLeg.Deadline) {
		return fail.err
	}
	return &again{x.rerun, fail.reason, fail.err}
}

// runDecode is decode's task.
func (x *pair) runDecode(parent context.Context) (Result, error) {
	ctx, end := context.WithCancel(parent)
	if !x.enter(&x.endDecode, end, prefillFailed) {
		end()
		return Decoded{}, nil
	}
	select {
	case <-x.told:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		end()
		return x.decodeEnded(nil, context.Cause(ctx))
	}
	result, err := x.decoding.run(ctx)
	later, ok := result.(Later)
	if !ok || err != nil {
		end()
		return x.decodeEnded(result, err)
	}
	fate := x.fate // the stream keeps it, and not the legs
	return Later(func(done func(Result, error)) {
		later(func(result Result, err error) {
			end()
			done(fate.decodeEnded(result, err))
		})
	}), nil
}

// enter notes how a task is ended. It reports false if the other has decided
// against it before it began.
func (x *fate) enter(how *context.CancelFunc, end context.CancelFunc, against decided) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	*how = end
	return x.decided != against
}

// decodeEnded decides, when decode has come to its end, unless prefill has.
func (x *fate) decodeEnded(result Result, err error) (Result, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.decided == prefillFailed:
		return Decoded{}, nil
	case err != nil:
		x.stand(0)
	case x.decided == undecided:
		x.stand(prefillPatience)
	}
	return result, err
}

// prefillPatience is how long a prefill may take to end once decode's answer has:
// it has handed over its KV long before, and all that is left is to say so.
const prefillPatience = time.Second

// stand has decode's outcome count, and prefill ended in so much time. The lock is
// held.
func (x *fate) stand(patience time.Duration) {
	x.decided = decodeStands
	switch {
	case x.endPrefill == nil: // it will not begin, or has ended
	case patience == 0:
		x.endPrefill()
	default:
		x.patience = time.AfterFunc(patience, x.endPrefill)
	}
}

// answered is told the status of decode's answer before anything of it is passed
// on. An error is that nothing may be.
func (x *fate) answered(status int) error {
	if x == nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.decided == prefillFailed {
		return errDropped
	}
	if status/100 != 2 && x.decided == undecided {
		x.stand(0)
	}
	return nil
}

// giveUp ends prefill because decode has failed. It reports false if prefill has
// before.
func (x *fate) giveUp() bool {
	if x == nil {
		return true
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.decided == undecided {
		x.stand(0)
	}
	return x.decided == decodeStands
}
