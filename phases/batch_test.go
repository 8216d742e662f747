package phases

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/llm-coordinator/coordinator/connectors/kv"
	"github.com/llm-coordinator/coordinator/transport/budget"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// TestPromptWhoseAnswerIsThereIsNotStartedAgain though nothing of the batch's has gone
// out: its answer would count twice.
func TestPromptWhoseAnswerIsThereIsNotStartedAgain(t *testing.T) {
	b := newBench(t, "kv-sglang")
	b.deps.Prefill = reserving(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	b.deps.Decode = reserving(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"a","choices":[{"index":0,"text":"b"}]}`)
	})
	p := b.phase(NewPrefillDecode, `{"BootstrapFrom":"static:h"}`).(*prefillDecode)
	r := b.batch(`{"prompt":["one","two"]}`)
	parts, done := r.Split()
	defer done()
	for _, answered := range []bool{false, true} {
		x := p.begin(parts[0])
		if answered {
			if err := decoded(t, x); err != nil || r.Out.Begun() {
				t.Fatalf("%v, begun: %t", err, r.Out.Begun())
			}
		}
		a := (*again)(nil)
		if _, err := x.runPrefill(context.Background()); err == nil || errors.As(err, &a) == answered {
			t.Errorf("decode has answered: %t; prefill's failure is %v", answered, err)
		}
	}
}

// TestAnswerOfAPromptThatBreaksOffIsNotKept: the prompt may start again, and have
// another.
func TestAnswerOfAPromptThatBreaksOffIsNotKept(t *testing.T) {
	b := newBench(t, "kv-sglang")
	b.deps.Decode = reserving(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "10000")
		_, _ = io.WriteString(w, `{"id":"a",`)
	})
	p := b.phase(NewPrefillDecode, `{"BootstrapFrom":"static:h"}`).(*prefillDecode)
	r, all := b.batch(`{"prompt":["one","two"]}`), budget.New(1<<20)
	r.Memory = all.Open()
	parts, done := r.Split()
	defer done()
	if err := decoded(t, p.begin(parts[0])); err == nil || all.Used() != 0 {
		t.Errorf("%v, %d bytes are kept", err, all.Used())
	}
}

// decoded runs decode of a prompt to its end, and returns how its answer ended.
func decoded(t *testing.T, x *pair) error {
	t.Helper()
	x.handoff = x.kv.Begin(kv.Peer{}).Decode(nil) // as prefill's task would have
	result, err := x.decoding.run(context.Background())
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	result.(Later)(func(_ Result, err error) { ended <- err })
	return <-ended
}

// batch is a completions request of several prompts.
func (b *bench) batch(text string) *Request {
	b.t.Helper()
	body, err := wire.ParseBody([]byte(text))
	if err != nil {
		b.t.Fatal(err)
	}
	prompts, err := wire.Completions.Singles(body, 9)
	if err != nil {
		b.t.Fatal(err)
	}
	return &Request{ID: "the-id", Protocol: wire.Completions, Body: body, Header: http.Header{}, Out: NewResponse(), Batch: NewBatch(prompts)}
}
