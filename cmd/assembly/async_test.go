package assembly_test

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// TestAsyncWithoutAMode: the worker gets what it gets without the step, whatever else
// the client says, and Redis hears nothing.
func TestAsyncWithoutAMode(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{setup: setup{steps: decodeStep}, params: "quota = { limits = { acme = 1 } }"})
	without := newRig(t, setup{steps: decodeStep})
	headers := []string{"X-Request-Id", "same-1", tenHeader, "acme", objHeader, "mine", fairHeader, "mine", timeHeader, "3", "X-Gateway-Inference-Objective", "mine"}
	a.line.Heard()
	for _, stream := range []bool{false, true} {
		body := chatBody("a < b & c", stream)
		for _, more := range [][]string{nil, {modeHeader, ""}} {
			if got := a.post(chatPath, body, append(more, headers...)...); got.status != http.StatusOK {
				t.Fatalf("%d %v %s", got.status, got.err, got.body)
			}
		}
		if got := without.post(chatPath, body, headers...); got.status != http.StatusOK {
			t.Fatalf("%d %v %s", got.status, got.err, got.body)
		}
	}
	a.settled()
	without.settled()
	got, want := a.cluster.Legs("same-1"), without.cluster.Legs("same-1")
	if len(got) != 4 || len(want) != 2 {
		t.Fatalf("%d and %d legs", len(got), len(want))
	}
	for _, leg := range append(slices.Clone(got), want...) { // its own for each request
		if n := len(leg.Header.Values(wire.HeaderDecisionID)); n != 1 {
			t.Errorf("%d decision ids", n)
		}
		leg.Header.Del(wire.HeaderDecisionID)
	}
	for i, leg := range got {
		other := want[i/2]
		leg.Header.Del(modeHeader) // empty, where it was sent
		if string(leg.Body) != string(other.Body) || !reflect.DeepEqual(leg.Header, other.Header) || leg.Path != other.Path {
			t.Errorf("%s %v %s, without the step %s %v %s", leg.Path, leg.Header, leg.Body, other.Path, other.Header, other.Body)
		}
	}
	if said := a.line.Heard(); said != "" {
		t.Errorf("Redis was told %q", said)
	}
}

// TestAsyncRefusals: the four, in their order, however the mode is spelled, and Redis
// hears nothing.
func TestAsyncRefusals(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{})
	a.line.Heard()
	for _, tt := range []struct{ mode, body, tenant, want string }{
		{"later", `{"stream":true,"messages":[]}`, "a:b", "unknown x-llm-d-async-mode value"},
		{"WAIT", `{"stream":true,"messages":[]}`, "a:b", "stream is only supported in passthrough mode"},
		{"enQueue", `{"stream":true,"messages":[]}`, "a:b", "stream is only supported in passthrough mode"},
		{"Wait", `{"messages":[]}`, "a:b", "model is required"},
		{"enqueue", `{"model":"","messages":[]}`, "a:b", "model is required"},
		{"passThrough", `{"stream":true,"messages":[]}`, "a:b", "model is required"},
		{"Passthrough", `{"model":"demo-model","stream":true,"messages":[{"role":"user","content":"x"}]}`, "a:b", tenHeader + ` must not contain ":"`},
		{"ENQUEUE", asyncBody, ":", tenHeader + ` must not contain ":"`},
		{"wait", asyncBody, "a:", tenHeader + ` must not contain ":"`},
	} {
		a.post(chatPath, tt.body, modeHeader, tt.mode, tenHeader, tt.tenant).is(t, 400, "invalid_request_error", "INVALID_REQUEST", tt.want)
	}
	a.settled()
	if said := a.line.Heard(); said != "" {
		t.Errorf("Redis was told %q", said)
	}
	if legs := a.legs(""); len(legs) > 0 {
		t.Errorf("legs %v", legs)
	}
	a.ask("eNqUeUe", "").is(t, 202, `{"id":"`)
	a.settled()
}

// TestAsyncTimeoutHeader, by the deadline that lies in the queue.
func TestAsyncTimeoutHeader(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{params: "[pipeline.steps.params.timeouts]\nenqueue = { default_seconds = 100, max_seconds = 200 }\n"})
	for i, tt := range []struct {
		header string
		want   int64
	}{{"150", 150}, {"0", 100}, {"-5", 100}, {"soon", 100}, {"1.5", 100}, {"", 100}, {"201", 200}, {"99999999999999999999", 200}, {"7", 7}} {
		queue := asyncQueue
		a.redis.Del(t.Context(), queue)
		before := time.Now().Unix()
		a.ask("enqueue", fmt.Sprintf("t-%d", i), timeHeader, tt.header).is(t, 202, `{"id":"t-`)
		e := a.queued(queue, 1)[0]
		if d := e.Data.Deadline - e.Data.Created; d != tt.want || e.Data.Created < before || e.Data.Created > time.Now().Unix() {
			t.Errorf("%q: %d s, from %d on", tt.header, d, e.Data.Created)
		}
		score := a.redis.ZRangeWithScores(t.Context(), queue, 0, -1).Val()[0].Score
		ttl := a.redis.PTTL(t.Context(), activeKey(fmt.Sprintf("t-%d", i))).Val()
		if int64(score) != e.Data.Deadline || ttl <= 0 || time.Until(time.Now().Add(ttl)) > time.Duration(tt.want)*time.Second {
			t.Errorf("%q: score %v, deadline %d, the active key for %v", tt.header, score, e.Data.Deadline, ttl)
		}
	}
	a.settled()
}

// TestAsyncEnvelope: what lies in the queue is what the client sent, and routes name
// the queue.
func TestAsyncEnvelope(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{params: `
forward_headers = ["x-llm-d-slo-ttft-ms", "X-Other"]
routes = [{ tenant = "acme", queue = "q-acme" }, { model = "demo-model", tenant = "", queue = "q-model" }, { queue = "q-rest" }]
quota = { attribute = "team" }
`})
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	a.ask("enqueue", "e-1", tenHeader, "acme", "X-Llm-D-Slo-Ttft-Ms", "200", "x-other", "o", "X-Third", "no", "Traceparent", parent).is(t, 202, `{"id":"e-1","status":"pending"}`)
	e := a.queued("q-acme", 1)[0]
	if len(e.Internal.Token) != 32 || e.Data.ID != "acme:e-1" || string(e.Data.Payload) != asyncBody || e.Data.Endpoint != chatPath {
		t.Errorf("%+v\n%s", e, e.Data.Payload)
	}
	if e.Data.Metadata["team"] != "acme" || !strings.HasPrefix(e.Data.Metadata["traceparent"], parent[:35]) ||
		!reflect.DeepEqual(e.Data.Headers, map[string]string{"x-llm-d-slo-ttft-ms": "200", "X-Other": "o"}) {
		t.Errorf("%v %v", e.Data.Metadata, e.Data.Headers)
	}
	if token := a.redis.Get(t.Context(), "request-active:acme:e-1").Val(); token != e.Internal.Token {
		t.Errorf("the active key holds %s, the envelope %s", token, e.Internal.Token)
	}
	a.ask("enqueue", "").is(t, 202, `{"id":"`)
	if e := a.queued("q-model", 1)[0]; !strings.HasPrefix(e.Data.ID, "default:") || len(e.Data.Headers) != 0 || e.Data.Metadata["traceparent"] != "" {
		t.Errorf("%+v", e)
	}
	a.post(completionsPath, `{"model":"other","prompt":"p"}`, modeHeader, "enqueue").is(t, 202, `{"id":"`)
	if e := a.queued("q-rest", 1)[0]; e.Data.Endpoint != completionsPath {
		t.Errorf("%+v", e)
	}
	a.settled()
}

// TestAsyncReattach is the table of what becomes of a request whose id is known.
func TestAsyncReattach(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{params: "wait_cap_seconds = 60"})
	other := strings.Repeat("f", 32)
	for _, tt := range []struct {
		name    string
		prepare func(id, token string) // of a request that is queued
		queued  bool                   // before
		submits bool
		ready   bool // there is an answer for who waits
	}{
		{"unknown", nil, false, true, false},
		{"cancelled", func(id, _ string) { a.mail(id, failed(id, "CANCELLED")) }, false, true, false},
		{"ready", func(id, _ string) { a.mail(id, answered(id, 200, "{}")) }, false, false, true},
		{"failed", func(id, _ string) { a.mail(id, failed(id, "GATE_DROPPED")) }, false, false, true},
		{"pending, called off", func(id, token string) { a.redis.Set(t.Context(), cancelKey(id), token, 0) }, true, false, false},
		{"pending, another called off", func(id, _ string) { a.redis.Set(t.Context(), cancelKey(id), other, 0) }, true, false, false},
		{"redis cannot tell", func(id, _ string) { a.redis.Set(t.Context(), mailbox(id), "no list", 0) }, false, true, false},
	} {
		for _, mode := range []string{"enqueue", "wait"} {
			id := strings.NewReplacer(" ", "-", ",", "").Replace(mode + "-" + tt.name)
			a.reattach(id, mode, tt.prepare, tt.queued, tt.submits, tt.ready, tt.name == "failed", other)
		}
	}
	a.settled()
}

func (a *asyncRig) reattach(id, mode string, prepare func(id, token string), queued, submits, ready, fails bool, other string) {
	t, ctx := a.t, a.t.Context()
	t.Helper()
	a.redis.Del(ctx, asyncQueue)
	token := ""
	if queued {
		a.ask("enqueue", id).is(t, 202, `{"id":"`)
		token = a.queued(asyncQueue, 1)[0].Internal.Token
		a.redis.Del(ctx, asyncQueue) // so that another would show
	}
	if prepare != nil {
		prepare(id, token)
	}
	if mode == "enqueue" {
		a.ask(mode, id).is(t, 202, fmt.Sprintf(`{"id":%q,"status":"pending"}`, id))
	} else {
		s := a.begins(mode, id)
		if !ready {
			a.held(1)
			if a.redis.Type(ctx, mailbox(id)).Val() == "string" {
				a.redis.Del(ctx, mailbox(id))
			}
			a.mail(id, answered(id, 200, `{"n":1}`))
		}
		got := <-s.answer
		switch {
		case fails:
			got.is(t, 429, "rate_limit_error", "GATE_DROPPED", "because")
		case ready:
			got.is(t, 200, `{}`)
		default:
			got.is(t, 200, `{"n":1}`)
		}
		a.eventually("without a mailbox", func() bool { return !a.exists(mailbox(id)) })
	}
	if n := a.redis.ZCard(ctx, asyncQueue).Val(); (n == 1) != submits || n > 1 {
		t.Errorf("%s: %d submitted", id, n)
	}
	if left := a.redis.Get(ctx, cancelKey(id)).Val(); left != "" && left != other || left == "" && strings.Contains(id, "another") {
		t.Errorf("%s: the cancel marker is %q", id, left)
	}
	if mode == "enqueue" && ready != a.exists(mailbox(id)) && !strings.Contains(id, "tell") {
		t.Errorf("%s: the mailbox is there: %t", id, a.exists(mailbox(id)))
	}
}

// TestAsyncReviveThatLoses: the broker has called the request off before it was asked
// for again, so who waits is told so.
func TestAsyncReviveThatLoses(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{})
	a.ask("enqueue", "r-1").is(t, 202, `{"id":"r-1"`)
	s := a.begins("wait", "r-1")
	a.held(1)
	a.mail("r-1", failed("r-1", "CANCELLED"))
	(<-s.answer).is(t, 499, "cancelled", "CANCELLED", "because")
	a.settled()
}

// TestAsyncTheFirstBodyWins while its id is alive.
func TestAsyncTheFirstBodyWins(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{})
	for i := range 3 {
		a.post(chatPath, chatBody("body "+strconv.Itoa(i), false), modeHeader, "enqueue", "X-Request-Id", "b-1").is(t, 202, `{"id":"b-1"`)
	}
	if e := a.queued(asyncQueue, 1)[0]; !strings.Contains(string(e.Data.Payload), "body 0") {
		t.Errorf("%s", e.Data.Payload)
	}
	// Another tenant's request of that id is another.
	a.ask("enqueue", "b-1", tenHeader, "acme").is(t, 202, `{"id":"b-1"`)
	a.queued(asyncQueue, 2)
	a.settled()
	if a.cluster.Count(cluster.Decode) != 0 {
		t.Error("a request did not wait")
	}
}
