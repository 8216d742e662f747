package cluster

import (
	"strings"
	"testing"
)

func probe(path, body string) call {
	return call{leg: Decode, path: path, body: body, header: map[string]string{"Prefer": "if-available"}}
}

func TestProbe(t *testing.T) {
	r := start(t, Options{})
	const missed = `{"error":{"message":"The prompt is not cached.","type":"PreconditionFailed","param":null,"code":412}}`
	cat := chatOf("", imagePart(catURI, ""))
	ids := jsonText(r.TokenIDs("hi"))
	for _, test := range []struct{ name, path, client, sent, want string }{
		{"chat", chatPath, chat("hi", ""), chat("hi", ""), Reply("hi")},
		{"chat streamed", chatPath, chat("ho", ""), chat("ho", `,"stream":true`), Reply("ho")},
		{"image", chatPath, cat, cat, ReplyWithImages("", catHash)},
		{"completions", completionsPath, `{"prompt":"hi"}`, `{"prompt":` + ids + `}`, Reply("hi")},
	} {
		t.Run(test.name, func(t *testing.T) {
			r.Reset()
			if got := r.send(probe(test.path, test.sent)); got.status != 412 || got.body != missed {
				t.Errorf("before: %+v", got)
			}
			if err := r.CachePrompt(test.path, test.client); err != nil {
				t.Fatal(err)
			}
			if got := r.send(probe(test.path, test.sent)); got.status != 200 || said(t, got.body) != test.want {
				t.Errorf("after: %+v", got)
			}
			if got := r.send(probe(chatPath, chat("other", ""))); got.status != 412 {
				t.Errorf("other prompt: %+v", got)
			}
			s := r.State()
			if s.ProbeHits != 1 || s.ProbeMisses != 2 || s.Legs[Probe] != 3 || s.Legs[Decode] != 0 || s.Recomputed != 0 {
				t.Errorf("%+v", s)
			}
			r.noViolations()
		})
	}
	for _, bad := range []struct{ path, body string }{{"/v1/nothing", `{}`}, {chatPath, `{`}, {chatPath, `{}`}} {
		if r.CachePrompt(bad.path, bad.body) == nil {
			t.Errorf("cached %+v", bad)
		}
	}
}

func TestMarkCached(t *testing.T) {
	r := start(t, Options{})
	r.MarkCached(true)
	if got := r.send(probe(chatPath, chat("hi", ""))); got.status != 200 {
		t.Errorf("all: %+v", got)
	}
	r.MarkCached(false)
	if got := r.send(probe(chatPath, chat("hi", ""))); got.status != 412 {
		t.Errorf("none: %+v", got)
	}
}

func TestDecodesAreCached(t *testing.T) {
	for _, test := range []struct {
		name    string
		options Options
		fault   Fault
		more    string
		status  int
	}{
		{"whole", Options{CacheDecodes: true}, Fault{Leg: Render}, "", 200},
		{"streamed", Options{CacheDecodes: true}, Fault{Leg: Render}, `,"stream":true`, 200},
		{"broken off", Options{CacheDecodes: true}, Fault{Leg: Decode, BreakAfter: new(2)}, `,"stream":true`, 412},
		{"refused", Options{CacheDecodes: true}, Fault{Leg: Decode, Status: 503}, "", 412},
		{"not loaded", Options{CacheDecodes: true}, Fault{Leg: Render}, `,"kv_transfer_params":{"do_remote_prefill":true,"remote_request_id":"x"}`, 412},
		{"option off", Options{}, Fault{Leg: Render}, "", 412},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := start(t, test.options)
			r.AddFault(test.fault)
			r.send(call{leg: Decode, body: chat("hi", test.more)})
			r.wait(State.Idle)
			if got := r.send(probe(chatPath, chat("hi", ""))); got.status != test.status {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestProbeViolations(t *testing.T) {
	r := start(t, Options{})
	for _, test := range []struct {
		call call
		want string
	}{
		{probe(chatPath, chat("hi", `,"kv_transfer_params":null`)), "kv_transfer_params"},
		{probe(generatePath, r.generateBody("hi", "", `"extra_args":{"kv_transfer_params":{}}`)), "kv_transfer_params"},
		{call{leg: Decode, body: chat("hi", ""), header: map[string]string{"Prefer": "tea"}}, "Prefer"},
		{call{leg: Render, body: chat("hi", ""), header: map[string]string{"Prefer": "if-available"}}, "Prefer"},
		{call{leg: Decode, body: chat("hi", `,"ec_transfer_params":{}`)}, "ec_transfer_params"},
	} {
		r.Reset()
		r.send(test.call)
		r.wantViolation(test.want)
	}
}

func TestControlOfTheCache(t *testing.T) {
	r := start(t, Options{})
	for _, test := range []struct {
		body   string
		status int
		probe  int
	}{
		{`{"all":true}`, 204, 200},
		{`{"all":false}`, 204, 412},
		{`{"path":"/v1/completions","body":"{\"prompt\":\"hi\"}"}`, 204, 200},
		{`{"path":"/v1/completions","body":"{}"}`, 400, 200},
		{`{"every":true}`, 400, 200},
	} {
		resp, err := r.client.Post(r.URL()+"/_cluster/cached", "application/json", strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		readAll(t, resp)
		got := r.send(probe(completionsPath, `{"prompt":"hi"}`))
		if resp.StatusCode != test.status || got.status != test.probe {
			t.Errorf("%s: %d, probe %d", test.body, resp.StatusCode, got.status)
		}
	}
}
