package assembly_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

const (
	mediaStep       = "[[pipeline.steps]]\ntype = \"replace-media-urls\"\nparams = { allowed_networks = [\"127.0.0.0/8\"], max_download_size = 8 }\n"
	encodeStep      = "[[pipeline.steps]]\ntype = \"encode\"\n"
	conditionalStep = "[[pipeline.steps]]\ntype = \"conditional-decode\"\n"
	wholeSteps      = mediaStep + renderStep + encodeStep + prefillStep + decodeStep
	probingSteps    = mediaStep + renderStep + conditionalStep + encodeStep + prefillStep + decodeStep
)

// picture is an image of n bytes that differs from others of another seed.
func picture(seed byte, n int) []byte {
	p := append([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"), make([]byte, max(0, n-16))...)
	p[len(p)-1] = seed
	return p
}

func dataURI(image []byte) string {
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(image)
}

// shapes are chat requests by their images. PNG0 and so on stand for data URIs,
// URL for an image at the cluster's origin.
var shapes = []struct {
	name     string
	messages string
	text     string   // that the answer says back
	images   []string // in order
}{
	{"none", `[{"role":"user","content":"one two"}]`, "one two", nil},
	{"one", `[{"role":"user","content":[{"type":"text","text":"one two"},{"type":"image_url","image_url":{"url":"PNG0","detail":"low"}}]}]`, "one two", []string{"PNG0"}},
	{"one by URL", `[{"role":"user","content":[{"type":"text","text":"one two"},{"type":"image_url","image_url":{"url":"URL"}}]}]`, "one two", []string{"URL"}},
	{"bare string, odd type", `[{"role":"user","content":[{"type":"picture","image_url":"PNG1"},{"type":"text","text":"one two"}]}]`, "one two", []string{"PNG1"}},
	{"three", `[{"role":"user","content":[{"image_url":{"url":"PNG0"},"type":"image_url"},{"type":"text","text":"one two"},{"type":"image_url","image_url":{"url":"URL"}},{"type":"image_url","image_url":{"url":"PNG2"}}]}]`, "one two", []string{"PNG0", "URL", "PNG2"}},
	{"same twice", `[{"role":"user","content":[{"type":"image_url","image_url":{"url":"PNG0"}},{"type":"image_url","image_url":{"url":"PNG0"}},{"type":"text","text":"one two"}]}]`, "one two", []string{"PNG0", "PNG0"}},
	{"same URL twice", `[{"role":"user","content":[{"type":"image_url","image_url":{"url":"URL"}},{"type":"image_url","image_url":{"url":"URL"}},{"type":"text","text":"one two"}]}]`, "one two", []string{"URL", "URL"}},
	{"system and tool", `[{"role":"system","content":[{"type":"image_url","image_url":{"url":"PNG0"}}]},{"role":"assistant","content":null,"tool_calls":[]},{"role":"tool","tool_call_id":"t","content":[{"type":"image_url","image_url":{"url":"PNG1"}}]},{"role":"user","content":"one two"}]`, "one two", []string{"PNG0", "PNG1"}},
}

// pictures are the bytes of the images that shapes speak of.
func (r *rig) pictures() map[string][]byte {
	return map[string][]byte{"PNG0": picture(0, 100), "PNG1": picture(1, 201), "PNG2": picture(2, 302), "URL": cluster.ImageBytes("image.png", 400)}
}

// fill puts images into a shape's messages.
func (r *rig) fill(messages string) string {
	var pairs []string
	for name, image := range r.pictures() {
		if name == "URL" {
			pairs = append(pairs, name, r.cluster.ImageURL("image.png", cluster.ImageOptions{Bytes: 400}))
		} else {
			pairs = append(pairs, name, dataURI(image))
		}
	}
	// Only what stands in the place of a URL is replaced.
	for i := 0; i < len(pairs); i += 2 {
		pairs[i], pairs[i+1] = `"`+pairs[i]+`"`, `"`+pairs[i+1]+`"`
	}
	return strings.NewReplacer(pairs...).Replace(messages)
}

// hashes are the content hashes of images by name.
func (r *rig) hashes(names []string) (all []string) {
	for _, n := range names {
		all = append(all, cluster.ImageHash(r.pictures()[n]))
	}
	return all
}

// wantLegs are the legs of a request with these images.
func wantLegs(images []string, probe bool) []string {
	var legs []string
	if slices.Contains(images, "URL") {
		legs = append(legs, "origin")
	}
	legs = append(legs, "render")
	if probe {
		legs = append(legs, "probe")
	}
	distinct := map[string]bool{}
	for _, name := range images {
		if !distinct[name] {
			legs = append(legs, "encode")
		}
		distinct[name] = true
	}
	return append(legs, "prefill", "decode")
}

// TestImagesGoThroughEveryPipeline: connectors, formats, streamed or not, and
// all shapes. The cluster is the judge: it computes every hash anew, and its
// answer names the images that it saw.
func TestImagesGoThroughEveryPipeline(t *testing.T) {
	for _, kv := range []string{cluster.KVNixl, cluster.KVSharedStorage} {
		for _, ec := range []string{cluster.ECNixl, cluster.ECSharedStorage} {
			for _, openAI := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/openai=%t", kv, ec, openAI), func(t *testing.T) {
					r := newRig(t, setup{kv: kv, ec: ec, tokensIn: !openAI, steps: wholeSteps})
					for i, s := range shapes {
						for _, stream := range []bool{false, true} {
							id := fmt.Sprintf("req-%d-%t", i, stream)
							body := fmt.Sprintf(`{"model":"demo-model","stream":%t,"messages":%s}`, stream, r.fill(s.messages))
							got := r.post(chatPath, body, "X-Request-Id", id)
							if want := cluster.ReplyWithImages(s.text, r.hashes(s.images)...); got.status != http.StatusOK || got.err != nil || said(t, got.body, stream) != want {
								t.Errorf("%s: got %d %v %s\nwant %s", s.name, got.status, got.err, got.body, want)
							}
							if legs := ordered(r.legs(id)); !slices.Equal(legs, ordered(wantLegs(s.images, false))) {
								t.Errorf("%s: legs %v", s.name, legs)
							}
						}
					}
					r.settled()
					st := r.cluster.State()
					if st.ReusedHandoffs+st.FailedLoads+st.LocalEncodes+st.WorkerFetches+st.Recomputed != 0 {
						t.Errorf("%+v", st)
					}
				})
			}
		}
	}
}

// ordered sorts legs into the order of the pipeline: the origin's and the
// render's have no request id or come in any order.
func ordered(legs []string) []string {
	legs = slices.DeleteFunc(slices.Clone(legs), func(l string) bool { return l == "origin" })
	return legs
}

// said is the text of a chat answer, streamed or not.
func said(t *testing.T, answer string, stream bool) (text string) {
	t.Helper()
	type choice struct {
		Message, Delta struct{ Content string }
	}
	var o struct{ Choices []choice }
	if !stream {
		if err := json.Unmarshal([]byte(answer), &o); err != nil || len(o.Choices) == 0 {
			t.Errorf("%v: %s", err, answer)
			return ""
		}
		return o.Choices[0].Message.Content
	}
	for event := range strings.SplitSeq(answer, "\n\n") {
		data, ok := strings.CutPrefix(event, "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		o.Choices = nil
		if err := json.Unmarshal([]byte(data), &o); err != nil {
			t.Errorf("%v: %s", err, event)
		}
		for _, c := range o.Choices {
			text += c.Delta.Content
		}
	}
	return text
}

// TestProbe: a prompt that decode has cached is served at once; a miss, and a
// probe that fails, take the full path, and the client sees nothing of it.
func TestProbe(t *testing.T) {
	for _, s := range shapes {
		if slices.Contains(s.images, "URL") {
			continue
		}
		for _, path := range []string{"hit", "miss", "5xx", "no answer", "4xx", "redirect"} {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/%t", s.name, path, stream), func(t *testing.T) {
					r := newRig(t, setup{ec: cluster.ECNixl, steps: probingSteps})
					r.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
					switch path {
					case "hit":
						r.cluster.MarkCached(true)
					case "5xx":
						r.cluster.AddFault(cluster.Fault{Leg: cluster.Probe, Status: 500})
					case "no answer":
						r.cluster.AddFault(cluster.Fault{Leg: cluster.Probe, Drop: true})
					case "4xx":
						r.cluster.AddFault(cluster.Fault{Leg: cluster.Probe, Status: 422, Body: `{"its":"own"}`})
					case "redirect":
						r.cluster.AddFault(cluster.Fault{Leg: cluster.Probe, Redirect: "http://127.0.0.1:1/"})
					}
					got := r.post(chatPath, fmt.Sprintf(`{"model":"demo-model","stream":%t,"messages":%s}`, stream, r.fill(s.messages)), "X-Request-Id", "id")
					want := wantLegs(s.images, true)
					switch path {
					case "hit":
						want = []string{"render", "probe"}
					case "4xx", "redirect":
						want = []string{"render", "probe"}
						if status := map[string]int{"4xx": 422, "redirect": 307}[path]; got.status != status {
							t.Errorf("got %d %s", got.status, got.body)
						}
					}
					if path != "4xx" && path != "redirect" {
						if text := cluster.ReplyWithImages(s.text, r.hashes(s.images)...); got.status != 200 || said(t, got.body, stream) != text {
							t.Errorf("got %d %s, want %s", got.status, got.body, text)
						}
					}
					if legs := r.legs("id"); !slices.Equal(legs, want) {
						t.Errorf("legs %v, want %v", legs, want)
					}
					r.settled()
					if s := r.Status("").Breakers["decode"]; s != "closed" {
						t.Errorf("decode's breaker is %s", s)
					}
				})
			}
		}
	}
}

// TestProbeOfOtherProtocols: completions and generate are probed as chat is.
func TestProbeOfOtherProtocols(t *testing.T) {
	for _, q := range []struct{ path, body, first string }{
		{completionsPath, `{"model":"demo-model","prompt":"one two"}`, "render"},
		{completionsPath, `{"model":"demo-model","stream":true,"prompt":"one two"}`, "render"},
		{completionsPath, `{"model":"demo-model","prompt":[1,2,3]}`, ""},
		{generatePath, `{"token_ids":[1,2,3],"sampling_params":{"max_tokens":2}}`, ""},
		{generatePath, `{"token_ids":[1,2,3],"stream":true,"sampling_params":{"max_tokens":2}}`, ""},
	} {
		for _, openAI := range []bool{true, false} {
			for outcome, legs := range map[string][]string{"hit": {"probe"}, "miss": {"probe", "prefill", "decode"}, "failed": {"probe", "prefill", "decode"}} {
				t.Run(fmt.Sprintf("%s/%t/%s", q.path, openAI, outcome), func(t *testing.T) {
					r := newRig(t, setup{tokensIn: !openAI, steps: probingSteps})
					r.cluster.MarkCached(outcome == "hit")
					if outcome == "failed" {
						r.cluster.AddFault(cluster.Fault{Leg: cluster.Probe, Status: 503})
					}
					got := r.post(q.path, q.body, "X-Request-Id", "id")
					want := legs
					if q.first != "" {
						want = append([]string{q.first}, want...)
					}
					if saw := r.legs("id"); !slices.Equal(saw, want) {
						t.Errorf("legs %v, want %v", saw, want)
					}
					if direct := r.direct(q.path, q.body, "id"); got.status != 200 || got.body != direct {
						t.Errorf("got %d %s, want %s", got.status, got.body, direct)
					}
					r.settled()
				})
			}
		}
	}
}

// TestProbesDoNotCountInDecodesBreaker: their own failures do not open it.
func TestProbesDoNotCountInDecodesBreaker(t *testing.T) {
	r := newRig(t, setup{steps: probingSteps, toml: "[gateway.breaker]\nconsecutive_failures = 2\nopen_timeout = \"24h\"\n"})
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Probe, Status: 500})
	for range 5 {
		if got := r.post(chatPath, chatBody("hi", false)); got.status != 200 {
			t.Fatalf("got %d %s", got.status, got.body)
		}
	}
	if s := r.Status("").Breakers["decode"]; s != "closed" {
		t.Errorf("decode's breaker is %s", s)
	}
	if n := r.metric(t, "llm_d_coordinator_conditional_decode_probes_total"); n != 5 {
		t.Errorf("%v probes counted", n)
	}
	r.settled()
}

// TestFourImagesAreEncodedAtOnce, and their descriptors merged in the order of
// the images whatever order they answer in.
func TestFourImagesAreEncodedAtOnce(t *testing.T) {
	r := newRig(t, setup{ec: cluster.ECNixl, steps: wholeSteps})
	const n = 4
	var parts, hashes []string
	for i := range n {
		image := picture(byte(i), 5<<20)
		parts = append(parts, fmt.Sprintf(`{"type":"image_url","image_url":{"url":%q}}`, dataURI(image)))
		hashes = append(hashes, cluster.ImageHash(image))
	}
	body := `{"model":"demo-model","messages":[{"role":"user","content":[{"type":"text","text":"four"},` + strings.Join(parts, ",") + `]}]}`
	gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Encode, At: cluster.AtHeaders})
	done := make(chan response)
	go func() { done <- r.post(chatPath, body, "X-Request-Id", "id") }()
	if err := gate.WaitFor(within(t), n); err != nil {
		t.Fatal(err)
	}
	if s := poolOf(r, "encode"); s.Busy != n {
		t.Errorf("encode pool %+v", s)
	}
	gate.Release()
	got := <-done
	if want := cluster.ReplyWithImages("four", hashes...); got.status != 200 || said(t, got.body, false) != want {
		t.Errorf("got %d %.300s, want %s", got.status, got.body, want)
	}
	for _, leg := range r.cluster.Legs("id") {
		if leg.Name != cluster.Prefill {
			continue
		}
		_, ec, ok := strings.Cut(string(leg.Body), `"ec_transfer_params":`)
		at := -1
		for _, h := range hashes {
			i := strings.Index(ec, h)
			if !ok || i <= at {
				t.Errorf("descriptors are not in the order of the images: %s", ec)
			}
			at = i
		}
	}
	r.settled()
}

// TestMaxParallelOfOneRequest bounds its encodes.
func TestMaxParallelOfOneRequest(t *testing.T) {
	r := newRig(t, setup{steps: mediaStep + renderStep + encodeStep + "params = { max_parallel = 2 }\n" + prefillStep + decodeStep})
	gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Encode, At: cluster.AtHeaders})
	done := make(chan response)
	go func() {
		done <- r.post(chatPath, `{"model":"demo-model","messages":`+r.fill(shapes[4].messages)+`}`)
	}()
	if err := gate.WaitFor(within(t), 2); err != nil {
		t.Fatal(err)
	}
	if n := r.cluster.Count(cluster.Encode); n != 2 {
		t.Errorf("%d encodes at once", n)
	}
	gate.Release()
	if got := <-done; got.status != 200 {
		t.Errorf("got %d %s", got.status, got.body)
	}
	r.settled()
}

// TestImagesThatCannotBeServed, with the legs that went out: none behind the
// door, or the download.
func TestImagesThatCannotBeServed(t *testing.T) {
	one := func(url string) string {
		return fmt.Sprintf(`{"model":"demo-model","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":%q}}]}]}`, url)
	}
	r := newRig(t, setup{steps: strings.Replace(wholeSteps, "max_download_size = 8", "max_download_size = 1, max_multimodal_entries = 2", 1),
		render: "max_total_placeholder_tokens = 7"})
	tests := []struct {
		name, body string
		fault      cluster.Fault
		status     int
		code       string
	}{
		{"file URL", one("file:///etc/passwd"), cluster.Fault{}, 400, "invalid_media"},
		{"private address", one("http://10.0.0.1/x.png"), cluster.Fault{}, 400, "media_fetch_failed"},
		{"metadata", one("http://169.254.169.254/latest"), cluster.Fault{}, 400, "media_fetch_failed"},
		{"odd number", one("http://0x7f.1/x.png"), cluster.Fault{}, 400, ""},
		{"not base64", one("data:image/png,abc"), cluster.Fault{}, 400, "invalid_media"},
		{"not an image type", one("data:text/html;base64,YWJj"), cluster.Fault{}, 400, "invalid_media"},
		{"not an image", one(r.cluster.ImageURL("image.png", cluster.ImageOptions{HTML: true})), cluster.Fault{}, 400, "media_fetch_failed"},
		{"gone", one(r.cluster.ImageURL("image.png", cluster.ImageOptions{})), cluster.Fault{Status: 404}, 400, "media_fetch_failed"},
		{"origin fails", one(r.cluster.ImageURL("image.png", cluster.ImageOptions{})), cluster.Fault{Status: 503}, 502, "media_fetch_failed"},
		{"origin breaks off", one(r.cluster.ImageURL("image.png", cluster.ImageOptions{})), cluster.Fault{Drop: true}, 502, "media_fetch_failed"},
		{"refused", one("http://127.0.0.1:1/x.png"), cluster.Fault{}, 502, "media_fetch_failed"},
		{"too large by URL", one(r.cluster.ImageURL("image.png", cluster.ImageOptions{Bytes: 2 << 20})), cluster.Fault{}, 400, "limit_exceeded"},
		{"too large inlined", one(dataURI(picture(0, 2<<20))), cluster.Fault{}, 400, "limit_exceeded"},
		{"too many", `{"model":"demo-model","messages":` + r.fill(shapes[4].messages) + `}`, cluster.Fault{}, 400, "limit_exceeded"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			defer r.cluster.ClearFaults()
			if tt.fault.Status != 0 || tt.fault.Drop {
				tt.fault.Leg = cluster.Origin
				r.cluster.AddFault(tt.fault)
			}
			got := r.post(chatPath, tt.body)
			if o := readError(t, got.body); got.status != tt.status || tt.code != "" && o.Error.Code != tt.code {
				t.Errorf("got %d %s", got.status, got.body)
			}
		})
	}
	if n := r.cluster.Count(cluster.Render); n != 0 {
		t.Errorf("%d renders", n)
	}
	got := r.post(chatPath, `{"model":"demo-model","messages":`+r.fill(shapes[5].messages)+`}`) // twice the placeholder
	if o := readError(t, got.body); o.Error.Code != "limit_exceeded" || r.cluster.Count(cluster.Encode) != 0 {
		t.Errorf("got %d %s", got.status, got.body)
	}
	r.settled()
}

// TestRenderWithoutTensorsFallsBackToTheChatFormat, for null would tell a worker
// that it has the tensor already.
func TestRenderWithoutTensorsFallsBackToTheChatFormat(t *testing.T) {
	r := newRig(t, setup{ec: cluster.ECNixl, tokensIn: true, steps: wholeSteps, cluster: cluster.Options{NoKwargs: true}})
	got := r.post(chatPath, `{"model":"demo-model","messages":`+r.fill(shapes[1].messages)+`}`, "X-Request-Id", "id")
	if want := cluster.ReplyWithImages(shapes[1].text, r.hashes(shapes[1].images)...); got.status != 200 || said(t, got.body, false) != want {
		t.Errorf("got %d %s", got.status, got.body)
	}
	for _, leg := range r.cluster.Legs("id") {
		if (leg.Name == cluster.Encode || leg.Name == cluster.Prefill) && leg.Path != chatPath {
			t.Errorf("%s went to %s", leg.Name, leg.Path)
		}
	}
	if n := r.metric(t, "llm_d_coordinator_format_fallback_total"); n != 1 {
		t.Errorf("counted %v", n)
	}
	r.settled() // then its line is in the log
	if !strings.Contains(r.logs.String(), "render gave no tensors") {
		t.Error("it is not in the log")
	}
}
