package phases

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/llm-coordinator/coordinator/transport/broker"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// codeCancelled is that of a request that was called off in the queue.
const codeCancelled = "CANCELLED"

// calledOff reports whether a result says only that its request was called off.
func calledOff(r *broker.Result) bool {
	return r != nil && !r.Malformed && r.Status == 0 && r.Code == codeCancelled
}

// noAnswer are the faults of results that are none, by their code; of all others
// QueuedFailed.
var noAnswer = map[string]wire.Kind{"GATE_DROPPED": wire.QueuedDropped, "DEADLINE_EXCEEDED": wire.QueuedTooLate,
	codeInvalid: wire.BadRequest, codeCancelled: wire.QueuedCalledOff}

// failures are codes that brokers have besides: others are counted as one.
var failures = []string{"GATE_ERROR", "INFERENCE_ERROR", "PAYLOAD_UNAVAILABLE"}

// itemOf is the answer that a result is. A status that ends no exchange is as good
// as none.
func itemOf(r *broker.Result) Item {
	if r.Malformed || r.Status != 0 && (r.Status < 200 || r.Status > 599) {
		f := wire.Faultf(wire.QueuedFailed, "the result of the queued request makes no sense")
		f.Code = "MALFORMED_RESULT"
		return Item{Fault: f}
	}
	if r.Status == 0 {
		return Item{Fault: faultOf(r)}
	}
	it := Item{Head: &Head{Status: r.Status, Header: http.Header{
		"Content-Type": {"application/json"}, "X-Content-Type-Options": {"nosniff"}}}}
	if bodiless(r.Status) {
		return it
	}
	// With its length the client knows that it has all, though what is done for it
	// afterwards takes its time.
	it.Head.Header["Content-Length"] = []string{strconv.Itoa(len(r.Payload))}
	if len(r.Payload) > 0 {
		it.Chunk = chunkOf(r.Payload)
	}
	return it
}

// faultOf is what a client is told if there is no answer, in the broker's words.
func faultOf(r *broker.Result) *wire.Fault {
	kind, known := noAnswer[r.Code]
	if !known {
		kind = wire.QueuedFailed
	}
	f := wire.Faultf(kind, "the queued request has failed")
	if r.Message != "" {
		f.Message, f.Quoted = r.Message, true
	}
	if f.Code = r.Code; !known && !slices.Contains(failures, r.Code) {
		f.Label = "other"
	}
	return f
}

// answer goes on with a result.
func (a *async) answer(result *broker.Result) Verdict {
	a.result, a.stage, a.outcome = result, answering, "answered"
	if result.Status == 0 || result.Malformed {
		a.outcome = "no_answer"
	}
	return nextStage
}

// written is the result of an answer that the client has been sent.
type written struct{}

// planAnswer sends a result out, and waits until it is written: only then may it
// be deleted where it came from.
func planAnswer(r *Request, result *broker.Result) (Plan, error) {
	if err := r.Memory.Charge(int64(len(result.Payload))); err != nil {
		return Plan{}, err
	}
	out, a, it := r.Out, r.async, itemOf(result)
	return Plan{Tasks: []Task{{Await: func(ctx context.Context, wake func(Result, error)) {
		it.Wrote = func() {
			a.written.Store(true)
			wake(written{}, nil)
		}
		if err := out.Send(ctx, it); err != nil { // nothing else has been sent: there is room
			wake(nil, err)
		}
	}}}}, nil
}

// pending tells the client that its request is in the queue.
func (a *async) pending(r *Request) (Verdict, error) {
	a.outcome = "pending"
	return Done, r.Out.Send(context.Background(), pendingItem(a.key.ID))
}

// pendingItem is the answer for a request that is in the queue. Its id needs no
// escapes.
func pendingItem(id string) Item {
	body := []byte(`{"id":"` + id + `","status":"pending"}`)
	return Item{Head: &Head{Status: http.StatusAccepted, Header: http.Header{"Content-Type": {"application/json"},
		"Content-Length": {strconv.Itoa(len(body))}}}, Chunk: chunkOf(body)}
}
