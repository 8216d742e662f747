package assembly_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/metricstest"
)

const cachingDecode = decodeStep + "params = { cached_tokens_from_prefill = true }\n"

var saidCached = regexp.MustCompile(`"cached_tokens":(\d+)`)

// cachedIn returns what an answer says of cached tokens, and the answer without it.
func cachedIn(body string) (said []string, rest string) {
	for _, m := range saidCached.FindAllStringSubmatch(body, -1) {
		said = append(said, m[1])
	}
	return said, saidCached.ReplaceAllString(body, "")
}

// cachingBodies are requests of all protocols, whose answers have a usage.
func cachingBodies(stream bool) map[string]string {
	more := `,"stream":false`
	if stream {
		more = `,"stream":true,"stream_options":{"include_usage":true}`
	}
	return map[string]string{
		chatPath:        `{"model":"demo-model","messages":[{"role":"user","content":"one two \"usage\":{\"prompt_tokens\":1}"}]` + more + `}`,
		completionsPath: `{"model":"demo-model","prompt":"one two three"` + more + `}`,
		generatePath:    `{"model":"demo-model","token_ids":[1,17,99999],"sampling_params":{"max_tokens":4}` + more + `}`,
	}
}

// TestCachedTokensAreWhatPrefillSays, and all else of the answer is the worker's.
func TestCachedTokensAreWhatPrefillSays(t *testing.T) {
	const long = 1_000_000 // a number that is longer than what decode says
	for _, kv := range []string{cluster.KVNixl, cluster.KVSharedStorage} {
		for _, hold := range []bool{true, false} {
			for _, stream := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, held=%t, streamed=%t", kv, hold, stream), func(t *testing.T) {
					steps := renderStep + prefillStep + strings.Replace(cachingDecode, "{ ", fmt.Sprintf("{ hold_first_event = %t, ", hold), 1)
					r := newRig(t, setup{kv: kv, steps: steps, cluster: cluster.Options{CachedTokens: long}})
					for path, body := range cachingBodies(stream) {
						got := r.post(path, body, "X-Request-Id", "id")
						want := r.direct(path, body, "id") // computed by the worker itself, which has cached as much
						said, rest := cachedIn(got.body)
						if _, wantRest := cachedIn(want); got.status != http.StatusOK || got.err != nil || rest != wantRest {
							t.Errorf("%s: got %d %v %s\nwant %s", path, got.status, got.err, got.body, want)
						}
						if !slices.Equal(said, []string{fmt.Sprint(long)}) {
							t.Errorf("%s: it says %q of cached tokens: %s", path, said, got.body)
						}
						if got.header.Get("Content-Length") != "" {
							t.Errorf("%s: the length of another text: %v", path, got.header)
						}
					}
					if n := r.metric(t, "llm_d_coordinator_cached_tokens_total", "result=rewritten"); n != 3 {
						t.Errorf("counted %v", n)
					}
					r.settled()
				})
			}
		}
	}
}

// TestCachedTokensThatStay: what the worker says is right, or nothing better is
// known.
func TestCachedTokensThatStay(t *testing.T) {
	const own = 3 // of a worker that computes
	prefill := func(f cluster.Fault) *cluster.Fault { f.Leg, f.Times = cluster.Prefill, 1; return &f }
	body := func(more string) string {
		return `{"model":"demo-model","messages":[{"role":"user","content":"one two three four"}]` + more + `}`
	}
	for _, tt := range []struct {
		name   string
		steps  string
		silent bool // workers say nothing
		body   string
		fault  *cluster.Fault
		says   string // in the answer; "fetched" is what decode counts
		result string // counted
		note   string
	}{
		{name: "not asked for", steps: fullSteps, says: "fetched"},
		{name: "no hand-off", fault: prefill(cluster.Fault{BadHandoff: json.RawMessage("null")}), says: "3"},
		{name: "decode alone", body: body(`,"prompt_logprobs":0`), says: "3"},
		{name: "nobody says anything", silent: true, result: "no_prefill", note: "prefill did not say how much was cached"},
		{name: "an encoded answer", fault: &cluster.Fault{Leg: cluster.Decode, Headers: map[string]string{"Content-Encoding": "x-none"}}, says: "fetched",
			result: "encoded", note: "cached tokens not rewritten: the answer is encoded"},
		{name: "a stream without usage", body: body(`,"stream":true`), result: "no_usage"},
		{name: "an error", fault: &cluster.Fault{Leg: cluster.Decode, Times: 1, Status: 429, Body: `{"usage":{"prompt_tokens":1}}`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			options := cluster.Options{CachedTokens: own, Lease: byHand}
			if tt.silent {
				options.CachedTokens = 0
			}
			steps, text := renderStep+prefillStep+cachingDecode, body("")
			if tt.steps != "" {
				steps = tt.steps
			}
			if tt.body != "" {
				text = tt.body
			}
			r := newRig(t, setup{steps: steps, cluster: options})
			if tt.fault != nil {
				r.cluster.AddFault(*tt.fault)
			}
			got := r.post(chatPath, text, "X-Request-Id", "id", "Accept-Encoding", "x-none")
			want := []string(nil)
			switch tt.says {
			case "fetched":
				want = []string{fmt.Sprint(promptTokens(t, got.body))}
			case "":
			default:
				want = []string{tt.says}
			}
			if said, _ := cachedIn(got.body); !slices.Equal(said, want) {
				t.Errorf("it says %q of cached tokens, want %q: %s", said, want, got.body)
			}
			if counted := r.results("cached_tokens_total"); !slices.Equal(counted, strings.Fields(tt.result)) {
				t.Errorf("counted as %q, want %q", counted, tt.result)
			}
			r.settled()
			if tt.note != "" && !strings.Contains(r.logs.String(), tt.note) {
				t.Errorf("the log does not say %q", tt.note)
			}
		})
	}
}

// TestCachedTokensThatAreNotRewritten are counted and noted: nothing is without a word.
func TestCachedTokensThatAreNotRewritten(t *testing.T) {
	for path, body := range map[string]string{
		completionsPath: `{"model":"demo-model","prompt":["one two","three four"]}`,
		"/v1/responses": `{"model":"demo-model","input":"one two three"}`,
	} {
		t.Run(path, func(t *testing.T) {
			r := newRig(t, setup{steps: renderStep + prefillStep + cachingDecode, pipeline: "max_batch_size = 2\n", cluster: cluster.Options{CachedTokens: 3, Lease: byHand}})
			if got := r.post(path, body); got.status != 200 {
				t.Fatalf("%d %s", got.status, got.body)
			}
			if counted := r.results("cached_tokens_total"); !slices.Equal(slices.Compact(counted), []string{"unsupported"}) {
				t.Errorf("counted as %q", counted)
			}
			r.settled()
			if !strings.Contains(r.logs.String(), "cached tokens not rewritten") {
				t.Error("it is not in the log")
			}
		})
	}
}

// results are those that a metric has counted, in their order; one that it has counted
// more than once comes as often.
func (r *rig) results(metric string) (results []string) {
	r.t.Helper()
	for labels, n := range metricstest.Of(r.t, r.Registry, metric) {
		result := strings.TrimSuffix(strings.TrimPrefix(labels, `{result="`), `"}`)
		results = append(results, slices.Repeat([]string{result}, int(n))...)
	}
	slices.Sort(results)
	return results
}

func promptTokens(t *testing.T, body string) int {
	t.Helper()
	var answer struct {
		Usage struct {
			PromptTokens int `json:"prompt_tokens"`
		}
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || answer.Usage.PromptTokens == 0 {
		t.Fatalf("%v: %s", err, body)
	}
	return answer.Usage.PromptTokens
}

// TestCachedTokensAfterARerun, of a probe that hits, and of an answer without a
// hand-off whose first run had one.
func TestCachedTokensAfterARerun(t *testing.T) {
	steps := renderStep + conditionalStep + prefillStep + cachingDecode
	r := newRig(t, setup{steps: steps, toml: quick, cluster: cluster.Options{CachedTokens: 3, CacheDecodes: true, Lease: byHand}})
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Decode, Status: 500, Times: 1})
	first := r.post(chatPath, chatBody("one two three", false))
	hit := r.post(chatPath, chatBody("one two three", false))
	tokens := fmt.Sprint(promptTokens(t, hit.body))
	for _, c := range []struct{ body, want string }{{first.body, "3"}, {hit.body, tokens}} {
		if said, _ := cachedIn(c.body); !slices.Equal(said, []string{c.want}) {
			t.Errorf("%q, want %s: %s", said, c.want, c.body)
		}
	}
	r.settled()

	r.cluster.AddFault(cluster.Fault{Leg: cluster.Decode, Status: 500, Times: 1})
	gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtArrival})
	ended := make(chan response, 1)
	go func() { ended <- r.post(chatPath, chatBody("four five", false)) }()
	if err := gate.WaitFor(within(t), 1); err != nil {
		t.Fatal(err)
	}
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Prefill, Times: 1, BadHandoff: json.RawMessage("null")})
	gate.Release()
	got := <-ended
	if said, _ := cachedIn(got.body); got.status != 200 || !slices.Equal(said, []string{"3"}) { // its own: it has computed
		t.Errorf("%d %s", got.status, got.body)
	}
	if n := r.metric(t, "llm_d_coordinator_cached_tokens_total", "result=rewritten"); n != 1 {
		t.Errorf("%v were rewritten", n)
	}
	r.settled()
}

// TestRewrittenStreamsArriveChunkByChunk: nothing waits for the usage but the
// usage.
func TestRewrittenStreamsArriveChunkByChunk(t *testing.T) {
	r := newRig(t, setup{steps: renderStep + prefillStep + cachingDecode, cluster: cluster.Options{CachedTokens: 3}})
	gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtChunk, Chunk: 3})
	resp, err := r.open(within(t), chatPath, chatBody("one two three", true))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	buf, got := make([]byte, 4096), ""
	for strings.Count(got, "data: ") < 3 { // the worker has sent no more, and waits
		n, err := resp.Body.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got += string(buf[:n])
	}
	gate.Release()
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
		t.Errorf("%v %q", err, rest)
	}
	r.settled()
}

// TestRewrittenStreamThatBreaks ends as any other does, with all that came.
func TestRewrittenStreamThatBreaks(t *testing.T) {
	r := newRig(t, setup{steps: renderStep + prefillStep + cachingDecode, cluster: cluster.Options{CachedTokens: 3}})
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Decode, BreakAfter: new(3)})
	got := r.post(chatPath, chatBody("one two three", true))
	if got.err == nil || strings.Count(got.body, "data: ") != 4 || !strings.Contains(got.body, `"code":"upstream_failed"`) {
		t.Errorf("%v %s", got.err, got.body)
	}
	r.settled()
}
