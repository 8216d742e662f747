package assembly_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// TestResponsesDecodeThatFailsBeforeItAnswers is made good for as that of a chat
// is. Events that announce what is to come are no answer.
func TestResponsesDecodeThatFailsBeforeItAnswers(t *testing.T) {
	first := []string{"render:id", "prefill:id", "decode:id"}
	again := append(slices.Clone(first), "prefill:id-r1", "decode:id-r1")
	for _, tt := range []struct {
		name   string
		fault  cluster.Fault
		plain  bool // not only in a stream
		legs   []string
		want   string // in the body
		reason string // of the rerun
	}{
		{name: "500", fault: cluster.Fault{Status: 500}, plain: true, legs: again, reason: "500"},
		{name: "no answer", fault: cluster.Fault{Drop: true}, plain: true, legs: again, reason: "dead_connection"},
		{name: "an error first", fault: cluster.Fault{ErrorEventAfter: new(0)}, legs: again, reason: "first_event"},
		{name: "an error behind what is announced", fault: cluster.Fault{ErrorEventAfter: new(4)}, legs: again, reason: "first_event"},
		{name: "an error of the request", fault: cluster.Fault{ErrorEventAfter: new(2), ErrorCode: 400}, legs: first, want: `"code":"400"`},
		{name: "failed", fault: cluster.Fault{FinishError: true}, legs: again, reason: "first_event"},
		{name: "it ends", fault: cluster.Fault{EndAfter: new(2)}, legs: again, reason: "first_event"},
		{name: "it breaks", fault: cluster.Fault{BreakAfter: new(4)}, legs: again, reason: "first_event"},
	} {
		for _, stream := range []bool{true, false} {
			if !stream && !tt.plain {
				continue
			}
			t.Run(fmt.Sprintf("%s, streamed %t", tt.name, stream), func(t *testing.T) {
				r := newRig(t, setup{toml: quick, cluster: cluster.Options{Lease: byHand}})
				tt.fault.Leg, tt.fault.Times = cluster.Decode, 1
				r.cluster.AddFault(tt.fault)
				got := r.post(responsesPath, responsesBody("one two", stream), "X-Request-Id", "id")
				if legs := r.legIDs("id"); !slices.Equal(legs, tt.legs) {
					t.Errorf("legs %v, want %v", legs, tt.legs)
				}
				if n := strings.Count(got.body, "event: response.created"); stream && n != 1 {
					t.Errorf("the answer begins %d times: %s", n, got.body)
				}
				if tt.want == "" {
					if status, text := readResponse(t, got.body); got.status != 200 || status != "completed" || text != cluster.Reply("one two") {
						t.Errorf("%d %s", got.status, got.body)
					}
				} else if got.status != 200 || !strings.Contains(got.body, tt.want) {
					t.Errorf("%d %s", got.status, got.body)
				}
				if tt.reason != "" {
					if n := r.metric(t, "llm_d_coordinator_reruns_total", "reason="+tt.reason); n != 1 {
						t.Errorf("counted %v", n)
					}
				}
				r.settled()
			})
		}
	}
}

// TestResponsesPrefillThatFailed with status 200 is a failed leg.
func TestResponsesPrefillThatFailed(t *testing.T) {
	r := newRig(t, setup{toml: "[gateway.breaker]\nconsecutive_failures = 1\n"})
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Prefill, FinishError: true, Times: 1})
	got := r.post(responsesPath, responsesBody("one", true))
	if o := readError(t, got.body); got.status != 502 || o.Error.Code != "upstream_failed" {
		t.Errorf("%d %s", got.status, got.body)
	}
	if n := r.metric(t, "llm_d_coordinator_breaker_state", "profile=prefill"); n != 2 {
		t.Errorf("the breaker's state is %v", n)
	}
}

// TestResponsesErrorInARunningStream goes to the client as it is, and is a failure
// of decode's.
func TestResponsesErrorInARunningStream(t *testing.T) {
	r := newRig(t, setup{toml: "[gateway.breaker]\nconsecutive_failures = 1\n"})
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Decode, ErrorEventAfter: new(saidFirst + 1), Times: 1})
	got := r.post(responsesPath, responsesBody("one two three", true))
	if got.status != 200 || !strings.HasSuffix(got.body, "}\n\n") || strings.Count(got.body, "event: error") != 1 || strings.Contains(got.body, "upstream_failed") {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if n := r.metric(t, "llm_d_coordinator_stream_broken_total", "cause=error_event"); n != 1 {
		t.Errorf("counted %v", n)
	}
	r.settled()
}

// TestResponsesStreamThatBreaks ends with an event that clients of this API know.
func TestResponsesStreamThatBreaks(t *testing.T) {
	r := newRig(t, setup{})
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Decode, BreakAfter: new(saidFirst + 1), Times: 1})
	got := r.post(responsesPath, responsesBody("one two three", true), "X-Request-Id", "id")
	i := strings.LastIndex(got.body, "\n\nevent: ")
	if got.err == nil || i < 0 {
		t.Fatalf("%v %s", got.err, got.body)
	}
	data, ok := strings.CutPrefix(got.body[i:], "\n\nevent: error\ndata: ")
	var event struct {
		Type, Code, Message string
		Error               struct{ Type, Code, Message string }
	}
	if err := json.Unmarshal([]byte(data), &event); err != nil || !ok || event.Type != "error" || event.Code != "upstream_failed" || event.Error.Code != event.Code ||
		event.Error.Type != "upstream_error" || !strings.Contains(event.Message, "(request_id: id)") || event.Message != event.Error.Message {
		t.Errorf("%v %q", err, got.body[i:])
	}
	r.settled()
}

// TestResponsesProbe: a conditional decode of cached input answers it.
func TestResponsesProbe(t *testing.T) {
	r := newRig(t, setup{steps: probingSteps, cluster: cluster.Options{CacheDecodes: true}})
	for i, legs := range [][]string{{"render", "probe", "prefill", "decode"}, {"render", "probe"}} {
		id := fmt.Sprint(i)
		got := r.post(responsesPath, responsesBody("one two", true), "X-Request-Id", id)
		if status, text := readResponse(t, got.body); status != "completed" || text != cluster.Reply("one two") || !slices.Equal(r.legs(id), legs) {
			t.Errorf("%d %s, legs %v", got.status, got.body, r.legs(id))
		}
	}
	r.settled()
}

func sdkResponse(text string) responses.ResponseNewParams {
	return responses.ResponseNewParams{Model: cluster.DefaultModel, Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(text)}}
}

func TestSDKResponses(t *testing.T) {
	r := newRig(t, setup{})
	client := r.sdk()
	got, err := client.Responses.New(r.asks(), sdkResponse("one two"))
	if err != nil || got.OutputText() != cluster.Reply("one two") || got.Usage.OutputTokens == 0 {
		t.Fatalf("%v %s", err, got.RawJSON())
	}
	stream := client.Responses.NewStreaming(r.asks(), sdkResponse("one two"))
	text, ended := "", ""
	for stream.Next() {
		event := stream.Current()
		text += event.AsResponseOutputTextDelta().Delta
		ended = event.Type
	}
	if stream.Err() != nil || text != cluster.Reply("one two") || ended != "response.completed" {
		t.Errorf("%v %q %s", stream.Err(), text, ended)
	}
	stream.Close()
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Decode, BreakAfter: new(saidFirst + 1), Times: 1})
	stream = client.Responses.NewStreaming(r.asks(), sdkResponse("one two three"))
	for stream.Next() {
	}
	if err := stream.Err(); err == nil || !strings.Contains(err.Error(), "upstream_failed") {
		t.Errorf("a broken stream: %v", err)
	}
	stream.Close()
	r.settled()
	if logs := r.logs.String(); !strings.Contains(logs, "tokens_out=") {
		t.Errorf("the tokens of the answer are not noted: %s", logs)
	}
}
