package actors

import (
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/llm-coordinator/coordinator/phases"
)

// bench is pools whose supervisors are played by the test, one step at a time:
// what is decided depends on the seed alone.
type bench struct {
	*pools
	t    *testing.T
	rnd  *rand.Rand
	list []*pool
	sink *actor.PID
	told chan any // what supervisors are told

	waiting []*asker
	holding []*asker
	grants  int // to those that waited
	voids   int
	happens map[string]int
}

// asker is a request that waits with a ticket or holds places, or both.
type asker struct {
	*supervisor
	ticket *ticket
	since  int // the grants before it waited
}

const benchLimit = 10

func newBench(t *testing.T, seed uint64) *bench {
	system := newSystem(slog.New(slog.NewTextHandler(io.Discard, nil)))
	m := NewMetrics(nil)
	b := &bench{t: t, rnd: rand.New(rand.NewPCG(7, seed)), told: make(chan any, 100_000), happens: map[string]int{},
		pools: &pools{root: system.Root, timeout: time.Hour, metrics: m, all: map[string]*pool{}}}
	b.sink = system.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		switch c.Message().(type) {
		case *granted, *refused:
			b.told <- c.Message()
		}
	}))
	t.Cleanup(func() { system.Root.StopFuture(b.sink).Wait(); system.Shutdown() })
	for i, size := range []int{1, 2, 1, 3} {
		name := strconv.Itoa(i)
		p := &pool{name: name, wait: m.poolWait.WithLabelValues(name), size: size, limit: benchLimit, workers: size}
		b.list, b.all[name] = append(b.list, p), p
		for range size {
			b.add(&place{pool: p})
		}
	}
	return b
}

// arrive lets a request of some tenant ask for places in some pools at once.
func (b *bench) arrive() {
	tenant := strconv.Itoa(min(b.rnd.IntN(4), b.rnd.IntN(8))) // the first sends most
	_, cancel := context.WithCancelCause(context.Background())
	a := &asker{supervisor: &supervisor{self: b.sink, tenant: tenant, cancel: cancel, req: &phases.Request{}}}
	n := 1
	if b.rnd.IntN(3) == 0 {
		n = 2 + b.rnd.IntN(2)
	}
	var pools []*pool
	for _, i := range b.rnd.Perm(len(b.list))[:n] {
		pools = append(pools, b.list[i])
	}
	b.ask(a, pools...)
}

// askMore lets a request that holds places ask for one more. It only asks for
// later pools, for two that hold what the other wants would wait for ever.
func (b *bench) askMore() {
	a := b.oneOf(&b.holding)
	last := 0
	for _, pl := range a.places {
		last = max(last, slices.Index(b.list, pl.pool))
	}
	if last == len(b.list)-1 {
		b.end(a)
		return
	}
	b.ask(a, b.list[last+1+b.rnd.IntN(len(b.list)-1-last)])
}

func (b *bench) ask(a *asker, pools ...*pool) {
	a.ticket = &ticket{owner: a.supervisor, tenant: a.tenant, pools: pools, holder: len(a.places) > 0}
	a.since = b.grants
	now, err := b.take(a.ticket)
	switch {
	case err != nil:
		b.happens["refused"]++
		b.end(a)
	case now:
		a.places = append(a.places, a.ticket.places...)
		b.holding = append(b.holding, a)
	default:
		b.waiting = append(b.waiting, a)
	}
}

// oneOf takes one out.
func (b *bench) oneOf(askers *[]*asker) *asker {
	i := b.rnd.IntN(len(*askers))
	a := (*askers)[i]
	*askers = slices.Delete(*askers, i, i+1)
	return a
}

func (b *bench) end(a *asker) {
	for _, pl := range a.places {
		b.free(pl)
	}
	a.places = nil
}

// step does something, whatever it is.
func (b *bench) step() {
	switch n := b.rnd.IntN(20); {
	case n < 11:
		b.arrive()
	case n < 16 && len(b.holding) > 0:
		b.end(b.oneOf(&b.holding))
	case n < 17 && len(b.holding) > 0:
		b.askMore()
	case n < 18 && len(b.waiting) > 0:
		b.happens["withdrawn"]++
		a := b.oneOf(&b.waiting)
		if !b.withdraw(a.ticket) {
			b.t.Fatal("a ticket that waits could not be withdrawn")
		}
		b.end(a)
	case n < 19 && len(b.waiting) > 0:
		b.happens["expired"]++
		b.expire(b.waiting[b.rnd.IntN(len(b.waiting))].ticket)
	default:
		weigh := func(s *supervisor) (n int) {
			for _, a := range slices.Concat(b.waiting, b.holding) {
				if a.tenant == s.tenant {
					n++
				}
			}
			return n
		}
		if s, v := b.displace(weigh, 6, errDisplaced); s != nil {
			b.happens["displaced in flight"]++
			b.deliver(v)
		}
	}
	b.settle()
}

// settle takes in what was decided, and what that leads to.
func (b *bench) settle() {
	for again := true; again; {
		again = false
		for i := 0; i < len(b.waiting); i++ {
			a := b.waiting[i]
			if a.ticket.waiting {
				continue
			}
			again = true
			b.waiting = slices.Delete(b.waiting, i, i+1)
			i--
			if a.ticket.places == nil {
				b.voids++
				b.end(a)
				continue
			}
			b.grants++
			b.inOrder(a.ticket)
			a.places = append(a.places, a.ticket.places...)
			b.holding = append(b.holding, a)
		}
	}
	b.check()
}

// inOrder fails the test if a ticket that was granted has overtaken one of its
// tenant.
func (b *bench) inOrder(t *ticket) {
	for _, a := range b.waiting {
		o := a.ticket
		if o.waiting && o.number < t.number && o.holder == t.holder && (o.holder || o.tenant == t.tenant) &&
			slices.ContainsFunc(o.pools, func(p *pool) bool { return slices.Contains(t.pools, p) }) {
			b.t.Errorf("ticket %d of tenant %s was granted before %d", t.number, t.tenant, o.number)
		}
	}
}

// check fails the test if somebody waits who need not, or waits too long.
func (b *bench) check() {
	for _, p := range b.list {
		if n := p.queue.len(); n > benchLimit {
			b.t.Fatalf("%d wait for a pool in which %d may", n, benchLimit)
		}
		head := p.queue.head()
		if head == nil {
			continue
		}
		if !slices.ContainsFunc(head.pools, func(o *pool) bool { return len(o.idle) == 0 || o.queue.head() != head }) {
			b.t.Fatalf("ticket %d waits for places that are idle", head.number)
		}
	}
	// In a queue there are at most benchLimit rounds of as many turns until the
	// last one's. Of those granted meanwhile each may take a turn in three pools
	// more, ahead of the others.
	const most = benchLimit * benchLimit * 4 * 4
	for _, a := range b.waiting {
		if waited := b.grants - a.since; waited > most {
			b.t.Fatalf("ticket %d waits and %d were granted meanwhile", a.ticket.number, waited)
		}
	}
}

// Tickets for one pool and for several, of many tenants, of requests that hold
// places and of newcomers, withdrawn, expired and displaced: nobody overtakes
// another of its tenant, nobody starves, and when nobody comes any more all are
// served, one or more with each place that comes back.
func TestNobodyWaitsForEver(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(40) {
		b := newBench(t, seed)
		for range 2000 {
			if b.step(); t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
		left := len(b.waiting) + len(b.holding)
		for step := 0; len(b.waiting)+len(b.holding) > 0; step++ {
			if len(b.holding) == 0 || step == left {
				t.Fatalf("seed %d: %d wait, %d hold places, after %d steps of at most %d", seed, len(b.waiting), len(b.holding), step, left)
			}
			b.end(b.oneOf(&b.holding))
			b.settle()
		}
		for _, p := range b.list {
			if q := &p.queue; len(p.idle) != p.size || q.len()+len(q.lanes)+q.turns.Len()+len(q.several)+len(q.holders) != 0 {
				t.Errorf("seed %d: something is left in pool %s: %+v", seed, p.name, p)
			}
		}
		grants, voids := b.grants, b.voids
		for range grants + voids {
			switch take(t, b.told, "what became of a ticket").(type) {
			case *granted:
				grants--
			case *refused:
				voids--
			}
		}
		if grants != 0 || voids != 0 {
			t.Errorf("seed %d: supervisors were told of %d too few grants and %d too few refusals", seed, grants, voids)
		}
		for what, n := range b.happens {
			seen[what] += n
		}
		seen["displaced by a newcomer"] += b.voids - b.happens["expired"] - b.happens["displaced in flight"]
		seen["granted"] += b.grants
	}
	t.Logf("%v", seen)
	for _, what := range []string{"refused", "withdrawn", "expired", "displaced in flight", "displaced by a newcomer", "granted"} {
		if seen[what] < 100 {
			t.Errorf("only %d were %s", seen[what], what)
		}
	}
}
