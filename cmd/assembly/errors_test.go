package assembly_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/metricstest"
	"github.com/llm-coordinator/coordinator/transport/server/servertest"
)

// errorObject is the error object of the contract, read strictly.
type errorObject struct {
	Error struct {
		Message string          `json:"message"`
		Type    string          `json:"type"`
		Param   json.RawMessage `json:"param"`
		Code    string          `json:"code"`
	} `json:"error"`
}

func readError(t *testing.T, body string) errorObject {
	t.Helper()
	var o errorObject
	dec := json.NewDecoder(strings.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&o); err != nil || string(o.Error.Param) != "null" {
		t.Fatalf("not the error object: %v: %s", err, body)
	}
	return o
}

const secret = servertest.Secret

// TestWhatTheClientSeesWhenALegFails is the table of the contract's section 12
// for what legs can do.
func TestWhatTheClientSeesWhenALegFails(t *testing.T) {
	body := chatBody(secret, false)
	for _, leg := range []string{cluster.Render, cluster.Prefill} {
		for _, tt := range servertest.LegFailures {
			t.Run(leg+"/"+tt.Name, func(t *testing.T) {
				r := newRig(t, setup{render: `timeout = "300ms"`, toml: "[gateway.profiles.prefill]\ntimeout = \"300ms\"\n"})
				tt.Fault.Leg = leg
				r.cluster.AddFault(tt.Fault)
				got := r.post(chatPath, body, "X-Request-Id", "the-id")
				o := readError(t, got.body)
				if got.status != tt.Status || o.Error.Type != tt.Type || o.Error.Code != tt.Code {
					t.Errorf("got %d %s", got.status, got.body)
				}
				if !strings.HasSuffix(o.Error.Message, "(request_id: the-id)") || strings.Contains(got.body, secret) {
					t.Errorf("message: %s", o.Error.Message)
				}
				if ct := got.header.Get("Content-Type"); ct != "application/json" {
					t.Errorf("Content-Type %q", ct)
				}
				for name := range servertest.Busy {
					if got.header.Get(name) != tt.Header[name] {
						t.Errorf("%s: %q, want %q", name, got.header.Get(name), tt.Header[name])
					}
				}
				if last := r.legs("")[len(r.legs(""))-1]; last != leg {
					t.Errorf("legs %v: nothing may follow the failed one", r.legs(""))
				}
				r.settled()
				if strings.Contains(r.logs.String(), secret) {
					t.Errorf("logged: %s", r.logs)
				}
			})
		}
	}
}

// TestDecodesOwnAnswerGoesThrough: what a decode worker answers is the
// worker's, errors too.
func TestDecodesOwnAnswerGoesThrough(t *testing.T) {
	for _, f := range servertest.DecodeAnswers {
		t.Run(fmt.Sprint(f.Status), func(t *testing.T) {
			r := newRig(t, setup{steps: decodeStep})
			f.Leg = cluster.Decode
			r.cluster.AddFault(f)
			r.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			got := r.post(chatPath, chatBody("hi", false), "X-Request-Id", "the-id")
			if got.status != f.Status || got.body != f.Body {
				t.Errorf("got %d %s", got.status, got.body)
			}
			for name, value := range f.Headers {
				if got.header.Get(name) != value {
					t.Errorf("%s: %q, want %q", name, got.header.Get(name), value)
				}
			}
			if got.header.Get("Location") != f.Redirect {
				t.Errorf("Location %q", got.header.Get("Location"))
			}
			r.settled()
		})
	}
}

// TestDecodeThatGivesNoAnswer has nothing of the worker's to pass on, and its
// request is started again once.
func TestDecodeThatGivesNoAnswer(t *testing.T) {
	for _, tt := range servertest.NoAnswers {
		t.Run(tt.Name, func(t *testing.T) {
			toml := ""
			if tt.Fault.Hang {
				toml = "[gateway.profiles.decode]\ntimeout = \"1s\"\n"
			}
			r := newRig(t, setup{steps: decodeStep, toml: toml})
			tt.Fault.Leg = cluster.Decode
			r.cluster.AddFault(tt.Fault)
			got := r.post(chatPath, chatBody("hi", true), "X-Request-Id", "the-id")
			if o := readError(t, got.body); got.status != tt.Status || o.Error.Code != tt.Code {
				t.Errorf("got %d %s", got.status, got.body)
			}
			r.settled()
			var ids []string
			for _, l := range r.cluster.Legs("") {
				ids = append(ids, l.RequestID)
			}
			if want := servertest.NoAnswerLegs("the-id"); !slices.Equal(ids, want) {
				t.Errorf("decode was sent %q, want %q", ids, want)
			}
		})
	}
}

func TestStreamThatBreaksEndsWithAnErrorEventAndAnAbort(t *testing.T) {
	for _, path := range []string{chatPath, completionsPath} {
		r := newRig(t, setup{})
		r.cluster.AddFault(cluster.Fault{Leg: cluster.Decode, BreakAfter: new(2)})
		body := chatBody("one two three", true)
		if path == completionsPath {
			body = `{"model":"demo-model","stream":true,"prompt":"one two three"}`
		}
		got := r.post(path, body, "X-Request-Id", "the-id")
		if got.status != http.StatusOK || got.err == nil {
			t.Errorf("status %d, error %v: the connection must be aborted", got.status, got.err)
		}
		if strings.Contains(got.body, "[DONE]") {
			t.Errorf("a broken stream looks whole: %q", got.body)
		}
		events := strings.Split(strings.TrimSuffix(got.body, "\n\n"), "\n\n")
		if len(events) != 3 {
			t.Fatalf("events %q", events)
		}
		o := readError(t, strings.TrimPrefix(events[2], "data: "))
		if o.Error.Code != "upstream_failed" || !strings.HasSuffix(o.Error.Message, "(request_id: the-id)") {
			t.Errorf("event %s", events[2])
		}
		r.settled()
	}
}

func TestStreamThatFallsSilentIsBroken(t *testing.T) {
	r := newRig(t, setup{toml: "[gateway]\nstream_idle_timeout = \"200ms\"\n"})
	gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtChunk, Chunk: 2})
	defer gate.Release()
	got := r.post(chatPath, chatBody("one two three", true))
	if got.err == nil || !strings.Contains(got.body, `"code":"upstream_timeout"`) {
		t.Errorf("got %v %q", got.err, got.body)
	}
	r.settled()
}

// TestBadRequestsReachNobody: what can be refused at the door is.
func TestBadRequestsReachNobody(t *testing.T) {
	r := newRig(t, setup{render: servertest.RefusalRender, toml: "[server]\n" + servertest.RefusalServer})
	for _, tt := range servertest.Refusals {
		t.Run(tt.Name, func(t *testing.T) {
			req, _ := http.NewRequestWithContext(within(t), tt.Method, r.base+tt.Path, strings.NewReader(tt.Body))
			for i := 0; i < len(tt.Header); i += 2 {
				req.Header.Set(tt.Header[i], tt.Header[i+1])
			}
			resp, err := r.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			text, _ := io.ReadAll(resp.Body)
			if o := readError(t, string(text)); resp.StatusCode != tt.Status || o.Error.Code != tt.Code || o.Error.Type != "invalid_request_error" {
				t.Errorf("got %d %s", resp.StatusCode, text)
			}
			if tt.Status == 405 && !strings.Contains(resp.Header.Get("Allow"), "POST") {
				t.Errorf("Allow %q", resp.Header.Get("Allow"))
			}
			if id := resp.Header.Get("X-Request-Id"); id == "" || !strings.Contains(string(text), "(request_id: "+id+")") {
				t.Errorf("X-Request-Id %q, body %s", id, text)
			}
		})
	}
	if legs := r.legs(""); len(legs) != 0 {
		t.Errorf("legs went out: %v", legs)
	}
	r.settled()
}

func TestTooManyTokensAreRefusedAfterRenderAndBeforePrefill(t *testing.T) {
	r := newRig(t, setup{render: "max_total_tokens = 3"})
	got := r.post(chatPath, chatBody("one two three four five", false))
	if o := readError(t, got.body); got.status != 400 || o.Error.Code != "limit_exceeded" {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if legs := r.legs(""); !slices.Equal(legs, []string{"render"}) {
		t.Errorf("legs %v", legs)
	}
}

func TestOpenBreakerRefusesAtTheDoor(t *testing.T) {
	r := newRig(t, setup{toml: "[gateway.breaker]\nconsecutive_failures = 2\nopen_timeout = \"24h\"\n",
		cluster: cluster.Options{Lease: 50 * time.Millisecond}}) // the KV of a decode that fails is its worker's to free
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Decode, Status: 500})
	for range 2 {
		r.post(chatPath, chatBody("hi", false))
	}
	before := len(r.legs(""))
	got := r.post(chatPath, chatBody("hi", false))
	o := readError(t, got.body)
	if got.status != 503 || o.Error.Code != "upstream_unavailable" || o.Error.Type != "overloaded_error" || retryAfter(got) < 86_000 || retryAfter(got) > 86_400 {
		t.Errorf("got %d %v %s", got.status, got.header, got.body)
	}
	if after := len(r.legs("")); after != before {
		t.Errorf("%d legs went out although decode is open", after-before)
	}
	if s := r.Status("").Breakers["decode"]; s != "open" {
		t.Errorf("breaker is %s", s)
	}
	r.settled()
}

// TestPrefillWithoutHandoff: decode computes the prompt itself, and a worker is
// never told to pull from nowhere.
func TestPrefillWithoutHandoff(t *testing.T) {
	for name, answer := range map[string]string{"null": `null`, "a string": `"x"`, "no host": `{"remote_engine_id":"e","remote_port":1}`,
		"null port": `{"remote_engine_id":"e","remote_host":"h","remote_port":null}`} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{})
			r.cluster.AddFault(cluster.Fault{Leg: cluster.Prefill, BadHandoff: json.RawMessage(answer)})
			got := r.post(chatPath, chatBody("hi there", false), "X-Request-Id", "the-id")
			if got.status != 200 || !strings.Contains(got.body, cluster.Reply("hi there")) {
				t.Errorf("got %d %s", got.status, got.body)
			}
			legs := r.cluster.Legs("the-id")
			if d := string(legs[2].Body); strings.Contains(d, "kv_transfer_params") {
				t.Errorf("decode was sent %s", d)
			}
			if n := r.metric(t, "llm_d_coordinator_kv_handoff_missing_total"); n != 1 {
				t.Errorf("counted %v", n)
			}
		})
	}
}

// metric returns the sum of a metric's values.
func (r *rig) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	sum, ok := metricstest.Sum(t, r.Registry, name, labels...)
	if !ok {
		t.Errorf("no metric %s", name)
	}
	return sum
}
