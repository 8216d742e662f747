package e2e_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

const (
	shortChat       = `{"model":"demo-model","messages":[{"role":"user","content":"one two three"}]}`
	shortChatStream = `{"model":"demo-model","stream":true,"messages":[{"role":"user","content":"one two three"}]}`
)

// own is an answer that is nobody's but a worker's.
const own = `{"object":"error","message":"odd but the worker's own"}`

var busy = map[string]string{"Retry-After": "7", "X-Llm-D-Request-Dropped-Reason": "saturated"}

// failures are what legs do, and what a client sees of it.
var failures = []struct {
	name   string
	fault  cluster.Fault
	body   string
	status int
	code   string            // of the coordinator's error object; "": the body is the worker's
	header map[string]string // that the client has too
}{
	{"prefill refuses", cluster.Fault{Leg: cluster.Prefill, Status: 400, Body: own}, shortChat, 400, "upstream_rejected", nil},
	{"prefill is busy", cluster.Fault{Leg: cluster.Prefill, Status: 429, Headers: busy}, shortChat, 429, "upstream_rejected", busy},
	{"prefill fails", cluster.Fault{Leg: cluster.Prefill, Status: 500}, shortChat, 502, "upstream_failed", nil},
	{"prefill will be back", cluster.Fault{Leg: cluster.Prefill, Status: 503, Headers: busy}, shortChatStream, 502, "upstream_failed", busy},
	{"decode refuses", cluster.Fault{Leg: cluster.Decode, Status: 400, Body: own, Headers: map[string]string{"X-Worker": "w1"}}, shortChat, 400, "", map[string]string{"X-Worker": "w1"}},
	{"decode is busy", cluster.Fault{Leg: cluster.Decode, Status: 429, Body: own, Headers: busy}, shortChatStream, 429, "", busy},
	{"decode fails", cluster.Fault{Leg: cluster.Decode, Status: 500, Body: own}, shortChat, 500, "", nil},
	{"decode is elsewhere", cluster.Fault{Leg: cluster.Decode, Redirect: "http://127.0.0.1:1/elsewhere", Body: own}, shortChat, 307, "", map[string]string{"Location": "http://127.0.0.1:1/elsewhere"}},
}

// TestErrorsGoThrough: no gateway puts its own words in place of a worker's or a
// coordinator's.
func TestErrorsGoThrough(t *testing.T) {
	behindEach(t, func(t *testing.T, g gateway) {
		f := startFleet(t, g, plan{})
		for _, tt := range failures {
			fault := f.cluster.AddFault(tt.fault)
			got := f.post(chatPath, tt.body, "X-Request-Id", "the-id")
			f.cluster.RemoveFault(fault)
			if code := f.codeOf(got.body); got.err != nil || got.status != tt.status || code != tt.code {
				t.Errorf("%s: %d %v %s", tt.name, got.status, got.err, got.body)
			}
			if tt.code == "" && got.body != own {
				t.Errorf("%s: %s", tt.name, got.body)
			}
			for name, value := range tt.header {
				if got.header.Get(name) != value {
					t.Errorf("%s: %s is %q, want %q", tt.name, name, got.header.Get(name), value)
				}
			}
		}
		f.refusals()
		f.brokenAnswers()
	})
}

// codeOf returns the code of a coordinator's error object, or "".
func (f *fleet) codeOf(body string) string {
	var o struct {
		Error struct {
			Message, Code string
		}
	}
	if json.Unmarshal([]byte(body), &o) != nil || !strings.Contains(o.Error.Message, "(request_id: ") {
		return ""
	}
	return o.Error.Code
}

// refusals are requests that the coordinator answers by itself.
func (f *fleet) refusals() {
	f.t.Helper()
	for _, tt := range []struct {
		path, body string
		status     int
		code       string
	}{
		{chatPath, `{"model"`, 400, "invalid_json"},
		{"/v1/load_lora_adapter", `{}`, 404, "not_found"},
		{"/v1/models", `{}`, 405, ""}, // passed through: the worker's
	} {
		if got := f.post(tt.path, tt.body); got.status != tt.status || f.codeOf(got.body) != tt.code {
			f.t.Errorf("%s: %d %v %s", tt.path, got.status, got.err, got.body)
		}
	}
	status, text, err := get(f.ctx, f.client, f.url+"/v1/models")
	if status != http.StatusOK || err != nil || !strings.Contains(string(text), `"demo-model"`) {
		f.t.Errorf("the list of models: %d %v %s", status, err, text)
	}
}

// brokenAnswers must not look whole, nor lose what came before.
func (f *fleet) brokenAnswers() {
	f.t.Helper()
	fault := f.cluster.AddFault(cluster.Fault{Leg: cluster.Decode, BreakAfter: new(3)})
	defer f.cluster.RemoveFault(fault)
	got := f.post(chatPath, shortChatStream)
	events := strings.Split(strings.TrimSuffix(got.body, "\n\n"), "\n\n")
	if got.status != http.StatusOK || got.err == nil || len(events) != 4 || f.codeOf(strings.TrimPrefix(events[3], "data: ")) != "upstream_failed" {
		f.t.Errorf("a stream that breaks: %d %v %q", got.status, got.err, events)
	}
	if got := f.post(chatPath, shortChat); got.status != http.StatusOK || got.err == nil || got.body == "" {
		f.t.Errorf("an answer that breaks: %d %v %q", got.status, got.err, got.body)
	}
}
