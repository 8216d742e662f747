package main

import (
	"runtime/debug"
	"testing"
)

// TestCollectorIsPaced: a small heap may grow to the same size, however little of
// it is alive, a large one by half.
func TestCollectorIsPaced(t *testing.T) {
	for live, want := range map[uint64]int{0: 5000, 1 << 20: 5000, 16 << 20: 600, 56 << 20: 100, 64 << 20: 75, 112 << 20: 50, 113 << 20: 50, 1 << 40: 50} {
		if got := gcPercent(live); got != want {
			t.Errorf("%d bytes alive: %d %%, want %d %%", live, got, want)
		}
	}
	before := debug.SetGCPercent(77)
	defer debug.SetGCPercent(before)
	paceCollector([]string{"GOGC=77"})
	if got := debug.SetGCPercent(77); got != 77 {
		t.Errorf("the operator's GOGC has become %d", got)
	}
}
