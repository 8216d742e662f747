package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const chat = "/v1/chat/completions"

// post posts a body and returns the answer's status and text.
func post(t *testing.T, url, profile, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(profileHeader, profile)
	r.Close = true
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func start(t *testing.T, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// TestRelayMakesTheCalls in their order, with the client's body.
func TestRelayMakesTheCalls(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	up := newBackend(backendSettings{tokens: 512, eventBytes: 10})
	url := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		seen = append(seen, strings.TrimSpace(r.URL.Path+" "+r.Header.Get(profileHeader)+" "+string(body)))
		mu.Unlock()
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		up.ServeHTTP(w, r)
	}))
	floor := newRelay(url, false)
	defer floor.close()
	front := start(t, floor)
	for path, render := range map[string]string{chat: chat + "/render", "/v1/completions": "/v1/completions/render", "/inference/v1/generate": ""} {
		seen = nil
		const body = `{"stream":true,"max_tokens":2}`
		status, text := post(t, front+path, "", body)
		want := []string{render + "  " + body, path + " prefill " + body, path + " decode " + body}
		if render == "" {
			want = want[1:]
		}
		if status != 200 || strings.Count(text, "\n\n") != 3 || !strings.HasSuffix(text, "data: [DONE]\n\n") || fmt.Sprint(seen) != fmt.Sprint(want) {
			t.Errorf("%s: %d %s\n%v\n%v", path, status, text, seen, want)
		}
	}
	if status, text := post(t, front+chat, "", `{"stream":false}`); status != 200 || !json.Valid([]byte(text)) {
		t.Errorf("%d %s", status, text)
	}
}

// TestContract: token ids follow render, and every leg has what came in with the
// request, an id of its own or the client's, and the mark of a leg.
func TestContract(t *testing.T) {
	var seen []*http.Request
	var bodies []string
	up := newBackend(backendSettings{tokens: 2, tensorBytes: 100, eventBytes: 10})
	url := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen, bodies = append(seen, r), append(bodies, string(body))
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		up.ServeHTTP(w, r)
	}))
	floor := newRelay(url, true)
	defer floor.close()
	const body = `{"max_tokens":2,"stream":true}`
	in := httptest.NewRequest(http.MethodPost, chat, strings.NewReader(body))
	in.Header = http.Header{"Authorization": {"Bearer k"}, "Accept-Encoding": {"br"}, requestIDHeader: {"r1"}}
	out := httptest.NewRecorder()
	floor.ServeHTTP(out, in)
	const shaped = `{"tokens":{"token_ids":[15496,15496]},"max_tokens":2,"stream":true}`
	if want := []string{body, shaped, shaped}; !slices.Equal(bodies, want) || strings.Count(out.Body.String(), "\n\n") != 3 {
		t.Errorf("%q\n%s", bodies, out.Body)
	}
	for _, leg := range seen {
		h := leg.Header
		if h.Get("Authorization") != "Bearer k" || h.Get("Accept-Encoding") != "" || h.Get(requestIDHeader) != "r1" || h.Get("X-Coordinator-Hop") != "1" {
			t.Errorf("%s: %v", leg.URL.Path, h)
		}
	}
	front := start(t, floor)
	if status, _ := post(t, front+chat, "", body); status != 200 || seen[3].Header.Get(requestIDHeader) == "" {
		t.Errorf("%d %v", status, seen[3].Header)
	}
	for _, bad := range []string{"", "[]"} {
		if status, _ := post(t, front+chat, "", bad); status != http.StatusBadGateway {
			t.Errorf("%q: %d", bad, status)
		}
	}
}

// TestContractOfWhatFails: a render service that does not answer as one, and one
// that is not there.
func TestContractOfWhatFails(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"no ids": func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, `{"token_ids":[1`) },
		"broken": func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "some")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		},
		"gone": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		floor := newRelay(start(t, h), true)
		defer floor.close()
		if status, _ := post(t, start(t, floor)+chat, "", "{}"); status != http.StatusBadGateway {
			t.Errorf("%s: %d", name, status)
		}
	}
}

func TestRelayOfWhatFails(t *testing.T) {
	broken := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if r.Header.Get(profileHeader) == "decode" {
			io.WriteString(w, "some")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
	}))
	floor := newRelay(broken, false)
	defer floor.close()
	front := start(t, floor)
	answer, err := http.Post(front+chat, "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err == nil || string(text) != "some" {
		t.Errorf("a broken answer ends well: %q", text)
	}
	nobody := newRelay("http://127.0.0.1:1", false)
	defer nobody.close()
	if status, _ := post(t, start(t, nobody)+chat, "", "{}"); status != http.StatusBadGateway {
		t.Errorf("status %d", status)
	}
}

// TestRenderings are what a coordinator can use: an id for each token, and a hash,
// a place and a tensor for each image.
func TestRenderings(t *testing.T) {
	url := start(t, newBackend(backendSettings{tokens: 512, tensorBytes: 1000}))
	for images := range 17 {
		body := `{"messages":[` + strings.Repeat(`{"image_url":{"url":""}},`, images) + `{}]}`
		_, text := post(t, url+chat+"/render", "", body)
		_, list := post(t, url+"/v1/completions/render", "", body)
		if list != "["+text+"]" {
			t.Errorf("%d images: of completions %.100s", images, list)
		}
		var got struct {
			IDs      []int `json:"token_ids"`
			Features struct {
				Hashes map[string][]string                       `json:"mm_hashes"`
				Places map[string][]struct{ Offset, Length int } `json:"mm_placeholders"`
				Tensor map[string][]string                       `json:"kwargs_data"`
			}
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.IDs) != 512 {
			t.Fatalf("%v, %d ids", err, len(got.IDs))
		}
		f, end := got.Features, 0
		if len(f.Hashes["image"]) != images || len(f.Places["image"]) != images || len(f.Tensor["image"]) != images {
			t.Errorf("%d images: %.300s", images, text)
		}
		for i, place := range f.Places["image"] {
			if place.Offset < end || place.Offset+place.Length > 512 || len(f.Tensor["image"][i]) != 1000 {
				t.Errorf("%d images: %+v", images, place)
			}
			end = place.Offset + place.Length
		}
	}
}

func TestWorkers(t *testing.T) {
	url := start(t, newBackend(backendSettings{tokens: 1, eventBytes: 5})) + chat
	for profile, want := range map[string]string{"encode": `"ec_transfer_params":{`, "prefill": `"kv_transfer_params":{`, "decode": `"content":"xxxxx"`} {
		if status, text := post(t, url, profile, "{}"); status != 200 || !json.Valid([]byte(text)) || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", profile, status, text)
		}
	}
	if status, _ := post(t, url, "", "{}"); status != 404 {
		t.Errorf("without a profile: %d", status)
	}
	for body, events := range map[string]int{`{"stream":true}`: 64, `{"max_tokens":3,"stream":true}`: 3, `{"stream":true,"max_tokens":0}`: 0, `{"stream":true,"max_tokens":null}`: 64} {
		if _, text := post(t, url, "decode", body); strings.Count(text, "\n\n") != events+1 {
			t.Errorf("%s: %d events", body, strings.Count(text, "\n\n")-1)
		}
	}
}

// TestItEndsWhenItIsTold, with a stream under way.
func TestItEndsWhenItIsTold(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"backend", "-interval", time.Hour.String()}, in, io.Discard)
	}()
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequest(http.MethodPost, strings.TrimSpace(url)+chat, strings.NewReader(`{"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(profileHeader, "decode")
	r.Close = true
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(answer.Body); err == nil {
		t.Error("the stream ends well")
	}
}

func TestWrongUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"x"}, {"relay", "-x"}, {"backend", "-addr", "nowhere:x"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
