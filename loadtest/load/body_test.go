package load

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// TestBodies: each is JSON of the size that was asked for, and like no other.
func TestBodies(t *testing.T) {
	for _, request := range []Request{
		{}, {Stream: true, MaxTokens: 7, PromptBytes: 1}, {PromptBytes: 5000}, {Kind: Completions}, {Kind: Generate, PromptBytes: 2560},
		{Kind: Generate, PromptBytes: 1}, {Images: 3, ImageBytes: 400}, {Images: 1, ImageBytes: 32, PromptBytes: 64},
	} {
		request = request.withDefaults()
		var mu sync.Mutex
		seen := map[string]bool{}
		target := serve(t, func(w http.ResponseWriter, r *http.Request) {
			text, err := io.ReadAll(r.Body)
			if err != nil || int64(len(text)) != r.ContentLength || r.URL.Path != paths[request.Kind] || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("X-Tenant") != "t" {
				t.Errorf("%+v: %v, %v, %d bytes of %d", request, err, r.URL, len(text), r.ContentLength)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, unique := range check(t, request, text) {
				if seen[unique] {
					t.Errorf("%+v: twice: %.100s", request, unique)
				}
				seen[unique] = true
			}
			io.WriteString(w, "{}")
		})
		target.Header = http.Header{"x-tenant": {"t"}}
		o := options(target, 50)
		o.Request = request
		if r := mustRun(t, o); r.Counts.OK != 50 || len(seen) != 50*(1+request.Images) {
			t.Errorf("%+v: %+v, %d seen", request, r.Counts, len(seen))
		}
	}
}

// check checks a body and returns what must be unique in it.
func check(t *testing.T, want Request, text []byte) (unique []string) {
	var got struct {
		Model     string
		Stream    bool
		MaxTokens int `json:"max_tokens"`
		Sampling  struct {
			MaxTokens int `json:"max_tokens"`
		} `json:"sampling_params"`
		Prompt   string
		IDs      []int `json:"token_ids"`
		Messages []struct{ Content json.RawMessage }
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Errorf("%v: %.200s", err, text)
		return nil
	}
	if got.Model != want.Model || got.Stream != want.Stream || got.MaxTokens+got.Sampling.MaxTokens != want.MaxTokens {
		t.Errorf("%+v: %.200s", want, text)
	}
	prompt := got.Prompt
	switch {
	case want.Kind == Generate:
		if n := len(got.IDs); n != max(want.PromptBytes/5, nonceDigits+1) {
			t.Errorf("%d ids", n)
		}
		ids, _ := json.Marshal(got.IDs)
		return []string{string(ids)}
	case want.Images > 0:
		prompt, unique = checkParts(t, want, got.Messages[0].Content)
	case want.Kind == Chat:
		if err := json.Unmarshal(got.Messages[0].Content, &prompt); err != nil {
			t.Error(err)
		}
	}
	if len(prompt) != max(want.PromptBytes, 2*nonceDigits) || want.PromptBytes == 1024 && len(strings.Fields(prompt)) != 512 {
		t.Errorf("a prompt of %d bytes, %d words", len(prompt), len(strings.Fields(prompt)))
	}
	return append(unique, prompt)
}

// checkParts checks the parts of a message and returns its text and its images.
func checkParts(t *testing.T, want Request, content []byte) (text string, images []string) {
	var parts []struct {
		Text  string
		Image struct{ URL string } `json:"image_url"`
	}
	if err := json.Unmarshal(content, &parts); err != nil || len(parts) != 1+want.Images {
		t.Errorf("%v: %d parts", err, len(parts))
		return "", nil
	}
	for _, p := range parts[1:] {
		if size := len(strings.TrimPrefix(p.Image.URL, "data:image/png;base64,")); size != want.ImageBytes {
			t.Errorf("an image of %d bytes", size)
		}
		images = append(images, p.Image.URL)
	}
	return parts[0].Text, images
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	good := options(Target{URL: "http://127.0.0.1:1"}, 1)
	for want, spoil := range map[string]func(*Options){
		"load: a run needs both bounds, in count and in time":                          func(o *Options) { o.Count = 0 },
		"load: a run needs both bounds, in count and in time ":                         func(o *Options) { o.Duration = 0 },
		"load: want either clients (closed loop) or a rate (open loop)":                func(o *Options) { o.Rate = 1 },
		"load: want either clients (closed loop) or a rate (open loop) ":               func(o *Options) { o.Clients = 0 },
		"load: a bound is negative":                                                    func(o *Options) { o.Grace = -1 },
		`load: want a URL such as http://127.0.0.1:8080, got "127.0.0.1:8080"`:         func(o *Options) { o.URL = "127.0.0.1:8080" },
		`load: want a URL such as http://127.0.0.1:8080, got "http://127.0.0.1:8080/"`: func(o *Options) { o.URL = "http://127.0.0.1:8080/" },
		`load: unknown kind of request "x"`:                                            func(o *Options) { o.Request.Kind = "x" },
		"load: only chat requests have images":                                         func(o *Options) { o.Request = Request{Kind: Completions, Images: 1, ImageBytes: 32} },
		"load: an image takes a multiple of 4 bytes of base64, at least 32":            func(o *Options) { o.Request = Request{Images: 1, ImageBytes: 30} },
		"load: a size of the request is negative":                                      func(o *Options) { o.Request.PromptBytes = -1 },
	} {
		o := good
		spoil(&o)
		if _, err := Run(t.Context(), o); err == nil || err.Error() != strings.TrimSpace(want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	good.PID = 1 << 30
	if _, err := Run(t.Context(), good); err == nil {
		t.Error("a process that does not exist is watched")
	}
}
