package explain

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/phases"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// untouched is the address of a listener that fails the test if it is dialled.
func untouched(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Error("something was called")
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-ended })
	return l.Addr().String()
}

const allSteps = `[[pipeline.steps]]
type = "replace-media-urls"
params = { allowed_networks = ["127.0.0.0/8"], max_multimodal_entries = 3 }
[[pipeline.steps]]
type = "render"
params = { address = "http://UNTOUCHED", timeout = "7s", max_total_tokens = 2000, headers = { Authorization = "env:NOT_SET", X-Plain = "render-secret" } }
[[pipeline.steps]]
type = "conditional-decode"
[[pipeline.steps]]
type = "encode"
[[pipeline.steps]]
type = "prefill"
[[pipeline.steps]]
type = "decode"
`

// nothing is an empty environment.
func nothing(string) (string, bool) { return "", false }

// explained explains a request to a coordinator of the full pipeline, whose
// upstreams must not be called.
func explained(t *testing.T, more string, req Request) *Report {
	t.Helper()
	addr := untouched(t)
	text := "[server]\nmax_request_body_size = 1\n[gateway]\naddress = \"http://UNTOUCHED\"\nheaders = { Authorization = \"file:/nowhere/at/all\", X-Plain = \"gateway-secret\" }\n" +
		"[pipeline]\nkv_connector = \"kv-nixl\"\nec_connector = \"ec-nixl\"\n" + more + allSteps
	cfg, err := conf.Parse("explain.toml", []byte(strings.ReplaceAll(text, "UNTOUCHED", addr)), nil)
	if err != nil {
		t.Fatal(err)
	}
	if req.Route == "" {
		req.Route = "/v1/chat/completions"
	}
	req.Body = bytes.ReplaceAll(req.Body, []byte("UNTOUCHED"), []byte(addr))
	r, err := Explain(t.Context(), cfg, nothing, req)
	if err != nil {
		t.Fatal(err)
	}
	for _, print := range []func(*Report, *bytes.Buffer) error{
		func(r *Report, b *bytes.Buffer) error { return r.Text(b) },
		func(r *Report, b *bytes.Buffer) error { return r.JSON(b) },
	} {
		var b bytes.Buffer
		if err := print(r, &b); err != nil {
			t.Error(err)
		}
		for _, word := range []string{"-secret", "hunter2", renderHost, gatewayHost} {
			if strings.Contains(b.String(), word) {
				t.Errorf("%q is shown:\n%s", word, &b)
			}
		}
	}
	return r
}

// run lists the phases that run, and the names of the legs.
func (r *Report) run() (phases, legs []string) {
	for _, p := range r.Phases {
		if p.Runs {
			phases = append(phases, p.Name)
		}
	}
	for _, l := range r.Legs {
		legs = append(legs, l.Name)
	}
	return phases, legs
}

func wantRun(t *testing.T, r *Report, phases, legs string) {
	t.Helper()
	p, l := r.run()
	if got := strings.Join(p, " "); got != phases {
		t.Errorf("phases: %s\nwant    %s", got, phases)
	}
	if got := strings.Join(l, " "); got != legs {
		t.Errorf("legs: %s\nwant  %s", got, legs)
	}
}

func (r *Report) why(phase string) string {
	for _, p := range r.Phases {
		if p.Name == phase {
			return p.Why
		}
	}
	return ""
}

// compact is the body of a leg.
func (l Leg) compact(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, l.Body); err != nil {
		t.Errorf("%v: %s", err, l.Body)
	}
	return b.String()
}

func chat(content string) []byte {
	return []byte(`{"model":"m","messages":[{"role":"user","content":` + content + `}]}`)
}

func imagePart(url string) string { return `{"type":"image_url","image_url":{"url":"` + url + `"}}` }

// TestPair: both legs are shown, and who names the worker.
func TestPair(t *testing.T) {
	for from, legs := range map[string]string{
		`bootstrap_from = "reserve", bootstrap_header = "x-worker"`: "render probe reserve prefill decode",
		`bootstrap_from = "header:x-worker"`:                        "render probe prefill decode",
		`bootstrap_from = "static:10.0.0.1"`:                        "render probe prefill decode",
	} {
		text := strings.Replace(allSteps, "[[pipeline.steps]]\ntype = \"prefill\"\n[[pipeline.steps]]\ntype = \"decode\"\n",
			"[[pipeline.steps]]\ntype = \"prefill-decode\"\nparams = { "+from+" }\n", 1)
		cfg, err := conf.Parse("explain.toml", []byte("[pipeline]\nkv_connector = \"kv-sglang\"\n"+strings.ReplaceAll(text, "UNTOUCHED", untouched(t))), nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Explain(t.Context(), cfg, nothing, Request{Route: "/v1/chat/completions", Body: []byte(`{"model":"m","n":2,"messages":[{"role":"user","content":"hi"}]}`)})
		if err != nil {
			t.Fatal(err)
		}
		wantRun(t, r, "render conditional-decode prefill-decode", strings.Replace(legs, "probe", "conditional-decode", 1))
		if !r.Accepted || !strings.Contains(r.why("prefill-decode"), "waits for it") {
			t.Errorf("%+v", r)
		}
		prefill, decode := r.Legs[len(r.Legs)-2], r.Legs[len(r.Legs)-1]
		if prefill.compact(t) != decode.compact(t) || !strings.Contains(prefill.compact(t), `"bootstrap_host":`) || !slices.Contains(decode.Placeholders, "bootstrap_room: a number of its own for each attempt") {
			t.Errorf("prefill %s\ndecode %s %q %q", prefill.Body, decode.Body, decode.Placeholders, r.Notes)
		}
	}
}

func TestText(t *testing.T) {
	r := explained(t, "", Request{Body: chat(`"Why is the sky blue?"`), Header: http.Header{
		"Authorization": {"Bearer hunter2"}, "X-Custom": {"hunter2"}, "X-Prefiller-Host-Port": {"evil:1"}}})
	if !r.Accepted || r.Refused != nil {
		t.Errorf("%+v", r.Refused)
	}
	wantRun(t, r, "render conditional-decode prefill decode", "render conditional-decode prefill decode")
	for phase, want := range map[string]string{stepMedia: "the request has no media", stepEncode: "the request has no media", stepConditional: "assumed: it has not"} {
		if why := r.why(phase); !strings.Contains(why, want) {
			t.Errorf("%s: %s", phase, why)
		}
	}
	render, probe, prefill, decode := r.Legs[0], r.Legs[1], r.Legs[2], r.Legs[3]
	if render.Path != "/v1/chat/completions/render" || render.Upstream != "render" || render.Headers["Authorization"] != "(masked) from env:NOT_SET" ||
		render.Headers["X-Plain"] != "(masked) set by the operator" || !slices.Equal(render.Forwarded, []string{"X-Custom"}) || len(render.Placeholders) != 0 {
		t.Errorf("%+v", render)
	}
	if probe.Headers["Prefer"] != "if-available" || probe.Headers["EPP-Profile"] != "decode" || probe.Headers["Authorization"] != "(masked) from file:/nowhere/at/all" {
		t.Errorf("%+v", probe)
	}
	if got, want := prefill.compact(t), `{"model":"m","messages":[{"role":"user","content":"Why is the sky blue?"}],"max_tokens":1,"ignore_eos":true,"stream":false,`+
		`"tokens":{"token_ids":[9990000]},"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}}`; got != want {
		t.Errorf("prefill:\n%s\nwant\n%s", got, want)
	}
	if !strings.Contains(decode.compact(t), `"remote_engine_id":"placeholder-engine"`) || !slices.Equal(decode.Placeholders, []string{"token ids", "kv_transfer_params: the hand-off of prefill"}) {
		t.Errorf("%s %q", decode.Body, decode.Placeholders)
	}
	if !slices.Equal(r.NotForwarded, []string{"Authorization", "X-Prefiller-Host-Port"}) {
		t.Errorf("not forwarded: %q", r.NotForwarded)
	}
	if decode.Headers["X-Request-Id"] != requestID || !slices.ContainsFunc(r.Assumed, func(s string) bool { return strings.HasPrefix(s, "the request id is made up") }) {
		t.Errorf("%+v", r.Assumed)
	}
}

// TestLimits: those of the configuration and not of what stands in for it.
func TestLimits(t *testing.T) {
	r := explained(t, "request_timeout = \"90s\"\n", Request{Body: chat(`"x"`), Header: http.Header{"X-Llm-D-Request-Timeout-Seconds": {"20"}}})
	got := map[string]string{}
	for _, l := range r.Limits {
		got[l.Of+" "+l.Key] = l.Value + " (" + l.Note + ")"
	}
	for key, want := range map[string]string{
		"request server.max_request_body_size":                         "1 MB (this body: 56 bytes)",
		"request pipeline.request_timeout":                             "1m30s (to the first byte of the answer; the client asks for 20 s, which counts if it is less)",
		"render max_total_tokens":                                      "2000 ()",
		"upstream render timeout (of the render step)":                 "7s ()",
		"pool render actors.pools.render":                              "64 at work, 512 waiting ()",
		"upstream decode gateway.profiles.decode.timeout":              "10m0s ()",
		"upstream prefill gateway.profiles.prefill.breaker":            "opens after 10 failures in a row, or 0.5 of at least 20 within 10s; for 5s, then 3 trials ()",
		"conditional-decode timeout":                                   "decode's: 10m0s (never sent again)",
		"prefill pipeline.kv_lease":                                    "30s (from prefill's answer to decode's dispatch, if the KV is handed over)",
		"upstream prefill gateway.profiles.prefill.retry.max_attempts": "3 (after connection errors, time-outs, 502, 503, 504; waits of up to 50ms, doubled up to 2s)",
	} {
		if got[key] != want {
			t.Errorf("%s: %q, want %q", key, got[key], want)
		}
	}
	for key := range got {
		if strings.Contains(key, "encode") && !strings.Contains(key, "decode") || strings.Contains(key, "media") {
			t.Errorf("%s applies to a phase that does not run", key)
		}
	}
}

func TestOneImageInlined(t *testing.T) {
	uri := "data:image/png;base64," + base64.StdEncoding.EncodeToString(append([]byte("\x89PNG\r\n\x1a\n"), make([]byte, 300)...))
	r := explained(t, "", Request{Body: chat(`[` + imagePart(uri) + `]`)})
	wantRun(t, r, "replace-media-urls render conditional-decode encode prefill decode", "render conditional-decode encode prefill decode")
	if why := r.why(stepMedia); why != "1 image to check: 1 inlined, 0 by URL" {
		t.Error(why)
	}
	encode := r.Legs[2]
	want := fmt.Sprintf("%s… (%d bytes)", uri[:shownStart], len(uri))
	if body := encode.compact(t); !strings.Contains(body, want) || !strings.Contains(body, `"mm_hashes":{"image":["placeholder-hash-1"]}`) {
		t.Errorf("%s", body)
	}
	if !slices.Equal(r.Legs[3].Placeholders, []string{"token ids", "hashes and places of media", "ec_transfer_params: descriptors of encode"}) {
		t.Errorf("%q", r.Legs[3].Placeholders)
	}
}

// TestImagesByURLAreNotFetched, though they may be: pixels stand in for them, one
// for each distinct URL, and what in the URLs may be a credential is not shown.
func TestImagesByURLAreNotFetched(t *testing.T) {
	a, b := `http://UNTOUCHED/a.png?sig=hunter2`, `http://UNTOUCHED/b.png`
	r := explained(t, "", Request{Body: chat(`[` + imagePart(a) + `,` + imagePart(b) + `,` + imagePart(a) + `]`)})
	wantRun(t, r, "replace-media-urls render conditional-decode encode prefill decode", "render conditional-decode encode encode prefill decode")
	if why := r.why(stepMedia); why != "3 images to check: 0 inlined, 3 by URL (2 distinct ones to download, here replaced by placeholders)" {
		t.Error(why)
	}
	if !slices.ContainsFunc(r.Assumed, func(s string) bool { return strings.HasPrefix(s, "3 images by URL can be fetched") }) {
		t.Errorf("%q", r.Assumed)
	}
	for i, name := range []string{"a.png?(masked)", "b.png"} {
		leg := r.Legs[2+i]
		if body := leg.compact(t); leg.Name != stepEncode || !strings.Contains(body, name+", which is not fetched)") || !strings.Contains(body, fmt.Sprintf("placeholder-hash-%d", i+1)) {
			t.Errorf("%s %s", leg.Name, body)
		}
		if !slices.Contains(leg.Placeholders, "media that the client names by URL") {
			t.Errorf("%q", leg.Placeholders)
		}
	}
}

// TestMediaOfAllModalities: of those by URL a placeholder of each modality is sent.
func TestMediaOfAllModalities(t *testing.T) {
	r := explained(t, "use_openai_format = false\n", Request{Body: chat(`[{"type":"video_url","video_url":{"url":"https://v.invalid/v.mp4"}},` +
		`{"type":"input_audio","input_audio":{"data":"UklGRgQAAABXQVZF","format":"wav"}},` + imagePart("https://v.invalid/v.mp4") + `]`)})
	wantRun(t, r, "replace-media-urls render conditional-decode encode prefill decode", "render conditional-decode encode encode encode prefill decode")
	if why := r.why(stepMedia); why != "3 media to check: 1 inlined, 2 by URL (2 distinct ones to download, here replaced by placeholders)" {
		t.Error(why)
	}
	for i, want := range []string{"video", "audio", "image"} {
		if body := r.Legs[2+i].compact(t); !strings.Contains(body, fmt.Sprintf(`"mm_hashes":{"%s":["placeholder-hash-%d"]}`, want, i+1)) {
			t.Errorf("%s: %s", want, body)
		}
	}
	for _, key := range []string{"max_download_size", "max_audio_download_size", "max_video_download_size"} {
		if !slices.ContainsFunc(r.Limits, func(l Limit) bool { return l.Key == key }) {
			t.Errorf("no limit %s", key)
		}
	}
}

// TestTokensIn: in that format encode and prefill carry what render made.
func TestTokensIn(t *testing.T) {
	r := explained(t, "use_openai_format = false\n", Request{Body: chat(`[` + imagePart(picture(0)) + `]`)})
	if leg := r.Legs[2]; leg.Path != "/inference/v1/generate" || !slices.Contains(leg.Placeholders, "rendered tensors (kwargs_data)") {
		t.Errorf("%+v", leg)
	}
}

func TestCompletions(t *testing.T) {
	r := explained(t, "", Request{Route: "/v1/completions?x=1&api_key=hunter2", Body: []byte(`{"model":"m","prompt":"Once","kv_transfer_params":{},"stream":true}`)})
	wantRun(t, r, "render conditional-decode prefill decode", "render conditional-decode prefill decode")
	if decode := r.Legs[3]; decode.Query != "x=1&api_key=(masked)" || !strings.Contains(decode.compact(t), `"prompt":[9990000]`) {
		t.Errorf("%+v %s", decode, decode.Body)
	}
	if !slices.Equal(r.Removed, []string{"kv_transfer_params"}) || r.why(stepEncode) != "completions have no media" {
		t.Errorf("%q %s", r.Removed, r.why(stepEncode))
	}
}

func TestGenerate(t *testing.T) {
	r := explained(t, "", Request{Route: "/inference/v1/generate", Body: []byte(`{"model":"m","token_ids":[1,2,3,4,5,6,7,8,9,10],"sampling_params":{}}`)})
	wantRun(t, r, "conditional-decode prefill decode", "conditional-decode prefill decode")
	if r.why(stepRender) != "the client has sent the prompt as token ids" {
		t.Error(r.why(stepRender))
	}
	if body := r.Legs[2].compact(t); !strings.Contains(body, `"token_ids":[1,2,3,4,5,6,7,8,"… 2 more"]`) || slices.Contains(r.Legs[2].Placeholders, "token ids") {
		t.Errorf("%s %q", body, r.Legs[2].Placeholders)
	}
}

func TestRequestsThatDecodeAloneServes(t *testing.T) {
	r := explained(t, "", Request{Body: []byte(`{"model":"m","n":2,"messages":[{"role":"user","content":"x"}]}`)})
	wantRun(t, r, "render decode", "render decode")
	want := "the request cannot use the KV of another worker (n > 1): decode alone serves it"
	if r.why(stepPrefill) != want || r.why(stepConditional) != want {
		t.Errorf("%+v", r.Phases)
	}
}

func TestRefused(t *testing.T) {
	large := append(chat(`"x"`), bytes.Repeat([]byte(" "), 1<<20)...)
	image := imagePart("https://img.invalid/1.png")
	for _, tt := range []struct {
		name   string
		req    Request
		status int
		code   string
		phases string
	}{
		{"no JSON", Request{Body: []byte(`{"model"`)}, 400, "invalid_json", ""},
		{"a prompt of no kind", Request{Route: "/v1/completions", Body: []byte(`{"prompt":{}}`)}, 400, "invalid_prompt", ""},
		{"media that are not served", Request{Body: chat(`[{"type":"video_embeds","video_embeds":"AAAA"}]`)}, 400, "invalid_media", ""},
		{"an image that is none", Request{Body: chat(`[` + imagePart("data:image/png;base64,*") + `]`)}, 400, "invalid_media", "replace-media-urls"},
		{"too many images", Request{Body: chat(`[` + strings.Join([]string{image, image, image, image}, ",") + `]`)}, 400, "limit_exceeded", "replace-media-urls"},
		{"too large", Request{Body: large}, 413, "request_too_large", ""},
		{"too many tokens", Request{Route: "/v1/completions", Body: []byte(`{"prompt":[` + strings.Repeat("1,", 2000) + `1]}`)}, 400, "limit_exceeded", "render"},
		{"an encoded body", Request{Body: chat(`"x"`), Header: http.Header{"Content-Encoding": {"gzip"}}}, 415, "unsupported_encoding", ""},
		{"a time-out that is none", Request{Body: chat(`"x"`), Header: http.Header{"X-Llm-D-Request-Timeout-Seconds": {"soon"}}}, 400, "invalid_timeout", ""},
		{"no route", Request{Route: "/v1/load_lora_adapter", Body: []byte(`{}`)}, 404, "not_found", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := explained(t, "", tt.req)
			if r.Accepted || r.Refused == nil || r.Refused.Status != tt.status || r.Refused.Code != tt.code ||
				r.Refused.Type != "invalid_request_error" || !strings.Contains(r.Refused.Message, "(request_id: "+requestID+")") {
				t.Errorf("%+v", r.Refused)
			}
			wantRun(t, r, tt.phases, "")
			if len(r.Phases) > 0 && !strings.HasPrefix(r.why(stepDecode), notReached) {
				t.Errorf("decode: %s", r.why(stepDecode))
			}
		})
	}
}

func TestPassedThrough(t *testing.T) {
	r := explained(t, "", Request{Route: "/v1/embeddings", Body: []byte(`{"model":"m","input":"x"}`)})
	if wantRun(t, r, "", "passthrough"); !r.Accepted || r.Legs[0].Path != "/v1/embeddings" || r.Legs[0].Upstream != "decode" {
		t.Errorf("%+v", r)
	}
}

func TestResponses(t *testing.T) {
	for _, tt := range []struct{ name, body, phases, legs string }{
		{"text", `{"model":"m","input":"x"}`, "render conditional-decode prefill decode", "render conditional-decode prefill decode"},
		{"an image", `{"model":"m","input":[{"role":"user","content":[{"type":"input_image","image_url":"http://a.invalid/"}]}]}`,
			"replace-media-urls render conditional-decode encode prefill decode", "render conditional-decode encode prefill decode"},
		{"truncation", `{"model":"m","input":"x","truncation":"auto"}`, "render decode", "render decode"},
		{"state", `{"model":"m","input":"x","previous_response_id":"r"}`, "", "passthrough"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := explained(t, "", Request{Route: "/v1/responses", Body: []byte(tt.body)})
			wantRun(t, r, tt.phases, tt.legs)
		})
	}
}

// TestBodiesOfTheGreatestSize are not refused for the placeholders of their images.
func TestBodiesOfTheGreatestSize(t *testing.T) {
	body := chat(`[` + imagePart("http://a.invalid/") + `]`)
	body = append(body, bytes.Repeat([]byte(" "), 1<<20-len(body))...)
	if r := explained(t, "", Request{Body: body}); !r.Accepted {
		t.Errorf("%+v", r.Refused)
	}
}

// TestDefaultsOfSteps are those of the annotated configuration, which a test of its
// own holds against the steps.
func TestDefaultsOfSteps(t *testing.T) {
	cfg, err := conf.Parse("coordinator.toml", conf.Annotated, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range cfg.Pipeline.Steps {
		switch step.Type {
		case stepMedia:
			var p phases.MediaParams
			if err := step.Params.Decode(&p); err != nil {
				t.Fatal(err)
			}
			p.AllowedNetworks, p.AllowedDomains = nil, nil // empty there
			if !reflect.DeepEqual(p, mediaDefaults) {
				t.Errorf("%+v", p)
			}
		case stepRender:
			var p phases.RenderParams
			if err := step.Params.Decode(&p); err != nil {
				t.Fatal(err)
			}
			p.Address = ""
			if !reflect.DeepEqual(p, renderDefaults) {
				t.Errorf("%+v", p)
			}
		}
	}
}

func TestCut(t *testing.T) {
	long := strings.Repeat("ü", 60)
	for _, tt := range []struct{ in, want string }{
		{`{"b":1.0,"a":9007199254740993,"s":"<&>"}`, `{"b":1.0,"a":9007199254740993,"s":"<&>"}`},
		{`{"s":"` + long + `"}`, `{"s":"` + strings.Repeat("ü", 32) + `… (120 bytes)"}`},
		{`[1,2,3,4,5,6,7,8]`, `[1,2,3,4,5,6,7,8]`},
		{`{"x":[1,2,3,4,5,6,7,8,{"y":[9]},10]}`, `{"x":[1,2,3,4,5,6,7,8,"… 2 more"]}`},
		{`{"api_key":"k","token":"t","tokens":["t"],"max_tokens":1,"auth-token":"t"}`, `{"api_key":"(masked)","token":"(masked)","tokens":["t"],"max_tokens":1,"auth-token":"(masked)"}`},
		{`{"u":"https://me:pw@host/p/q?x=1#f"}`, `{"u":"https://(masked)@host/p/q?(masked)"}`},
		{`{"u":"see https://host/?x=1 for more"}`, `{"u":"see https://host/?x=1 for more"}`},
		{`{"k":"known"}`, `{"k":"instead"}`},
		{`{"k":`, `"(5 bytes, not JSON)"`},
		{``, `"(0 bytes, not JSON)"`},
	} {
		if got := string(cut([]byte(tt.in), map[string]string{"known": "instead"})); got != tt.want {
			t.Errorf("%s\n is %s\nwant %s", tt.in, got, tt.want)
		}
	}
}
