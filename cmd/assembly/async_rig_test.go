package assembly_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llm-coordinator/coordinator/loadtest/broker"
	"github.com/llm-coordinator/coordinator/transport/broker/redistest"
)

// asyncRig is a rig whose requests may wait, and the Redis where they do.
type asyncRig struct {
	*rig
	line   *redistest.Line   // from the coordinator to Redis
	redis  *redis.Client     // the test's own, which does not use the line
	server *redistest.Server // nil: it is a miniredis
	addr   string
}

// asyncSetup says what one is like.
type asyncSetup struct {
	setup
	params string   // further parameters of the step
	redis  []string // further flags of redis-server
	user   string   // and password, "user:password@"
	// real: a miniredis does not do.
	real bool
}

const (
	asyncQueue  = "request-sortedset"
	modeHeader  = "x-llm-d-async-mode"
	tenHeader   = "x-llm-d-tenant"
	timeHeader  = "x-llm-d-request-timeout-seconds"
	objHeader   = "x-llm-d-inference-objective"
	fairHeader  = "x-llm-d-inference-fairness-id"
	asyncBody   = `{"model":"demo-model", "x":12345678901234567890,"messages":[{"role":"user","content":"a < b & c"}]}`
	noRedisHere = "there is no redis-server (Debian: apt-get install redis-server)"
)

func newAsync(t testing.TB, s asyncSetup) *asyncRig {
	t.Helper()
	a := &asyncRig{server: redistest.Start(t, s.redis...)}
	switch {
	case a.server != nil:
		a.addr = a.server.Addr
	case s.real:
		t.Skip("!!! LEFT OUT: what only a real Redis shows: " + noRedisHere)
	default:
		t.Log("!!! LEFT OUT: " + noRedisHere + ": this test runs with a miniredis, without notifications")
		m, err := broker.StartMemory()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		a.addr = m.Addr()
	}
	a.redis, a.line = redisClient(t, a.addr), redistest.NewLine(t, a.addr)
	s.setup = s.whole()
	s.steps = asyncStep(s.user+a.line.Addr().String(), s.params) + s.steps
	a.rig = newRig(t, s.setup)
	return a
}

func asyncStep(at, params string) string {
	return fmt.Sprintf("[[pipeline.steps]]\ntype = \"async-broker\"\n[pipeline.steps.params]\nredis_url = \"redis://%s/0\"\n%s\n", at, params)
}

// ask sends a request in a mode, under an id; "" is none.
func (a *asyncRig) ask(mode, id string, header ...string) response {
	a.t.Helper()
	return a.post(chatPath, asyncBody, a.headers(mode, id, header)...)
}

func (a *asyncRig) headers(mode, id string, header []string) []string {
	header = append([]string{modeHeader, mode}, header...)
	if id != "" {
		header = append(header, "X-Request-Id", id)
	}
	return header
}

// begins sends a request whose client may leave.
func (a *asyncRig) begins(mode, id string, header ...string) *sending {
	ctx, leave := context.WithCancel(within(a.t))
	s := &sending{make(chan response, 1), leave}
	go func() { s.answer <- a.postCtx(ctx, chatPath, asyncBody, a.headers(mode, id, header)...) }()
	return s
}

// call is one about a queued request.
func (a *asyncRig) call(method, id string, header ...string) response {
	a.t.Helper()
	req, err := http.NewRequestWithContext(within(a.t), method, a.base+"/v1/requests/"+id, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return response{err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return response{resp.StatusCode, resp.Header, string(text), err}
}

// settled waits until all requests have ended, and what outlives them too.
func (a *asyncRig) settled() {
	a.t.Helper()
	for ctx := within(a.t); a.sent.Load() > 0; a.sent.Add(-1) {
		select {
		case <-a.finished:
		case <-ctx.Done():
			a.t.Fatalf("%d requests have not ended: %+v", a.sent.Load(), a.Engine.Status())
		}
	}
	a.atRest()
	if n := a.waiting(); n != 0 {
		a.t.Errorf("%v are still waiting", n)
	}
	if st := a.cluster.State(); st.ViolationCount != 0 {
		a.t.Errorf("the cluster saw violations: %q", st.Violations)
	}
}

// envelope is a request as it lies in the queue.
type envelope struct {
	Internal struct {
		Token string `json:"request_token"`
	} `json:"internal"`
	Data struct {
		ID       string            `json:"id"`
		Created  int64             `json:"created"`
		Deadline int64             `json:"deadline"`
		Payload  json.RawMessage   `json:"payload"`
		Metadata map[string]string `json:"metadata"`
		Headers  map[string]string `json:"headers"`
		Endpoint string            `json:"endpoint"`
	} `json:"data"`
}

// queued waits until so many requests are in a queue, and returns them, the first
// deadline first.
func (a *asyncRig) queued(queue string, n int) []envelope {
	a.t.Helper()
	a.eventually(fmt.Sprintf("%d in %s", n, queue), func() bool { return a.redis.ZCard(a.t.Context(), queue).Val() == int64(n) })
	var all []envelope
	for _, member := range a.redis.ZRange(a.t.Context(), queue, 0, -1).Val() {
		var e envelope
		if err := json.Unmarshal([]byte(member), &e); err != nil {
			a.t.Fatalf("%v: %s", err, member)
		}
		all = append(all, e)
	}
	return all
}

// held waits until so many clients are kept waiting.
func (a *asyncRig) held(n float64) {
	a.t.Helper()
	a.eventually(fmt.Sprintf("%v held", n), func() bool { return a.waiting() == n })
}

func (a *asyncRig) waiting() float64 { return a.metric(a.t.(*testing.T), metricPrefix+"async_waiting") }

func mailbox(id string) string   { return "results:req:default:" + id }
func activeKey(id string) string { return "request-active:default:" + id }
func cancelKey(id string) string { return "request-cancel:default:" + id }

// mail puts a result into the mailbox of a request of the default tenant.
func (a *asyncRig) mail(id, text string) {
	a.t.Helper()
	if err := a.redis.LPush(a.t.Context(), mailbox(id), text).Err(); err != nil {
		a.t.Fatal(err)
	}
}

// answered is a result with an answer.
func answered(id string, status int, payload string) string {
	return fmt.Sprintf(`{"id":"default:%s","status_code":%d,"payload":%q}`, id, status, payload)
}

// failed is a result without one.
func failed(id, code string) string {
	return fmt.Sprintf(`{"id":"default:%s","payload":"{}","error_code":%q,"error_message":"because","request_token":"x","new":[1]}`, id, code)
}

func (a *asyncRig) exists(key string) bool { return a.redis.Exists(a.t.Context(), key).Val() == 1 }

// is checks an answer: its status, that it has the request's id, and what its body
// begins with; of an error object, its type, its code and what its message begins
// with.
func (r response) is(t testing.TB, status int, want ...string) {
	t.Helper()
	if r.err != nil || r.status != status || r.header.Get("X-Request-Id") == "" {
		t.Errorf("got %d %v %v %s, want %d", r.status, r.err, r.header, r.body, status)
		return
	}
	if len(want) == 1 {
		if !strings.HasPrefix(r.body, want[0]) {
			t.Errorf("got %s, want %s", r.body, want[0])
		}
		return
	}
	var e struct {
		Error struct{ Type, Code, Message string }
	}
	err := json.Unmarshal([]byte(r.body), &e)
	if len(want) == 3 && (err != nil || e.Error.Type != want[0] || e.Error.Code != want[1] || !strings.HasPrefix(e.Error.Message, want[2])) {
		t.Errorf("got %s, want %q", r.body, want)
	}
}

// startBroker has a broker serve the queue, which sends what is in it to the
// cluster, as the decode workers' gateway does.
func (a *asyncRig) startBroker(o broker.Options) *broker.Broker {
	a.t.Helper()
	o.Redis = "redis://" + a.addr
	if o.Gateway == "" {
		o.Gateway = a.base
	}
	b, err := broker.Start(o)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(b.Close)
	return b
}
