package actors

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/llm-coordinator/coordinator/phases"
)

// stage is a phase with one task that does nothing: what is left is the
// machinery.
type stage struct {
	name string
	plan phases.Plan
}

func newStage(name string, places ...string) *stage {
	return &stage{name: name, plan: phases.Plan{Places: places, Tasks: []phases.Task{{
		Pool: name,
		Run:  func(context.Context) (phases.Result, error) { return nil, nil },
	}}}}
}

func (s *stage) Name() string                              { return s.name }
func (s *stage) Plan(*phases.Request) (phases.Plan, error) { return s.plan, nil }
func (s *stage) Join(*phases.Request, []phases.Result) (phases.Verdict, error) {
	return phases.Next, nil
}

// fivePhases is an engine with the phases of the whole design, decode's place
// taken before prefill is sent.
func fivePhases(tb testing.TB) *Engine {
	pools := map[string]PoolSettings{}
	var stages []phases.Phase
	for _, name := range []string{"media", "render", "encode", "prefill", "decode"} {
		pools[name] = PoolSettings{Size: 64, Queue: 1024}
		st := newStage(name)
		if name == "prefill" {
			st = newStage(name, "decode")
		}
		stages = append(stages, st)
	}
	e := NewEngine(Settings{QueueTimeout: 30e9, Pools: pools}, phases.PipelineOf(stages...), nil, nil)
	tb.Cleanup(func() { e.Close(context.Background()) })
	return e
}

func runOne(tb testing.TB, e *Engine, tenant string) {
	r := &phases.Request{Tenant: tenant, Out: phases.NewResponse()}
	if err := e.Start(context.Background(), r); err != nil {
		tb.Fatal(err)
	}
	<-r.Out.Done()
	if err := r.Out.Err(); err != nil {
		tb.Fatal(err)
	}
}

// BenchmarkRequest is the machinery of one request of five phases: spawning its
// supervisor, ten hops, stopping.
func BenchmarkRequest(b *testing.B) {
	b.Run("serial", func(b *testing.B) {
		e := fivePhases(b)
		b.ReportAllocs()
		for b.Loop() {
			runOne(b, e, "")
		}
	})
	b.Run("parallel", func(b *testing.B) {
		e := fivePhases(b)
		b.ReportAllocs()
		b.SetParallelism(32) // 64 goroutines on 2 processors
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				runOne(b, e, "")
			}
		})
	})
}

// BenchmarkQueue is a request of one task where most have to wait for their
// place: what the queue of a pool costs, with one tenant and with several.
func BenchmarkQueue(b *testing.B) {
	for _, tenants := range []int{1, 8, 64} {
		b.Run(strconv.Itoa(tenants), func(b *testing.B) {
			e := NewEngine(Settings{QueueTimeout: 30e9, Pools: map[string]PoolSettings{"a": {Size: 2, Queue: 1024}}},
				phases.PipelineOf(newStage("a")), nil, nil)
			b.Cleanup(func() { e.Close(context.Background()) })
			var callers atomic.Int64
			b.ReportAllocs()
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				tenant := strconv.Itoa(int(callers.Add(1)) % tenants)
				for pb.Next() {
					runOne(b, e, tenant)
				}
			})
		})
	}
}
