package assembly_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// TestTraceShowsBodiesWithoutTheirContent: what came, what was sent and what was
// answered, but no long string, image, tensor, token array or credential.
func TestTraceShowsBodiesWithoutTheirContent(t *testing.T) {
	const mark = "MARK-7f3a"
	r := newRig(t, setup{trace: true, tokensIn: true, steps: wholeSteps, cluster: cluster.Options{TensorBytes: 1000}})
	prompt := strings.Repeat("long ", 20) + mark
	image := dataURI(picture(9, 500))
	body := fmt.Sprintf(`{"model":"demo-model","messages":[{"role":"user","content":[{"type":"text","text":%q},{"type":"image_url","image_url":{"url":%q}},{"type":"text","text":"\u001b[31m\nlevel=ERROR msg=forged"}]}]}`, prompt, image)
	if got := r.post(chatPath, body, "X-Request-Id", "the-id", "Authorization", "Bearer "+mark); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Prefill, Status: 500, Body: `{"error":{"message":"` + prompt + `"},"code":500}`})
	r.post(chatPath, body, "X-Request-Id", "the-id")
	r.settled()
	log := r.logs.String()
	for _, secret := range []string{mark, "iVBORw0KGgo", "forged\n", "\x1b"} {
		if strings.Contains(log, secret) {
			t.Errorf("%q is logged:\n%s", secret, log)
		}
	}
	for _, what := range []string{`msg="request body" request_id=the-id`, "msg=leg request_id=the-id upstream=render", "msg=answer request_id=the-id upstream=render",
		"msg=leg request_id=the-id upstream=encode", "msg=answer request_id=the-id upstream=prefill", "msg=leg request_id=the-id upstream=decode",
		`msg="error answer" request_id=the-id upstream=prefill`, `\"model\":\"demo-model\"`, "<data URI, "} {
		if !strings.Contains(log, what) {
			t.Errorf("%s is not logged", what)
		}
	}
	for line := range strings.Lines(log) {
		if !strings.HasPrefix(line, "time=") || len(line) > 10_000 {
			t.Errorf("a line of %d bytes: %.200q", len(line), line)
		}
	}
}

// TestLogsHoldNothingOfARequest, at any level below trace: no prompt, image, token ids,
// credential, nor an upstream's body, and no line that a client has written.
func TestLogsHoldNothingOfARequest(t *testing.T) {
	const mark = "MARK-7f3a"
	image := picture(9, 500)
	credentials := []string{"Authorization", "Bearer " + mark, "Cookie", "session=" + mark, "X-Api-Key", mark, "Proxy-Authorization", "Basic " + mark,
		"X-Request-Id", mark + " is none"}
	chatWith := func(content string) string {
		return `{"model":"demo-model","user":"` + mark + `","cache_salt":"` + mark + `","tools":[{"type":"function","function":{"name":"` + mark + `"}}],"messages":[{"role":"user","content":` + content + `}]}`
	}
	withURL := func(url string) string {
		return chatWith(fmt.Sprintf(`[{"type":"text","text":"%s"},{"type":"image_url","image_url":{"url":%q}}]`, mark, url))
	}
	for _, tokensIn := range []bool{false, true} {
		t.Run(fmt.Sprintf("tokensIn=%t", tokensIn), func(t *testing.T) {
			r := newRig(t, setup{tokensIn: tokensIn, steps: probingSteps, cluster: cluster.Options{Lease: byHand},
				toml: "[gateway.breaker]\nenabled = false\n"})
			origin := r.cluster.ImageURL("image.png", cluster.ImageOptions{Bytes: 400})
			requests := []struct{ path, body string }{
				{chatPath, chatWith(`"` + mark + `"`)},
				{chatPath, `{"stream":true,` + chatWith(`"` + mark + `"`)[1:]},
				{chatPath, withURL(dataURI(image))},
				{chatPath, withURL(origin)},
				{completionsPath, `{"model":"demo-model","prompt":"` + mark + `"}`},
				{completionsPath, `{"model":"demo-model","prompt":[777123456,777123457]}`},
				{generatePath, `{"model":"demo-model","token_ids":[777123456,777123457],"sampling_params":{"stop":["` + mark + `"],"max_tokens":2}}`},
			}
			refused := []struct{ path, body string }{
				{chatPath, `{"model":"demo-model","messages":"` + mark}, {chatPath, `["` + mark + `"]`}, {chatPath, `{"` + mark + "\x01\":1}"},
				{completionsPath, `{"prompt":["` + mark + `","b"]}`}, {generatePath, `{"token_ids":[777123456,-1]}`}, {generatePath, `{"token_ids":[1],"features":{"` + mark + `":1,"mm_hashes":["` + mark + `"]}}`},
				{chatPath, chatWith(`[{"type":"` + mark + `","video_url":"` + mark + `"}]`)},
				{chatPath, withURL("http://user:" + mark + "@127.0.0.1/x")}, {chatPath, withURL("http://10.0.0.1/" + mark + "?sig=" + mark)}, {chatPath, withURL("ftp://" + mark)},
				{chatPath, withURL("data:image/png;base64," + mark + "!")}, {chatPath, withURL("data:text/" + mark + ";base64,AAAA")}, {chatPath, withURL("http://127.0.0.1:1/" + mark + "?" + mark)},
				{chatPath, withURL(strings.Replace(origin, "image.png", mark, 1) + "&sig=" + mark)},
				{chatPath, `{"model":"x\u001b[31m\nlevel=ERROR msg=forged","messages":[{"role":"user","content":"hi"}]}`},
				{chatPath + "?key=" + mark, chatWith(`null`)},
				{"/v1/" + mark, `{"a":"` + mark + `"}`},
			}
			for _, q := range requests {
				if got := r.post(q.path, q.body, credentials...); got.status != 200 {
					t.Errorf("%s: %d %s", q.body, got.status, got.body)
				}
			}
			for _, q := range refused {
				r.post(q.path, q.body, credentials...)
			}
			r.sent.Add(-1) // the last is on no route
			for _, leg := range []string{cluster.Origin, cluster.Render, cluster.Probe, cluster.Encode, cluster.Prefill, cluster.Decode} {
				for _, f := range []cluster.Fault{
					{Status: 400, Body: `{"error":"` + mark + `"}`, Headers: map[string]string{"X-Upstream": mark}}, {Status: 500, Body: mark}, {Status: 503, Body: mark},
					{Redirect: "http://127.0.0.1:1/" + mark}, {Status: 200, Body: `{"` + mark + `":`}, {Status: 200, Body: `{"token_ids":"` + mark + `"}`}, {Drop: true}, {Garbage: true},
					{BadHandoff: []byte(`"` + mark + `"`)}, {BadDescriptors: []byte(`["` + mark + `"]`)}, {BreakAfter: new(1)},
				} {
					if f.BadHandoff != nil && leg != cluster.Prefill || f.BadDescriptors != nil && leg != cluster.Encode || f.BreakAfter != nil && leg != cluster.Decode {
						continue
					}
					f.Leg = leg
					id := r.cluster.AddFault(f)
					r.post(chatPath, `{"stream":true,`+withURL(origin)[1:], credentials...)
					r.cluster.RemoveFault(id)
				}
			}
			r.settled()
			log := r.logs.String()
			for _, secret := range []string{mark, "iVBORw0KGgo", "777123456", "777123457", "forged\n", "\x1b"} {
				if at := strings.Index(log, secret); at >= 0 {
					line := log[strings.LastIndexByte(log[:at], '\n')+1:]
					line, _, _ = strings.Cut(line, "\n")
					t.Errorf("%q is logged: %.600s", secret, line)
				}
			}
			for line := range strings.Lines(log) {
				if !strings.HasPrefix(line, "time=") {
					t.Errorf("a line of its own: %.200q", line)
				}
			}
			if n := strings.Count(log, "msg=request"); n < 50 {
				t.Errorf("only %d requests are logged", n)
			}
		})
	}
}
