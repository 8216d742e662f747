package actors

import (
	"testing"

	"github.com/llm-coordinator/coordinator/phases"
)

func TestARequestKeepsThePipelineItBeganWith(t *testing.T) {
	first, old, fresh := newSlow(), newSlow(), newSlow()
	close(old.let)
	close(fresh.let)
	rg := engine(t, roomyPools("a", "b"), one("a", first.run), one("b", old.run))
	r := rg.begin(t.Context())
	take(t, first.began, "the first phase")
	rg.Swap(phases.PipelineOf(one("b", fresh.run)))
	if err := rg.do(); err != nil {
		t.Error(err)
	}
	if o, f := old.runs.Load(), fresh.runs.Load(); o != 0 || f != 1 {
		t.Errorf("the new request ran the old phase %d times, the new one %d times", o, f)
	}
	close(first.let)
	if err := rg.outcome(r); err != nil {
		t.Error(err)
	}
	if o, f := old.runs.Load(), fresh.runs.Load(); o != 1 || f != 1 {
		t.Errorf("the old request ran the old phase %d times, the new one %d times", o, f-1)
	}
}
