package phases

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-coordinator/coordinator/transport/broker"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// TestNothingWithoutTheHeader: no command, and the request stays as it came.
func TestNothingWithoutTheHeader(t *testing.T) {
	a := newAsyncRig(t, `{"RedisURL":"x"}`)
	r := a.request(`{"messages":[]}`, true, "x-llm-d-tenant", "a:b", "x-llm-d-inference-fairness-id", "spoofed", "x-llm-d-async-mode", "")
	before := r.Header.Clone()
	if got := drive(t.Context(), r, a.phase, true); got.String() != "passed" || a.b.commands() != "" || !reflect.DeepEqual(r.Header, before) || r.Aside {
		t.Errorf("%v; %s; %v", got, a.b.commands(), r.Header)
	}
}

// TestRefusalsComeInTheirOrder: each request has all the faults that come after
// its own.
func TestRefusalsComeInTheirOrder(t *testing.T) {
	a := newAsyncRig(t, `{"RedisURL":"x","TenantHeader":"x-team"}`)
	for _, test := range []struct{ mode, body, want string }{
		{"later", `{"stream":true}`, "unknown x-llm-d-async-mode value"},
		{"ENQUEUE", `{"stream":true}`, "stream is only supported in passthrough mode"},
		{"Wait", `{"model":""}`, "model is required"},
		{"passthrough", `{"stream":true}`, "model is required"},
		{"passthrough", `{"model":"m","stream":true}`, `x-team must not contain ":"`},
	} {
		r := a.request(test.body, true, "x-llm-d-async-mode", test.mode, "x-team", "a:b")
		f := wire.FaultOf(a.phase.Admit(r))
		if f.Message != test.want || f.Kind != wire.BadRequest || f.ErrorCode() != codeInvalid {
			t.Errorf("%+v, want %q", f, test.want)
		}
	}
	if a.b.commands() != "" {
		t.Errorf("Redis was asked: %s", a.b.commands())
	}
}

// TestReattach is the table of what becomes of a request whose id is known.
func TestReattach(t *testing.T) {
	done, off := &broker.Result{Status: 200, Payload: []byte("hello")}, &broker.Result{Code: "CANCELLED"}
	const pending, hello = `202 {"id":"id-1","status":"pending"}`, "200 hello"
	for name, test := range map[string]struct {
		prepare          func(*memoryBroker)
		enqueue, wait    string
		enqueued, waited string // commands
	}{
		"unknown": {func(*memoryBroker) {}, pending, hello, "lookup submit", "lookup watch submit delete"},
		"ready":   {func(b *memoryBroker) { b.known[defaultKey] = done }, pending, hello, "lookup", "lookup delete"},
		"called off": {func(b *memoryBroker) { b.known[defaultKey] = off }, pending, hello, "lookup delete submit",
			"lookup delete watch submit delete"},
		"pending": {func(b *memoryBroker) { b.known[defaultKey] = nil }, pending, hello, "lookup revive",
			"lookup watch revive lookup delete"},
		"fetched by another": {func(b *memoryBroker) {
			b.known[defaultKey] = nil
			b.onLookup = func(n int) {
				if n == 2 {
					b.mu.Lock()
					delete(b.known, defaultKey)
					b.mu.Unlock()
				}
			}
		}, pending, hello, "lookup revive", "lookup watch revive lookup submit delete"},
		"fetched by another, and here too": {func(b *memoryBroker) {
			b.known[defaultKey] = nil
			b.onLookup = func(n int) {
				if n == 2 {
					b.finish(defaultKey, done)
					b.mu.Lock()
					delete(b.known, defaultKey)
					b.mu.Unlock()
				}
			}
		}, pending, hello, "lookup revive", "lookup watch revive lookup delete"},
		"redis away": {func(b *memoryBroker) { b.failing["lookup"] = true }, pending, hello, "lookup submit", "lookup watch submit delete"},
		"revive away": {func(b *memoryBroker) { b.known[defaultKey] = nil; b.failing["revive"] = true }, pending, hello,
			"lookup revive", "lookup watch revive lookup delete"},
		"submit away": {func(b *memoryBroker) { b.failing["submit"] = true }, "fails: ENQUEUE_FAILED", "fails: ENQUEUE_FAILED",
			"lookup submit", "lookup watch submit"},
		"revive loses": {func(b *memoryBroker) {
			b.known[defaultKey] = nil
			b.onLookup = func(n int) {
				if n == 2 {
					b.finish(defaultKey, off)
				}
			}
		}, pending, "error CANCELLED", "lookup revive", "lookup watch revive lookup delete"},
	} {
		for mode, want := range map[string][2]string{"enqueue": {test.enqueue, test.enqueued}, "wait": {test.wait, test.waited}} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := newAsyncRig(t, `{"RedisURL":"x"}`)
					test.prepare(a.b)
					go func() { // once it is held
						synctest.Wait()
						a.b.mu.Lock()
						wake := a.b.watchers[defaultKey]
						a.b.mu.Unlock()
						if wake != nil && name != "revive loses" {
							a.b.finish(defaultKey, done)
						}
					}()
					got := drive(t.Context(), a.request(asyncBody, true, "x-llm-d-async-mode", mode), a.phase, true)
					if got.String() != want[0] || a.b.commands() != want[1] || a.b.watched() != 0 {
						t.Errorf("%v by %q, want %v by %q; %d watched", got, a.b.commands(), want[0], want[1], a.b.watched())
					}
				})
			})
		}
	}
}

// TestUnnamedRequestsAreNotLookedUp.
func TestUnnamedRequestsAreNotLookedUp(t *testing.T) {
	a := newAsyncRig(t, `{"RedisURL":"x"}`)
	drive(t.Context(), a.request(asyncBody, false, "x-llm-d-async-mode", "enqueue"), a.phase, true)
	if a.b.commands() != "submit" {
		t.Error(a.b.commands())
	}
}

// TestSubmission is what goes into the queue.
func TestSubmission(t *testing.T) {
	a := newAsyncRig(t, `{"RedisURL":"x","Routes":[{"Model":"other","Queue":"no"},{"Tenant":"acme","Queue":"q"}],"Quota":{"Attribute":"team","WindowSeconds":1},
		"ForwardHeaders":["x-slo","x-missing"]}`)
	r := a.request(asyncBody, false, "x-llm-d-async-mode", "enqueue", "x-llm-d-tenant", "acme", "x-slo", "200", "traceparent", "00-1-2-01",
		"x-llm-d-request-timeout-seconds", "90")
	drive(t.Context(), r, a.phase, true)
	s := a.b.last
	if s.Queue != "q" || s.Endpoint != "/v1/chat/completions" || s.Key != (broker.Key{Tenant: "acme", ID: "id-1"}) || s.Deadline.Sub(s.Created) != 90*time.Second {
		t.Errorf("%+v", s)
	}
	if text := string(s.Payload.Append(nil)); text != strings.Replace(asyncBody, "{ ", "{", 1) {
		t.Errorf("payload %s", text)
	}
	if !reflect.DeepEqual(s.Metadata, map[string]string{"team": "acme", "traceparent": "00-1-2-01"}) || !reflect.DeepEqual(s.Headers, map[string]string{"x-slo": "200"}) {
		t.Errorf("%v %v", s.Metadata, s.Headers)
	}
	if r.Body != nil || r.Header != nil || r.Tenant != "acme" {
		t.Errorf("what came in is kept: %v %v", r.Body, r.Header)
	}
}

// TestHold is how long a client is kept waiting, and what it is told then.
func TestHold(t *testing.T) {
	const pending, late = `202 {"id":"id-1","status":"pending"}`, "fails: DEADLINE_EXCEEDED"
	for name, test := range map[string]struct {
		params   params
		asked    string
		held     time.Duration
		want     string
		commands string
	}{
		"the default":         {`{"RedisURL":"x"}`, "", time.Minute, late, "watch submit lookup"},
		"the client's":        {`{"RedisURL":"x"}`, "7", 7 * time.Second, late, "watch submit lookup"},
		"text is passed over": {`{"RedisURL":"x"}`, "7s", time.Minute, late, "watch submit lookup"},
		"zero is, too":        {`{"RedisURL":"x"}`, "0", time.Minute, late, "watch submit lookup"},
		"above the maximum":   {`{"RedisURL":"x"}`, "99999", time.Hour, late, "watch submit lookup"},
		"a shorter cap":       {`{"RedisURL":"x","WaitCapSeconds":59}`, "", 59 * time.Second, pending, "watch submit"},
		"a cap that is equal": {`{"RedisURL":"x","WaitCapSeconds":60}`, "", time.Minute, late, "watch submit lookup"},
		"a raised maximum":    {`{"RedisURL":"x","Timeouts":{"Wait":{"DefaultSeconds":7200}}}`, "", 2 * time.Hour, late, "watch submit lookup"},
		"no maximum":          {`{"RedisURL":"x","Timeouts":{"Wait":{"MaxSeconds":0}}}`, "99999", 99999 * time.Second, late, "watch submit lookup"},
		"more than a number":  {`{"RedisURL":"x","Timeouts":{"Wait":{"MaxSeconds":0}}}`, "99999999999999999999", mostSeconds * time.Second, late, "watch submit lookup"},
		"more than there is":  {`{"RedisURL":"x","Timeouts":{"Wait":{"MaxSeconds":0}}}`, "9000000000000000000", mostSeconds * time.Second, late, "watch submit lookup"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, began := newAsyncRig(t, test.params), time.Now()
				r := a.request(asyncBody, false, "x-llm-d-async-mode", "wait")
				if test.asked != "" {
					r.Header.Set("x-llm-d-request-timeout-seconds", test.asked)
				}
				got := drive(t.Context(), r, a.phase, true)
				if held := time.Since(began); got.String() != test.want || held != test.held || a.b.commands() != test.commands {
					t.Errorf("%v after %v by %q, want %v after %v by %q", got, held, a.b.commands(), test.want, test.held, test.commands)
				}
			})
		})
	}
}

// TestResultAtTheLastLookup: it came without anybody being told.
func TestResultAtTheLastLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsyncRig(t, `{"RedisURL":"x"}`)
		a.b.onLookup = func(int) {
			a.b.mu.Lock()
			defer a.b.mu.Unlock()
			a.b.known[defaultKey] = &broker.Result{Status: 201, Payload: []byte("late")}
		}
		got := drive(t.Context(), a.request(asyncBody, false, "x-llm-d-async-mode", "wait"), a.phase, true)
		if got.String() != "201 late" || a.b.commands() != "watch submit lookup delete" {
			t.Errorf("%v by %q", got, a.b.commands())
		}
	})
}

// TestRedisThatIsSlowerThanTheRequest: what is known too late is not submitted.
func TestRedisThatIsSlowerThanTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsyncRig(t, `{"RedisURL":"x"}`)
		a.b.onLookup = func(int) { time.Sleep(2 * time.Second) }
		r := a.request(asyncBody, true, "x-llm-d-async-mode", "wait", "x-llm-d-request-timeout-seconds", "1")
		got := drive(t.Context(), r, a.phase, true)
		if got.String() != "fails: DEADLINE_EXCEEDED" || a.b.commands() != "lookup" || r.async.outcome != "deadline" {
			t.Errorf("%v by %q, %s", got, a.b.commands(), r.async.outcome)
		}
	})
}

// TestClientThatLeaves calls its request off, wherever it leaves; but who is sent
// away does not.
func TestClientThatLeaves(t *testing.T) {
	for name, test := range map[string]struct {
		cause error
		want  string
	}{
		"it leaves":        {context.Canceled, "watch submit cancel"},
		"it takes nothing": {wire.Faultf(wire.Canceled, "gone"), "watch submit cancel"},
		"it is sent away":  {wire.Faultf(wire.ShuttingDown, "bye"), "watch submit"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAsyncRig(t, `{"RedisURL":"x"}`)
				ctx, cancel := context.WithCancelCause(t.Context())
				go func() {
					synctest.Wait()
					cancel(test.cause)
				}()
				drive(ctx, a.request(asyncBody, false, "x-llm-d-async-mode", "wait"), a.phase, true)
				if a.b.commands() != test.want || a.b.watched() != 0 {
					t.Errorf("%q, want %q; %d watched", a.b.commands(), test.want, a.b.watched())
				}
			})
		})
	}
}

// TestFailedWriteKeepsTheMailbox, and calls nothing off.
func TestFailedWriteKeepsTheMailbox(t *testing.T) {
	a := newAsyncRig(t, `{"RedisURL":"x"}`)
	a.b.known[defaultKey] = &broker.Result{Status: 200, Payload: []byte("hello")}
	drive(t.Context(), a.request(asyncBody, true, "x-llm-d-async-mode", "wait"), a.phase, false)
	if a.b.commands() != "lookup" || a.b.known[defaultKey] == nil {
		t.Error(a.b.commands())
	}
}

// TestResults is how stored results become answers.
func TestResults(t *testing.T) {
	for _, test := range []struct {
		result broker.Result
		kind   wire.Kind // of the fault
		code   string    // "" is none
	}{
		{broker.Result{Status: 200, Payload: []byte("{}")}, 0, ""},
		{broker.Result{Status: 599, Payload: []byte("{}")}, 0, ""},
		{broker.Result{Status: 204, Payload: []byte("{}")}, 0, ""},
		{broker.Result{Status: 404, Payload: []byte("no")}, 0, ""},
		{broker.Result{Status: 600}, wire.QueuedFailed, "MALFORMED_RESULT"},
		{broker.Result{Status: -1}, wire.QueuedFailed, "MALFORMED_RESULT"},
		{broker.Result{Status: 101}, wire.QueuedFailed, "MALFORMED_RESULT"},
		{broker.Result{Malformed: true}, wire.QueuedFailed, "MALFORMED_RESULT"},
		{broker.Result{Code: "GATE_DROPPED"}, wire.QueuedDropped, "GATE_DROPPED"},
		{broker.Result{Code: "DEADLINE_EXCEEDED"}, wire.QueuedTooLate, "DEADLINE_EXCEEDED"},
		{broker.Result{Code: "INVALID_REQUEST"}, wire.BadRequest, "INVALID_REQUEST"},
		{broker.Result{Code: "CANCELLED"}, wire.QueuedCalledOff, "CANCELLED"},
		{broker.Result{Code: "GATE_ERROR"}, wire.QueuedFailed, "GATE_ERROR"},
		{broker.Result{Code: "SOMETHING_NEW"}, wire.QueuedFailed, "SOMETHING_NEW"},
	} {
		it := itemOf(&test.result)
		switch {
		case test.code == "" && (it.Fault != nil || it.Head.Status != test.result.Status || (it.Chunk == nil) != (test.result.Status == 204)):
			t.Errorf("%+v: %+v", test.result, it)
		case test.code != "" && (it.Fault == nil || it.Fault.Kind != test.kind || it.Fault.ErrorCode() != test.code):
			t.Errorf("%+v: %+v", test.result, it.Fault)
		}
	}
	if f := itemOf(&broker.Result{Code: "SOMETHING_NEW"}).Fault; f.Counted() != "other" {
		t.Errorf("counted as %s", f.Counted())
	}
	// What the broker says is for the client, and not for the log.
	if f := itemOf(&broker.Result{Code: "INFERENCE_ERROR", Message: "the patient has gout"}).Fault; f.Message != "the patient has gout" || strings.Contains(f.Error(), "gout") {
		t.Errorf("%q is logged as %q", f.Message, f.Error())
	}
}

// TestPassthrough stamps what the tenant may ask for, and gives its slot back.
func TestPassthrough(t *testing.T) {
	for name, test := range map[string]struct {
		tenant         string
		limit          int
		failing, lost  bool
		want, commands string
	}{
		"reserved":     {"acme", 1, false, false, "first", "take release"},
		"overflow":     {"acme", 0, false, false, "second", "take"},
		"fails open":   {"acme", 0, true, false, "first", "take"},
		"reply lost":   {"acme", 0, true, true, "first", "take release"},
		"no quota":     {"other", 0, false, false, "first", ""},
		"quota of 0":   {"free", 0, false, false, "first", ""},
		"nobody's":     {"", 0, false, false, "first", ""},
		"another tier": {"plain", 0, false, false, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAsyncRig(t, `{"RedisURL":"x","DefaultTier":"gold","Routes":[{"Tenant":"plain","Tier":"lead"}],
				"Objectives":{"gold":{"Reserved":"first","Overflow":"second"}},"Quota":{"Attribute":"u","WindowSeconds":1,"Limits":{"acme":5,"free":0}}}`)
			a.b.limit, a.b.failing["take"], a.b.lost = test.limit, test.failing, test.lost
			r := a.request(`{"model":"m","stream":true}`, true, "x-llm-d-async-mode", "Passthrough", "x-llm-d-tenant", test.tenant,
				"x-llm-d-inference-objective", "spoofed", "x-llm-d-inference-fairness-id", "spoofed",
				"x-gateway-inference-objective", "spoofed", "x-gateway-inference-fairness-id", "spoofed", "x-mine", "stays")
			came := r.Header
			if got := drive(t.Context(), r, a.phase, true); !got.passed || got.err != nil || a.b.commands() != test.commands || r.Aside {
				t.Errorf("%v by %q, want %q", got, a.b.commands(), test.commands)
			}
			tenant := test.tenant
			if tenant == "" {
				tenant = "default"
			}
			h := r.Header
			if h.Get("x-llm-d-inference-objective") != test.want || h.Get("x-llm-d-inference-fairness-id") != tenant || h.Get("x-mine") != "stays" ||
				h.Get("x-gateway-inference-objective")+h.Get("x-gateway-inference-fairness-id") != "" {
				t.Errorf("%v", h)
			}
			if came.Get("x-llm-d-inference-objective") != "spoofed" {
				t.Error("the client's own headers were changed")
			}
		})
	}
}

// TestSlotWhoseReleaseIsDropped is owed: the pool had no room for it.
func TestSlotWhoseReleaseIsDropped(t *testing.T) {
	a := newAsyncRig(t, `{"RedisURL":"x","Quota":{"Attribute":"u","WindowSeconds":1,"Limits":{"acme":5}}}`)
	a.b.limit = 1
	r := a.request(asyncBody, true, "x-llm-d-async-mode", "passthrough", "x-llm-d-tenant", "acme")
	if err := a.phase.Admit(r); err != nil {
		t.Fatal(err)
	}
	plan, err := a.phase.Plan(r)
	if err != nil {
		t.Fatal(err)
	}
	result, err := plan.Tasks[0].Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.phase.Join(r, []Result{result}); err != nil {
		t.Fatal(err)
	}
	for _, task := range a.phase.Release(r) {
		task.Over()
	}
	if got := a.b.commands(); got != "take owe" {
		t.Errorf("asked %q", got)
	}
}

// TestFullPool: what the request does not depend on does not fail it.
func TestFullPool(t *testing.T) {
	a := newAsyncRig(t, `{"RedisURL":"x","Quota":{"Attribute":"u","WindowSeconds":1,"Limits":{"acme":5}}}`)
	full := wire.Faultf(wire.QueueFull, "full")
	r := a.request(asyncBody, true, "x-llm-d-async-mode", "passthrough", "x-llm-d-tenant", "acme")
	if err := a.phase.Admit(r); err != nil {
		t.Fatal(err)
	}
	if v, err := a.phase.Recover(r, full); v != Next || err != nil || r.Header.Get("x-llm-d-inference-fairness-id") != "acme" {
		t.Errorf("%v %v", v, err)
	}
	r = a.request(asyncBody, true, "x-llm-d-async-mode", "wait")
	for at, want := range map[stage]string{submitting: "queue_full", lookingOnceMore: "DEADLINE_EXCEEDED", clearing: ""} {
		if err := a.phase.Admit(r); err != nil {
			t.Fatal(err)
		}
		r.async.stage = at
		v, err := a.phase.Recover(r, full)
		if code := ""; err != nil {
			if code = wire.FaultOf(err).ErrorCode(); code != want {
				t.Errorf("stage %d: %s, want %s", at, code, want)
			}
		} else if v != Done || want != "" {
			t.Errorf("stage %d: %v", at, v)
		}
	}
}

// TestQueuedCalls are GET and DELETE.
func TestQueuedCalls(t *testing.T) {
	for name, test := range map[string]struct {
		method, id     string
		prepare        func(*memoryBroker)
		want, commands string
	}{
		"ready":            {http.MethodGet, "id-1", func(b *memoryBroker) { b.known[defaultKey] = &broker.Result{Status: 418, Payload: []byte("tea")} }, "418 tea", "lookup fetched"},
		"ready, no answer": {http.MethodGet, "id-1", func(b *memoryBroker) { b.known[defaultKey] = &broker.Result{Code: "GATE_ERROR"} }, "error GATE_ERROR", "lookup fetched"},
		"pending":          {http.MethodGet, "id-1", func(b *memoryBroker) { b.known[defaultKey] = nil }, `202 {"id":"id-1","status":"pending"}`, "lookup"},
		"unknown":          {http.MethodGet, "id-1", func(*memoryBroker) {}, "fails: UNKNOWN_REQUEST", "lookup"},
		"redis away":       {http.MethodGet, "id-1", func(b *memoryBroker) { b.failing["lookup"] = true }, "fails: LOOKUP_FAILED", "lookup"},
		"bad id":           {http.MethodGet, "id_1", func(*memoryBroker) {}, "fails: INVALID_REQUEST", ""},
		"delete":           {http.MethodDelete, "id-1", func(b *memoryBroker) { b.failing["cancel"] = true }, "204 ", "cancel delete"},
		"delete fails":     {http.MethodDelete, "id-1", func(b *memoryBroker) { b.failing["delete"] = true }, "fails: DELETE_FAILED", "cancel delete"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAsyncRig(t, `{"RedisURL":"x"}`)
			test.prepare(a.b)
			r := &Request{ID: "call", Queued: &Queued{test.method, test.id}, Header: http.Header{}, Out: NewResponse()}
			got := drive(t.Context(), r, PipelineOf(a.phase).QueuedCalls().Phases()[0], true)
			if got.String() != test.want || a.b.commands() != test.commands {
				t.Errorf("%v by %q, want %v by %q", got, a.b.commands(), test.want, test.commands)
			}
		})
	}
	none := PipelineOf().QueuedCalls().Phases()[0].(Admitter)
	if f := wire.FaultOf(none.Admit(&Request{})); f.Kind != wire.NotFound {
		t.Errorf("without the step: %v", f)
	}
}

// TestAsyncParams: each startup error names its key.
func TestAsyncParams(t *testing.T) {
	deps := Deps{Metrics: NewMetrics(nil), NewBroker: func(broker.Settings) (Broker, error) { return nil, errRedis }}
	for text, want := range map[params]string{
		`{}`:                                   "redis_url: ",
		`{"RedisURL":"x"}`:                     "redis_url: redis is away",
		`{"RedisURL":"x","WakeupMode":"push"}`: "wakeup_mode: ",
		`{"RedisURL":"x","FetchGraceSeconds":-1}`:                                           "fetch_grace_seconds: ",
		`{"RedisURL":"x","WaitCapSeconds":-1}`:                                              "wait_cap_seconds: ",
		`{"RedisURL":"x","Quota":{"WindowSeconds":-1,"Attribute":"a"}}`:                     "quota.window_seconds: ",
		`{"RedisURL":"x","Quota":{"WindowSeconds":1,"Attribute":"a","Limits":{"acme":-1}}}`: "quota.limits.acme: ",
		`{"RedisURL":"x","Timeouts":{"Wait":{"DefaultSeconds":-1}}}`:                        "timeouts.wait.default_seconds: ",
		`{"RedisURL":"x","Timeouts":{"Enqueue":{"MaxSeconds":-1}}}`:                         "timeouts.enqueue.max_seconds: ",
		`{"RedisURL":"x","Timeouts":{"Wait":{"MaxSeconds":59}}}`:                            "timeouts.wait.default_seconds: 60 is more",
		`{"RedisURL":"x","Timeouts":{"Enqueue":{"DefaultSeconds":9,"MaxSeconds":8}}}`:       "timeouts.enqueue.default_seconds: ",
		`{"RedisURL":"x","ForwardHeaders":["X-LLM-D-Async-Mode"]}`:                          "forward_headers: ",
		`{"RedisURL":"x","ForwardHeaders":["x-llm-d-inference-objective"]}`:                 "forward_headers: ",
		`{"RedisURL":"x","ForwardHeaders":["x-llm-d-inference-fairness-id"]}`:               "forward_headers: ",
		`{"RedisURL":"x","ModeHeader":"x mode"}`:                                            "mode_header: ",
		`{"RedisURL":"x","TenantHeader":"x-request-id"}`:                                    "tenant_header: ",
		`{"RedisURL":"x","DefaultQueue":""}`:                                                "default_queue: ",
	} {
		if _, err := NewAsyncBroker(deps, text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestAsyncBrokerMustBeFirst, which is found before Redis is asked for.
func TestAsyncBrokerMustBeFirst(t *testing.T) {
	b := newBench(t, "kv-shared-storage")
	b.deps.NewBroker = func(broker.Settings) (Broker, error) {
		t.Error("Redis was called")
		return nil, errRedis
	}
	_, err := NewPipeline([]Step{{stepConditional, params("")}, {stepAsync, params(`{"RedisURL":"x"}`)}, {stepDecode, params("")}}, b.deps)
	if err == nil || !strings.Contains(err.Error(), `"async-broker" must be the first step`) {
		t.Error(err)
	}
	if !slices.Contains(Types(), stepAsync) {
		t.Error("there is no such step")
	}
}
