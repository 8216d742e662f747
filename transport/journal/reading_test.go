package journal

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestPath(t *testing.T) {
	for _, tt := range []struct {
		calls []string
		want  string
	}{
		{nil, ""},
		{[]string{"render", "encode", "prefill"}, ""},
		{[]string{"render", "decode"}, DecodeOnly},
		{[]string{"render", "prefill", "decode"}, PrefillDecode},
		{[]string{"render", "encode", "prefill", "decode", "prefill", "decode"}, EncodePrefillDecode},
		{[]string{"media", "encode", "decode"}, EncodePrefillDecode},
	} {
		var e Entry
		for _, c := range tt.calls {
			e.Calls = append(e.Calls, Call{Upstream: c})
		}
		if got := e.Path(); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.calls, got, tt.want)
		}
	}
}

func TestUnion(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spans [][2]int
		want  int
	}{
		{"nothing", nil, 0},
		{"one", [][2]int{{1, 3}}, 2},
		{"one of no length", [][2]int{{1, 1}}, 0},
		{"backwards", [][2]int{{3, 1}}, 0},
		{"two apart, the later first", [][2]int{{5, 6}, {1, 3}}, 3},
		{"one behind the other", [][2]int{{1, 3}, {3, 6}}, 5},
		{"overlapping", [][2]int{{1, 4}, {2, 6}}, 5},
		{"one in another", [][2]int{{1, 9}, {2, 3}, {8, 10}}, 9},
		{"the same twice", [][2]int{{1, 3}, {1, 3}}, 2},
	} {
		var all []span
		for _, s := range tt.spans {
			all = append(all, span{at(s[0]), at(s[1])})
		}
		if got := union(all); got != time.Duration(tt.want)*time.Second {
			t.Errorf("%s: %v, want %d s", tt.name, got, tt.want)
		}
	}
}

// TestUnionCountsEachSecondOnce, compared with counting them.
func TestUnionCountsEachSecondOnce(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var all []span
		var covered [40]bool
		for range random.IntN(12) {
			from := random.IntN(30)
			until := from + random.IntN(10)
			all = append(all, span{at(from), at(until)})
			for s := from; s < until; s++ {
				covered[s] = true
			}
		}
		want := time.Duration(0)
		for _, c := range covered {
			if c {
				want += time.Second
			}
		}
		if got := union(all); got != want {
			t.Fatalf("%v: %v, want %v", all, got, want)
		}
	}
}

func TestQueued(t *testing.T) {
	e := Entry{Waits: []Wait{
		{"a", 0, at(1), at(3)}, {"b", 0, at(2), at(4)}, {"a", 1, at(10), at(11)}, {"a", 0, at(6), at(7)},
		{"c", 0, at(1), at(2)}, {"d", 0, at(1), at(2)}, // more than there is room for on the stack
	}}
	for step, want := range map[int]time.Duration{0: 4 * time.Second, 1: time.Second, 2: 0, -1: 0} {
		if got := e.Queued(step); got != want {
			t.Errorf("step %d: %v, want %v", step, got, want)
		}
	}
}

// TestWaiting is cut to the time that is asked about; what has not ended lasts to
// its end.
func TestWaiting(t *testing.T) {
	e := Entry{
		Calls: []Call{{Began: at(1), Ended: at(3)}, {Began: at(2), Ended: at(4)}, {Began: at(8)}},
		Waits: []Wait{{From: at(5), Until: at(6)}},
	}
	for _, tt := range []struct{ from, until, want int }{
		{0, 10, 6},
		{2, 9, 4},
		{0, 5, 3},
		{4, 5, 0},
		{0, 1, 0},
		{20, 30, 10}, // the one that has not ended
		{9, 4, 0},
	} {
		if got := e.Waiting(at(tt.from), at(tt.until)); got != time.Duration(tt.want)*time.Second {
			t.Errorf("from %d to %d: %v, want %d s", tt.from, tt.until, got, tt.want)
		}
	}
	if got := (&Entry{}).Waiting(at(0), at(10)); got != 0 {
		t.Errorf("nothing waited %v", got)
	}
}
