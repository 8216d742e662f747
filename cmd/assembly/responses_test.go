package assembly_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

const responsesPath = "/v1/responses"

// saidFirst is how many events of a Responses stream have been sent when something
// has been said.
const saidFirst = 5

func responsesBody(input string, stream bool) string {
	return fmt.Sprintf(`{"model":"demo-model","stream":%t,"input":%q}`, stream, input)
}

// readResponse returns the status and the text of an answer, streamed or not.
func readResponse(t *testing.T, body string) (status, text string) {
	t.Helper()
	var whole struct {
		Status string `json:"status"`
		Output []struct {
			Content []struct {
				Text string `json:"text"`
			} `json:"content"`
		} `json:"output"`
	}
	if at := strings.LastIndex(body, `"response":{`); strings.HasPrefix(body, "event: ") && at >= 0 {
		body, _, _ = strings.Cut(body[at+len(`"response":`):], "\n")
		body = strings.TrimSuffix(body, "}")
	}
	if err := json.Unmarshal([]byte(body), &whole); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	for _, item := range whole.Output {
		for _, part := range item.Content {
			text += part.Text
		}
	}
	return whole.Status, text
}

// inputs are Responses requests. PNG0 and URL stand for images as in shapes.
var inputs = []struct {
	name   string
	body   string // without model and stream
	text   string
	images []string
}{
	{"a string", `"input":"one two"`, "one two", nil},
	{"with instructions and tools", `"input":"one two","instructions":"be brief","tools":[{"type":"function","name":"f","parameters":{}}],"tool_choice":"auto"`, "one two", nil},
	{"items", `"input":[{"role":"user","content":"zero"},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"3"},` +
		`{"type":"message","role":"user","content":[{"type":"input_text","text":"one two"}]}]`, "one two", nil},
	{"what is cut from prefill", `"input":"one two","max_output_tokens":50,"top_logprobs":2,"include":["message.output_text.logprobs"],"stop":["x"],"store":false,"metadata":{"a":"b"}`, "one two", nil},
	{"images", `"input":[{"role":"user","content":[{"type":"input_text","text":"one two"},{"type":"input_image","detail":"auto","image_url":"PNG0"},` +
		`{"type":"input_image","image_url":"URL","file_id":null},{"type":"input_image","image_url":"PNG0"}]}]`, "one two", []string{"PNG0", "URL", "PNG0"}},
	{"an image in what a function has put out", `"input":[{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},` +
		`{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"PNG1"}]},{"role":"user","content":"one two"}]`, "one two", []string{"PNG1"}},
}

// TestResponses run through the pipeline like a chat: rendered, with a hand-off, and
// with embeddings of their images.
func TestResponses(t *testing.T) {
	for _, kv := range []string{cluster.KVNixl, cluster.KVSharedStorage} {
		for _, tokensIn := range []bool{false, true} {
			r := newRig(t, setup{kv: kv, tokensIn: tokensIn, steps: wholeSteps})
			for _, in := range inputs {
				for _, stream := range []bool{false, true} {
					name := fmt.Sprintf("%s, %s, tokens in %t, streamed %t", kv, in.name, tokensIn, stream)
					id := fmt.Sprintf("%s-%t", strings.ReplaceAll(in.name, " ", "-"), stream)
					body := r.fill(fmt.Sprintf(`{"model":"demo-model","stream":%t,%s}`, stream, in.body))
					got := r.post(responsesPath, body, "X-Request-Id", id)
					status, text := readResponse(t, got.body)
					if want := cluster.ReplyWithImages(in.text, r.hashes(in.images)...); got.status != 200 || status != "completed" || text != want {
						t.Errorf("%s: %d %s, want %q", name, got.status, got.body, want)
					}
					want := []string{"render", "prefill", "decode"}
					if encodes := len(slices.Compact(slices.Sorted(slices.Values(in.images)))); encodes > 0 {
						want = slices.Insert(want, 1, slices.Repeat([]string{"encode"}, encodes)...)
					}
					if legs := slices.DeleteFunc(r.legs(id), func(leg string) bool { return leg == cluster.Origin }); !slices.Equal(legs, want) {
						t.Errorf("%s: legs %v, want %v", name, legs, want)
					}
				}
			}
			r.settled()
			if st := r.cluster.State(); st.Recomputed+st.FailedLoads+st.LocalEncodes+st.WorkerFetches != 0 {
				t.Errorf("%s, tokens in %t: %+v", kv, tokensIn, st)
			}
		}
	}
}

// TestResponsesThatNeedAWorker are passed through as they came, counted and noted.
func TestResponsesThatNeedAWorker(t *testing.T) {
	r := newRig(t, setup{})
	first := r.post(responsesPath, `{"model":"demo-model","input":"one","store":true}`, "X-Request-Id", "first")
	if status, text := readResponse(t, first.body); status != "completed" || text != cluster.Reply("one") {
		t.Fatalf("%d %s", first.status, first.body)
	}
	for i, tt := range []struct{ reason, more string }{
		{"store", `"input":"two","store":true`},
		{"previous_response_id", `"input":"two","previous_response_id":"resp_first"`},
		{"conversation", `"input":"two","conversation":"c"`},
		{"background", `"input":"two","background":true,"store":true`},
		{"item_reference", `"input":[{"type":"item_reference","id":"x"}]`},
	} {
		id := fmt.Sprint("id-", i)
		body := fmt.Sprintf(`{"model":"demo-model", "x":1.0,%s}`, tt.more)
		before := r.metric(t, "llm_d_coordinator_responses_passed_through_total", "reason="+tt.reason)
		got := r.post(responsesPath, strings.Replace(body, "{", `{"tokens":{"token_ids":[1]},`, 1), "X-Request-Id", id)
		legs := r.cluster.Legs(id)
		if len(legs) != 1 || legs[0].Name != cluster.Decode {
			t.Fatalf("%s: legs %v", tt.reason, r.legs(id))
		}
		if want := body; !sameJSON(string(legs[0].Body), want) {
			t.Errorf("%s: the worker gets %s", tt.reason, legs[0].Body)
		}
		if legs[0].Status != got.status {
			t.Errorf("%s: %d %s", tt.reason, got.status, got.body)
		}
		if n := r.metric(t, "llm_d_coordinator_responses_passed_through_total", "reason="+tt.reason); n != before+1 {
			t.Errorf("%s: counted %v", tt.reason, n)
		}
		r.settled()
		if !strings.Contains(r.logs.String(), "passed through: "+tt.reason) {
			t.Errorf("%s is not noted", tt.reason)
		}
	}
}

// sameJSON compares texts without the white space between members.
func sameJSON(a, b string) bool {
	return strings.ReplaceAll(a, " ", "") == strings.ReplaceAll(b, " ", "")
}

// TestRenderServiceWithoutResponses: the first request finds out, and is served all
// the same; what follows is passed through, until it is time to ask again.
func TestRenderServiceWithoutResponses(t *testing.T) {
	for name, missing := range map[string]cluster.Fault{
		"404":              {Status: 404, Body: `{"detail":"Not Found"}`},
		"405 of a GET":     {Status: 405, Body: `{"detail":"Method Not Allowed"}`},
		"404 of something": {Status: 404, Body: "<html>404</html>"},
		"an empty 404":     {Status: 404, Body: " "},
	} {
		for _, images := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, images %t", name, images), func(t *testing.T) {
				r := newRig(t, setup{steps: wholeSteps, render: `responses_recheck = "1h"`})
				missing.Leg = cluster.Render
				r.cluster.AddFault(missing)
				body, want := responsesBody("one two", true), cluster.Reply("one two")
				if images {
					body = r.fill(`{"model":"demo-model",` + inputs[4].body + `}`)
					want = cluster.ReplyWithImages("one two", r.hashes(inputs[4].images)...)
				}
				for i, legs := range [][]string{{"render", "decode"}, {"decode"}, {"decode"}} {
					id := fmt.Sprint("id-", i)
					if images && i > 0 {
						body, want = responsesBody("one two", false), cluster.Reply("one two")
					}
					got := r.post(responsesPath, body, "X-Request-Id", id)
					if _, text := readResponse(t, got.body); got.status != 200 || text != want {
						t.Errorf("%d: %d %s", i, got.status, got.body)
					}
					if seen := slices.DeleteFunc(r.legs(id), func(leg string) bool { return leg == cluster.Origin }); !slices.Equal(seen, legs) {
						t.Errorf("%d: legs %v, want %v", i, seen, legs)
					}
				}
				if got := r.post(responsesPath, `{"model":"demo-model","input":[{"role":"user","content":[{"type":"input_file","file_url":"http://x/"}]}]}`, "X-Request-Id", "file"); !slices.Equal(r.legs("file"), []string{"decode"}) {
					t.Errorf("a file: %d %s, legs %v", got.status, got.body, r.legs("file"))
				}
				r.settled()
				if n := r.metric(t, "llm_d_coordinator_responses_passed_through_total", "reason=no_render_route"); n != 3 {
					t.Errorf("counted %v", n)
				}
				if n := r.metric(t, "llm_d_coordinator_remote_kv_bypassed_total", "reason=responses_no_render_route"); n != 1 {
					t.Errorf("counted %v", n)
				}
				if n := strings.Count(r.logs.String(), "are served by decode alone"); n != 1 {
					t.Errorf("logged %d times", n)
				}
			})
		}
	}
}

// TestRenderServiceThatGetsResponses is found out when it is asked again; one that
// loses them, by the next request.
func TestRenderServiceThatGetsResponses(t *testing.T) {
	r := newRig(t, setup{render: `responses_recheck = "1ns"`})
	for i, there := range []bool{false, false, true, true, false, true} {
		want := []string{"render", "decode"}
		if there {
			want = []string{"render", "prefill", "decode"}
		} else {
			r.cluster.AddFault(cluster.Fault{Leg: cluster.Render, Times: 1, Status: 404, Body: `{"detail":"Not Found"}`})
		}
		id := fmt.Sprint("id-", i)
		got := r.post(responsesPath, responsesBody("one two", i%2 == 0), "X-Request-Id", id)
		if _, text := readResponse(t, got.body); got.status != 200 || text != cluster.Reply("one two") || !slices.Equal(r.legs(id), want) {
			t.Errorf("%d: %d %s, legs %v", i, got.status, got.body, r.legs(id))
		}
	}
	r.settled()
	logs := r.logs.String()
	if lost, got := strings.Count(logs, "are served by decode alone"), strings.Count(logs, "are rendered and run through the pipeline"); lost != 2 || got != 2 {
		t.Errorf("logged %d and %d times", lost, got)
	}
}

// TestRenderServiceThatFailsUnknown: as long as nobody knows whether it has the
// route its failures are nobody's business; later they are the request's.
func TestRenderServiceThatFailsUnknown(t *testing.T) {
	const once = "[gateway.retry]\nmax_attempts = 1\n[gateway.breaker]\nconsecutive_failures = 1\nopen_timeout = \"24h\"\n"
	for name, fault := range map[string]cluster.Fault{"500": {Status: 500}, "no answer": {Drop: true}, "nonsense": {Garbage: true}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{toml: once})
			fault.Leg = cluster.Render
			r.cluster.AddFault(fault)
			for range 2 { // for the second the breaker is open
				got := r.post(responsesPath, responsesBody("one two", false))
				if _, text := readResponse(t, got.body); got.status != 200 || text != cluster.Reply("one two") {
					t.Errorf("%d %s", got.status, got.body)
				}
			}
			r.settled()
			if n := r.metric(t, "llm_d_coordinator_remote_kv_bypassed_total", "reason=responses_render_failed"); n != 2 {
				t.Errorf("counted %v", n)
			}
		})
	}
	for name, tt := range map[string]struct {
		fault  cluster.Fault
		status int
	}{
		"500": {cluster.Fault{Status: 500}, 502}, "400": {cluster.Fault{Status: 400}, 400}, "no such model": {cluster.Fault{Status: 404}, 404},
		"401": {cluster.Fault{Status: 401}, 401}, "no answer": {cluster.Fault{Drop: true}, 502},
	} {
		t.Run("known, "+name, func(t *testing.T) {
			r := newRig(t, setup{toml: "[gateway.retry]\nmax_attempts = 1\n"})
			// An answer that finds fault with a body is one of who has the route.
			if got := r.post(responsesPath, `{"model":"demo-model","input":7}`); got.status != 400 {
				t.Errorf("%d %s", got.status, got.body)
			}
			tt.fault.Leg = cluster.Render
			r.cluster.AddFault(tt.fault)
			got := r.post(responsesPath, responsesBody("one two", false), "X-Request-Id", "id")
			if got.status != tt.status || !slices.Equal(r.legs("id"), []string{"render"}) {
				t.Errorf("%d %s, legs %v", got.status, got.body, r.legs("id"))
			}
			r.settled()
		})
	}
}

// TestResponsesWithMediaThatAreNotServed are refused once it is known that they
// would have been rendered.
func TestResponsesWithMediaThatAreNotServed(t *testing.T) {
	r := newRig(t, setup{steps: wholeSteps})
	const file = `{"model":"demo-model","input":[{"role":"user","content":[{"type":"input_file","file_url":"http://x/secret"}]}]}`
	if got := r.post(responsesPath, file, "X-Request-Id", "before"); !slices.Equal(r.legs("before"), []string{"decode"}) {
		t.Errorf("%d %s, legs %v", got.status, got.body, r.legs("before"))
	}
	r.post(responsesPath, responsesBody("one", false))
	got := r.post(responsesPath, file, "X-Request-Id", "after")
	if o := readError(t, got.body); got.status != 400 || o.Error.Code != "invalid_media" || strings.Contains(got.body, "secret") || len(r.legs("after")) != 0 {
		t.Errorf("%d %s, legs %v", got.status, got.body, r.legs("after"))
	}
	r.settled()
}

// TestResponsesAreOnlyServedWhereTheyWere: without the step, the param or the route
// all is as it was.
func TestResponsesAreOnlyServedWhereTheyWere(t *testing.T) {
	for name, tt := range map[string]struct {
		setup setup
		legs  []string
	}{
		"no render step": {setup{steps: decodeStep}, []string{"decode"}},
		"switched off":   {setup{render: `responses = "off"`}, []string{"decode"}},
		"no route":       {setup{toml: "[server]\npassthrough_routes = [\"/v1/models\"]\n"}, nil},
		"all of v1":      {setup{toml: "[server]\npassthrough_routes = [\"/v1/*\"]\n"}, []string{"render", "prefill", "decode"}},
		"truncation":     {setup{}, []string{"render", "decode"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, tt.setup)
			body := responsesBody("one", false)
			if name == "truncation" {
				body = `{"model":"demo-model","input":"one","truncation":"auto"}`
			}
			got := r.post(responsesPath, body, "X-Request-Id", "id")
			want := http.StatusOK
			if tt.legs == nil {
				want, _ = http.StatusNotFound, r.sent.Add(-1)
			}
			if got.status != want || !slices.Equal(r.legs("id"), tt.legs) {
				t.Errorf("%d %s, legs %v", got.status, got.body, r.legs("id"))
			}
			if got := r.do("GET", responsesPath, "", ""); got.status != want && got.status != http.StatusMethodNotAllowed {
				t.Errorf("GET: %d %s", got.status, got.body)
			}
		})
	}
}

// TestResponsesDoNotWait: a mode header of async-broker is for other routes.
func TestResponsesDoNotWait(t *testing.T) {
	a := newAsync(t, asyncSetup{})
	a.line.Heard()
	for _, mode := range []string{"enqueue", "wait", "passthrough", "nonsense"} {
		got := a.post(responsesPath, responsesBody("one", true), modeHeader, mode)
		if status, text := readResponse(t, got.body); got.status != 200 || status != "completed" || text != cluster.Reply("one") {
			t.Errorf("%s: %d %s", mode, got.status, got.body)
		}
	}
	a.settled()
	if said := a.line.Heard(); said != "" {
		t.Errorf("Redis was told %q", said)
	}
}

// TestResponsesAfterAReload are served as the new configuration says.
func TestResponsesAfterAReload(t *testing.T) {
	r := newRig(t, setup{})
	for i, step := range []struct {
		render string
		legs   []string
	}{
		{"", []string{"render", "prefill", "decode"}},
		{`responses = "off"`, []string{"decode"}},
		{`responses_recheck = "1m"`, []string{"render", "prefill", "decode"}},
	} {
		text := r.file(setup{render: step.render})
		r.text.Store(&text)
		if _, err := r.Reload(); err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprint("id-", i)
		if got := r.post(responsesPath, responsesBody("one", false), "X-Request-Id", id); got.status != 200 || !slices.Equal(r.legs(id), step.legs) {
			t.Errorf("%d: %d %s, legs %v", i, got.status, got.body, r.legs(id))
		}
	}
	r.settled()
}

// TestResponsesOfAPair are passed through: its workers have no such route for both
// legs.
func TestResponsesOfAPair(t *testing.T) {
	r := newRig(t, setup{kv: cluster.KVSGLang, steps: renderStep + pairStep(byReserve)})
	r.post(responsesPath, responsesBody("one", false), "X-Request-Id", "id")
	if legs := r.legs("id"); !slices.Equal(legs, []string{"decode"}) {
		t.Errorf("legs %v", legs)
	}
}
