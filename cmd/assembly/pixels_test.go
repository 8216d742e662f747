package assembly_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/cmd/assembly"
	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// strippingSteps are a pipeline that leaves pixels out.
var strippingSteps = mediaStep + renderStep + encodeStep + prefillStep + "params = { strip_pixels = true }\n" + decodeStep

// pixelSetup is a rig whose images have tensors of 100 KB.
func pixelSetup(metadata, strip bool) setup {
	s := setup{tokensIn: true, steps: wholeSteps, cluster: cluster.Options{TensorBytes: 100 << 10, Metadata: metadata}}
	if strip {
		s.steps = strippingSteps
	}
	return s
}

// carried is what a leg's features have of the images' tensors.
type carried struct {
	Kwargs   map[string][]*string `json:"kwargs_data"`
	Metadata map[string][]*string `json:"mm_metadata"`
}

// prefillsOf are what the prefill legs of a request carried, in their order.
func (r *rig) prefillsOf(id string) (all []carried) {
	for _, leg := range r.cluster.Legs(id) {
		if leg.Name != cluster.Prefill {
			continue
		}
		var body struct{ Features carried }
		if err := json.Unmarshal(leg.Body, &body); err != nil {
			r.t.Fatal(err)
		}
		all = append(all, body.Features)
	}
	return all
}

// kinds says what there is of each image.
func (c carried) kinds() (kinds []string) {
	for i := range max(len(c.Kwargs["image"]), len(c.Metadata["image"])) {
		kinds = append(kinds, c.kind("image", i))
	}
	return kinds
}

// kind says what there is of one item.
func (c carried) kind(modality string, i int) string {
	kwargs, metadata := c.Kwargs[modality], c.Metadata[modality]
	switch {
	case i < len(metadata) && metadata[i] != nil && (i >= len(kwargs) || kwargs[i] == nil):
		return "metadata"
	case i >= len(kwargs) || kwargs[i] == nil:
		return "nothing"
	case len(*kwargs[i]) > 1000:
		return "full"
	}
	return "stripped"
}

// TestPrefillCarriesNoPixelsItDoesNotNeed: for all shapes, by metadata or
// stripped. The cluster refuses a prefill that lacks something, and its answer
// names the images that it saw.
func TestPrefillCarriesNoPixelsItDoesNotNeed(t *testing.T) {
	for _, tt := range []struct {
		name            string
		metadata, strip bool
		want            string
	}{
		{"metadata", true, false, "metadata"},
		{"metadata before stripping", true, true, "metadata"},
		{"stripped", false, true, "stripped"},
		{"neither", false, false, "full"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, pixelSetup(tt.metadata, tt.strip))
			items := 0
			for i, s := range shapes {
				id := fmt.Sprint("req-", i)
				got := r.post(chatPath, fmt.Sprintf(`{"model":"demo-model","messages":%s}`, r.fill(s.messages)), "X-Request-Id", id)
				if want := cluster.ReplyWithImages(s.text, r.hashes(s.images)...); got.status != http.StatusOK || said(t, got.body, false) != want {
					t.Errorf("%s: got %d %s", s.name, got.status, got.body)
				}
				sent := r.prefillsOf(id)
				if want := slices.Repeat([]string{tt.want}, len(s.images)); len(sent) != 1 || !slices.Equal(sent[0].kinds(), want) {
					t.Errorf("%s: prefill carried %v, want %v", s.name, sent, want)
				}
				if tt.want == "metadata" && len(s.images) > 0 && sent[0].Kwargs != nil {
					t.Errorf("%s: kwargs_data are there too", s.name)
				}
				items += len(s.images)
			}
			st := r.cluster.State()
			if small := tt.want != "full"; small != (st.BytesIn[cluster.Prefill] < int64(items)*2000) || st.BytesIn[cluster.Encode] < int64(items-2)*100<<10 {
				t.Errorf("%d images, bytes of the legs: %v", items, st.BytesIn)
			}
			if st.LocalEncodes != 0 {
				t.Errorf("%+v", st)
			}
			reason := ""
			if tt.want == "full" {
				reason = "no_metadata"
			}
			if n := r.metric(t, "llm_d_coordinator_prefill_pixels_total", "sent="+tt.want, "reason="+reason); n != float64(items) {
				t.Errorf("counted %v of %d", n, items)
			}
			r.settled()
		})
	}
}

// TestPixelsThatPrefillMayNeedAreSent: where no descriptor says where an image's
// embedding is, or render gave no metadata for it.
func TestPixelsThatPrefillMayNeedAreSent(t *testing.T) {
	noHost := func(r *rig, image string) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{%q:{"peer_port":5601,"peer_host":""}}`, r.hashes([]string{image})[0]))
	}
	for _, tt := range []struct {
		name            string
		metadata, strip bool
		fault           func(*rig) cluster.Fault
		want            []string // how many of each kind, sorted
		note            string
		local           int
	}{
		{"descriptor missing", true, false, func(*rig) cluster.Fault {
			return cluster.Fault{Leg: cluster.Encode, Times: 1, BadDescriptors: json.RawMessage(`null`)}
		}, []string{"full", "metadata", "metadata"}, "no_descriptor", 1},
		{"descriptor missing, stripped", false, true, func(*rig) cluster.Fault {
			return cluster.Fault{Leg: cluster.Encode, Times: 1, BadDescriptors: json.RawMessage(`{}`)}
		}, []string{"full", "stripped", "stripped"}, "no_descriptor", 1},
		{"metadata for the first only", true, false, func(*rig) cluster.Fault {
			return cluster.Fault{Leg: cluster.Render, OneMetadata: true}
		}, []string{"full", "full", "metadata"}, "", 0},
		{"metadata for the first only, the others stripped", true, true, func(*rig) cluster.Fault {
			return cluster.Fault{Leg: cluster.Render, OneMetadata: true}
		}, []string{"metadata", "stripped", "stripped"}, "", 0},
		{"no host", true, true, func(r *rig) cluster.Fault {
			return cluster.Fault{Leg: cluster.Encode, BadDescriptors: noHost(r, "PNG0"), Times: 1}
		}, []string{"full", "metadata", "metadata"}, "no_descriptor", -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			set := pixelSetup(tt.metadata, tt.strip) // the first image is encoded first
			set.steps = strings.Replace(set.steps, encodeStep, encodeStep+"params = { max_parallel = 1 }\n", 1)
			r := newRig(t, set)
			r.cluster.AddFault(tt.fault(r))
			got := r.post(chatPath, `{"model":"demo-model","messages":`+r.fill(shapes[4].messages)+`}`, "X-Request-Id", "id")
			if want := cluster.ReplyWithImages(shapes[4].text, r.hashes(shapes[4].images)...); got.status != 200 || said(t, got.body, false) != want {
				t.Errorf("got %d %s", got.status, got.body)
			}
			sent := r.prefillsOf("id")
			if len(sent) != 1 || !slices.Equal(slices.Sorted(slices.Values(sent[0].kinds())), tt.want) {
				t.Errorf("prefill carried %v", sent)
			}
			if n := r.cluster.State().LocalEncodes; tt.local >= 0 && n != tt.local {
				t.Errorf("%d images were encoded by prefill", n)
			}
			r.settled()
			if noted := strings.Contains(r.logs.String(), "pixels sent to prefill: no_descriptor"); noted != (tt.note != "") {
				t.Errorf("noted: %v", noted)
			}
		})
	}
}

// TestPrefillThatFailsWithoutPixelsGetsThem, once, if that may be why. A connection
// that fails, a worker that is busy, and one that does not look at the request at all
// say nothing of the pixels.
func TestPrefillThatFailsWithoutPixelsGetsThem(t *testing.T) {
	const noRetry = "[gateway.profiles.prefill.retry]\nmax_attempts = 1\n"
	for _, tt := range []struct {
		name   string
		fault  cluster.Fault
		toml   string
		status int
		want   []string // of each prefill leg
		result string   // in the metric, "" none
	}{
		{"embedding lost", cluster.Fault{LoseEmbeddings: true}, "", 200, []string{"small", "full"}, "ok"},
		{"500", cluster.Fault{Status: 500, Times: 1}, "", 200, []string{"small", "full"}, "ok"},
		{"400", cluster.Fault{Status: 400, Times: 1}, "", 200, []string{"small", "full"}, "ok"},
		{"422", cluster.Fault{Status: 422, Times: 1}, "", 200, []string{"small", "full"}, "ok"},
		{"401", cluster.Fault{Status: 401}, "", 401, []string{"small"}, ""},
		{"403", cluster.Fault{Status: 403}, "", 403, []string{"small"}, ""},
		{"404", cluster.Fault{Status: 404}, "", 404, []string{"small"}, ""},
		{"413", cluster.Fault{Status: 413}, "", 413, []string{"small"}, ""},
		{"engine error", cluster.Fault{FinishError: true, Times: 1}, "", 200, []string{"small", "full"}, "ok"},
		{"503s", cluster.Fault{Status: 503, Times: 3}, "", 200, []string{"small", "small", "small", "full"}, "ok"},
		{"400 for ever", cluster.Fault{Status: 400}, "", 400, []string{"small", "full"}, "failed"},
		{"500 for ever", cluster.Fault{Status: 500}, "", 502, []string{"small", "full"}, "failed"},
		{"broken off", cluster.Fault{Drop: true, Times: 1}, "", 200, []string{"small", "small"}, ""},
		{"busy", cluster.Fault{Status: 429, Headers: map[string]string{"Retry-After": "7"}}, "", 429, []string{"small"}, ""},
		{"no retries", cluster.Fault{Status: 500}, noRetry, 502, []string{"small"}, "refused"},
	} {
		for _, strip := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/strip=%t", tt.name, strip), func(t *testing.T) {
				s := pixelSetup(!strip, strip)
				s.toml, s.kv = tt.toml, cluster.KVSharedStorage // nobody would fetch the KV of a prefill that failed after it
				r := newRig(t, s)
				tt.fault.Leg = cluster.Prefill
				r.cluster.AddFault(tt.fault)
				got := r.post(chatPath, `{"model":"demo-model","messages":`+r.fill(shapes[5].messages)+`}`, "X-Request-Id", "id")
				if got.status != tt.status {
					t.Errorf("got %d %s", got.status, got.body)
				}
				var sent []string
				for _, c := range r.prefillsOf("id") {
					kind := "small"
					if slices.Equal(c.kinds(), []string{"full", "full"}) && c.Metadata == nil {
						kind = "full"
					}
					sent = append(sent, kind)
				}
				if !slices.Equal(sent, tt.want) {
					t.Errorf("prefills %v, want %v", sent, tt.want)
				}
				if counted := r.results("prefill_pixels_resent_total"); !slices.Equal(counted, strings.Fields(tt.result)) {
					t.Errorf("counted %q", counted)
				}
				r.settled()
				if noted := strings.Contains(r.logs.String(), "prefill failed without pixels"); noted != slices.Contains(tt.want, "full") {
					t.Errorf("noted: %v", noted)
				}
			})
		}
	}
}

// TestLostEmbeddingsDoNotOpenPrefillsBreaker: the prefills with pixels are good, so
// the workers are. Where none follows, the one without counts.
func TestLostEmbeddingsDoNotOpenPrefillsBreaker(t *testing.T) {
	const breaker = "[gateway.breaker]\nconsecutive_failures = 3\nfailure_ratio = 0.5\nmin_requests = 4\nopen_timeout = \"24h\"\n"
	for _, tt := range []struct {
		name, toml string
		fault      cluster.Fault
		status     int
		state      string
	}{
		{"lost", "", cluster.Fault{LoseEmbeddings: true}, 200, "closed"},
		{"no retries", "[gateway.retry]\nmax_attempts = 1\n", cluster.Fault{LoseEmbeddings: true}, 502, "open"},
		{"failing workers", "", cluster.Fault{Status: 500}, 502, "open"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := pixelSetup(true, false)
			s.toml = breaker + tt.toml
			r := newRig(t, s)
			tt.fault.Leg = cluster.Prefill
			r.cluster.AddFault(tt.fault)
			body := `{"model":"demo-model","messages":` + r.fill(shapes[1].messages) + `}`
			for i := range 3 {
				if got := r.post(chatPath, body); got.status != tt.status {
					t.Errorf("request %d: got %d %s", i, got.status, got.body)
				}
			}
			if state := r.Status("").Breakers["prefill"]; state != tt.state {
				t.Errorf("prefill's breaker is %s", state)
			}
			r.settled()
		})
	}
}

// TestReducedTensorsGiveTheirMemoryBack, with those that they were made of.
func TestReducedTensorsGiveTheirMemoryBack(t *testing.T) {
	r := newRig(t, pixelSetup(false, true))
	if got := r.post(chatPath, `{"model":"demo-model","messages":`+r.fill(shapes[4].messages)+`}`); got.status != 200 {
		t.Errorf("got %d %s", got.status, got.body)
	}
	r.settled()
	if n := r.metric(t, "llm_d_coordinator_inflight_bytes"); n != 0 {
		t.Errorf("%v bytes are still charged", n)
	}
}

// TestStrippingThatCouldNotHappenFailsStartup and says what it needs.
func TestStrippingThatCouldNotHappenFailsStartup(t *testing.T) {
	const render = "[[pipeline.steps]]\ntype = \"render\"\nparams = { address = \"http://127.0.0.1:1\" }\n"
	strip := prefillStep + "params = { strip_pixels = true }\n"
	for _, tt := range []struct {
		name, pipeline, steps string
		ok                    bool
	}{
		{"chat format", "ec_connector = \"ec-nixl\"\n", render + encodeStep + strip + decodeStep, false},
		{"no encode", "ec_connector = \"ec-nixl\"\nuse_openai_format = false\n", render + strip + decodeStep, false},
		{"shared storage", "ec_connector = \"ec-shared-storage\"\nuse_openai_format = false\n", render + encodeStep + strip + decodeStep, false},
		{"pushed embeddings", "ec_connector = \"ec-mooncake\"\nuse_openai_format = false\n", render + encodeStep + "params = { bootstrap_from = \"static:10.0.0.1\", consumer_port = 5602 }\n" + strip + decodeStep, false},
		{"all there", "ec_connector = \"ec-nixl\"\nuse_openai_format = false\n", render + encodeStep + strip + decodeStep, true},
	} {
		cfg, err := conf.Parse("f.toml", []byte("[pipeline]\n"+tt.pipeline+tt.steps), nil)
		if err != nil {
			t.Fatal(err)
		}
		c, err := assembly.New(cfg, assembly.Options{})
		if err == nil {
			c.Close()
		}
		if (err == nil) != tt.ok || err != nil && !strings.Contains(err.Error(), "strip_pixels") {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// TestPixelsOfAllModalities: videos and images go without, in whatever order they
// came. Nothing of audio is kept on the CPU, so its tensors are sent.
func TestPixelsOfAllModalities(t *testing.T) {
	for _, strip := range []bool{false, true} {
		t.Run(fmt.Sprintf("strip=%t", strip), func(t *testing.T) {
			r := newRig(t, pixelSetup(!strip, strip))
			for i, mix := range mixes {
				id := fmt.Sprint("req-", i)
				got := r.post(chatPath, r.mediaChat(false, mix.media), "X-Request-Id", id)
				if want := mediaReply(mix.media); got.status != http.StatusOK || said(t, got.body, false) != want {
					t.Errorf("%s: got %d %s", mix.name, got.status, got.body)
				}
				sent := r.prefillsOf(id)
				if len(sent) != 1 {
					t.Fatalf("%s: %d prefills", mix.name, len(sent))
				}
				for j, m := range mix.media {
					of := m.modality()
					place := 0 // in the list of its modality
					for _, before := range mix.media[:j] {
						if before.modality() == of {
							place++
						}
					}
					want := "metadata"
					if of == "audio" {
						want = "full"
					} else if strip {
						want = "stripped"
					}
					if kind := sent[0].kind(of, place); kind != want {
						t.Errorf("%s: %s %d is sent as %s, not %s", mix.name, of, place, kind, want)
					}
				}
			}
			r.settled()
			if n := r.cluster.State().LocalEncodes; n != 0 {
				t.Errorf("%d were encoded by prefill", n)
			}
		})
	}
}
