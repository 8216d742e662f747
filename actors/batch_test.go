package actors

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/journal"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// batch is a request of n prompts.
func (rg *rig) batch(n int) *phases.Request {
	rg.t.Helper()
	body, err := wire.ParseBody(fmt.Appendf(nil, `{"prompt":["a"%s]}`, strings.Repeat(`,"b"`, n-1)))
	if err != nil {
		rg.t.Fatal(err)
	}
	prompts, err := wire.Completions.Singles(body, n)
	if err != nil {
		rg.t.Fatal(err)
	}
	return &phases.Request{ID: "batch", Protocol: wire.Completions, Body: body, Out: phases.NewResponse(), Journal: &journal.Journal{},
		Batch: phases.NewBatch(prompts)}
}

// TestClientThatLeavesWithAllOfABatch is no hang-up, whenever it is seen to have left:
// what counts is how the prompts have ended.
func TestClientThatLeavesWithAllOfABatch(t *testing.T) {
	reg := prometheus.NewRegistry()
	a := one("a", nothing)
	rg := setup{pools: roomyPools("a"), metrics: NewMetrics(reg)}.engine(t, a)
	ctx, leave := context.WithCancel(t.Context())
	const prompts = 3
	var ended atomic.Int32
	a.release = func(*phases.Request) []phases.Task { // each has its outcome, the batch does not
		if ended.Add(1) == prompts {
			leave()
		}
		return nil
	}
	r := rg.batch(prompts)
	if err := rg.Start(ctx, r); err != nil {
		t.Fatal(err)
	}
	rg.wantWell(r)
	if n := counter(t, reg, "llm_d_coordinator_disconnect_total"); n != 0 {
		t.Errorf("%v clients left", n)
	}
}

// TestClientThatLeavesABatch before one of its prompts is done: that is its outcome.
func TestClientThatLeavesABatch(t *testing.T) {
	reg := prometheus.NewRegistry()
	s, last := newSlow(), make(chan struct{})
	var ended atomic.Int32
	a := &fake{name: "a", plan: func(r *phases.Request) (phases.Plan, error) {
		run := nothing
		if r.ID == "batch-p1" {
			run = s.run
		}
		return phases.Plan{Tasks: []phases.Task{{Pool: "a", Run: run}}}, nil
	}, release: func(*phases.Request) []phases.Task {
		if ended.Add(1) == 2 {
			close(last)
		}
		return nil
	}}
	rg := setup{pools: roomyPools("a"), metrics: NewMetrics(reg)}.engine(t, a)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	r := rg.batch(3)
	if err := rg.Start(ctx, r); err != nil {
		t.Fatal(err)
	}
	take(t, s.began, "the second prompt")
	take(t, last, "the end of the others")
	leave()
	wantKind(t, rg.outcome(r), wire.Canceled)
	if n := counter(t, reg, "llm_d_coordinator_disconnect_total", "phase", "a"); n != 1 {
		t.Errorf("%v clients left", n)
	}
}

// TestPromptsOfBatchesAreCounted, of those that are let in.
func TestPromptsOfBatchesAreCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	rg := setup{pools: roomyPools("a"), inflight: 3, metrics: NewMetrics(reg)}.engine(t, one("a", nothing))
	rg.wantWell(rg.begin(t.Context())) // of one prompt
	for _, prompts := range []int{2, 3, 4} {
		r := rg.batch(prompts)
		switch err := rg.Start(t.Context(), r); {
		case prompts == 4:
			wantKind(t, err, wire.QueueFull)
		case err != nil:
			t.Error(err)
		default:
			rg.wantWell(r)
		}
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "llm_d_coordinator_batch_prompts" {
			h := f.GetMetric()[0].GetHistogram()
			if h.GetSampleCount() != 2 || h.GetSampleSum() != 5 || h.GetBucket()[0].GetUpperBound() != 2 || h.GetBucket()[0].GetCumulativeCount() != 1 {
				t.Errorf("%v", h)
			}
			return
		}
	}
	t.Error("there is no such metric")
}
