package assembly_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// TestOnePromptFailsAndSoDoesTheBatch: before anything was written, whatever the
// others are at; they are cancelled.
func TestOnePromptFailsAndSoDoesTheBatch(t *testing.T) {
	for _, test := range []struct {
		name   string
		fault  cluster.Fault
		status int
		code   string
		says   string
	}{
		{"render", cluster.Fault{Leg: cluster.Render, Status: 400}, 400, "upstream_rejected", ""},
		{"render answers nonsense", cluster.Fault{Leg: cluster.Render, Garbage: true}, 502, "upstream_failed", ""},
		{"prefill", cluster.Fault{Leg: cluster.Prefill, Status: 500}, 502, "upstream_failed", ""},
		{"prefill is overloaded", cluster.Fault{Leg: cluster.Prefill, Status: 429, Headers: map[string]string{"Retry-After": "7"}}, 429, "upstream_rejected", ""},
		{"decode refuses", cluster.Fault{Leg: cluster.Decode, Status: 400, Body: `{"error":{"message":"too long by far","code":400}}`}, 400, "upstream_rejected", "too long by far"},
		{"decode refuses in another shape", cluster.Fault{Leg: cluster.Decode, Status: 404, Body: `{"object":"error","message":"no such model"}`}, 404, "upstream_rejected", "no such model"},
		{"decode says nothing", cluster.Fault{Leg: cluster.Decode, Status: 418, Body: "tea"}, 418, "upstream_rejected", "decode answered 418"},
		{"decode fails", cluster.Fault{Leg: cluster.Decode, Status: 500}, 502, "upstream_failed", ""},
		{"decode redirects", cluster.Fault{Leg: cluster.Decode, Redirect: "http://elsewhere.invalid/"}, 502, "upstream_failed", ""},
		{"decode answers nonsense", cluster.Fault{Leg: cluster.Decode, Garbage: true}, 502, "upstream_failed", "cannot be used"},
		{"decode drops the connection", cluster.Fault{Leg: cluster.Decode, Drop: true}, 502, "upstream_failed", ""},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, streamed %t", test.name, stream), func(t *testing.T) {
				r := newRig(t, setup{pipeline: batching, cluster: cluster.Options{Lease: byHand}})
				test.fault.RequestID = "b-p1"
				r.cluster.AddFault(test.fault)
				gate := r.cluster.Hold(cluster.Gate{Leg: test.fault.Leg, RequestID: "b-p1", Times: 1})
				var others []*cluster.Held // they have their KV, and have written nothing
				for _, other := range []string{"b-p0", "b-p2"} {
					others = append(others, r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, RequestID: other, At: cluster.AtHeaders}))
				}
				answer := make(chan response)
				go func() {
					answer <- r.post(completionsPath, batchBody(batchPrompts, fmt.Sprintf(`,"stream":%t`, stream)), "X-Request-Id", "b")
				}()
				for _, other := range others {
					if err := other.WaitFor(within(t), 1); err != nil {
						t.Fatal(err)
					}
				}
				gate.Release()
				got := <-answer
				o := readError(t, got.body)
				if got.status != test.status || o.Error.Code != test.code || !strings.Contains(o.Error.Message, test.says) || !strings.Contains(o.Error.Message, "(request_id: b)") {
					t.Errorf("%d %s", got.status, got.body)
				}
				if want := test.fault.Headers["Retry-After"]; got.header.Get("Retry-After") != want {
					t.Errorf("Retry-After %q, want %q", got.header.Get("Retry-After"), want)
				}
				if strings.Contains(r.logs.String(), "too long by far") {
					t.Error("what the worker says is in the log")
				}
				r.batchSettled(3)
			})
		}
	}
}

// TestOnePromptFailsInTheMiddleOfTheStream: one error event, and no clean end.
func TestOnePromptFailsInTheMiddleOfTheStream(t *testing.T) {
	two := 2
	for _, test := range []struct {
		name  string
		fault cluster.Fault
		says  string
	}{
		{"the worker says so", cluster.Fault{Leg: cluster.Decode, ErrorEventAfter: &two}, ""},
		{"the stream breaks", cluster.Fault{Leg: cluster.Decode, BreakAfter: &two}, ""},
		{"it ends too early", cluster.Fault{Leg: cluster.Decode, EndAfter: &two}, "broke off"},
		{"another is refused", cluster.Fault{Leg: cluster.Decode, Status: 400, Body: `{"error":{"message":"too long by far"}}`}, "too long by far"},
		{"another is not rendered", cluster.Fault{Leg: cluster.Render, Status: 500}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, setup{pipeline: batching, cluster: cluster.Options{Lease: byHand}})
			test.fault.RequestID = "b-p1"
			r.cluster.AddFault(test.fault)
			gate := r.cluster.Hold(cluster.Gate{RequestID: "b-p1", At: cluster.AtArrival, Leg: test.fault.Leg})
			r.cluster.Hold(cluster.Gate{RequestID: "b-p0", Leg: cluster.Decode, At: cluster.AtChunk, Chunk: 2})
			resp, err := r.open(within(t), completionsPath, batchBody(batchPrompts[:2], `,"stream":true`), "X-Request-Id", "b")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body := bufio.NewReader(resp.Body)
			first, err := body.ReadBytes('\n') // of the other prompt: this one waits
			if err != nil {
				t.Fatal(err)
			}
			gate.Release()
			text, err := io.ReadAll(body)
			text = append(first, text...)
			events := strings.Split(strings.TrimSuffix(string(text), "\n\n"), "\n\n")
			last := strings.TrimPrefix(events[len(events)-1], "data: ")
			o := readError(t, last)
			if resp.StatusCode != 200 || err == nil || o.Error.Type == "" || !strings.Contains(o.Error.Message, test.says) {
				t.Errorf("%d %v %s", resp.StatusCode, err, text)
			}
			if strings.Contains(string(text), "[DONE]") || strings.Count(string(text), `"error"`) != 1 || !strings.Contains(string(text), `"index":0`) {
				t.Errorf("%s", text)
			}
			r.batchSettled(2)
			for _, l := range r.cluster.Legs("b-p0") {
				if l.Name == cluster.Decode && !l.Aborted {
					t.Error("the other prompt was not cancelled")
				}
			}
		})
	}
}

// TestClientOfABatchLeaves at each place: nothing is left.
func TestClientOfABatchLeaves(t *testing.T) {
	for _, at := range []cluster.Gate{
		{Leg: cluster.Render, At: cluster.AtArrival}, {Leg: cluster.Prefill, At: cluster.AtArrival}, {Leg: cluster.Prefill, At: cluster.AtHeaders},
		{Leg: cluster.Decode, At: cluster.AtArrival}, {Leg: cluster.Decode, At: cluster.AtHeaders}, {Leg: cluster.Decode, At: cluster.AtChunk, Chunk: 2},
	} {
		for _, held := range []string{"", "b-p1"} { // all prompts stand there, or one
			for _, stream := range []bool{false, true} {
				if !stream && at.At == cluster.AtChunk {
					continue
				}
				t.Run(fmt.Sprintf("%s %s %q streamed %t", at.Leg, at.At, held, stream), func(t *testing.T) {
					r := newRig(t, setup{pipeline: batching})
					at.RequestID = held
					n := 3
					if held != "" {
						n = 1
					}
					gates := map[*cluster.Held]int{r.cluster.Hold(at): n}
					if held != "" {
						for _, other := range []string{"b-p0", "b-p2"} {
							gates[r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, RequestID: other, At: cluster.AtHeaders})] = 1
						}
					}
					ctx, leave := context.WithCancel(within(t))
					gone := make(chan struct{})
					go func() {
						defer close(gone)
						r.postCtx(ctx, completionsPath, batchBody(batchPrompts, fmt.Sprintf(`,"stream":%t`, stream)), "X-Request-Id", "b")
					}()
					for gate, n := range gates {
						if err := gate.WaitFor(within(t), n); err != nil {
							t.Fatal(err)
						}
					}
					leave()
					<-gone
					r.batchSettled(3)
					if n := r.metric(t, metricPrefix+"disconnect_total"); n != 1 {
						t.Errorf("%v clients left", n)
					}
				})
			}
		}
	}
}

// TestBatchWithADeadline: the answer of a batch has not begun before that of all
// prompts, unless it is streamed.
func TestBatchWithADeadline(t *testing.T) {
	r := newRig(t, setup{pipeline: batching})
	r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, RequestID: "b-p1", At: cluster.AtHeaders})
	got := r.post(completionsPath, batchBody(batchPrompts, ""), "X-Request-Id", "b", "x-llm-d-request-timeout-seconds", "0.3")
	if o := readError(t, got.body); got.status != http.StatusGatewayTimeout || o.Error.Code != "upstream_timeout" {
		t.Errorf("%d %s", got.status, got.body)
	}
	if n := r.metric(t, metricPrefix+"deadline_exceeded_total"); n != 1 {
		t.Errorf("%v requests were too late", n)
	}
	r.batchSettled(3)
}

// TestBatchIsCutAtTheEnd of the process, as one request.
func TestBatchIsCutAtTheEnd(t *testing.T) {
	r := newRig(t, setup{pipeline: batching, toml: "[server]\nshutdown_timeout = \"100ms\"\n"})
	r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, RequestID: "b-p1", At: cluster.AtChunk, Chunk: 1})
	resp, err := r.open(within(t), completionsPath, batchBody(batchPrompts, `,"stream":true`), "X-Request-Id", "b")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r.stop()
	text, err := io.ReadAll(resp.Body)
	if err == nil || strings.Count(string(text), `"code":"shutting_down"`) != 1 {
		t.Errorf("%v %s", err, text)
	}
	if o := <-r.ended; o.cut < 1 || o.err != nil {
		t.Errorf("%+v", o)
	}
	r.ended <- outcome{}
}

// TestPanicInOnePromptOfABatch fails the batch, and nothing else.
func TestPanicInOnePromptOfABatch(t *testing.T) {
	r := newRig(t, setup{pipeline: batching, cluster: cluster.Options{Lease: byHand}, steps: "[[pipeline.steps]]\ntype = \"touchy\"\n" + fullSteps})
	for _, where := range []string{"panic-in-worker", "panic-in-plan"} {
		got := r.post(completionsPath, batchBody(batchPrompts, ""), "X-Request-Id", where)
		if o := readError(t, got.body); got.status != http.StatusInternalServerError || o.Error.Code != "internal" {
			t.Errorf("%s: %d %s", where, got.status, got.body)
		}
	}
	texts, _, _ := merged(t, r.post(completionsPath, batchBody(batchPrompts, "")), false)
	if len(texts) != 3 {
		t.Errorf("%v", texts)
	}
	r.settled()
}
