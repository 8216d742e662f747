package assembly_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/server"
)

// transitions is how often a profile's breaker has gone from one state to another.
func (r *rig) transitions(t *testing.T, profile, from, to string) int {
	return int(r.metric(t, "llm_d_coordinator_breaker_transitions_total", "profile="+profile, "from="+from, "to="+to))
}

// retryAfter is what an answer says in seconds, 0 if it does not.
func retryAfter(got response) int {
	n, _ := strconv.Atoi(got.header.Get("Retry-After"))
	return n
}

// TestDecodeIsDead: once its breaker is open no prompt is computed for it but
// those of trials, and clients are told when to come back. When it is there again
// so is all traffic.
func TestDecodeIsDead(t *testing.T) {
	const failures, trials, crowd, each = 5, 3, 8, 40
	r := newRig(t, setup{toml: fmt.Sprintf("[gateway.breaker]\nconsecutive_failures = %d\nhalf_open_requests = %d\nopen_timeout = \"200ms\"\n", failures, trials),
		cluster: cluster.Options{Lease: byHand}})
	id := r.cluster.AddFault(cluster.Fault{Leg: cluster.Decode, Drop: true})
	var refused atomic.Int64
	var wg sync.WaitGroup
	for range crowd {
		wg.Go(func() {
			for range each {
				got := r.post(chatPath, chatBody("hi", true))
				switch o := readError(t, got.body); {
				case got.status == http.StatusServiceUnavailable && o.Error.Code == "upstream_unavailable" && retryAfter(got) >= 1:
					refused.Add(1)
				case got.status != http.StatusBadGateway || o.Error.Code != "upstream_failed":
					t.Errorf("%d %v %s", got.status, got.header, got.body)
				}
			}
		})
	}
	wg.Wait()
	if n := r.transitions(t, "decode", "closed", "open"); n != 1 {
		t.Errorf("the breaker opened %d times", n)
	}
	// A prefill is sent under a permit to send decode. When the breaker opens, or
	// opens again, each client may hold one.
	halfOpen := r.transitions(t, "decode", "open", "half-open")
	if most := failures + crowd + halfOpen*2*trials; r.cluster.Count(cluster.Prefill) > most {
		t.Errorf("%d prefills were sent, want at most %d (half open %d times)", r.cluster.Count(cluster.Prefill), most, halfOpen)
	}
	if least := int64(crowd*each - failures - crowd - halfOpen*2*trials); refused.Load() < least {
		t.Errorf("%d were refused, want at least %d", refused.Load(), least)
	}
	if n := r.transitions(t, "decode", "half-open", "closed"); n != 0 {
		t.Errorf("the breaker closed %d times though all is dead", n)
	}
	r.settled()

	r.cluster.RemoveFault(id)
	r.eventually("closed", func() bool {
		r.post(chatPath, chatBody("hi", true))
		return r.breaker("decode") == "closed"
	})
	if n := r.transitions(t, "decode", "half-open", "closed"); n != 1 {
		t.Errorf("the breaker closed %d times", n)
	}
	for range 20 {
		if got := r.post(chatPath, chatBody("hi", false)); got.status != http.StatusOK {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	r.settled()
}

// TestSlowTimeOutsTrip a breaker, also if each takes longer than the window that
// it counts in.
func TestSlowTimeOutsTrip(t *testing.T) {
	for _, leg := range []string{cluster.Prefill, cluster.Decode} {
		t.Run(leg, func(t *testing.T) {
			r := newRig(t, setup{toml: "[gateway.profiles." + leg + "]\ntimeout = \"5s\"\n[gateway.retry]\nmax_attempts = 1\n" +
				"[gateway.breaker]\nconsecutive_failures = 3\nfailure_ratio = 0.0\ninterval = \"4s\"\nopen_timeout = \"24h\"\n", cluster: cluster.Options{Lease: byHand}})
			r.cluster.AddFault(cluster.Fault{Leg: leg, Hang: true})
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					got := r.post(chatPath, chatBody("hi", true))
					if o := readError(t, got.body); got.status != http.StatusGatewayTimeout || o.Error.Code != "upstream_timeout" {
						t.Errorf("%d %s", got.status, got.body)
					}
				})
			}
			wg.Wait()
			if s := r.breaker(leg); s != "open" {
				t.Errorf("the breaker is %s", s)
			}
			got := r.post(chatPath, chatBody("hi", true))
			if o := readError(t, got.body); got.status != http.StatusServiceUnavailable || o.Error.Code != "upstream_unavailable" || retryAfter(got) < 1 {
				t.Errorf("%d %v %s", got.status, got.header, got.body)
			}
			r.settled()
		})
	}
}

// TestClusterIsRestarted in the middle of traffic: its process is killed, with all
// its connections, and a new one that knows nothing takes its address.
func TestClusterIsRestarted(t *testing.T) {
	r := newRig(t, setup{steps: probingSteps, toml: "[gateway.breaker]\nopen_timeout = \"100ms\"\n",
		cluster: cluster.Options{TokenInterval: 100 * time.Microsecond}})
	r.Server.Finished = func(server.Record) {}
	var stop atomic.Bool
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			for n := 0; !stop.Load(); n++ {
				id, word := fmt.Sprintf("restart-%d-%d", i, n), fmt.Sprintf("word%d", n)
				got := r.post(chatPath, chatBody("say "+word+strings.Repeat(" and on", 10), n%2 == 0), "X-Request-Id", id)
				if _, wrong := judge(got, id, word); wrong != nil {
					t.Errorf("%v: %d %v %v %s", wrong, got.status, got.header, got.err, got.body)
				}
			}
		})
	}
	served := func(n int) func(cluster.State) bool {
		return func(s cluster.State) bool { return s.Legs[cluster.Decode] >= n }
	}
	for range 3 {
		if err := r.cluster.Wait(within(t), served(100)); err != nil {
			t.Fatal(err)
		}
		r.restart()
	}
	if err := r.cluster.Wait(within(t), served(100)); err != nil {
		t.Fatal(err)
	}
	stop.Store(true)
	wg.Wait()
	for range 20 {
		if got := r.post(chatPath, chatBody("hi", false)); got.status != http.StatusOK {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	r.atRest()
	if st := r.cluster.State(); st.ReusedHandoffs+st.ViolationCount != 0 {
		t.Errorf("%+v", st)
	}
}

// restart kills the cluster and starts another at its address.
func (r *rig) restart() {
	r.t.Helper()
	addr := strings.TrimPrefix(r.cluster.URL(), "http://")
	r.cluster.Close()
	r.eventually("listening at "+addr, func() bool { // which somebody may have for a moment
		next := cluster.New(cluster.Options{KV: cluster.KVNixl, EC: cluster.ECNixl})
		if next.Start(addr) != nil {
			next.Close()
			return false
		}
		r.cluster = next
		return true
	})
}

// relay is a load balancer: it gives each connection to the next replica that
// says it is ready.
type relay struct {
	net.Listener
	replicas []string // host:port
	next     atomic.Int64
	running  sync.WaitGroup
	prober   http.Client
}

func newRelay(t *testing.T, replicas ...*rig) *relay {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &relay{Listener: l, prober: http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	for _, r := range replicas {
		b.replicas = append(b.replicas, strings.TrimPrefix(r.base, "http://"))
	}
	b.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			b.running.Go(func() { b.serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		b.running.Wait()
	})
	return b
}

// serve carries what comes over a connection, both ways, until one side ends.
func (b *relay) serve(client net.Conn) {
	defer client.Close()
	first := int(b.next.Add(1))
	for i := range b.replicas {
		at := b.replicas[(first+i)%len(b.replicas)]
		if !b.ready(at) {
			continue
		}
		replica, err := net.Dial("tcp", at)
		if err != nil {
			return
		}
		defer replica.Close()
		var ways sync.WaitGroup
		for _, way := range [][2]net.Conn{{client, replica}, {replica, client}} {
			ways.Go(func() {
				io.Copy(way[0], way[1])
				way[0].Close()
				way[1].Close()
			})
		}
		ways.Wait()
		return
	}
}

func (b *relay) ready(at string) bool {
	resp, err := b.prober.Get("http://" + at + "/readyz")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// TestReplicaStopsUnderLoad: of two replicas behind one address one is told to
// stop while it writes a hundred streams and more requests come. Clients that
// meet a broken connection or 503 before the first byte try once more; then
// nothing is lost.
func TestReplicaStopsUnderLoad(t *testing.T) {
	const streams, crowd = 200, 20
	first := newRig(t, setup{toml: "[server]\ndrain_delay = \"100ms\"\n"})
	second := newRig(t, setup{gateway: first.cluster.URL(), steps: strings.ReplaceAll(fullSteps, "CLUSTER", first.cluster.URL())})
	balancer := newRelay(t, first, second)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: streams + crowd}}
	defer client.CloseIdleConnections()
	var again atomic.Int64
	ask := func(text string) error {
		got, err := askTwice(within(t), client, "http://"+balancer.Addr().String()+chatPath, chatBody(text, true), &again)
		if err == nil && (got.status != http.StatusOK || got.err != nil || !strings.HasSuffix(got.body, "data: [DONE]\n\n") || said(t, got.body, true) != cluster.Reply(text)) {
			err = fmt.Errorf("%d %w %s", got.status, got.err, got.body)
		}
		return err
	}
	gate := first.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtChunk, Chunk: 2, Times: streams})
	var wg sync.WaitGroup
	for range streams {
		wg.Go(func() {
			if err := ask("one two three four"); err != nil {
				t.Errorf("a stream is lost: %v", err)
			}
		})
	}
	if err := gate.WaitFor(within(t), streams); err != nil {
		t.Fatal(err)
	}
	if a, b := first.Engine.Status().Inflight, second.Engine.Status().Inflight; a != streams/2 || b != streams/2 {
		t.Errorf("%d and %d streams", a, b)
	}
	var stopped atomic.Bool
	var served atomic.Int64
	for range crowd {
		wg.Go(func() {
			for last := false; !last; served.Add(1) {
				last = stopped.Load() // one more after that
				if err := ask("five six"); err != nil {
					t.Errorf("a request is lost: %v", err)
				}
			}
		})
	}
	await := func(what string, reached func() bool) {
		t.Helper()
		first.eventually(what, reached)
	}
	await("under load", func() bool { return served.Load() > crowd })
	first.stop()
	await("closed", func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(first.base, "http://"))
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	gate.Release()
	if o := <-first.ended; o.cut != 0 || o.err != nil {
		t.Errorf("the first replica ended with %+v", o)
	}
	first.ended <- outcome{}
	stopped.Store(true)
	wg.Wait()
	t.Logf("%d requests beside the streams, %d tries were made again", served.Load(), again.Load())
	first.atRest()
	second.atRest()
	if st := first.cluster.State(); st.ReusedHandoffs+st.ViolationCount != 0 {
		t.Errorf("%+v", st)
	}
}

// askTwice sends a request, and once more, on a connection of its own, if the first
// one ends before an answer or the replica is shutting down: others that the
// client has kept are as old.
func askTwice(ctx context.Context, client *http.Client, url, body string, again *atomic.Int64) (response, error) {
	var failed error
	for try := range 2 {
		again.Add(int64(try))
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			return response{}, err
		}
		req.Header.Set("Content-Type", "application/json")
		with := client
		if try > 0 {
			with = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		}
		resp, err := with.Do(req)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		got := response{resp.StatusCode, resp.Header, string(text), err}
		if got.status != http.StatusServiceUnavailable {
			return got, nil
		}
		failed = errors.Join(failed, fmt.Errorf("%d %s", got.status, got.body))
	}
	return response{}, failed
}

// TestOverload: three times as many clients as there is room for, each of which
// sends its next request when it has the answer to the last one, and the same one
// again when it is refused. All are served in the end, and never more at once
// than there are places.
func TestOverload(t *testing.T) {
	const places, queue, crowd, each = 4, 4, 3 * (4 + 4), 10
	r := newRig(t, setup{toml: fmt.Sprintf("[actors.pools]\ndecode = { size = %d, queue = %d }\n", places, queue)})
	r.Server.Finished = func(server.Record) {}
	gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtArrival})
	var answered, refused atomic.Int64
	var wg sync.WaitGroup
	for range crowd {
		wg.Go(func() {
			for range each {
				if r.insist(t, &refused) {
					answered.Add(1)
				}
			}
		})
	}
	// Nobody is answered while the gate is shut, so all that have no room are refused.
	if err := gate.WaitFor(within(t), places); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(within(t))
	watched := make(chan int)
	go func() {
		most := 0
		r.cluster.Wait(ctx, func(s cluster.State) bool {
			most = max(most, s.InFlight[cluster.Decode], s.InFlight[cluster.Prefill])
			return false
		})
		watched <- most
	}()
	r.eventually("refused", func() bool { return refused.Load() >= crowd-places-queue })
	gate.Release()
	wg.Wait()
	cancel()
	if most := <-watched; most > places {
		t.Errorf("%d legs at once for %d places", most, places)
	}
	if answered.Load() != crowd*each {
		t.Errorf("%d answered, %d refused", answered.Load(), refused.Load())
	}
	r.atRest()
}

// insist sends a request until it is answered, and counts how often it is refused
// before.
func (r *rig) insist(t *testing.T, refused *atomic.Int64) (answered bool) {
	for ctx := within(t); ctx.Err() == nil; {
		got := r.postCtx(ctx, chatPath, chatBody("hi", false))
		if got.status == http.StatusOK && got.err == nil {
			return true
		}
		if got.status != http.StatusTooManyRequests || retryAfter(got) < 1 {
			t.Errorf("%d %v %v %s", got.status, got.header, got.err, got.body)
			return false
		}
		refused.Add(1)
		after(ctx, 5*time.Millisecond) // a client's patience, and not the test's
	}
	t.Error("never answered")
	return false
}

// TestSmallTenantGetsItsShare though another sends ten times as much: of the queue
// of decode, and of the requests in flight, where it displaces one that waits.
func TestSmallTenantGetsItsShare(t *testing.T) {
	for name, limits := range map[string]string{
		"of the queue of decode":    "max_inflight_requests = 100\n[actors.pools]\ndecode = { size = 2, queue = 14 }\n",
		"of the requests in flight": "max_inflight_requests = 16\n[actors.pools]\ndecode = { size = 2, queue = 100 }\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{toml: "[actors]\n" + limits})
			r.Server.Finished = func(server.Record) {}
			gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode})
			var all sync.WaitGroup
			var served, refused atomic.Int64
			ask := func(tenant string) {
				all.Go(func() {
					got := r.post(chatPath, chatBody("hi", false), "x-llm-d-inference-fairness-id", tenant)
					switch {
					case got.status == http.StatusOK:
						served.Add(1)
					case got.status == http.StatusTooManyRequests && tenant == "big" && got.header.Get("Retry-After") != "":
						refused.Add(1)
					default:
						t.Errorf("%s got %d %v %s", tenant, got.status, got.err, got.body)
					}
				})
			}
			waiting := func() int {
				for _, p := range r.Engine.Status().Pools {
					if p.Name == "decode" {
						return p.Queued
					}
				}
				return 0
			}
			for range 20 {
				ask("big")
			}
			r.eventually("full", func() bool { return refused.Load() == 4 && waiting() == 14 })
			ask("small")
			ask("small")
			r.eventually("displaced", func() bool { return refused.Load() == 6 && waiting() == 14 })
			gate.Release()
			all.Wait()
			if served.Load() != 16 {
				t.Errorf("%d served", served.Load())
			}
			if n := r.metric(t, "llm_d_coordinator_shed_total", "reason=displaced"); n != 2 {
				t.Errorf("%v displaced", n)
			}
			r.atRest()
		})
	}
}
