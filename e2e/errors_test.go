package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/server/servertest"
)

const (
	shortChat       = `{"model":"demo-model","messages":[{"role":"user","content":"one two three"}]}`
	shortChatStream = `{"model":"demo-model","stream":true,"messages":[{"role":"user","content":"one two three"}]}`
)

// quick are settings with which a leg that hangs is given up soon.
func quick(p plan) plan {
	p.render = `timeout = "1s"`
	p.tables = "[gateway.breaker]\nenabled = false\n[gateway.profiles.prefill]\ntimeout = \"1s\"\n[gateway.profiles.decode]\ntimeout = \"3s\"\n"
	return p
}

// TestErrorsOfLegs: of a leg that fails before decode the client hears the same as
// without a gateway, and no word of the worker's.
func TestErrorsOfLegs(t *testing.T) {
	bodies := []string{strings.Replace(shortChat, "one", servertest.Secret, 1), strings.Replace(shortChatStream, "one", servertest.Secret, 1)}
	behindEach(t, func(t *testing.T, g gateway) {
		f := startFleet(t, g, quick(plan{}))
		for _, leg := range []string{cluster.Render, cluster.Prefill} {
			for i, tt := range servertest.LegFailures {
				name, id := leg+"/"+tt.Name, fmt.Sprintf("%s-%d", leg, i)
				tt.Fault.Leg = leg
				fault := f.cluster.AddFault(tt.Fault)
				got := f.post(chatPath, bodies[i%2], "X-Request-Id", id)
				f.cluster.RemoveFault(fault)
				kind, code := errorOf(got.body)
				if got.err != nil || got.status != tt.Status || kind != tt.Type || code != tt.Code || !strings.Contains(got.body, "(request_id: "+id+")") || strings.Contains(got.body, servertest.Secret) {
					t.Errorf("%s: %d %v %s", name, got.status, got.err, got.body)
				}
				for header := range servertest.Busy {
					if got.header.Get(header) != tt.Header[header] {
						t.Errorf("%s: %s is %q, want %q", name, header, got.header.Get(header), tt.Header[header])
					}
				}
				legs := f.legsOf(id)
				if len(legs) == 0 || legs[len(legs)-1].Name != leg {
					t.Errorf("%s: legs %v: nothing may follow the failed one", name, names(legs))
				}
				f.sentOnce(name, legs)
			}
		}
		f.settled()
	})
}

// sentOnce checks that no gateway has sent a leg again: where the coordinator does,
// the leg gets an id of its own.
func (f *fleet) sentOnce(name string, legs []cluster.Leg) {
	f.t.Helper()
	seen := map[string]bool{}
	for _, l := range legs {
		if key := l.Name + " " + l.RequestID; seen[key] {
			f.t.Errorf("%s: %s came twice", name, key)
		} else {
			seen[key] = true
		}
	}
}

// TestErrorsGoThrough: no gateway puts its own words in place of a worker's or a
// coordinator's.
func TestErrorsGoThrough(t *testing.T) {
	behindEach(t, func(t *testing.T, g gateway) {
		f := startFleet(t, g, plan{tables: "[gateway.breaker]\nenabled = false\n"})
		for _, fault := range servertest.DecodeAnswers {
			fault.Leg = cluster.Decode
			for _, body := range []string{shortChat, shortChatStream} {
				id := f.cluster.AddFault(fault)
				got := f.post(chatPath, body)
				f.cluster.RemoveFault(id)
				if got.err != nil || got.status != fault.Status || got.body != fault.Body || got.header.Get("Location") != fault.Redirect {
					t.Errorf("%d: got %d %v %v %s", fault.Status, got.status, got.err, got.header, got.body)
				}
				for name, value := range fault.Headers {
					if got.header.Get(name) != value {
						t.Errorf("%d: %s is %q, want %q", fault.Status, name, got.header.Get(name), value)
					}
				}
			}
		}
		f.passedThrough()
		f.brokenAnswers()
	})
}

// TestNoGatewaySendsADecodeAgain that gave no answer. What the client sees is as
// without a gateway, but where the table says why it may not be.
func TestNoGatewaySendsADecodeAgain(t *testing.T) {
	behindEach(t, func(t *testing.T, g gateway) {
		f := startFleet(t, g, quick(plan{steps: decodeStep}))
		for i, tt := range servertest.NoAnswers {
			id := fmt.Sprintf("req-%d", i)
			tt.Fault.Leg = cluster.Decode
			fault := f.cluster.AddFault(tt.Fault)
			got := f.post(chatPath, shortChatStream, "X-Request-Id", id)
			f.cluster.RemoveFault(fault)
			code := codeOf(got.body)
			if got.err != nil || got.status != tt.Status || code != tt.Code && (tt.Behind == "" || code != "") {
				t.Errorf("%s: %d %v %s", tt.Name, got.status, got.err, got.body)
			}
			var ids []string
			for _, l := range f.legsOf(id) {
				ids = append(ids, l.RequestID)
			}
			if want := servertest.NoAnswerLegs(id); !slices.Equal(ids, want) {
				t.Errorf("%s: decode was sent %q, want %q", tt.Name, ids, want)
			}
		}
		f.settled()
	})
}

// TestRefusals: what the coordinator refuses at the door it refuses behind a
// gateway too, in the same words.
func TestRefusals(t *testing.T) {
	behindEach(t, func(t *testing.T, g gateway) {
		f := startFleet(t, g, plan{render: servertest.RefusalRender, server: servertest.RefusalServer})
		client := singleUse()
		for _, tt := range servertest.Refusals {
			got := read(send(f.ctx, client, tt.Method, f.url+tt.Path, tt.Body, tt.Header...))
			if kind, code := errorOf(got.body); got.err != nil || got.status != tt.Status || code != tt.Code || kind != "invalid_request_error" {
				t.Errorf("%s: %d %v %s", tt.Name, got.status, got.err, got.body)
			}
			if tt.Status == http.StatusMethodNotAllowed && !strings.Contains(got.header.Get("Allow"), "POST") {
				t.Errorf("%s: Allow is %q", tt.Name, got.header.Get("Allow"))
			}
			if id := got.header.Get("X-Request-Id"); id == "" || !strings.Contains(got.body, "(request_id: "+id+")") {
				t.Errorf("%s: X-Request-Id is %q, the body %s", tt.Name, id, got.body)
			}
		}
		if legs := f.legsOf(""); len(legs) != 0 {
			t.Errorf("legs went out: %v", names(legs))
		}
		f.settled()
	})
}

// TestFailingWorkersAreNotLeftAlone: requests on which workers drop their connection
// do not make a gateway take the workers away from the requests that follow.
func TestFailingWorkersAreNotLeftAlone(t *testing.T) {
	behindEach(t, func(t *testing.T, g gateway) {
		f := startFleet(t, g, plan{})
		fault := f.cluster.AddFault(cluster.Fault{Leg: cluster.Prefill, Drop: true})
		for range 2 {
			if got := f.post(chatPath, shortChat); got.status != http.StatusBadGateway || codeOf(got.body) != "upstream_failed" {
				t.Errorf("%d %v %s", got.status, got.err, got.body)
			}
		}
		f.cluster.RemoveFault(fault)
		if n := f.cluster.State().FaultedLegs; n != 6 {
			t.Errorf("%d legs failed, want three attempts at each of two", n)
		}
		for range 10 {
			if got := f.post(chatPath, shortChat); got.err != nil || got.status != http.StatusOK {
				t.Errorf("%d %v %s", got.status, got.err, got.body)
			}
		}
		f.settled()
	})
}

// errorOf returns type and code of a coordinator's error object, or "".
func errorOf(body string) (kind, code string) {
	var o struct {
		Error struct {
			Message, Type, Code string
		}
	}
	if json.Unmarshal([]byte(body), &o) != nil || !strings.Contains(o.Error.Message, "(request_id: ") {
		return "", ""
	}
	return o.Error.Type, o.Error.Code
}

// codeOf returns the code of a coordinator's error object, or "".
func codeOf(body string) string {
	_, code := errorOf(body)
	return code
}

// passedThrough are requests that a worker answers by itself.
func (f *fleet) passedThrough() {
	f.t.Helper()
	if got := f.post("/v1/models", `{}`); got.status != http.StatusMethodNotAllowed || codeOf(got.body) != "" {
		f.t.Errorf("a list of models that is posted: %d %v %s", got.status, got.err, got.body)
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
	if got.status != http.StatusOK || got.err == nil || len(events) != 4 || codeOf(strings.TrimPrefix(events[3], "data: ")) != "upstream_failed" {
		f.t.Errorf("a stream that breaks: %d %v %q", got.status, got.err, events)
	}
	if got := f.post(chatPath, shortChat); got.status != http.StatusBadGateway || got.err != nil || codeOf(got.body) != "upstream_failed" {
		f.t.Errorf("an answer that breaks before any of it has gone out: %d %v %q", got.status, got.err, got.body)
	}
	long := fmt.Sprintf(`{"model":"demo-model","messages":[{"role":"user","content":%q}]}`, strings.Repeat("word ", 10_000))
	if got := f.post(chatPath, long); got.status != http.StatusOK || got.err == nil || got.body == "" {
		f.t.Errorf("an answer that breaks: %d %v %.200q", got.status, got.err, got.body)
	}
}
