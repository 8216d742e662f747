package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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

// legs are those that a backend has been sent.
type legs struct {
	mu   sync.Mutex
	seen []leg
}

type leg struct {
	path, body string
	header     http.Header
}

// String is path, profile and body.
func (l leg) String() string {
	return strings.TrimSpace(l.path + " " + l.header.Get(profileHeader) + " " + l.body)
}

// before keeps what a backend is sent.
func (ls *legs) before(up *backend) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		ls.mu.Lock()
		ls.seen = append(ls.seen, leg{r.URL.Path, string(body), r.Header})
		ls.mu.Unlock()
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		up.ServeHTTP(w, r)
	})
}

// take returns what was kept since the last time.
func (ls *legs) take() []leg {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	defer func() { ls.seen = nil }()
	return ls.seen
}

// eachWay runs a test with legs made by whoever serves a request, and by actors.
func eachWay(t *testing.T, f func(*testing.T, relaySettings)) {
	t.Run("floor", func(t *testing.T) { f(t, relaySettings{}) })
	t.Run("actors", func(t *testing.T) { f(t, relaySettings{actors: true}) })
}

// front serves a relay.
func front(t *testing.T, up string, s relaySettings) (url string) {
	r := newRelay(up, s)
	t.Cleanup(r.close)
	return start(t, r)
}

// TestRelayMakesTheCalls in their order, with the client's body.
func TestRelayMakesTheCalls(t *testing.T) {
	eachWay(t, func(t *testing.T, s relaySettings) {
		sent := new(legs)
		url := front(t, start(t, sent.before(newBackend(backendSettings{tokens: 512, eventBytes: 10}))), s)
		for path, render := range map[string]string{chat: chat + "/render", "/v1/completions": "/v1/completions/render", "/inference/v1/generate": ""} {
			const body = `{"stream":true,"max_tokens":2}`
			status, text := post(t, url+path, "", body)
			want := []string{render + "  " + body, path + " prefill " + body, path + " decode " + body}
			if render == "" {
				want = want[1:]
			}
			if seen := sent.take(); status != 200 || strings.Count(text, "\n\n") != 3 || !strings.HasSuffix(text, "data: [DONE]\n\n") || fmt.Sprint(seen) != fmt.Sprint(want) {
				t.Errorf("%s: %d %s\n%v\n%v", path, status, text, seen, want)
			}
		}
		if status, text := post(t, url+chat, "", `{"stream":false}`); status != 200 || !json.Valid([]byte(text)) {
			t.Errorf("%d %s", status, text)
		}
	})
}

func TestRelayOfWhatFails(t *testing.T) {
	eachWay(t, func(t *testing.T, s relaySettings) {
		broken := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			if r.Header.Get(profileHeader) == "decode" {
				io.WriteString(w, "some")
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}
		}))
		answer, err := http.Post(front(t, broken, s)+chat, "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if text, err := io.ReadAll(answer.Body); err == nil || string(text) != "some" {
			t.Errorf("a broken answer ends well: %q", text)
		}
		if status, _ := post(t, front(t, "http://127.0.0.1:1", s)+chat, "", "{}"); status != http.StatusBadGateway {
			t.Errorf("status %d", status)
		}
	})
}

// TestContract: token ids follow render, and every leg has what came in with the
// request, the client's id or one of its own, and the mark of a leg. Whoever makes
// the legs makes them so.
func TestContract(t *testing.T) {
	for _, flags := range [][]string{{"-contract"}, {"-contract", "-actors"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			sent := new(legs)
			up := start(t, sent.before(newBackend(backendSettings{tokens: 2, tensorBytes: 100, eventBytes: 10})))
			url := running(t, append([]string{"relay", "-up", up}, flags...)...)
			const body = `{"max_tokens":2,"stream":true}`
			r, err := http.NewRequest(http.MethodPost, url+chat, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header = http.Header{"Authorization": {"Bearer k"}, "Accept-Encoding": {"br"}, requestIDHeader: {"r1"}}
			r.Close = true
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(answer.Body)
			answer.Body.Close()
			const shaped = `{"tokens":{"token_ids":[15496,15496]},"max_tokens":2,"stream":true}`
			seen := sent.take()
			if want := []string{chat + "/render  " + body, chat + " prefill " + shaped, chat + " decode " + shaped}; err != nil || fmt.Sprint(seen) != fmt.Sprint(want) || strings.Count(string(text), "\n\n") != 3 {
				t.Errorf("%v\n%s %v", seen, text, err)
			}
			for _, leg := range seen {
				if h := leg.header; h.Get("Authorization") != "Bearer k" || h.Get("Accept-Encoding") != "" || h.Get(requestIDHeader) != "r1" || h.Get("X-Coordinator-Hop") != "1" {
					t.Errorf("%s: %v", leg.path, h)
				}
			}
			if status, _ := post(t, url+chat, "", body); status != 200 || sent.take()[0].header.Get(requestIDHeader) == "" {
				t.Errorf("status %d, or no id", status)
			}
			for _, bad := range []string{"", "[]"} {
				if status, _ := post(t, url+chat, "", bad); status != http.StatusBadGateway {
					t.Errorf("%q: %d", bad, status)
				}
			}
		})
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
		if status, _ := post(t, front(t, start(t, h), relaySettings{contract: true})+chat, "", "{}"); status != http.StatusBadGateway {
			t.Errorf("%s: %d", name, status)
		}
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

// running runs a command until the test ends, which it must do well, and returns
// its URL.
func running(t *testing.T, args ...string) (url string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, args, in, io.Discard)
		in.CloseWithError(io.ErrClosedPipe) // it may not have come to listen
		ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(url)
}

// TestItEndsWhenItIsTold, with a stream under way.
func TestItEndsWhenItIsTold(t *testing.T) {
	var answer *http.Response
	if !t.Run("a stream", func(t *testing.T) {
		r, err := http.NewRequest(http.MethodPost, running(t, "backend", "-interval", time.Hour.String())+chat, strings.NewReader(`{"stream":true}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(profileHeader, "decode")
		r.Close = true
		if answer, err = http.DefaultClient.Do(r); err != nil {
			t.Fatal(err)
		}
	}) {
		return
	}
	defer answer.Body.Close()
	if _, err := io.ReadAll(answer.Body); err == nil {
		t.Error("the stream ends well")
	}
}

// TestActorsMakeTheLegs of a relay that was told so: whoever serves the request does
// not.
func TestActorsMakeTheLegs(t *testing.T) {
	for _, s := range []relaySettings{{}, {actors: true}} {
		var makers []string
		up := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "{}") }))
		relay := newRelay(up, s)
		defer relay.close()
		relay.transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			_, crewed := ctx.Value(exchangeKey{}).(*exchange)
			makers = append(makers, fmt.Sprint(crewed))
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
		if status, _ := post(t, start(t, relay)+chat, "", "{}"); status != 200 || makers[0] != fmt.Sprint(s.actors) {
			t.Errorf("actors %t: status %d, by actors: %s", s.actors, status, makers)
		}
	}
}

func TestWrongUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"x"}, {"relay", "-x"}, {"backend", "-addr", "nowhere:x"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
