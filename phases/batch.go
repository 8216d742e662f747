package phases

import (
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/llm-coordinator/coordinator/transport/budget"
	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// Batch is how a request stands that has several prompts: it goes through the
// pipeline as so many requests, its parts, whose answers are merged into one. A
// request has a Batch if it is one, or is a part of one.
type Batch struct {
	// prompts are those of a request that is a batch. It is split by the engine, and
	// again if that has to start anew.
	prompts []wire.Single
	split   bool // they are requests of their own
	// merge is where the parts of a batch meet, part is this one; nil in the batch
	// itself.
	merge *merge
	part  int
	// begun: something of the answer to this part has been sent, or it is there as a
	// whole.
	begun atomic.Bool
}

// NewBatch makes the batch of a request with these prompts, of which there are two
// or more. The request's own prompt is the first, for those who ask of what kind it
// is.
func NewBatch(prompts []wire.Single) *Batch { return &Batch{prompts: prompts} }

// Len returns how many prompts a request has.
func (b *Batch) Len() int {
	if b == nil {
		return 1
	}
	return len(b.prompts)
}

// Split makes the parts of a batch: a request for each prompt, that shares the
// batch's way out, account and terms, and whose journal is part of the batch's. Parts
// belong to supervisors of their own. done gives back what is held of their answers;
// it is called when all parts have ended, or none is begun.
func (r *Request) Split() (parts []*Request, done func()) {
	header := r.Header
	if header["Accept-Encoding"] != nil { // their answers are read
		header = make(http.Header, len(r.Header))
		for name, values := range r.Header {
			if name != "Accept-Encoding" {
				header[name] = values
			}
		}
	}
	r.Batch.split = true
	n := len(r.Batch.prompts)
	m := &merge{out: r.Out, stream: r.Stream, choices: r.Protocol.Choices(r.Body), memory: r.Memory.Beside(), answers: make([][]byte, n)}
	m.open.Store(int32(n))
	m.holding.Store(int32(n))
	parts = make([]*Request, n)
	for i, single := range r.Batch.prompts {
		parts[i] = &Request{ID: wire.PartID(r.ID, i), NamedByClient: r.NamedByClient, Protocol: r.Protocol, Body: single.Body, Prompt: single.Prompt,
			Header: header, Query: r.Query, Model: r.Model, Received: r.Received, Tenant: r.Tenant, Deadline: r.Deadline, LocalKV: r.LocalKV,
			Stream: r.Stream, Memory: r.Memory, Out: r.Out, Journal: r.Journal.Part(), Batch: &Batch{merge: m, part: i}}
	}
	return parts, m.memory.Close
}

// letsGo reports whether a request that needs what came in no longer is the last
// that does.
func (b *Batch) letsGo() bool {
	switch {
	case b == nil:
		return true
	case b.merge == nil:
		b.prompts = nil
		return !b.split // else its parts need it
	}
	return b.merge.holding.Add(-1) == 0
}

// merge is where the answers to the prompts of a batch become one. Each part brings
// its own, as the task that has it: so a client that reads slowly slows all workers,
// and nothing is held but the event that each is at, or, of an answer that is not
// streamed, the answer. It may be used by many goroutines.
type merge struct {
	out     *Response
	stream  bool
	choices int // of each prompt
	// memory is charged for what is held of answers.
	memory *budget.Account
	trials gateway.Trials
	// open counts the parts whose answer is not there as a whole, holding those that
	// have not let go of what came in.
	open, holding atomic.Int32

	mu       sync.Mutex
	headSent bool
	answers  [][]byte   // whole, by their prompts
	names    wire.Names // of the first event
	usage    wire.Tally // of streams that have ended
	last     []byte     // the event that the usage is put into; nil: there was none
}

// isLast notes that the answer of a part is there, and reports whether it is the last.
func (b *Batch) isLast() bool {
	b.begun.Store(true)
	return b.merge.open.Add(-1) == 0
}
