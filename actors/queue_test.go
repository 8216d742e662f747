package actors

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
)

// waits makes a ticket that waits in the queues of pools.
func waits(number int, tenant string, pools ...*pool) *ticket {
	t := &ticket{number: uint64(number), tenant: tenant, pools: pools}
	for _, p := range pools {
		p.queue.push(t)
	}
	return t
}

// drained serves all of a queue whose tickets are for its pool alone, and
// returns their numbers.
func drained(q *queue) (order []int) {
	for q.len() > 0 {
		t := q.head()
		order = append(order, int(t.number))
		q.serve(t)
	}
	return order
}

func TestTenantsAreServedInTurn(t *testing.T) {
	for _, tc := range []struct {
		name, tenants string // of tickets 0, 1, 2...; capitals hold a place
		want          []int
	}{
		{"one tenant", "aaaaa", []int{0, 1, 2, 3, 4}},
		{"two", "aaaabb", []int{0, 4, 1, 5, 2, 3}},
		{"three", "aabbbc", []int{0, 2, 5, 1, 3, 4}},
		{"those that hold a place go ahead", "aabAbB", []int{3, 5, 0, 2, 1, 4}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &pool{}
			for i, tenant := range tc.tenants {
				tk := &ticket{number: uint64(i), tenant: string(tenant | 0x20), pools: []*pool{p}, holder: tenant < 'a'}
				p.queue.push(tk)
			}
			if got := drained(&p.queue); !slices.Equal(got, tc.want) {
				t.Errorf("served in the order %v, want %v", got, tc.want)
			}
			if p.queue.lanes["a"] != nil || p.queue.turns.Len() != 0 {
				t.Error("a tenant of whom nobody waits is remembered")
			}
		})
	}
	t.Run("one that comes has the last turn", func(t *testing.T) {
		p := &pool{}
		for i, tenant := range "aaabbb" {
			waits(i, string(tenant), p)
		}
		p.queue.serve(p.queue.head()) // a: it is the turn of b, then of a
		waits(6, "c", p)
		if got, want := drained(&p.queue), []int{3, 1, 6, 4, 2, 5}; !slices.Equal(got, want) {
			t.Errorf("served in the order %v, want %v", got, want)
		}
	})
}

// Of one tenant, tickets for several pools and for one are served in the order
// they came, as if there were no tenants.
func TestOneTenantIsFirstInFirstOut(t *testing.T) {
	p, other := &pool{name: "p"}, &pool{name: "other"}
	var want []int
	for i := range 30 {
		want = append(want, i)
		if i%3 == 0 {
			waits(i, "", p, other)
		} else {
			waits(i, "", p)
		}
	}
	if got := drained(&p.queue); !slices.Equal(got, want) {
		t.Errorf("served in the order %v", got)
	}
}

// The turn of a ticket for several pools is that of the one that came first, and
// the tenants swap turns: the others lose none.
func TestTicketsForSeveralPoolsKeepTheirOrder(t *testing.T) {
	p, q := &pool{name: "p"}, &pool{name: "q"}
	waits(0, "z", p) // z's turn is first in p, x's in q
	first := waits(1, "x", q, p)
	second := waits(2, "z", p, q)
	waits(3, "y", p)
	waits(4, "x", p)
	waits(5, "y", p)
	if head := p.queue.head(); head.number != 0 {
		t.Fatalf("head is %d", head.number)
	}
	p.queue.serve(p.queue.head())
	// Turns in p are x, y, z now.
	if p.queue.head() != first || q.queue.head() != first {
		t.Fatal("the first for both is not the head of both")
	}
	first.leaveAs((*queue).serve)
	if got, want := drained(&p.queue), []int{3, 2, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("served in the order %v, want %v", got, want)
	}
	if q.queue.head() != second {
		t.Error("the second is not the head of the other queue")
	}
}

func (t *ticket) leaveAs(by func(*queue, *ticket)) {
	for _, p := range t.pools {
		by(&p.queue, t)
	}
}

func TestSwappedTurns(t *testing.T) {
	p, q := &pool{name: "p"}, &pool{name: "q"}
	waits(0, "x", q, p)
	waits(1, "x", q, p)
	waits(2, "z", p, q)
	waits(3, "y", p)
	waits(4, "y", p)
	// x has come first in p; so that z has the first turn, x's goes by.
	p.queue.turns.MoveToBack(p.queue.lanes["x"].turn) // z, y, x
	if got, want := drained(&p.queue), []int{0, 3, 1, 2, 4}; !slices.Equal(got, want) {
		t.Errorf("served in the order %v, want %v: y is to have each third turn", got, want)
	}
}

// What is told of a newcomer's place is what becomes of it, if nobody else comes.
func TestHowManyAreAhead(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(1, seed))
		p := &pool{}
		for i := range rnd.IntN(40) {
			tk := &ticket{number: uint64(i), tenant: strconv.Itoa(rnd.IntN(5)), pools: []*pool{p}, holder: rnd.IntN(8) == 0}
			p.queue.push(tk)
			if rnd.IntN(3) == 0 {
				p.queue.serve(p.queue.head())
			}
		}
		newcomer := &ticket{number: 999, tenant: strconv.Itoa(rnd.IntN(6)), pools: []*pool{p}, holder: rnd.IntN(4) == 0}
		ahead := p.queue.ahead(newcomer)
		p.queue.push(newcomer)
		if got := slices.Index(drained(&p.queue), 999); got != ahead {
			t.Fatalf("seed %d: %d were served before it, not %d", seed, got, ahead)
		}
	}
}

func TestTicketsLeaveFromAnywhere(t *testing.T) {
	for leaves, want := range [][]int{{1, 3, 2}, {0, 3, 2}, {0, 1, 3}, {0, 1, 2}} {
		p, q := &pool{}, &pool{}
		all := []*ticket{waits(0, "a", p), waits(1, "a", p, q), waits(2, "a", p), waits(3, "b", p, q)}
		all[leaves].leaveAs((*queue).remove)
		if n, left := len(all[leaves].pools), len(p.queue.several); n+left != 3 {
			t.Errorf("%d tickets for several pools are left without %d", left, leaves)
		}
		if got := drained(&p.queue); !slices.Equal(got, want) {
			t.Errorf("without %d, served in the order %v, want %v", leaves, got, want)
		}
	}
}

// BenchmarkWaiting is one ticket that waits and is served, in a queue of 1,000.
func BenchmarkWaiting(b *testing.B) {
	for _, tenants := range []int{1, 10, 1000} {
		b.Run(fmt.Sprint(tenants), func(b *testing.B) {
			p := &pool{}
			names := make([]string, tenants)
			for i := range names {
				names[i] = strconv.Itoa(i)
			}
			pools := []*pool{p}
			for i := range 1000 {
				p.queue.push(&ticket{tenant: names[i%tenants], pools: pools})
			}
			for b.Loop() {
				t := p.queue.head()
				p.queue.serve(t)
				p.queue.push(t)
			}
		})
	}
}
