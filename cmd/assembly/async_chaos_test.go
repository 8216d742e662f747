package assembly_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/loadtest/broker"
	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// asyncChaos is what the clients of a run share.
type asyncChaos struct {
	*asyncRig
	begun, right, left, late, refused, bad atomic.Int64

	mu   sync.Mutex
	back chan struct{} // closed when Redis answers
}

// TestAsyncChaos has a thousand requests wait, of which many hang up, and Redis end and
// begin again with nothing in it in the middle. Each that stays gets its own answer, or
// is told that there is none, and nothing is left.
func TestAsyncChaos(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, mode := range []string{"notify", "poll"} {
		t.Run(mode, func(t *testing.T) {
			a := newAsync(t, asyncSetup{setup: setup{toml: "[gateway]\nidle_conn_timeout = \"100ms\"\n", render: `idle_conn_timeout = "100ms"`,
				cluster: cluster.Options{Lease: 2 * time.Second, OmitBodies: true}}, params: `wakeup_mode = "` + mode + `"`, real: true})
			a.ask("enqueue", "warm").is(t, 202, "{")
			a.settled()
			a.Server.Finished = nil
			fresh := a.goroutines()
			b := a.startBroker(broker.Options{PollInterval: quickly, Workers: 32, Backoff: 50 * time.Millisecond})
			c := &asyncChaos{asyncRig: a, back: make(chan struct{})}
			close(c.back)
			c.run(seed)
			t.Logf("%d right, %d left, %d too late, %d refused for a while", c.right.Load(), c.left.Load(), c.late.Load(), c.refused.Load())
			if c.right.Load() < 100 || c.left.Load() < 10 {
				t.Error("hardly any of a kind: it has shown nothing")
			}
			a.ask("wait", "after-1").is(t, 200, "{")
			b.Close()
			c.atRest()
			if n := c.waiting(); n != 0 {
				t.Errorf("%v are still waiting", n)
			}
			if s := b.State(); len(s.Violations) > 0 {
				t.Errorf("the broker: %q", s.Violations)
			}
			a.eventually("without subscriptions", func() bool { return len(a.redis.PubSubChannels(t.Context(), "*").Val()) == 0 })
			a.eventually(fmt.Sprintf("down to %d goroutines", fresh), func() bool {
				a.client.CloseIdleConnections()
				return a.goroutines() <= fresh
			})
		})
	}
}

// goroutines are all but those of the line, of which a coordinator may have more
// connections than before.
func (a *asyncRig) goroutines() int {
	return runtime.NumGoroutine() - a.line.Conns()
}

// run has 100 clients make 1,000 requests.
func (c *asyncChaos) run(seed uint64) {
	const clients, requests = 100, 1000
	var wg sync.WaitGroup
	for i := range clients {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		wg.Go(func() {
			for n := c.begun.Add(1); n <= requests && c.bad.Load() < 20; n = c.begun.Add(1) {
				c.request(int(n), random)
			}
		})
	}
	c.eventually("halfway", func() bool { return c.begun.Load() > requests/2 })
	c.mu.Lock()
	c.back = make(chan struct{})
	c.mu.Unlock()
	c.server.Stop()
	c.server.Start()
	c.eventually("served again", func() bool { return c.ask("enqueue", "probe").status == http.StatusAccepted })
	close(c.back)
	wg.Wait()
}

// request asks until it is answered, or leaves.
func (c *asyncChaos) request(n int, random *rand.Rand) {
	id, word := fmt.Sprintf("chaos-%d", n), fmt.Sprintf("word%d", n)
	ctx, leave := context.WithTimeout(context.Background(), bound)
	defer leave()
	leaves := random.IntN(4) == 0
	if leaves {
		defer time.AfterFunc(time.Duration(random.IntN(100_000))*time.Microsecond, leave).Stop()
	}
	for {
		got := c.postCtx(ctx, chatPath, chatBody(word, false), modeHeader, "wait", "X-Request-Id", id, timeHeader, "4")
		switch {
		case got.err != nil && leaves && ctx.Err() != nil:
			c.left.Add(1)
		case got.err == nil && got.status == 200 && strings.Contains(got.body, cluster.Reply(word)):
			c.right.Add(1)
		case got.err == nil && got.status == 504 && strings.Contains(got.body, "DEADLINE_EXCEEDED"):
			c.late.Add(1)
		case got.err == nil && got.status == 503 && strings.Contains(got.body, "ENQUEUE_FAILED"):
			c.refused.Add(1)
			c.mu.Lock()
			back := c.back
			c.mu.Unlock()
			<-back
			continue
		default:
			c.bad.Add(1)
			c.t.Errorf("%s: %d %v %s", id, got.status, got.err, got.body)
		}
		return
	}
}
