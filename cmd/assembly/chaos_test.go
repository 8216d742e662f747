package assembly_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/server"
)

// chaosTOML has everything end soon: time-outs, open breakers, leases.
const chaosTOML = `
[gateway]
timeout = "1s"
stream_idle_timeout = "1s"
idle_conn_timeout = "100ms"
[gateway.profiles.decode]
timeout = "1s"
[gateway.breaker]
consecutive_failures = 5
open_timeout = "100ms"
half_open_requests = 2
[gateway.retry]
base_delay = "5ms"
max_delay = "100ms"
[actors]
queue_timeout = "2s"
[actors.pools]
decode = { size = 24, queue = 4 }
encode = { size = 8, queue = 32 }
`

// TestChaos has clients of all kinds, some of which read slowly or leave, meet
// waves of every fault there is. Each request ends soon and as the contract says,
// and when the faults are gone all is as if nothing had been. CHAOS_TIME says how
// long it runs.
func TestChaos(t *testing.T) {
	seed := rand.Uint64()
	runChaos(t, seed, chaosTime(t), setup{steps: quickMedia(probingSteps), tokensIn: seed%2 != 0})
}

// TestChaosOfFurtherWorkers is TestChaos, shorter, for workers that want both legs at
// once, or to be told which worker has the KV.
func TestChaosOfFurtherWorkers(t *testing.T) {
	long := chaosTime(t) / 6
	for name, s := range map[string]setup{
		"kv-sglang":                      {kv: cluster.KVSGLang, steps: mediaStep + renderStep + encodeStep + pairStep(byReserve)},
		"kv-mooncake":                    {kv: cluster.KVMooncake, steps: mediaStep + renderStep + encodeStep + prefillOf(cluster.KVMooncake) + decodeStep},
		"kv-mooncake, both legs at once": {kv: cluster.KVMooncake, steps: mediaStep + renderStep + encodeStep + pairStep(`bootstrap_from = "static:127.0.0.1"`)},
		"kv-moriio":                      {kv: cluster.KVMoriio, steps: mediaStep + renderStep + encodeStep + prefillOf(cluster.KVMoriio) + decodeStep},
	} {
		t.Run(name, func(t *testing.T) {
			s.steps = quickMedia(s.steps)
			runChaos(t, rand.Uint64(), long, s)
		})
	}
}

// quickMedia has downloads end soon, and be kept for a while.
func quickMedia(steps string) string {
	return strings.Replace(steps, "max_download_size = 8", "max_download_size = 8, download_timeout = \"1s\", cache_size = 1, cache_ttl = \"1s\"", 1)
}

// runChaos is the chaos of one pipeline.
func runChaos(t *testing.T, seed uint64, long time.Duration, s setup) {
	t.Logf("seed %d, use_openai_format %t, for %v", seed, !s.tokensIn, long)
	s.render, s.toml, s.pipeline = "timeout = \"1s\", idle_conn_timeout = \"100ms\"", chaosTOML, "request_timeout = \"5s\"\nkv_lease = \"2s\"\n"
	s.cluster = cluster.Options{Lease: 2 * time.Second, OmitBodies: true, CacheDecodes: true, TokenInterval: 100 * time.Microsecond}
	r := newRig(t, s)
	r.Server.Finished = func(server.Record) {} // nobody counts
	if got := r.do(http.MethodGet, "/healthz", "", ""); got.status != http.StatusOK {
		t.Fatalf("%d %v", got.status, got.err)
	}
	fresh := runtime.NumGoroutine()
	c := &chaos{rig: r, endings: map[string]int{}, noGenerate: s.kv == cluster.KVSGLang}
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 32 {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		wg.Go(func() {
			for ctx.Err() == nil && c.bad.Load() < 20 {
				c.request(random)
			}
		})
	}
	wg.Go(func() { c.spoil(ctx, rand.New(rand.NewPCG(seed, 1000))) })
	wg.Wait()
	r.cluster.ClearFaults()
	t.Logf("%d requests: %v", c.requests.Load(), c.endings)

	c.recover()
	r.atRest()
	c.clean()
	r.eventually(fmt.Sprintf("down to %d goroutines", fresh), func() bool {
		r.client.CloseIdleConnections()
		return runtime.NumGoroutine() <= fresh
	})
	for i := range 100 {
		text := fmt.Sprintf("all is well %d", i)
		if got := r.post(chatPath, chatBody(text, false)); got.status != http.StatusOK || !strings.Contains(got.body, cluster.Reply(text)) {
			t.Errorf("request %d after the chaos: %d %v %s", i, got.status, got.err, got.body)
		}
	}
	r.atRest()
}

// encodedAgain is what the cluster says of an image that two legs of a request had.
var encodedAgain = regexp.MustCompile(`^encode (\S+): image \S+ is encoded more than once, before by (\S+)$`)

// clean checks what the cluster has seen and holds.
func (c *chaos) clean() {
	st := c.cluster.State()
	c.t.Logf("cluster: %+v", st)
	// An answer that crosses its time-out was sent, as far as the worker knows, and
	// the retry finds the image encoded. Or an attempt that nobody waits for any more
	// begins late, and finds the retry's. Neither is anybody's fault; the same leg
	// twice would be.
	crossed := 0
	for _, v := range st.Violations {
		if m := encodedAgain.FindStringSubmatch(v); m != nil && m[1] != m[2] {
			crossed++
		}
	}
	if st.HeldKV+st.ReusedHandoffs+st.WorkerFetches+st.ViolationCount-crossed != 0 {
		c.t.Errorf("cluster: held %d, reused %d, fetched by workers %d, violations %q", st.HeldKV, st.ReusedHandoffs, st.WorkerFetches, st.Violations)
	}
}

func chaosTime(t *testing.T) time.Duration {
	if text := os.Getenv("CHAOS_TIME"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("CHAOS_TIME: %v", err)
		}
		return d
	}
	if testing.Short() {
		return 10 * time.Second
	}
	return 2 * time.Minute
}

// chaos is what clients and the driver of faults share.
type chaos struct {
	*rig
	requests, bad atomic.Int64
	noGenerate    bool // the workers have no route for token ids

	mu      sync.Mutex
	endings map[string]int
}

// bound is what no request comes near: its deadline, and then what one of its
// bytes after the other may take, on a machine that has much else to do.
const bound = time.Minute

// request sends a request of any kind, and judges how it ends.
func (c *chaos) request(random *rand.Rand) {
	n := c.requests.Add(1)
	id, word := fmt.Sprintf("chaos-%d", n), fmt.Sprintf("word%d", n)
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	if random.IntN(30) == 0 {
		c.models(ctx)
		return
	}
	left := random.IntN(6) == 0
	if left {
		defer time.AfterFunc(time.Duration(random.IntN(400))*time.Millisecond, cancel).Stop()
	}
	path, body := c.body(random, word)
	resp, err := c.open(ctx, path, body, "X-Request-Id", id)
	if err != nil {
		c.note(ctx, left, id, "no answer", fmt.Errorf("no answer: %w", err))
		return
	}
	defer resp.Body.Close()
	from := io.Reader(resp.Body)
	if random.IntN(8) == 0 {
		from = &slowReader{from, ctx, time.Duration(random.IntN(5)) * time.Millisecond, slowReads}
	}
	text, err := io.ReadAll(from)
	kind, wrong := judge(response{resp.StatusCode, resp.Header, string(text), err}, id, word)
	if wrong != nil {
		wrong = fmt.Errorf("%w\n%s %.300s\n%d %v %v\n%s", wrong, path, body, resp.StatusCode, resp.Header, err, text)
	}
	c.note(ctx, left, id, kind, wrong)
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
		after(ctx, time.Duration(random.IntN(100))*time.Millisecond) // or there would be little else
	}
}

// note counts an ending, and reports a wrong one unless the client has left.
func (c *chaos) note(ctx context.Context, left bool, id, kind string, wrong error) {
	switch {
	case left && ctx.Err() != nil:
		kind = "left"
	case ctx.Err() != nil:
		c.bad.Add(1)
		c.t.Errorf("%s: not ended after %v: %v", id, bound, wrong)
	case wrong != nil:
		c.bad.Add(1)
		c.t.Errorf("%s: %v", id, wrong)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endings[kind]++
}

func (c *chaos) models(ctx context.Context) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/v1/models", nil)
	if err != nil {
		panic(err)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		c.note(ctx, false, "models", "no answer", err)
		return
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	kind, wrong := judge(response{resp.StatusCode, resp.Header, string(text), err}, resp.Header.Get("X-Request-Id"), "demo-model")
	c.note(ctx, false, "models", "models: "+kind, wrong)
}

// body makes up a request whose answer has a word in it, unless it is one of
// token ids.
func (c *chaos) body(random *rand.Rand, word string) (path, body string) {
	stream := random.IntN(3) > 0
	text := "say " + word
	if random.IntN(10) == 0 {
		text += strings.Repeat(" and on", 300)
	}
	switch kind := random.IntN(5); {
	case kind == 0 || kind == 1 && c.noGenerate:
		return completionsPath, fmt.Sprintf(`{"model":"demo-model","stream":%t,"prompt":%q}`, stream, text)
	case kind == 1:
		return generatePath, fmt.Sprintf(`{"token_ids":[1,%d,%d],"stream":%t,"sampling_params":{"max_tokens":8}}`, random.IntN(1000), random.IntN(1000), stream)
	}
	var parts strings.Builder
	for range random.IntN(4) {
		url := dataURI(picture(byte(random.IntN(256)), 20+random.IntN(2000)))
		if random.IntN(2) == 0 {
			url = c.cluster.ImageURL(fmt.Sprintf("%d.png", random.IntN(100)), cluster.ImageOptions{Bytes: 1000})
		}
		fmt.Fprintf(&parts, `,{"type":"image_url","image_url":{"url":%q}}`, url)
	}
	return chatPath, fmt.Sprintf(`{"model":"demo-model","stream":%t,"messages":[{"role":"user","content":[{"type":"text","text":%q}%s]}]}`, stream, text, parts.String())
}

// slowReader reads little, and pauses, so often.
type slowReader struct {
	from  io.Reader
	ctx   context.Context
	pause time.Duration
	left  int
}

// slowReads bounds the time of that: what is left is read as it comes.
const slowReads = 1000

func (s *slowReader) Read(p []byte) (int, error) {
	if s.left--; s.left < 0 {
		return s.from.Read(p)
	}
	after(s.ctx, s.pause)
	return s.from.Read(p[:min(len(p), 100)])
}

// after paces what clients and faults do; nothing that is checked waits for it.
func after(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// spoil adds and removes faults in waves, with calm between some of them.
func (c *chaos) spoil(ctx context.Context, random *rand.Rand) {
	for ctx.Err() == nil {
		var ids []string
		for range random.IntN(4) {
			ids = append(ids, c.cluster.AddFault(anyFault(random)))
		}
		after(ctx, time.Duration(50+random.IntN(800))*time.Millisecond)
		for _, id := range ids {
			c.cluster.RemoveFault(id)
		}
	}
}

// anyFault is one of those that the leg can have.
func anyFault(random *rand.Rand) cluster.Fault {
	legs := []string{cluster.Origin, cluster.Render, cluster.Probe, cluster.Encode, cluster.Prefill, cluster.Prefill, cluster.Decode, cluster.Decode, cluster.Decode}
	leg := legs[random.IntN(len(legs))]
	chunks := func() *int { return new(random.IntN(6)) }
	faults := []cluster.Fault{
		{Drop: true},
		{Drop: true, OnlyReused: true},
		{Hang: true},
		{Status: []int{500, 502, 503}[random.IntN(3)]},
		{Status: 503, Headers: map[string]string{"Retry-After": strconv.Itoa(random.IntN(2))}},
		{Status: 503, Headers: map[string]string{"x-llm-d-request-dropped-reason": "full"}},
		{Status: 429, Headers: map[string]string{"Retry-After": "1"}},
		{Garbage: true},
		{Delay: time.Duration(random.IntN(1300)) * time.Millisecond},
		{BreakAfter: chunks()},
	}
	switch leg {
	case cluster.Decode, cluster.Probe:
		faults = append(faults, cluster.Fault{ErrorEventAfter: chunks()}, cluster.Fault{EndAfter: chunks()}, cluster.Fault{LoseKV: true})
	case cluster.Prefill:
		faults = append(faults, cluster.Fault{LoseKV: true}, cluster.Fault{FinishError: true},
			cluster.Fault{BadHandoff: json.RawMessage([]string{`null`, `{}`, `"none"`, `{"remote_engine_id":null,"remote_host":"h","remote_port":1}`,
				`{"remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":1,"remote_request_id":"nobody"}`}[random.IntN(5)])})
	case cluster.Encode:
		faults = append(faults, cluster.Fault{FinishError: true})
	}
	f := faults[random.IntN(len(faults))]
	f.Leg, f.Times = leg, random.IntN(3)*random.IntN(5)
	return f
}

// recover sends requests of all kinds until the breakers are closed again.
func (c *chaos) recover() {
	c.t.Helper()
	random := rand.New(rand.NewPCG(1, 1))
	for well, tries := 0, 0; well < 30; tries++ {
		if tries == 3000 {
			c.t.Fatalf("no recovery: %+v", c.Status(""))
		}
		path, body := c.body(random, "again")
		got := c.post(path, body)
		if well++; got.status != http.StatusOK {
			well = 0
		}
	}
	for profile, state := range c.Status("").Breakers {
		if state != "closed" {
			c.t.Errorf("the breaker of %s is %s", profile, state)
		}
	}
}

// TestEncodeRetriedAfterRenderWas twice: the cluster took the descriptor of the
// retry for another request's, as the chaos has shown.
func TestEncodeRetriedAfterRenderWas(t *testing.T) {
	for name, leg := range map[string]string{"encode": cluster.Encode, "prefill": cluster.Prefill} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{steps: wholeSteps, toml: quick})
			r.cluster.AddFault(cluster.Fault{Leg: cluster.Render, BreakAfter: new(1), Times: 2})
			r.cluster.AddFault(cluster.Fault{Leg: leg, Status: 503, Times: 1})
			if got := r.post(chatPath, imagesBody(dataURI(picture(1, 100))), "X-Request-Id", "id"); got.status != http.StatusOK {
				t.Errorf("%d %s: %v", got.status, got.body, r.legIDs("id"))
			}
			r.settled()
		})
	}
}
