package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"
)

// bench is a broker between a Redis in memory and a gateway.
type bench struct {
	*testing.T
	*Broker
	memory *Memory
	ctx    context.Context
	calls  chan *http.Request // gets each that the gateway has read, up to 100
}

// newBench starts one. answer is the gateway's; nil is one that nobody can reach.
func newBench(t *testing.T, o Options, answer func(w http.ResponseWriter, body string)) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	b := &bench{T: t, ctx: ctx, calls: make(chan *http.Request, 100)}
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		b.calls <- r
		answer(w, string(body))
	}))
	if answer == nil {
		gateway.Close()
	}
	var err error
	if b.memory, err = StartMemory(); err != nil {
		t.Fatal(err)
	}
	o.Redis, o.Gateway, o.PollInterval = b.memory.URL(), gateway.URL, 5*time.Millisecond
	if b.Broker, err = Start(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Close()
		b.memory.Close()
		gateway.Close()
		cancel()
	})
	return b
}

const someToken = "0123456789abcdef0123456789abcdef"

// member is a request as the coordinator writes it.
func member(id string, left time.Duration) (string, float64) {
	now := time.Now()
	deadline := now.Add(left).Unix()
	queues := fmt.Sprintf(`"request_queue_name":%q,"result_queue_name":"results:req:%s"`, DefaultQueue, id)
	return fmt.Sprintf(`{"internal":{"request_token":%q,%s},"request_kind":"redis","data":{"id":%q,"created":%d,"deadline":%d,`+
		`"payload":{"b":12345678901234567890,"a":"<&>"},"metadata":{"userid":"acme"},"headers":{"x-slo":"200"},"endpoint":"/v1/chat/completions",%s}}`,
		someToken, queues, id, min(now.Unix(), deadline), deadline, queues), float64(deadline)
}

// submit puts a request into the queue as the coordinator does.
func (b *bench) submit(id string, left time.Duration) {
	b.Helper()
	text, score := member(id, left)
	if err := b.memory.Set(activeKey(id), someToken); err != nil {
		b.Fatal(err)
	}
	if _, err := b.memory.ZAdd(DefaultQueue, score, text); err != nil {
		b.Fatal(err)
	}
}

// until waits for a state.
func (b *bench) until(cond func(State) bool) {
	b.Helper()
	if err := b.Wait(b.ctx, cond); err != nil {
		b.Fatalf("%v: %+v", err, b.State())
	}
}

// mail returns the newest result of a mailbox.
func (b *bench) mail(list string) (r result) {
	b.Helper()
	texts, err := b.memory.List(list)
	if err != nil || len(texts) == 0 {
		b.Fatalf("nothing in %s: %v", list, err)
	}
	if err := json.Unmarshal([]byte(texts[0]), &r); err != nil {
		b.Fatal(err)
	}
	return r
}

func plain(status int, text string) func(http.ResponseWriter, string) {
	return func(w http.ResponseWriter, _ string) {
		w.WriteHeader(status)
		io.WriteString(w, text)
	}
}

// TestAnAnswerIsDelivered, and the request's bytes and headers are the client's.
func TestAnAnswerIsDelivered(t *testing.T) {
	bodies := make(chan string, 1)
	b := newBench(t, Options{ResultTTL: time.Minute}, func(w http.ResponseWriter, body string) {
		bodies <- body
		io.WriteString(w, `{"id": 1}`)
	})
	b.submit("acme:a-1", time.Minute)
	b.until(func(s State) bool { return s.Answered == 1 && s.Running == 0 })
	if got, want := b.mail("results:req:acme:a-1"), (result{ID: "acme:a-1", Status: 200, Payload: `{"id": 1}`}); got != want {
		t.Errorf("%+v", got)
	}
	if body := <-bodies; body != `{"b":12345678901234567890,"a":"<&>"}` {
		t.Errorf("the gateway got %s", body)
	}
	r := <-b.calls
	for name, want := range map[string]string{"Content-Type": "application/json", "X-Slo": "200", "X-Llm-D-Inference-Fairness-Id": "acme", "X-Request-Id": ""} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if ttl := b.memory.TTL("results:req:acme:a-1"); r.URL.Path != "/v1/chat/completions" || ttl <= 0 || ttl > time.Minute || b.memory.Exists(activeKey("acme:a-1")) {
		t.Errorf("%s, ttl %v, active: %t", r.URL, ttl, b.memory.Exists(activeKey("acme:a-1")))
	}
	if s := b.State(); len(s.Violations) > 0 {
		t.Errorf("%q", s.Violations)
	}
}

// TestResultsWithoutAnAnswer, or with one that is no success.
func TestResultsWithoutAnAnswer(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer func(http.ResponseWriter, string)
		left   time.Duration
		want   result
	}{
		{"404 is the last word", plain(404, "no"), time.Minute, result{Status: 404, Payload: "no"}},
		{"refused", nil, time.Minute, result{Code: inferenceError}},
		{"expired in the queue", plain(200, ""), -time.Second, result{Code: deadlineExceeded}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, Options{Backoff: 20 * time.Millisecond}, tt.answer)
			b.submit("acme:a-1", tt.left)
			b.until(func(s State) bool { return s.Answered+s.Failed+s.Expired == 1 })
			got := b.mail("results:req:acme:a-1")
			if got.Status != tt.want.Status || got.Code != tt.want.Code || tt.want.Status != 0 && got.Payload != tt.want.Payload {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestTheDeadlineEndsTheAttempts: there is no result then, or the last answer if it
// came at the last moment.
func TestTheDeadlineEndsTheAttempts(t *testing.T) {
	b := newBench(t, Options{Backoff: 50 * time.Millisecond}, plain(503, "busy"))
	b.submit("acme:a-1", 8*time.Second)
	b.until(func(s State) bool { return s.Answered+s.Expired == 1 })
	if got := b.mail("results:req:acme:a-1"); got.Code != deadlineExceeded && got.Status != 503 || b.State().Retried == 0 {
		t.Errorf("%+v", got)
	}
}

// TestItIsSentAgain until there is an answer, its bytes the same.
func TestItIsSentAgain(t *testing.T) {
	var seen []string
	b := newBench(t, Options{Backoff: time.Millisecond, Workers: 1}, func(w http.ResponseWriter, body string) {
		if seen = append(seen, body); len(seen) < 3 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(429 + 74*(len(seen)-1)) // 429, 503
		}
	})
	b.submit("acme:a-1", time.Minute)
	b.until(func(s State) bool { return s.Answered == 1 && s.Running == 0 })
	if s := b.State(); s.Retried != 2 || len(seen) != 3 || seen[0] != seen[2] || len(s.Violations) > 0 {
		t.Errorf("%+v %q", s, seen)
	}
}

// TestPauses: Retry-After counts if it is longer, but not for more than about half of
// the time that is left.
func TestPauses(t *testing.T) {
	b := &Broker{options: Options{}.withDefaults()}
	m := &message{data: data{Deadline: time.Now().Add(20 * time.Second).Unix()}}
	for range 100 {
		if d := b.pause(m, 30*time.Second); d < 9*time.Second || d > 12500*time.Millisecond {
			t.Fatalf("%v", d)
		}
		if d := b.pause(m, 0); d < time.Second || d >= 2*time.Second {
			t.Fatalf("%v", d)
		}
	}
	m.internal.Retries = 3
	if d := b.pause(m, 0); d < 8*time.Second || d > 16*time.Second {
		t.Errorf("%v", d)
	}
}

// TestACancelledRequestIsNotSent, and another's cancel does not hit it.
func TestACancelledRequestIsNotSent(t *testing.T) {
	b := newBench(t, Options{}, plain(200, ""))
	_ = b.memory.Set(cancelKey("acme:a-1"), someToken)
	_ = b.memory.Set(cancelKey("acme:a-2"), strings.Repeat("f", 32))
	b.submit("acme:a-1", time.Minute)
	b.submit("acme:a-2", time.Minute)
	b.until(func(s State) bool { return s.Answered == 1 && s.Cancelled == 1 })
	if got := b.mail("results:req:acme:a-1"); got.Code != cancelled || len(b.calls) != 1 {
		t.Errorf("%+v, %d calls", got, len(b.calls))
	}
	if b.memory.Exists(cancelKey("acme:a-1")) || !b.memory.Exists(cancelKey("acme:a-2")) {
		t.Error("the wrong keys are left")
	}
}

// TestMembersOfOthers: what cannot be read is dropped, a plain request answers on the
// default list, and what the coordinator may not write is noted.
func TestMembersOfOthers(t *testing.T) {
	b := newBench(t, Options{}, plain(200, "fine"))
	deadline := time.Now().Add(time.Minute).Unix()
	for _, text := range []string{"{", `{"request_kind":"smoke","data":{}}`, fmt.Sprintf(`{"request_kind":"plain","data":{"id":"x","deadline":%d}}`, deadline)} {
		_, _ = b.memory.ZAdd(DefaultQueue, float64(deadline), text)
	}
	b.until(func(s State) bool { return s.Answered == 1 && s.Dropped == 2 })
	if r := <-b.calls; r.URL.Path != "/v1/completions" || b.mail("result-list").Payload != "fine" {
		t.Errorf("%s", r.URL)
	}
	text, score := member("acme:a-1", time.Minute)
	_, _ = b.memory.ZAdd(DefaultQueue, score+1, strings.Replace(text, `{"internal":{`, `{"internal":{"queue_id":"1",`, 1))
	b.until(func(s State) bool { return s.Answered == 2 })
	found := b.State().Violations
	if len(found) < 2 || !strings.Contains(found[len(found)-2], "the score is") || !strings.Contains(found[len(found)-1], "queue_id is the broker's own") {
		t.Errorf("%q", found)
	}
}

// TestQuota: who is within the limit is counted while it is sent, who is not goes with
// the other objective.
func TestQuota(t *testing.T) {
	hold := make(chan struct{})
	b := newBench(t, Options{Quota: Quota{Limits: map[string]int{"acme": 1}, Header: "X-Objective", Reserved: "gold", Overflow: "rest"}},
		func(http.ResponseWriter, string) { <-hold })
	var got []string
	for _, id := range []string{"acme:a-1", "acme:a-2"} {
		b.submit(id, time.Minute)
		got = append(got, (<-b.calls).Header.Get("X-Objective"))
	}
	during, _ := b.memory.Get("quota:userid:acme")
	close(hold)
	b.until(func(s State) bool { return s.Answered == 2 && s.Running == 0 })
	after, _ := b.memory.Get("quota:userid:acme")
	if !reflect.DeepEqual(got, []string{"gold", "rest"}) || during != "1" || after != "0" {
		t.Errorf("%q, counted %s and then %s", got, during, after)
	}
}

// TestClosePutsBack what is being sent.
func TestClosePutsBack(t *testing.T) {
	hold := make(chan struct{})
	b := newBench(t, Options{}, func(http.ResponseWriter, string) { <-hold })
	defer close(hold)
	b.submit("acme:a-1", time.Minute)
	<-b.calls
	b.Close()
	if s := b.State(); s.Back != 1 || s.Running != 0 {
		t.Errorf("%+v", s)
	}
	back, err := b.memory.ZMembers("retry-sortedset")
	if err != nil || len(back) != 1 || !strings.Contains(back[0], "acme:a-1") {
		t.Errorf("%q %v", back, err)
	}
	if err := b.Wait(b.ctx, func(State) bool { return false }); err != ErrClosed {
		t.Errorf("Wait: %v", err)
	}
}

// TestKeysOfAMemoryExpire by themselves.
func TestKeysOfAMemoryExpire(t *testing.T) {
	m, err := StartMemory()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	_ = m.Set("k", "v")
	m.SetTTL("k", 10*time.Millisecond)
	for m.Exists("k") { // the test's own time-out ends it
	}
}

// TestStartFails without a Redis, and without a gateway.
func TestStartFails(t *testing.T) {
	for _, o := range []Options{{}, {Gateway: "http://127.0.0.1:1"}, {Gateway: "http://127.0.0.1:1", Redis: "redis://127.0.0.1:1"}} {
		if b, err := Start(o); err == nil || b != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, url := range []string{"redis://:hunter2 %@x", "hunter2", "redis://:a@127.0.0.1:1/hunter2"} {
		if _, err := Start(Options{Gateway: "http://127.0.0.1:1", Redis: url}); err != errURL {
			t.Errorf("%v", err)
		}
	}
}
