package phases

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

const streamed = `{"model":"demo-model","stream":true,"max_tokens":4,"messages":[{"role":"user","content":"one two three four"}]}`

// openStream opens a stream of the simulated cluster, as decode's task has one.
func openStream(ctx context.Context, t *testing.T, b *bench) *gateway.Answer {
	t.Helper()
	answer, _, err := b.deps.Decode.Open(ctx, gateway.Leg{Path: wire.Chat.Path, ID: "the-id",
		Body: func(string) wire.Payload { return wire.NewPayload([]byte(streamed)) }})
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// outcome is how a task that ends later has ended.
type outcome struct {
	result Result
	err    error
}

// handOver relays a stream as a worker would, and returns what goes out, and how
// the task ends.
func handOver(ctx context.Context, t *testing.T, answer *gateway.Answer) (*Response, chan outcome) {
	t.Helper()
	out, ended := NewResponse(), make(chan outcome, 2) // more than one would show
	result, err := wayOut{out: out}.relay(ctx, answer, nil, "the result")
	later, ok := result.(Later)
	if err != nil || !ok {
		t.Fatalf("%v %v", result, err)
	}
	later(func(result Result, err error) { ended <- outcome{result, err} })
	return out, ended
}

func TestRestIsRelayedToItsEnd(t *testing.T) {
	b := newBench(t, cluster.KVNixl)
	out, ended := handOver(t.Context(), t, openStream(t.Context(), t, b))
	it := <-out.Items()
	if it.Head == nil || it.Head.Status != 200 || it.Chunk != nil || it.Rest == nil {
		t.Fatalf("%+v", it)
	}
	select {
	case end := <-ended:
		t.Fatalf("the task ended before its answer: %+v", end)
	default:
	}
	var text strings.Builder
	last := time.Now()
	if err := it.Rest.Relay(func(piece []byte, at time.Time) error {
		if at.Before(last) || len(piece) == 0 {
			t.Errorf("%d bytes at %v after %v", len(piece), at, last)
		}
		last = at
		text.Write(piece)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if end := <-ended; end.err != nil || end.result != "the result" {
		t.Errorf("%+v", end)
	}
	if !strings.HasSuffix(text.String(), "data: [DONE]\n\n") || !out.Active().Equal(time.Unix(0, last.UnixNano())) {
		t.Errorf("%v, %v, %q", out.Active(), last, text.String())
	}
}

// TestRestOfARequestThatEnds: the task ends though the client takes nothing, and
// nothing is read of the answer any more, which is closed.
func TestRestOfARequestThatEnds(t *testing.T) {
	b := newBench(t, cluster.KVNixl)
	left := errors.New("the client left")
	ctx, cancel := context.WithCancelCause(t.Context())
	out, ended := handOver(ctx, t, openStream(ctx, t, b))
	pieces := 0
	if err := (<-out.Items()).Rest.Relay(func([]byte, time.Time) error {
		pieces++
		cancel(left) // while the client takes its time
		if end := <-ended; !errors.Is(end.err, left) {
			t.Errorf("%+v", end)
		}
		return nil
	}); err != nil || pieces != 1 {
		t.Errorf("%v after %d pieces", err, pieces)
	}
	if len(ended) > 0 {
		t.Errorf("the task ended twice: %+v", <-ended)
	}
}

// TestRestThatNobodyTakes ends with its request, and one that waits for the next
// piece does.
func TestRestThatNobodyTakes(t *testing.T) {
	b := newBench(t, cluster.KVNixl)
	for name, take := range map[string]func(r *Rest, cancel func()){
		"not taken": func(_ *Rest, cancel func()) { cancel() },
		"waits": func(r *Rest, cancel func()) {
			relayed := make(chan error)
			go func() { relayed <- r.Relay(func([]byte, time.Time) error { return io.ErrShortWrite }) }()
			for r.mu.TryLock() { // until it reads
				r.mu.Unlock()
				runtime.Gosched()
			}
			cancel()
			if err := <-relayed; err != nil {
				t.Errorf("relayed: %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			gate := b.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtChunk, Chunk: 0})
			defer gate.Release()
			left := errors.New("the client left")
			ctx, cancel := context.WithCancelCause(t.Context())
			out, ended := handOver(ctx, t, openStream(ctx, t, b))
			take((<-out.Items()).Rest, func() { cancel(left) })
			if end := <-ended; end.err == nil {
				t.Errorf("%+v", end)
			}
		})
	}
}

// TestRestOfABrokenWrite is left to the end of its request.
func TestRestOfABrokenWrite(t *testing.T) {
	b := newBench(t, cluster.KVNixl)
	ctx, cancel := context.WithCancel(t.Context())
	out, ended := handOver(ctx, t, openStream(ctx, t, b))
	if err := (<-out.Items()).Rest.Relay(func([]byte, time.Time) error { return io.ErrClosedPipe }); err != io.ErrClosedPipe {
		t.Errorf("%v", err)
	}
	if len(ended) > 0 {
		t.Errorf("the task has ended: %+v", <-ended)
	}
	cancel()
	if end := <-ended; !errors.Is(end.err, context.Canceled) {
		t.Errorf("%+v", end)
	}
}

// TestAnAnswerThatIsThereIsOnePiece: one that says its length goes out whole, if it
// fits into a large chunk, though net/http has it in two reads; else what fits,
// and the rest in large pieces.
func TestAnAnswerThatIsThereIsOnePiece(t *testing.T) {
	body := ""
	up := reserving(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		io.WriteString(w, body)
	})
	for _, size := range []int{1, smallChunk + 1, 10 << 10, largeChunk - 1, largeChunk, largeChunk + 1, 5 * largeChunk} {
		body = strings.Repeat("x", size)
		out, answer := NewResponse(), opened(t, up)
		result, err := wayOut{out: out}.relay(t.Context(), answer, nil, "the result")
		if err != nil {
			t.Fatal(err)
		}
		later, more := result.(Later)
		if more {
			later(func(Result, error) {})
		}
		it := <-out.Items()
		if more != (size > largeChunk) || len(it.Chunk.Bytes()) != min(size, largeChunk) {
			t.Errorf("of %d bytes %d are in the first piece, and there is more: %t", size, len(it.Chunk.Bytes()), more)
		}
		it.Free()
		if !more {
			answer.Close()
			continue
		}
		left := size - largeChunk
		if err := it.Rest.Relay(func(piece []byte, _ time.Time) error {
			left -= len(piece)
			return nil
		}); err != nil || left != 0 {
			t.Errorf("of %d bytes %d did not come; %v", size, left, err)
		}
	}
}

// TestAStreamThatIsThere: of one whose beginning filled a small chunk the next piece
// is a large one.
func TestAStreamThatIsThere(t *testing.T) {
	body := strings.Repeat("data: {}\n\n", 3*smallChunk/10)
	up := reserving(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, body)
	})
	for held, first := range map[int]int{smallChunk: len(body), smallChunk - 1: smallChunk} {
		out := NewResponse()
		result, err := wayOut{out: out}.relay(t.Context(), opened(t, up), []byte(strings.Repeat(" ", held)), "the result")
		if err != nil {
			t.Fatal(err)
		}
		result.(Later)(func(Result, error) {})
		var pieces []int
		if err := (<-out.Items()).Rest.Relay(func(piece []byte, _ time.Time) error {
			pieces = append(pieces, len(piece))
			return nil
		}); err != nil || pieces[0] != first {
			t.Errorf("%d bytes held, pieces of %d bytes, want %d at first; %v", held, pieces, first, err)
		}
	}
}

// opened is an answer of an upstream.
func opened(t *testing.T, up *gateway.Upstream) *gateway.Answer {
	t.Helper()
	answer, _, err := up.Open(t.Context(), gateway.Leg{Path: "/", Body: func(string) wire.Payload { return wire.NewPayload(nil) }})
	if err != nil {
		t.Fatal(err)
	}
	return answer
}
