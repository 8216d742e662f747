package actors

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// noted is a phase of one task that notes whose it is, in the order they run.
func noted(pool string, ran *record, run work) *fake {
	return &fake{name: pool, plan: func(r *phases.Request) (phases.Plan, error) {
		id := r.ID
		return phases.Plan{Tasks: []phases.Task{{Pool: pool, Run: func(ctx context.Context) (phases.Result, error) {
			ran.add(id)
			return run(ctx)
		}}}}, nil
	}}
}

// wantDisplaced fails the test unless a request has made room for another.
func (rg *rig) wantDisplaced(r *phases.Request) {
	rg.t.Helper()
	err := rg.outcome(r)
	wantKind(rg.t, err, wire.QueueFull)
	if !errors.Is(err, errDisplaced) {
		rg.t.Errorf("outcome is %v", err)
	}
	if after := wire.FaultOf(err).RetryAfter; after != "1" {
		rg.t.Errorf("RetryAfter is %q", after)
	}
}

// wantRefused fails the test unless a request is refused at once, and is not
// one that was displaced.
func (rg *rig) wantRefused(tenant string) {
	rg.t.Helper()
	r := &phases.Request{Tenant: tenant, Out: phases.NewResponse()}
	err := rg.Start(context.Background(), r)
	if err == nil {
		select {
		case <-r.Out.Done():
			err = r.Out.Err()
		default:
			rg.t.Errorf("%s was not refused at once", tenant)
			return
		}
	}
	wantKind(rg.t, err, wire.QueueFull)
	if errors.Is(err, errDisplaced) {
		rg.t.Errorf("%s was displaced: %v", tenant, err)
	}
}

func TestANewcomerBelowItsShareDisplacesTheNewest(t *testing.T) {
	var ran record
	reg := prometheus.NewRegistry()
	s := newSlow()
	rg := setup{pools: map[string]PoolSettings{"a": {1, 4}}, metrics: NewMetrics(reg)}.engine(t, noted("a", &ran, s.run))
	var big []*phases.Request
	for range 5 { // one at work, four wait
		big = append(big, rg.from("big"))
	}
	rg.wantRefused("big")
	small := []*phases.Request{rg.from("small")}
	rg.wantDisplaced(big[4])
	small = append(small, rg.from("small"))
	rg.wantDisplaced(big[3])
	rg.wantRefused("small") // both have their share
	rg.wantRefused("big")
	other := rg.from("other") // now a share is one
	rg.wantDisplaced(small[1])
	rg.wantRefused("other")
	rg.wantPool("a", 1, 4)
	if n := counter(t, reg, "llm_d_coordinator_shed_total", "reason", "displaced"); n != 3 {
		t.Errorf("%v counted as displaced, want 3", n)
	}
	if n := counter(t, reg, "llm_d_coordinator_shed_total", "reason", "queue_full"); n != 4 {
		t.Errorf("%v counted as refused by a full queue, want 4", n)
	}
	close(s.let)
	rg.wantWell(big[0], big[1], big[2], small[0], other)
	if got, want := ran.all(), []string{"big", "big", "small", "other", "big"}; !slices.Equal(got, want) {
		t.Errorf("ran in the order %v, want %v", got, want)
	}
}

func TestWhoYields(t *testing.T) {
	for _, tc := range []struct {
		tenants  string // of tickets 0, 1, 2...; capitals insist
		newcomer string
		bound    int
		want     int // -1: none
	}{
		{"aaaa", "a", 4, -1},
		{"aaaa", "b", 4, 3},
		{"abaa", "b", 4, 3},
		{"abab", "b", 4, -1},
		{"abaab", "c", 5, 3},  // a has three, b two
		{"abaabb", "c", 6, 5}, // three each
		{"aabb", "c", 4, 3},   // a share is one
		{"abcd", "e", 4, -1},
		{"aabbcc", "d", 3, 5}, // a bound that was lowered
		{"a", "b", 1, -1},
		{"aaaA", "b", 4, 2},
		{"AAAA", "b", 4, -1},
		{"aaAAbb", "c", 6, 1},
		{"AAAAbbb", "c", 7, 6},
		{"", "b", 0, -1},
	} {
		p := &pool{}
		for i, tenant := range tc.tenants {
			p.queue.push(&ticket{number: uint64(i), tenant: string(tenant | 0x20), pools: []*pool{p}, insists: tenant < 'a'})
		}
		got := -1
		if y := p.queue.yields(tc.newcomer, tc.bound); y != nil {
			got = int(y.number)
		}
		if got != tc.want {
			t.Errorf("of %q, %d yields to %s, want %d", tc.tenants, got, tc.newcomer, tc.want)
		}
	}
}

// One tenant sends ten times what the other does, and more than there is room
// for: whatever it does, the other is served.
func TestASmallTenantIsServedBesideABigOne(t *testing.T) {
	s := newSlow()
	rg := engine(t, map[string]PoolSettings{"a": {2, 8}}, one("a", s.run))
	var big, small []*phases.Request
	for range 20 {
		for range 20 {
			big = append(big, rg.from("big"))
		}
		for range 2 {
			small = append(small, rg.from("small"))
		}
		for range 4 { // each frees a place
			take(t, s.began, "a task")
			s.let <- struct{}{}
		}
	}
	close(s.let)
	rg.wantWell(small...)
	well := 0
	for _, r := range big {
		if err := rg.outcome(r); err == nil {
			well++
		} else {
			wantKind(t, err, wire.QueueFull)
		}
	}
	if well < 40 {
		t.Errorf("%d requests of the big tenant were served, want half of 80 or more", well)
	}
}

func TestOneTenantAloneIsRefusedByAFullQueue(t *testing.T) {
	s := newSlow()
	rg := engine(t, map[string]PoolSettings{"a": {1, 3}, "x": {9, 9}}, one("a", s.run))
	var all []*phases.Request
	for range 4 {
		all = append(all, rg.from("big"))
	}
	for range 3 {
		rg.wantRefused("big")
	}
	close(s.let)
	rg.wantWell(all...)
}

// A request that waits in several queues makes room in all, and those behind it
// go on.
func TestADisplacedRequestLeavesAllItsQueues(t *testing.T) {
	s := newSlow()
	rg := engine(t, map[string]PoolSettings{"a": {1, 2}, "b": {1, 9}, "x": {9, 9}}, one("a", s.run))
	holder := rg.from("big")
	line := func(places ...string) { rg.Swap(phases.PipelineOf(placed("x", nothing, nil, places...))) }
	line("a")
	first := rg.from("big")
	line("a", "b")
	both := rg.from("big")
	line("b")
	behind := rg.from("big")
	rg.wantPool("b", 0, 2)
	line("a")
	small := rg.from("small")
	rg.wantDisplaced(both)
	rg.wantWell(behind)
	close(s.let)
	rg.wantWell(holder, first, small)
}

// They would wait behind one that waits for what they hold.
func TestThoseThatHoldAPlaceAreNotDisplaced(t *testing.T) {
	s := newSlow()
	rg := engine(t, map[string]PoolSettings{"a": {1, 2}, "d": {9, 9}, "x": {9, 9}}, one("a", s.run))
	busy := rg.from("big")
	rg.Swap(phases.PipelineOf(one("x", nothing, "d"), one("a", s.run)))
	all := []*phases.Request{busy, rg.from("big"), rg.from("big")}
	eventually(t, "both hold a place and wait", func() bool { return rg.pool("a").Queued == 2 })
	rg.Swap(phases.PipelineOf(one("a", s.run)))
	rg.wantRefused("small")
	close(s.let)
	rg.wantWell(all...)
}

// Of a request with several tasks the first makes room, and the rest waits with
// its supervisor, as it does when the queue is full.
func TestOneRequestDisplacesOne(t *testing.T) {
	s := newSlow()
	rg := engine(t, map[string]PoolSettings{"a": {1, 8}}, one("a", s.run))
	var big []*phases.Request
	for range 9 {
		big = append(big, rg.from("big"))
	}
	rg.Swap(phases.PipelineOf(many("a", 4, 0, func(ctx context.Context, _ int) (phases.Result, error) { return s.run(ctx) })))
	small := rg.from("small")
	rg.wantDisplaced(big[8])
	rg.wantPool("a", 1, 8)
	close(s.let)
	rg.wantWell(append(big[:8], small)...)
	if n := s.runs.Load(); n != 12 {
		t.Errorf("%d tasks ran, want 12", n)
	}
}

func TestDetachedTasksMakeRoom(t *testing.T) {
	left := newSlow()
	rg := engine(t, map[string]PoolSettings{"release": {1, 2}}, leaves(left.run, left.run, left.run))
	rg.wantWell(rg.from("big"))
	if n := rg.Status().Detached; n != 3 {
		t.Errorf("%d detached, want 3", n)
	}
	rg.Swap(phases.PipelineOf(one("release", left.run)))
	r := rg.from("small")
	if n := rg.Status().Detached; n != 2 {
		t.Errorf("%d detached, want 2", n)
	}
	close(left.let)
	rg.wantWell(r)
}

func TestANewcomerDisplacesOneOfThoseInFlight(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := newSlow()
	released := newSlow()
	p := one("a", s.run)
	p.release = func(r *phases.Request) []phases.Task {
		if r.Tenant == "big" {
			return []phases.Task{{Pool: "r", Run: released.run}}
		}
		return nil
	}
	p.recovers = func(_ *phases.Request, err error) (phases.Verdict, error) {
		return phases.Next, err
	}
	rg := setup{pools: map[string]PoolSettings{"a": {1, 9}, "r": {9, 9}}, inflight: 4, metrics: NewMetrics(reg)}.engine(t, p)
	var big []*phases.Request
	for range 4 {
		big = append(big, rg.from("big"))
	}
	rg.wantRefused("big")
	small := []*phases.Request{rg.from("small")}
	rg.wantDisplaced(big[3])
	take(t, released.began, "what the displaced one leaves")
	small = append(small, rg.from("small"))
	rg.wantDisplaced(big[2])
	rg.wantRefused("small")
	if n := counter(t, reg, "llm_d_coordinator_shed_total", "reason", "displaced"); n != 2 {
		t.Errorf("%v counted as displaced, want 2", n)
	}
	if n := counter(t, reg, "llm_d_coordinator_shed_total", "reason", "max_inflight"); n != 2 {
		t.Errorf("%v counted as refused, want 2", n)
	}
	if n := rg.Status().Inflight; n != 4 {
		t.Errorf("%d in flight, want 4", n)
	}
	close(s.let)
	close(released.let)
	rg.wantWell(append(small, big[0], big[1])...)
	eventually(t, "all are counted out", func() bool {
		rg.mu.Lock()
		defer rg.mu.Unlock()
		return rg.counted == 0 && len(rg.tenants) == 0
	})
}

// Nothing that was begun is lost.
func TestWhoIsNotDisplacedInFlight(t *testing.T) {
	atWork := newSlow()
	for name, p := range map[string]phases.Phase{
		"at work": one("b", atWork.run),
		"a task of several at work": &fake{name: "p", plan: plans(phases.Plan{Tasks: []phases.Task{
			{Pool: "a", Run: atWork.run}, {Pool: "b", Run: atWork.run}}})},
		"one awaited": &fake{name: "p", plan: plans(phases.Plan{Tasks: []phases.Task{
			{Pool: "a", Run: atWork.run},
			{Await: func(ctx context.Context, wake func(phases.Result, error)) {
				context.AfterFunc(ctx, func() { wake(nil, nil) })
				go func() { <-atWork.let; wake(nil, nil) }()
			}}}})},
		"holding a place": placed("a", atWork.run, nil, "b"),
	} {
		t.Run(name, func(t *testing.T) {
			*atWork = slow{began: make(chan struct{}, 9), let: make(chan struct{})}
			s := newSlow()
			rg := setup{pools: map[string]PoolSettings{"a": {1, 9}, "b": {9, 9}}, inflight: 4}.engine(t)
			side := rg.Line(phases.PipelineOf(one("a", s.run))) // not counted, and not displaced
			all := []*phases.Request{{ID: "side", Out: phases.NewResponse()}, {ID: "side", Out: phases.NewResponse()}}
			for _, r := range all {
				if err := side.Start(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			rg.Swap(phases.PipelineOf(p))
			for range 4 {
				all = append(all, rg.from("big"))
			}
			rg.wantRefused("small")
			close(s.let)
			close(atWork.let)
			rg.wantWell(all...)
		})
	}
}

// A request is displaced at the moment at which its tasks get their places: if it
// is, none of them has begun.
func TestADisplacedRequestBeginsNothing(t *testing.T) {
	var ran record
	s := newSlow()
	fan := &fake{name: "b", plan: func(r *phases.Request) (p phases.Plan, _ error) {
		for range 3 {
			p.Tasks = append(p.Tasks, phases.Task{Pool: "b", Run: func(context.Context) (phases.Result, error) {
				ran.add(r.ID)
				return nil, nil
			}})
		}
		return p, nil
	}}
	rg := setup{pools: map[string]PoolSettings{"a": {1, 9}, "b": {1, 9}}, inflight: 2}.engine(t)
	displaced := 0
	for i := range 300 {
		rg.Swap(phases.PipelineOf(one("b", s.run)))
		holder := rg.from("big")
		rg.Swap(phases.PipelineOf(fan))
		waits := &phases.Request{ID: strconv.Itoa(i), Tenant: "big", Out: phases.NewResponse()}
		if err := rg.Start(t.Context(), waits); err != nil {
			t.Fatal(err)
		}
		rg.Swap(phases.PipelineOf(one("a", nothing)))
		go func() { s.let <- struct{}{} }()
		small := &phases.Request{Tenant: "small", Out: phases.NewResponse()}
		if err := rg.Start(t.Context(), small); err == nil {
			rg.wantWell(small)
		}
		rg.wantWell(holder)
		if err := rg.outcome(waits); err == nil {
			continue
		}
		displaced++
		rg.wantDisplaced(waits)
		if slices.Contains(ran.all(), waits.ID) {
			t.Fatal("a request was displaced of which a task had begun")
		}
	}
	t.Logf("%d were displaced", displaced)
}

func TestTenantsBeyondTheLimitShareOneName(t *testing.T) {
	s := newSlow()
	rg := setup{pools: map[string]PoolSettings{"a": {1, 3 * maxTenants}}, inflight: 4 * maxTenants}.engine(t, one("a", s.run))
	var all []*phases.Request
	for i := range maxTenants + 50 {
		all = append(all, rg.from(strconv.Itoa(i)))
	}
	all = append(all, rg.from("0"), rg.from(strconv.Itoa(maxTenants-1)))
	rg.pools.mu.Lock()
	lanes, shared := len(rg.pools.all["a"].queue.lanes), len(rg.pools.all["a"].queue.lanes[others].tickets)
	rg.pools.mu.Unlock()
	// 0 did not wait at first, and finds the queue full of others' names.
	if lanes != maxTenants || shared != 51 {
		t.Errorf("%d tenants are told apart, %d share a name", lanes, shared)
	}
	rg.mu.Lock()
	tenants, sharing := len(rg.tenants), rg.tenants[others]
	rg.mu.Unlock()
	if tenants != maxTenants+1 || sharing != 50 {
		t.Errorf("%d tenants in flight are told apart, %d share a name", tenants, sharing)
	}
	close(s.let)
	rg.wantWell(all...)
}
