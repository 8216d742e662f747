package assembly_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

const batching = "max_batch_size = 8\n"

var batchPrompts = []string{"one two", "three", "four five six"}

// batchBody is a request of these prompts.
func batchBody(prompts []string, more string) string {
	text, _ := json.Marshal(prompts) // strings: it cannot fail
	return fmt.Sprintf(`{"model":"demo-model"%s,"prompt":%s}`, more, text)
}

// batchAnswer is an answer to a batch, or one event of it.
type batchAnswer struct {
	ID      string
	Object  string
	Choices []struct {
		Index        int
		Text         string
		FinishReason *string `json:"finish_reason"`
	}
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
	}
}

// merged reads the answer to a batch, and returns the text of each choice and how
// often there was a usage. An answer that is not whole, or has several ids, fails the
// test.
func merged(t *testing.T, got response, stream bool) (texts map[int]string, last batchAnswer, usages int) {
	t.Helper()
	if got.status != http.StatusOK || got.err != nil {
		t.Fatalf("%d %v %s", got.status, got.err, got.body)
	}
	texts = map[int]string{}
	pieces := []string{got.body}
	if stream {
		body, ok := strings.CutSuffix(got.body, "data: [DONE]\n\n")
		if !ok || strings.Contains(body, "[DONE]") {
			t.Fatalf("not one [DONE] at the end: %s", got.body)
		}
		pieces = strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n")
	} else if fmt.Sprint(len(got.body)) != got.header.Get("Content-Length") {
		t.Errorf("Content-Length is %s of %d", got.header.Get("Content-Length"), len(got.body))
	}
	id := ""
	for i, piece := range pieces {
		last = batchAnswer{}
		if err := json.Unmarshal([]byte(strings.TrimPrefix(piece, "data: ")), &last); err != nil {
			t.Fatalf("%v: %s", err, piece)
		}
		if id == "" {
			id = last.ID
		}
		if last.ID != id || last.Object != "text_completion" {
			t.Errorf("id %q, want %q; %s", last.ID, id, last.Object)
		}
		for _, c := range last.Choices {
			texts[c.Index] += c.Text
		}
		if last.Usage != nil {
			if usages++; i != len(pieces)-1 {
				t.Errorf("a usage before the end: %s", piece)
			}
		}
	}
	return texts, last, usages
}

func TestBatchesAreAnsweredAsOne(t *testing.T) {
	for _, test := range []struct {
		name    string
		setup   setup
		ids     bool // prompts as token ids
		n       int
		stream  bool
		usage   bool
		legs    string // of one prompt
		prompts []string
	}{
		{name: "whole", n: 1, usage: true, legs: "render prefill decode"},
		{name: "streamed", n: 1, stream: true, usage: true, legs: "render prefill decode"},
		{name: "streamed without usage", n: 1, stream: true, legs: "render prefill decode"},
		{name: "ids", ids: true, n: 1, usage: true, legs: "prefill decode"},
		{name: "ids, streamed", ids: true, n: 1, stream: true, usage: true, legs: "prefill decode"},
		{name: "two choices", n: 2, usage: true, legs: "render decode"},
		{name: "two choices, streamed", n: 2, stream: true, usage: true, legs: "render decode"},
		{name: "shared storage", setup: setup{kv: cluster.KVSharedStorage}, n: 1, stream: true, legs: "render prefill decode"},
		{name: "probed", setup: setup{steps: renderStep + "[[pipeline.steps]]\ntype = \"conditional-decode\"\n" + prefillStep + decodeStep}, n: 1, usage: true, legs: "render probe prefill decode"},
		{name: "decode alone", setup: setup{steps: decodeStep}, n: 1, stream: true, usage: true, legs: "decode"},
		{name: "an array of one", prompts: []string{"alone"}, n: 1, usage: true, legs: "render prefill decode"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.setup.pipeline = batching
			r := newRig(t, test.setup)
			prompts := test.prompts
			if prompts == nil {
				prompts = batchPrompts
			}
			more := fmt.Sprintf(`,"n":%d,"stream":%t`, test.n, test.stream)
			if test.stream && test.usage {
				more += `,"stream_options":{"include_usage":true}`
			}
			body := batchBody(prompts, more)
			tokens, spoken := 0, 0
			for _, p := range prompts {
				ids := r.cluster.TokenIDs(p)
				tokens, spoken = tokens+len(ids), spoken+test.n*len(strings.Fields(cluster.Reply(p)))
				if test.ids {
					text, _ := json.Marshal(p)
					list, _ := json.Marshal(ids)
					body = strings.Replace(body, string(text), string(list), 1)
				}
			}
			got := r.post(completionsPath, body, "X-Request-Id", "b", "Accept-Encoding", "gzip")
			texts, last, usages := merged(t, got, test.stream)
			if len(texts) != len(prompts)*test.n {
				t.Errorf("choices %v", texts)
			}
			for i, p := range prompts {
				for k := range test.n {
					if text := texts[i*test.n+k]; text != cluster.Reply(p) {
						t.Errorf("choice %d of prompt %d is %q, want %q", k, i, text, cluster.Reply(p))
					}
				}
			}
			switch {
			case !test.usage && usages != 0, test.usage && usages != 1:
				t.Errorf("%d usages", usages)
			case test.usage && (last.Usage.Prompt != tokens || last.Usage.Completion != spoken || last.Usage.Total != tokens+spoken):
				t.Errorf("usage %+v, want %d and %d", *last.Usage, tokens, spoken)
			}
			for i := range prompts {
				id := fmt.Sprintf("b-p%d", i)
				if len(prompts) == 1 {
					id = "b"
				}
				if legs := strings.Join(r.legs(id), " "); legs != test.legs {
					t.Errorf("legs of prompt %d: %s, want %s", i, legs, test.legs)
				}
				for _, l := range r.cluster.Legs(id) {
					if len(prompts) > 1 && l.Header.Get("Accept-Encoding") != "" {
						t.Errorf("%s was asked for an encoding: %v", l.Name, l.Header)
					}
				}
			}
			r.batchSettled(len(prompts))
		})
	}
}

// batchSettled is settled, and checks the one line of the log, and that no byte is
// charged any more.
func (r *rig) batchSettled(prompts int) {
	r.t.Helper()
	r.settled()
	if used := r.Memory.Used(); used != 0 {
		r.t.Errorf("%d bytes are still charged", used)
	}
	lines := 0
	for line := range strings.Lines(r.logs.String()) {
		if strings.Contains(line, "msg=request ") {
			lines++
			if prompts > 1 && !strings.Contains(line, fmt.Sprintf(" prompts=%d ", prompts)) {
				r.t.Errorf("the line does not say how many prompts: %s", line)
			}
			if strings.Contains(line, "status=200") && !strings.Contains(line, " code=") && strings.Count(line, " decode.ran") != prompts {
				r.t.Errorf("the line has not all steps: %s", line)
			}
		}
	}
	if lines != 1 {
		r.t.Errorf("%d lines in the log", lines)
	}
}

func TestBatchesThatAreRefused(t *testing.T) {
	for _, test := range []struct{ name, keys, prompt, code, says string }{
		{"by default", "", `["one","two"]`, "invalid_prompt", "several prompts need a request each"},
		{"one by default", "", `["one"]`, "invalid_prompt", ""},
		{"too many", "max_batch_size = 2\n", `["one","two","three"]`, "limit_exceeded", "3 prompts, more than the limit of 2"},
		{"mixed", batching, `["one",[1]]`, "invalid_prompt", "of one kind"},
		{"empty", batching, `[]`, "invalid_prompt", "empty"},
		{"an empty one", batching, `[[1],[]]`, "invalid_prompt", "empty"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, setup{pipeline: test.keys})
			got := r.post(completionsPath, `{"model":"demo-model","prompt":`+test.prompt+`}`)
			if o := readError(t, got.body); got.status != 400 || o.Error.Code != test.code || !strings.Contains(o.Error.Message, test.says) {
				t.Errorf("%d %s", got.status, got.body)
			}
			r.settled()
			if legs := r.legs(""); len(legs) > 0 {
				t.Errorf("legs were sent: %v", legs)
			}
		})
	}
}

// TestBatchLargerThanThePools: each prompt takes its places by itself, so pools of one
// get a batch through.
func TestBatchLargerThanThePools(t *testing.T) {
	for _, stream := range []bool{false, true} {
		r := newRig(t, setup{pipeline: batching, steps: renderStep + "[[pipeline.steps]]\ntype = \"conditional-decode\"\n" + prefillStep + decodeStep,
			toml: "[actors.pools]\nrender = { size = 1, queue = 8 }\nprefill = { size = 1, queue = 8 }\ndecode = { size = 1, queue = 7 }\n"})
		prompts := []string{"a", "b b", "c c c", "d", "e", "f", "g", "h"}
		got := r.post(completionsPath, batchBody(prompts, fmt.Sprintf(`,"stream":%t`, stream)))
		texts, _, _ := merged(t, got, stream)
		for i, p := range prompts {
			if texts[i] != cluster.Reply(p) {
				t.Errorf("prompt %d: %q", i, texts[i])
			}
		}
		r.batchSettled(len(prompts))
	}
}

// TestBatchesAreLetInTogetherOrNotAtAll: of four that may be in flight one is there.
func TestBatchesAreLetInTogetherOrNotAtAll(t *testing.T) {
	r := newRig(t, setup{pipeline: "max_batch_size = 4\n", toml: "[actors]\nmax_inflight_requests = 4\n"})
	gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtHeaders})
	first := make(chan response)
	go func() { first <- r.post(chatPath, chatBody("hi", false), "X-Request-Id", "first") }()
	if err := gate.WaitFor(within(t), 1); err != nil {
		t.Fatal(err)
	}
	four := []string{"a", "b", "c", "d"}
	got := r.post(completionsPath, batchBody(four, ""), "X-Request-Id", "four")
	if o := readError(t, got.body); got.status != http.StatusTooManyRequests || o.Error.Code != "queue_full" || got.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", got.status, got.body)
	}
	for i := range four {
		if legs := r.legs(fmt.Sprintf("four-p%d", i)); len(legs) > 0 {
			t.Errorf("prompt %d was sent: %v", i, legs)
		}
	}
	if s := r.Engine.Status(); s.Inflight != 1 {
		t.Errorf("%+v", s)
	}
	three := make(chan response)
	go func() { three <- r.post(completionsPath, batchBody(four[:3], ""), "X-Request-Id", "three") }()
	if err := gate.WaitFor(within(t), 4); err != nil {
		t.Fatal(err)
	}
	if s := r.Engine.Status(); s.Inflight != 4 {
		t.Errorf("%+v", s)
	}
	gate.Release()
	if got := <-first; got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
	texts, _, _ := merged(t, <-three, false)
	if len(texts) != 3 {
		t.Errorf("%v", texts)
	}
	r.settled()
}

// TestBatchGivesWayToAnotherTenant: one of its prompts that waits makes room, and the
// batch fails as a whole.
func TestBatchGivesWayToAnotherTenant(t *testing.T) {
	r := newRig(t, setup{pipeline: "max_batch_size = 4\n", toml: "[actors]\nmax_inflight_requests = 4\n[actors.pools]\ndecode = { size = 1, queue = 4 }\n"})
	gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtHeaders, Times: 1})
	batch := make(chan response)
	go func() {
		batch <- r.post(completionsPath, batchBody([]string{"a", "b", "c", "d"}, ""), "X-Request-Id", "batch", fairHeader, "greedy")
	}()
	if err := gate.WaitFor(within(t), 1); err != nil {
		t.Fatal(err)
	}
	r.eventually("3 prompts wait for decode", func() bool { return poolOf(r, "decode").Queued == 3 })
	if got := r.post(chatPath, chatBody("hi", false), fairHeader, "modest"); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
	got := <-batch
	if o := readError(t, got.body); got.status != http.StatusTooManyRequests || o.Error.Code != "queue_full" {
		t.Errorf("%d %s", got.status, got.body)
	}
	r.settled()
}

// TestClientThatReadsLaterGetsAll of all prompts, and no more is charged meanwhile than
// events.
func TestClientThatReadsLaterGetsAll(t *testing.T) {
	r := newRig(t, setup{pipeline: batching})
	prompts := []string{strings.Repeat("a ", 40_000), strings.Repeat("b ", 40_000)} // more than the system holds for a client
	resp, err := r.open(within(t), completionsPath, batchBody(prompts, `,"stream":true`), "X-Request-Id", "b")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r.eventually("both answers are on their way, an event of each is held", func() bool {
		st := r.cluster.State()
		return st.InFlight[cluster.Decode] == 2 && r.Memory.Used() > 0 && r.Memory.Used() < 1<<20
	})
	text, err := io.ReadAll(resp.Body)
	texts, _, _ := merged(t, response{status: resp.StatusCode, header: resp.Header, body: string(text), err: err}, true)
	for i, p := range prompts {
		if texts[i] != cluster.Reply(p) {
			t.Errorf("prompt %d has %d bytes, want %d", i, len(texts[i]), len(cluster.Reply(p)))
		}
	}
	r.batchSettled(2)
}
