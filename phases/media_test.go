package phases

import (
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

func TestMediaParams(t *testing.T) {
	b := newBench(t, cluster.KVNixl)
	for text, want := range map[params]string{
		`{"DownloadTimeout":-1}`:            "download_timeout: ",
		`{"MaxConcurrentDownloads":-1}`:     "max_concurrent_downloads: ",
		`{"MaxMultimodalEntries":-1}`:       "max_multimodal_entries: ",
		`{"MaxDownloadSize":-1}`:            "max_download_size: ",
		`{"AllowedNetworks":["10.0.0.0"]}`:  "allowed_networks: ",
		`{"AllowedNetworks":["localhost"]}`: "allowed_networks: ",
	} {
		if _, err := NewMedia(b.deps, text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := NewEncode(b.deps, params(`{"MaxParallel":-1}`)); err == nil || !strings.HasPrefix(err.Error(), "max_parallel: ") {
		t.Errorf("%v", err)
	}
	if _, err := NewEncode(b.deps, params(`{"ECConnector":"ec"}`)); err == nil || !strings.HasPrefix(err.Error(), "ec_connector: ") {
		t.Errorf("%v", err)
	}
	if _, err := NewConditional(b.deps, params(`{"Timeout":-1}`)); err == nil || !strings.HasPrefix(err.Error(), "timeout: ") {
		t.Errorf("%v", err)
	}
}

const twoImages = `{"messages":[{"role":"user","content":[` +
	`{"type":"image_url","image_url":{"url":"http://a.test/1.png"}},{"type":"image_url","image_url":"http://a.test/1.png"},` +
	`{"type":"image_url","image_url":{"url":"data:image/png;base64,QQ=="}},{"type":"image_url","image_url":{"url":"http://a.test/2.png"}}]}]}`

// TestOneDownloadForEachDistinctURL, and one task for what came inlined.
func TestOneDownloadForEachDistinctURL(t *testing.T) {
	b := newBench(t, cluster.KVNixl)
	ph := b.phase(NewMedia, params(`{"MaxConcurrentDownloads":3}`))
	r := b.request(wire.Chat, twoImages)
	plan, err := ph.Plan(r)
	if err != nil || len(plan.Tasks) != 3 || plan.MaxParallel != 3 {
		t.Fatalf("%v %+v", err, plan)
	}
	for _, task := range plan.Tasks {
		if task.Pool != PoolMedia {
			t.Errorf("pool %s", task.Pool)
		}
	}
	results := []Result{inlined{[]int{0, 1}, []byte(`"data:image/png;base64,MQ=="`)}, inlined{[]int{3}, []byte(`"data:image/png;base64,Mg=="`)}, inlined{}}
	if _, err := ph.Join(r, results); err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer("http://a.test/1.png", "data:image/png;base64,MQ==", "http://a.test/2.png", "data:image/png;base64,Mg==").Replace(twoImages)
	if got := string(r.Protocol.RenderLeg(r.source()).Append(nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if text := b.request(wire.Chat, chat); r.Fetched.Media == nil || text.Prompt.Media.Len() != 0 {
		t.Error("a text request has media")
	} else if plan, err := ph.Plan(text); err != nil || len(plan.Tasks) != 0 {
		t.Errorf("a text request has work: %v", err)
	}
}

// TestDescriptorsThatContradictFailTheRequest; others are merged.
func TestDescriptorsThatContradictFailTheRequest(t *testing.T) {
	b := newBench(t, cluster.KVNixl)
	ph := b.phase(NewEncode, "")
	for _, tt := range []struct {
		name    string
		answers []string // "" is none, "!" is odd
		want    string
		fails   bool
	}{
		{"in order", []string{`{"b":1}`, `{"a":{"z":1.0}}`}, `{"b":1,"a":{"z":1.0}}`, false},
		{"null dropped", []string{`{"b":null}`, `{"a":2}`}, `{"a":2}`, false},
		{"none", []string{"", ""}, "", false},
		{"odd", []string{"!", `{"a":2}`}, `{"a":2}`, false},
		{"twice the same", []string{`{"a":2}`, `{"a":2}`}, `{"a":2}`, false},
		{"contradiction", []string{`{"a":2}`, `{"a":3}`}, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := b.request(wire.Chat, chat)
			var results []Result
			for _, a := range tt.answers {
				switch a {
				case "":
					results = append(results, descriptors{})
				case "!":
					results = append(results, descriptors{missing: true})
				default:
					results = append(results, descriptors{params: []byte(a)})
				}
			}
			_, err := ph.Join(r, results)
			if (err != nil) != tt.fails || err != nil && wire.FaultOf(err).Kind != wire.UpstreamFailed {
				t.Fatalf("%v", err)
			}
			got := ""
			for _, piece := range r.Encoded.Descriptors {
				got += string(piece)
			}
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
