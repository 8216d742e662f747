package e2e_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// crowd is clients that make one request after the other, every second one
// streamed, and check each answer.
type crowd struct {
	fleet *fleet
	// attempts is how often a request is made before it counts as failed.
	attempts int

	done     atomic.Int64 // requests that were answered well
	repeated atomic.Int64 // attempts that failed, and were not the last
	failed   atomic.Int64
	leave    chan struct{}
	clients  sync.WaitGroup
	mu       sync.Mutex
	said     map[string]int // why attempts failed; guarded by mu
}

func (f *fleet) startCrowd(clients, attempts int) *crowd {
	c := &crowd{fleet: f, attempts: attempts, leave: make(chan struct{}), said: map[string]int{}}
	for i := range clients {
		c.clients.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-c.leave:
					return
				case <-f.ctx.Done():
					return
				default:
					c.request(fmt.Sprintf("client%dnumber%d", i, n), n%2 == 0)
				}
			}
		})
	}
	f.t.Cleanup(c.end)
	return c
}

// end lets the clients end their requests, and waits for that.
func (c *crowd) end() {
	select {
	case <-c.leave:
	default:
		close(c.leave)
	}
	c.clients.Wait()
}

// request makes a request, and repeats it as clients do: only if the connection
// broke, or a 502, 503 or 504 said that there was no answer, and not at once.
func (c *crowd) request(word string, stream bool) {
	for attempt := 1; ; attempt++ {
		err := c.attempt(word, stream)
		if err == nil {
			c.done.Add(1)
			return
		}
		c.mu.Lock()
		c.said[err.Error()]++
		c.mu.Unlock()
		if attempt == c.attempts || !errors.Is(err, errLost) {
			c.failed.Add(1)
			return
		}
		c.repeated.Add(1)
		again := time.NewTimer(patience)
		select {
		case <-again.C:
		case <-c.fleet.ctx.Done():
			again.Stop()
		}
	}
}

// patience is how long OpenAI's clients wait before they try again.
const patience = 500 * time.Millisecond

// errLost is a failure after which a request is worth another attempt.
var errLost = errors.New("lost")

func (c *crowd) attempt(word string, stream bool) error {
	path, body := chatPath, fmt.Sprintf(`{"model":"demo-model","stream":%t,"messages":[{"role":"user","content":"%s a b c d e f"}]}`, stream, word)
	if !stream {
		path, body = completionsPath, fmt.Sprintf(`{"model":"demo-model","prompt":"%s a b c d e f"}`, word)
	}
	got := c.fleet.post(path, body)
	switch {
	case got.status >= 502 && got.status <= 504:
		return fmt.Errorf("%w: status %d", errLost, got.status)
	case got.status == 0:
		return fmt.Errorf("%w: no answer", errLost)
	case got.err != nil:
		return fmt.Errorf("%w: the answer broke off", errLost)
	case got.status != http.StatusOK:
		return fmt.Errorf("status %d: %s", got.status, got.body)
	case stream && !strings.HasSuffix(got.body, "data: [DONE]\n\n"):
		return fmt.Errorf("%w: a stream without its end", errLost)
	case !strings.Contains(got.body, word):
		return fmt.Errorf("not the answer to %s: %s", word, got.body)
	}
	return nil
}

// reasons says why attempts have failed so far.
func (c *crowd) reasons() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprint(c.said)
}

// reach waits until so many requests have been answered well.
func (c *crowd) reach(n int64) {
	c.fleet.t.Helper()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for c.done.Load() < n {
		select {
		case <-again.C:
		case <-c.fleet.ctx.Done():
			c.fleet.t.Fatalf("%d requests were answered, want %d: %s", c.done.Load(), n, c.reasons())
		}
	}
}

// report says what became of the requests.
func (c *crowd) report() {
	c.fleet.t.Helper()
	c.end()
	c.fleet.t.Logf("%d requests answered, %d attempts repeated, %d requests failed: %s", c.done.Load(), c.repeated.Load(), c.failed.Load(), c.reasons())
	if c.failed.Load() != 0 {
		c.fleet.t.Errorf("%d requests failed", c.failed.Load())
	}
}

// TestReplicasAreKilledUnderLoad: clients that try once more lose nothing, legs of
// the dead replica end, and when it is there again it gets its share.
func TestReplicasAreKilledUnderLoad(t *testing.T) {
	behindEach(t, func(t *testing.T, g gateway) {
		f := startFleet(t, g, plan{steps: renderStep + prefillStep + decodeStep,
			cluster: cluster.Options{Lease: 5 * time.Second, TokenInterval: 5 * time.Millisecond}})
		const clients = 12
		c := f.startCrowd(clients, 2)
		c.reach(3 * clients)
		// The one is killed before its answers have begun, the other within streams.
		for i, at := range []cluster.Gate{{Leg: cluster.Decode}, {Leg: cluster.Decode, At: cluster.AtChunk, Chunk: 4}} {
			f.killOne(f.replicas[i], f.cluster.Hold(at), clients)
			c.reach(c.done.Load() + 5*clients)
			f.startReplica(f.replicas[i])
			for f.metric(f.replicas[i], "request_total") < 10 {
				c.reach(c.done.Load() + clients)
			}
		}
		c.report()
		f.settled()
	})
}

// killOne kills a replica when all clients have a request at the gate, some of
// them by that replica.
func (f *fleet) killOne(victim *replica, gate *cluster.Held, clients int) {
	f.t.Helper()
	if err := gate.WaitFor(f.ctx, clients); err != nil {
		f.t.Fatal(err)
	}
	lost := int(f.metric(victim, "request_running"))
	if lost == 0 {
		f.t.Errorf("%s has no request", victim.name)
	}
	before := f.cluster.State().Aborted[cluster.Decode]
	victim.kill(f.t)
	if err := f.cluster.Wait(f.ctx, func(s cluster.State) bool { return s.Aborted[cluster.Decode] >= before+lost }); err != nil {
		f.t.Errorf("%d requests were with %s, and %d of their legs were ended", lost, victim.name, f.cluster.State().Aborted[cluster.Decode]-before)
	}
	gate.Release()
}

// TestAReplicaIsDrainedUnderLoad: clients notice nothing, even those that would not
// try again. A gateway that does not ask for readiness sends requests up to the
// last moment, and of those that meet the closing listener one may be lost.
func TestAReplicaIsDrainedUnderLoad(t *testing.T) {
	behindEach(t, func(t *testing.T, g gateway) {
		// The gateway asks every second, and a machine may be busy for some.
		f := startFleet(t, g, plan{steps: renderStep + prefillStep + decodeStep, server: "drain_delay = \"15s\"\n",
			cluster: cluster.Options{TokenInterval: 10 * time.Millisecond}})
		const clients = 8
		attempts := 2
		if g.asksReadiness() {
			attempts = 1
		}
		c := f.startCrowd(clients, attempts)
		c.reach(3 * clients)
		leaver := f.replicas[0]
		if err := leaver.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		select {
		case <-leaver.ended:
		case <-f.ctx.Done():
			t.Fatal("the replica has not ended")
		}
		if code := leaver.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("the replica has ended with %d", code)
		}
		c.reach(c.done.Load() + 5*clients)
		c.report()
		f.replicas = f.replicas[1:]
		f.settled()
		f.replicas[0].kill(t) // its drain need not be waited for
	})
}
