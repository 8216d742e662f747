package load

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestParseMix(t *testing.T) {
	common := Request{PromptBytes: 300, ImageBytes: 4000}
	mix, err := ParseMix(common, "chat=3, chat-stream=4,images-stream=1,generate=2,completions=1")
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, s := range mix {
		said = append(said, s.String())
		if s.PromptBytes != 300 || s.MaxTokens != 64 || (s.Images > 0) != (s.ImageBytes > 0) {
			t.Errorf("%+v", s)
		}
	}
	if got := strings.Join(said, ","); got != "chat=3,chat-stream=4,images-stream=1,generate=2,completions=1" {
		t.Errorf("got %s", got)
	}
	for _, text := range []string{"", "chat", "chat=", "chat=0", "chat=1001", "chat=x", "audio=1", "chat=1,,", "chat=1.5", "images-generate=1"} {
		if mix, err := ParseMix(common, text); err == nil {
			t.Errorf("%q is %+v", text, mix)
		}
	}
	if mix, err := ParseMix(Request{ImageBytes: 30}, "images=1"); err == nil {
		t.Errorf("an image of 30 bytes is %+v", mix)
	}
}

// TestMixIsWhatIsSent: each kind as often as its weight says, in any stretch.
func TestMixIsWhatIsSent(t *testing.T) {
	var mu sync.Mutex
	var kinds []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, 60)
		n, _ := r.Body.Read(body)
		kind := r.URL.Path
		if strings.Contains(string(body[:n]), `"stream":true`) {
			kind += " streamed"
			w.Header().Set("Content-Type", "text/event-stream")
			w.Write([]byte("data: {}\n\ndata: [DONE]\n\n"))
		} else {
			w.Write([]byte("{}"))
		}
		mu.Lock()
		defer mu.Unlock()
		kinds = append(kinds, kind)
	}))
	defer s.Close()
	mix, err := ParseMix(Request{PromptBytes: 100}, "chat=5,chat-stream=3,generate-stream=1,completions=1")
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(context.Background(), Options{Target: Target{URL: s.URL}, Mix: mix, Clients: 1, Count: 400, Duration: time.Minute})
	if err != nil || r.Counts.OK != 400 || len(r.Settings.Mix) != 4 {
		t.Fatalf("%+v, %v", r, err)
	}
	for stretch := range slices.Chunk(kinds, 100) {
		counts := map[string]int{}
		for _, kind := range stretch {
			counts[kind]++
		}
		for kind, want := range map[string]int{"/v1/chat/completions": 50, "/v1/chat/completions streamed": 30,
			"/inference/v1/generate streamed": 10, "/v1/completions": 10} {
			if n := counts[kind]; n < want-2 || n > want+2 {
				t.Errorf("%d of 100 are %s", n, kind)
			}
		}
	}
}
