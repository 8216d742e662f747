package actors

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// TestTaskThatEndsLater keeps its place until it has ended, though its worker
// does nothing any more; then the place is the next one's.
func TestTaskThatEndsLater(t *testing.T) {
	ends := make(chan func(phases.Result, error), 1)
	rg := engine(t, map[string]PoolSettings{"a": {Size: 1, Queue: 1}}, one("a", func(context.Context) (phases.Result, error) {
		return phases.Later(func(done func(phases.Result, error)) { ends <- done }), nil
	}))
	for _, want := range []error{nil, errors.New("it broke")} {
		first := rg.begin(t.Context())
		end := take(t, ends, "the task")
		next := rg.begin(t.Context())
		rg.wantPool("a", 1, 1)
		end("a result", want)
		if err := rg.outcome(first); !errors.Is(err, want) {
			t.Errorf("outcome %v, want %v", err, want)
		}
		take(t, ends, "the next task")("a result", nil)
		if err := rg.outcome(next); err != nil {
			t.Error(err)
		}
		rg.wantPool("a", 0, 0)
	}
}

// TestTaskThatEndsLaterIsCancelled like any: its request ends when it does.
func TestTaskThatEndsLaterIsCancelled(t *testing.T) {
	ends := make(chan func(phases.Result, error), 1)
	gone := make(chan error, 1)
	rg := engine(t, map[string]PoolSettings{"a": {Size: 1, Queue: 1}}, one("a", func(ctx context.Context) (phases.Result, error) {
		return phases.Later(func(done func(phases.Result, error)) {
			context.AfterFunc(ctx, func() { gone <- context.Cause(ctx) })
			ends <- done
		}), nil
	}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	r := rg.begin(ctx)
	end := take(t, ends, "the task")
	cancel()
	if err := take(t, gone, "the news"); err == nil {
		t.Error("the task's context has ended without a cause")
	}
	select {
	case <-r.Out.Done():
		t.Error("the request has ended before its task")
	default:
	}
	end(nil, context.Cause(ctx))
	wantKind(t, rg.outcome(r), wire.Canceled)
}
