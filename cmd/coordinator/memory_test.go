package main

import (
	"runtime/debug"
	"testing"
)

// TestCollectorIsPaced: a small heap may grow to the same size, however little of
// it is alive, a large one by half.
func TestCollectorIsPaced(t *testing.T) {
	const mb = 1 << 20
	for _, tt := range []struct {
		live, roots uint64
		want        int
	}{
		{0, 0, 2800}, {mb, 0, 2800}, {16 * mb, 0, 600}, {56 * mb, 0, 100}, {64 * mb, 0, 75}, {112 * mb, 0, 50}, {113 * mb, 0, 50}, {1 << 40, 0, 50},
		{16 * mb, 16 * mb, 300}, {16 * mb, 80 * mb, 100}, {100 * mb, 100 * mb, 50},
	} {
		if got := gcPercent(tt.live, tt.roots); got != tt.want {
			t.Errorf("%d bytes alive and %d of roots: %d %%, want %d %%", tt.live, tt.roots, got, tt.want)
		}
	}
	before := debug.SetGCPercent(77)
	defer debug.SetGCPercent(before)
	paceCollector([]string{"GOGC=77"})
	if got := debug.SetGCPercent(77); got != 77 {
		t.Errorf("the operator's GOGC has become %d", got)
	}
}
