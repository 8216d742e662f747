package actors

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/llm-coordinator/coordinator/phases"
)

func TestGrowingServesThoseWhoWait(t *testing.T) {
	s := newSlow()
	rg := engine(t, map[string]PoolSettings{"a": {1, 9}, "x": {9, 9}}, one("a", s.run))
	var all []*phases.Request
	for range 4 {
		all = append(all, rg.begin(t.Context()))
	}
	rg.Swap(phases.PipelineOf(one("x", s.run, "a")))
	all = append(all, rg.begin(t.Context()))
	rg.wantPool("a", 1, 4)
	if err := rg.Resize("a", PoolSettings{Size: 9, Queue: 3}); err != nil {
		t.Fatal(err)
	}
	rg.wantPool("a", 5, 0)
	for range all {
		take(t, s.began, "a task")
	}
	if p := rg.pool("a"); p.Size != 9 || p.Queue != 3 {
		t.Errorf("bounds are %+v", p)
	}
	close(s.let)
	for _, r := range all {
		if err := rg.outcome(r); err != nil {
			t.Error(err)
		}
	}
}

func TestShrinkingLetsTheBusyFinish(t *testing.T) {
	s := newSlow()
	rg := engine(t, map[string]PoolSettings{"a": {4, 9}, "b": {4, 4}}, one("b", s.run, "a"), one("a", s.run))
	var all []*phases.Request
	for range 4 {
		all = append(all, rg.begin(t.Context()))
	}
	late := rg.begin(t.Context())
	rg.wantPool("a", 4, 1)
	if err := rg.Resize("a", PoolSettings{Size: 1, Queue: 9}); err != nil {
		t.Fatal(err)
	}
	rg.wantPool("a", 4, 1)
	for range 3 {
		s.let <- struct{}{} // in b
		s.let <- struct{}{} // in a, or in b
	}
	close(s.let)
	for _, r := range append(all, late) {
		if err := rg.outcome(r); err != nil {
			t.Error(err)
		}
	}
	rg.allBack()
	if n := rg.pools.all["a"].workers; n != 1 {
		t.Errorf("%d workers, want 1", n)
	}
	again := newSlow()
	rg.Swap(phases.PipelineOf(one("a", again.run)))
	first, second := rg.begin(t.Context()), rg.begin(t.Context())
	rg.wantPool("a", 1, 1)
	close(again.let)
	for _, r := range []*phases.Request{first, second} {
		if err := rg.outcome(r); err != nil {
			t.Error(err)
		}
	}
}

// Requests, panics among them, and resizes at once: the sizes are right after.
func TestResizingUnderLoad(t *testing.T) {
	rg := engine(t, map[string]PoolSettings{"a": {4, 1000}, "b": {4, 1000}, "x": {16, 1000}})
	well := phases.PipelineOf(one("x", nothing, "a", "b"), one("a", nothing), one("b", nothing))
	ill := phases.PipelineOf(one("x", nothing, "a"), one("a", panics))
	free := phases.PipelineOf(one("a", panics), one("b", nothing))
	held := phases.PipelineOf(one("x", nothing, "b", "a"), one("b", panics))
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			for j := range 40 {
				rg.Swap([]*phases.Pipeline{well, ill, held, free}[(i+j)%4])
				_ = rg.outcome(rg.begin(context.Background()))
			}
		})
	}
	for i := range 3 {
		rnd := rand.New(rand.NewPCG(1, uint64(i)))
		wg.Go(func() {
			for range 60 {
				name := []string{"a", "b"}[rnd.IntN(2)]
				if err := rg.Resize(name, PoolSettings{Size: 1 + rnd.IntN(8), Queue: 1000}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	rg.allBack()
	for name, size := range map[string]int{"a": 3, "b": 6} {
		if err := rg.Resize(name, PoolSettings{Size: size, Queue: 9}); err != nil {
			t.Error(err)
		}
		rg.allBack()
		s := newSlow()
		rg.Swap(phases.PipelineOf(one(name, s.run)))
		var all []*phases.Request
		for range size + 1 {
			all = append(all, rg.begin(t.Context()))
		}
		for range size {
			take(t, s.began, "a worker")
		}
		rg.wantPool(name, size, 1)
		close(s.let)
		for _, r := range all {
			if err := rg.outcome(r); err != nil {
				t.Error(err)
			}
		}
	}
}
