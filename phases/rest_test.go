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

// TestAnAnswerThatIsThereIsOnePiece: of an answer that is not streamed more is
// there than a small chunk takes, and of a stream of which one was full. In small
// pieces each would go out by itself.
func TestAnAnswerThatIsThereIsOnePiece(t *testing.T) {
	body, kind := strings.Repeat("data: {}\n\n", 3*smallChunk/10), "application/json"
	up := reserving(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		io.WriteString(w, body)
	})
	open := func() *gateway.Answer {
		answer, _, err := up.Open(t.Context(), gateway.Leg{Path: "/", Body: func(string) wire.Payload { return wire.NewPayload(nil) }})
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	out := NewResponse()
	answer := open()
	result, err := wayOut{out: out}.relay(t.Context(), answer, nil, "the result")
	answer.Close()
	if _, later := result.(Later); later || err != nil {
		t.Fatalf("of a whole answer there is more to come; %v", err)
	}
	it := <-out.Items()
	if string(it.Chunk.Bytes()) != body {
		t.Errorf("%d bytes of %d", len(it.Chunk.Bytes()), len(body))
	}
	it.Free()
	kind = "text/event-stream"
	out = NewResponse()
	result, err = wayOut{out: out}.relay(t.Context(), open(), []byte(strings.Repeat(" ", smallChunk)), "the result")
	if err != nil {
		t.Fatal(err)
	}
	result.(Later)(func(Result, error) {})
	var pieces []int
	if err := (<-out.Items()).Rest.Relay(func(piece []byte, _ time.Time) error {
		pieces = append(pieces, len(piece))
		return nil
	}); err != nil || len(pieces) != 1 || pieces[0] != len(body) {
		t.Errorf("pieces of %d bytes, of %d; %v", pieces, len(body), err)
	}
}
