package assembly_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// asyncResults is every row of how a stored result is answered.
var asyncResults = []struct {
	name, text string // %s is the id
	status     int
	want       []string // of its body, or of its error object
}{
	{"success", `{"id":"default:%s","status_code":200,"payload":"{\"b\": 1,\n\"a\": \"\\u00e9\"}"}`, 200, []string{"{\"b\": 1,\n\"a\": \"\\u00e9\"}"}},
	{"404 as it is", `{"id":"default:%s","status_code":404,"payload":"no such model"}`, 404, []string{"no such model"}},
	{"503 as it is", `{"id":"default:%s","status_code":503,"payload":"{\"error\":1}"}`, 503, []string{`{"error":1}`}},
	{"599", `{"id":"default:%s","status_code":599,"payload":"x"}`, 599, []string{"x"}},
	{"more than there is", `{"id":"default:%s","status_code":600,"payload":"x"}`, 502, []string{"api_error", "MALFORMED_RESULT", ""}},
	{"less than there is", `{"id":"default:%s","status_code":-1,"payload":"x"}`, 502, []string{"api_error", "MALFORMED_RESULT", ""}},
	{"no JSON", `payload %s`, 502, []string{"api_error", "MALFORMED_RESULT", ""}},
	{"dropped", `{"id":"default:%s","error_code":"GATE_DROPPED","error_message":"because"}`, 429, []string{"rate_limit_error", "GATE_DROPPED", "because"}},
	{"too late", `{"id":"default:%s","payload":"{}","error_code":"DEADLINE_EXCEEDED","error_message":"because"}`, 504, []string{"timeout_error", "DEADLINE_EXCEEDED", "because"}},
	{"invalid", `{"id":"default:%s","error_code":"INVALID_REQUEST","error_message":"because"}`, 400, []string{"invalid_request_error", "INVALID_REQUEST", "because"}},
	{"cancelled", `{"id":"default:%s","error_code":"CANCELLED","error_message":"because"}`, 499, []string{"cancelled", "CANCELLED", "because"}},
	{"gate error", `{"id":"default:%s","error_code":"GATE_ERROR","error_message":"because"}`, 502, []string{"api_error", "GATE_ERROR", "because"}},
	{"inference error", `{"id":"default:%s","error_code":"INFERENCE_ERROR","error_message":"because"}`, 502, []string{"api_error", "INFERENCE_ERROR", "because"}},
	{"payload gone", `{"id":"default:%s","error_code":"PAYLOAD_UNAVAILABLE","error_message":"because"}`, 502, []string{"api_error", "PAYLOAD_UNAVAILABLE", "because"}},
	{"of a later broker", `{"id":"default:%s","error_code":"SOMETHING_ELSE","error_message":"because","request_token":"t","more":{}}`, 502, []string{"api_error", "SOMETHING_ELSE", "because"}},
	{"neither status nor code", `{"id":"default:%s","payload":"{}"}`, 502, []string{"api_error", "INFERENCE_ERROR", ""}}, // an error of ours always has a code,
}

// TestAsyncResults, every row, through wait and through GET.
func TestAsyncResults(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{})
	for i, tt := range asyncResults {
		id := fmt.Sprintf("r-%d", i)
		text := fmt.Sprintf(tt.text, id)
		s := a.begins("wait", id)
		a.held(1)
		a.mail(id, text)
		waited := <-s.answer
		a.eventually(tt.name+": without a mailbox", func() bool { return !a.exists(mailbox(id)) })
		a.mail(id, "an older one")
		a.mail(id, text)
		fetched := a.call(http.MethodGet, id)
		for how, got := range map[string]response{"wait": waited, "GET": fetched} {
			t.Run(tt.name+" by "+how, func(t *testing.T) {
				if got.is(t, tt.status, tt.want...); len(tt.want) == 1 && got.body != tt.want[0] {
					t.Errorf("%q", got.body)
				}
				if got.header.Get("Content-Type") != "application/json" || len(tt.want) == 1 && got.header.Get("X-Content-Type-Options") != "nosniff" {
					t.Errorf("%v", got.header)
				}
			})
		}
	}
	a.settled()
}

// TestAsyncGet: a result is kept for a while after each time, and only its tenant finds
// it.
func TestAsyncGet(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{params: "fetch_grace_seconds = 30"})
	a.ask("enqueue", "g-1").is(t, 202, `{"id":"g-1"`)
	a.call(http.MethodGet, "g-1").is(t, 202, `{"id":"g-1","status":"pending"}`)
	a.call(http.MethodGet, "g-1", tenHeader, "acme").is(t, 410, "invalid_request_error", "UNKNOWN_REQUEST", "request id is unknown, expired, or already deleted")
	a.mail("g-1", answered("g-1", 200, "{}"))
	for range 2 {
		a.call(http.MethodGet, "g-1").is(t, 200, "{}")
		a.eventually("with a grace", func() bool {
			ttl := a.redis.TTL(t.Context(), mailbox("g-1")).Val()
			return ttl > 20*time.Second && ttl <= 30*time.Second
		})
		a.settled()
		a.redis.Expire(t.Context(), mailbox("g-1"), 15*time.Second) // the next GET sets it again
	}
	a.call(http.MethodGet, "g-1", tenHeader, "acme").is(t, 410, "invalid_request_error", "UNKNOWN_REQUEST", "")
	a.redis.Del(t.Context(), mailbox("g-1"), activeKey("g-1"))
	a.call(http.MethodGet, "g-1").is(t, 410, "invalid_request_error", "UNKNOWN_REQUEST", "")
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		a.call(method, "g-1", tenHeader, "a:b").is(t, 400, "invalid_request_error", "INVALID_REQUEST", tenHeader+` must not contain ":"`)
		a.call(method, "g_1").is(t, 400, "invalid_request_error", "INVALID_REQUEST", "request id must be 1-128 alphanumeric or dash characters")
	}
	a.settled()
}

// TestAsyncGetWithoutGrace deletes what it has fetched.
func TestAsyncGetWithoutGrace(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{params: "fetch_grace_seconds = 0"})
	a.mail("g-1", failed("g-1", "GATE_DROPPED"))
	a.call(http.MethodGet, "g-1").is(t, 429, "rate_limit_error", "GATE_DROPPED", "because")
	a.eventually("without a mailbox", func() bool { return !a.exists(mailbox("g-1")) })
	a.call(http.MethodGet, "g-1").is(t, 410, "invalid_request_error", "UNKNOWN_REQUEST", "")
	a.settled()
}

// TestAsyncDelete calls the request off, deletes its result, and is never surprised.
func TestAsyncDelete(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{})
	a.call(http.MethodDelete, "nobody").is(t, 204, "")
	a.ask("enqueue", "d-1").is(t, 202, `{"id":"d-1"`)
	token := a.queued(asyncQueue, 1)[0].Internal.Token
	a.call(http.MethodDelete, "d-1").is(t, 204, "")
	if a.redis.Get(t.Context(), cancelKey("d-1")).Val() != token {
		t.Error("the request was not called off")
	}
	a.call(http.MethodGet, "d-1").is(t, 202, `{"id":"d-1"`) // until the broker sees it
	a.mail("d-2", answered("d-2", 200, "{}"))
	a.call(http.MethodDelete, "d-2").is(t, 204, "")
	a.call(http.MethodGet, "d-2").is(t, 410, "invalid_request_error", "UNKNOWN_REQUEST", "")
	a.settled()
}

// TestAsyncCallsWithRedisDown: nothing is known then, and nothing is claimed.
func TestAsyncCallsWithRedisDown(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{})
	a.line.Down()
	a.call(http.MethodGet, "x-1").is(t, 500, "api_error", "LOOKUP_FAILED", "")
	a.call(http.MethodDelete, "x-1").is(t, 500, "api_error", "DELETE_FAILED", "")
	a.ask("enqueue", "x-1").is(t, 503, "api_error", "ENQUEUE_FAILED", "failed to enqueue request")
	a.ask("wait", "x-1").is(t, 503, "api_error", "ENQUEUE_FAILED", "failed to enqueue request")
	a.line.Up()
	a.eventually("served again", func() bool { return a.ask("enqueue", "x-1").status == 202 })
	a.settled()
}
