//go:build !race

package actors

import "testing"

// maxAllocations is what the machinery of one request may cost.
const maxAllocations = 70

func TestAllocationsPerRequest(t *testing.T) {
	e := fivePhases(t)
	runOne(t, e, "")
	if n := testing.AllocsPerRun(1000, func() { runOne(t, e, "") }); n > maxAllocations {
		t.Errorf("a request of five phases costs %v allocations, want at most %d", n, maxAllocations)
	} else {
		t.Logf("%v allocations", n)
	}
}
