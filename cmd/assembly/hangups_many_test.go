package assembly_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// TestTenThousandHangUps at random places: afterwards the process is as it was
// before, and nobody is blamed for a client that left.
func TestTenThousandHangUps(t *testing.T) {
	const warmUp, crowd = 500, 64
	n := 10_000
	if testing.Short() {
		n = 500
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := newRig(t, setup{
		steps:  strings.Replace(probingSteps, "params = { allowed", "params = { max_concurrent_downloads = 2, allowed", 1),
		render: "idle_conn_timeout = \"100ms\"",
		toml:   "[gateway]\nidle_conn_timeout = \"100ms\"\n" + unforgiving,
		// What the cluster remembers is not to be taken for what the coordinator does.
		cluster: cluster.Options{MaxRecorded: 300, OmitBodies: true, TokenInterval: 50 * time.Microsecond, Lease: byHand},
	})
	r.Server.Finished = nil // nobody counts
	if got := r.do(http.MethodGet, "/healthz", "", ""); got.status != http.StatusOK {
		t.Fatalf("%d %v", got.status, got.err)
	}
	fresh := runtime.NumGoroutine() // with one connection, whose goroutines may end late
	r.hangUps(crowd, warmUp, seed)
	before := r.footprint(fresh)
	whole := r.hangUps(crowd, n, seed+1)
	after := r.footprint(fresh)
	t.Logf("legs %v aborted %v", r.cluster.State().Legs, r.cluster.State().Aborted)
	t.Logf("%d of %d were whole before their clients left; heap %d KB, then %d KB", whole, n, before>>10, after>>10)
	// The registry of actors is 32,768 maps, each of which takes a little memory
	// when it is first used: 2.5 MB after so many requests, 9 MB in the end.
	if after > before+4<<20 {
		t.Errorf("the live heap grew from %d KB to %d KB", before>>10, after>>10)
	}
	for profile, state := range r.Status("").Breakers {
		if state != "closed" {
			t.Errorf("hang-ups counted as failures of %s, which is %s", profile, state)
		}
	}
	if st := r.cluster.State(); st.ReusedHandoffs+st.FailedLoads+st.ViolationCount != 0 {
		t.Errorf("%+v", st)
	}
	if got := r.post(chatPath, chatBody("one two", false)); got.status != http.StatusOK || !strings.Contains(got.body, cluster.Reply("one two")) {
		t.Errorf("the next request: %d %s", got.status, got.body)
	}
}

// hangUps has a crowd of clients send n requests and leave all of them. It
// returns how many were whole by then.
func (r *rig) hangUps(crowd, n int, seed uint64) (whole int64) {
	r.t.Helper()
	w := &waves{cluster: r.cluster, random: rand.New(rand.NewPCG(seed, 0))}
	w.leave.Store(new(make(chan struct{})))
	ctx, end := context.WithCancel(within(r.t))
	var left, all atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	for i := range crowd {
		random := rand.New(rand.NewPCG(seed, uint64(i+1)))
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if r.hangUp(ctx, w, random) {
					all.Add(1)
				}
			}
		})
	}
	waving := make(chan struct{})
	go func() {
		defer close(waving)
		for ctx.Err() == nil {
			w.wave(ctx)
		}
	}()
	wg.Wait()
	end()
	<-waving
	return all.Load()
}

// waves hold legs at a random place for a while, and then let clients leave that
// wait for it.
type waves struct {
	cluster *cluster.Cluster
	random  *rand.Rand
	leave   atomic.Pointer[chan struct{}]
}

// wave is over when so many legs stand at its place, or when those that could
// come have gone elsewhere.
func (w *waves) wave(ctx context.Context) {
	places := []cluster.Gate{
		{Leg: cluster.Origin, At: cluster.AtHeaders}, {Leg: cluster.Render, At: cluster.AtArrival}, {Leg: cluster.Probe, At: cluster.AtHeaders},
		{Leg: cluster.Encode, At: cluster.AtHeaders}, {Leg: cluster.Prefill, At: cluster.AtHeaders}, {Leg: cluster.Decode, At: cluster.AtArrival},
		{Leg: cluster.Decode, At: cluster.AtChunk}, {Leg: cluster.Decode, At: cluster.AtChunk, Chunk: 3},
	}
	gate := w.cluster.Hold(places[w.random.IntN(len(places))])
	defer gate.Remove()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	gate.WaitFor(ctx, 1+w.random.IntN(20))
	close(*w.leave.Swap(new(make(chan struct{}))))
}

// hangUp sends a request and leaves it: after a random part of the answer, after a
// random time, or with a wave, whatever is then going on.
func (r *rig) hangUp(ctx context.Context, w *waves, random *rand.Rand) (whole bool) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	path, body := r.anyRequest(random)
	most := int64(random.IntN(2000))
	switch random.IntN(4) {
	case 0:
		time.AfterFunc(time.Duration(random.IntN(50_000))*time.Microsecond, leave)
	case 1, 2:
		over := *w.leave.Load()
		go func() {
			select {
			case <-over:
				leave()
			case <-ctx.Done():
			}
		}()
	}
	resp, err := r.open(ctx, path, body)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, io.LimitReader(resp.Body, most))
	return err == nil && n < most
}

// anyRequest makes up a request that can be served, of any protocol.
func (r *rig) anyRequest(random *rand.Rand) (path, body string) {
	stream := random.IntN(3) > 0
	text := strings.Repeat("word ", 1+random.IntN(5)) + fmt.Sprint(random.IntN(1000))
	switch random.IntN(6) {
	case 0:
		return completionsPath, fmt.Sprintf(`{"model":"demo-model","stream":%t,"prompt":%q}`, stream, text)
	case 1:
		return generatePath, fmt.Sprintf(`{"token_ids":[1,2,%d],"stream":%t,"sampling_params":{"max_tokens":8}}`, random.IntN(1000), stream)
	case 2:
		var parts strings.Builder
		for range 1 + random.IntN(3) {
			url := dataURI(picture(byte(random.IntN(256)), 20+random.IntN(2000)))
			if random.IntN(2) == 0 {
				url = r.cluster.ImageURL(fmt.Sprintf("%d.png", random.IntN(30)), cluster.ImageOptions{Bytes: 1000})
			}
			fmt.Fprintf(&parts, `,{"type":"image_url","image_url":{"url":%q}}`, url)
		}
		return chatPath, fmt.Sprintf(`{"model":"demo-model","stream":%t,"messages":[{"role":"user","content":[{"type":"text","text":%q}%s]}]}`, stream, text, parts.String())
	}
	return chatPath, chatBody(text, stream)
}

// footprint waits until nothing of any request is left, no connection and no more
// goroutines than there were, and returns the size of the live heap.
func (r *rig) footprint(goroutines int) uint64 {
	r.t.Helper()
	r.atRest()
	r.eventually(fmt.Sprintf("down to %d goroutines", goroutines), func() bool {
		r.client.CloseIdleConnections()
		return runtime.NumGoroutine() <= goroutines
	})
	r.logs.mu.Lock()
	r.logs.buf = bytes.Buffer{}
	r.logs.mu.Unlock()
	runtime.GC() // pools let go of what they keep in the second
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestTrialsWhoseClientsLeave give their permits back: all that a half-open
// breaker lets through are left, once before decode is answered and once with
// the stream begun, and it is closed by those that come after them.
func TestTrialsWhoseClientsLeave(t *testing.T) {
	for name, gate := range map[string]cluster.Gate{
		"before an answer": {Leg: cluster.Decode, At: cluster.AtArrival},
		"before an event":  {Leg: cluster.Decode, At: cluster.AtChunk},
		"before decode":    {Leg: cluster.Prefill, At: cluster.AtArrival},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{toml: "[gateway.breaker]\nconsecutive_failures = 1\nopen_timeout = \"50ms\"\nhalf_open_requests = 3\n[gateway.retry]\nmax_attempts = 1\n",
				cluster: cluster.Options{Lease: byHand}})
			r.cluster.AddFault(cluster.Fault{Leg: cluster.Decode, Drop: true, Times: 1})
			r.post(chatPath, chatBody("hi", true))
			r.eventually("half open", func() bool { return r.breaker("decode") == "half-open" })
			held := r.cluster.Hold(gate)
			ctx, leave := context.WithCancel(within(t))
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() { r.postCtx(ctx, chatPath, chatBody("hi", true)) })
			}
			if err := held.WaitFor(within(t), 3); err != nil {
				t.Fatal(err)
			}
			leave()
			wg.Wait()
			r.settled()
			held.Release()
			if s := r.breaker("decode"); s != "half-open" {
				t.Errorf("the breaker is %s", s)
			}
			for i := range 3 {
				if got := r.post(chatPath, chatBody("hi", true)); got.status != http.StatusOK {
					t.Errorf("trial %d: %d %s", i, got.status, got.body)
				}
			}
			if s := r.breaker("decode"); s != "closed" {
				t.Errorf("the breaker is %s", s)
			}
			r.settled()
		})
	}
}

func (r *rig) breaker(profile string) string { return r.Status("").Breakers[profile] }
