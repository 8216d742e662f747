package actors

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/budget"
	"github.com/llm-coordinator/coordinator/transport/journal"
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

// TestTaskThatEndsLaterHoldsNothing of what it was made of, nor does its request of
// what came in: it may last for minutes.
func TestTaskThatEndsLaterHoldsNothing(t *testing.T) {
	ends := make(chan func(phases.Result, error), 1)
	rg := engine(t, map[string]PoolSettings{"a": {Size: 1}}, &fake{name: "a", plan: func(r *phases.Request) (phases.Plan, error) {
		leg := r.Passed.Body
		return phases.Plan{Tasks: []phases.Task{{Pool: "a", Run: func(context.Context) (phases.Result, error) {
			if leg.Size() != 1<<20 {
				t.Errorf("a leg of %d bytes", leg.Size())
			}
			return phases.Later(func(done func(phases.Result, error)) { ends <- done }), nil
		}}}}, nil
	}})
	limit := budget.New(1 << 20)
	prompt := &[1 << 20]byte{}
	r := &phases.Request{ID: "long", Out: phases.NewResponse(), Journal: &journal.Journal{}, Memory: limit.Open(),
		Passed: &phases.Passed{Body: wire.NewPayload(prompt[:])}}
	if err := r.Memory.Charge(1 << 20); err != nil {
		t.Fatal(err)
	}
	held := weak.Make(prompt)
	prompt = nil
	if err := rg.Start(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	end := take(t, ends, "the task")
	eventually(t, "the prompt is collected while the task lasts", func() bool { runtime.GC(); return held.Value() == nil })
	if used := limit.Used(); used != 0 {
		t.Errorf("%d bytes are charged", used)
	}
	end(nil, nil)
	rg.wantWell(r)
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
