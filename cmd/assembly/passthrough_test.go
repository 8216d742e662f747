package assembly_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// echo is a gateway that says what it was sent. The simulated cluster serves
// none of these routes but /v1/models.
type echo struct {
	*httptest.Server
	mu   sync.Mutex
	seen []string
}

func newEcho(t *testing.T) *echo {
	e := &echo{}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		e.mu.Lock()
		e.seen = append(e.seen, r.Method+" "+r.RequestURI)
		e.mu.Unlock()
		w.Header().Set("X-Worker", "w")
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, "%s %s|%s|%s|%s|%s", r.Method, r.RequestURI, r.Header.Get("Content-Type"), r.Header.Get("EPP-Profile"), r.Header.Get("X-Coordinator-Hop"), body)
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *echo) requests() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.seen)
}

func passRig(t *testing.T, toml string) (*rig, *echo) {
	e := newEcho(t)
	return newRig(t, setup{steps: decodeStep, toml: toml, gateway: e.URL}), e
}

func (r *rig) do(method, path, contentType, body string) response {
	r.t.Helper()
	req, err := http.NewRequestWithContext(within(r.t), method, r.base+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return response{resp.StatusCode, resp.Header, string(text), err}
}

func TestPassedThroughWithMethodPathQueryTypeAndBytes(t *testing.T) {
	r, _ := passRig(t, "")
	const json = "application/json; charset=utf-8"
	tests := []struct{ method, path, contentType, body, want string }{
		{"GET", "/v1/models", "", "", "GET /v1/models||decode|1|"},
		{"GET", "/v1/models/meta-llama%2FLlama-3?a=b%20c&&d", "", "", "GET /v1/models/meta-llama%2FLlama-3?a=b%20c&&d||decode|1|"},
		{"DELETE", "/v1/models/a/b", "", "", "DELETE /v1/models/a/b||decode|1|"},
		{"POST", "/v1/embeddings", json, `{ "input":"x", "n":1.0 }`, "POST /v1/embeddings|" + json + `|decode|1|{"input":"x", "n":1.0}`},
		{"POST", "/detokenize", json, `{"tokens":[1,2],"kv_transfer_params":{"remote_host":"evil"},"model":"m"}`, "POST /detokenize|" + json + `|decode|1|{"tokens":[1,2],"model":"m"}`},
		{"POST", "/v1/responses", json, `{"input":"x","vllm_xargs":{"kv_transfer_params":1,"z":2},"bootstrap_host":"e","data_parallel_rank":1}`, "POST /v1/responses|" + json + `|decode|1|{"input":"x","vllm_xargs":{"z":2}}`},
		{"POST", "/v1/messages", "multipart/form-data; boundary=x", "--x--\r\n\x00\xff", "POST /v1/messages|multipart/form-data; boundary=x|decode|1|--x--\r\n\x00\xff"},
		{"POST", "/tokenize", json, "", "POST /tokenize|" + json + "|decode|1|"},
	}
	for _, tt := range tests {
		got := r.do(tt.method, tt.path, tt.contentType, tt.body)
		if got.status != 200 || got.body != tt.want || got.header.Get("X-Worker") != "w" || got.header.Get("X-Request-Id") == "" {
			t.Errorf("%s %s: %d %v\n%s\nwant\n%s", tt.method, tt.path, got.status, got.header, got.body, tt.want)
		}
	}
	if got := r.do("HEAD", "/version", "", ""); got.status != 200 || got.body != "" {
		t.Errorf("HEAD: %d %q", got.status, got.body)
	}
	for range len(tests) + 1 { // a client can have its answer before its request has ended
		<-r.finished
	}
	if s := r.Engine.Status(); s.Inflight != 0 {
		t.Errorf("%+v", s)
	}
}

// TestOtherRoutesReachNobody: workers have routes that clients must not reach,
// in whatever spelling.
func TestOtherRoutesReachNobody(t *testing.T) {
	r, e := passRig(t, "")
	paths := []string{
		"/v1/load_lora_adapter", "/sleep", "/v1", "/", "/metrics", "/inference/v1/abort_requests", "/v1/embeddings/x", "/v1/models/",
		"/v1/models/../load_lora_adapter", "/v1/models/..%2fload_lora_adapter", "/v1/models/%2e%2e/load_lora_adapter",
		"/v1/models/%2e%2e%2fload_lora_adapter", "/v1/models/..%5cload_lora_adapter", "/v1/models/%252e%252e%252fsleep",
		"/v1/models//sleep", "//v1/models", "/v1//models", "/v1/models/./x", "/v1/models/x/..", "/V1/models", "/v1/models/%00", "/v1/models;/x",
	}
	for _, path := range paths {
		for _, method := range []string{"GET", "POST"} {
			// Sent by hand: net/http's client would tidy some of these.
			answer := r.raw(t, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}", method, path))
			if !strings.HasPrefix(answer, "HTTP/1.1 404 ") && !strings.HasPrefix(answer, "HTTP/1.1 400 ") {
				t.Errorf("%s %s: %.100q", method, path, answer)
			}
		}
	}
	for _, request := range []string{"OPTIONS /v1/models", "CONNECT /v1/models", "TRACE /v1/models", "FOO /v1/models"} {
		if answer := r.raw(t, request+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); strings.HasPrefix(answer, "HTTP/1.1 2") {
			t.Errorf("%s: %.100q", request, answer)
		}
	}
	if seen := e.requests(); len(seen) != 0 {
		t.Errorf("reached the gateway: %v", seen)
	}
}

// raw sends bytes and returns all that comes back.
func (r *rig) raw(t *testing.T, request string) string {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(r.base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	var answer bytes.Buffer
	io.Copy(&answer, c)
	return answer.String()
}

// TestBodiesThatAreReadInTwoWaysAreRefused: what we cannot take the steering
// fields out of does not go on.
func TestBodiesThatAreReadInTwoWaysAreRefused(t *testing.T) {
	r, e := passRig(t, "")
	for name, body := range map[string]string{
		"UTF-16": "{\x00}\x00", "BOM": "\xef\xbb\xbf{}", "array": "[]", "text": "hello", "invalid UTF-8": "{\"a\":\"\xff\"}", "two": "{}{}",
	} {
		for _, contentType := range []string{"application/json", "", "text/plain", "application/vnd.x+json"} {
			if got := r.do("POST", "/v1/embeddings", contentType, body); got.status != 400 {
				t.Errorf("%s as %q: %d %s", name, contentType, got.status, got.body)
			}
		}
	}
	if got := r.do("POST", "/v1/embeddings", "application/json", strings.Repeat(" ", 65<<20)); got.status != 413 {
		t.Errorf("too large: %d", got.status)
	}
	if seen := e.requests(); len(seen) != 0 {
		t.Errorf("reached the gateway: %v", seen)
	}
}

// TestPassthroughHasAPoolOfItsOwn: it neither waits for decode's places nor
// counts among the requests in flight.
func TestPassthroughHasAPoolOfItsOwn(t *testing.T) {
	r := newRig(t, setup{toml: "[actors.pools]\ndecode = { size = 1, queue = 0 }\npassthrough = { size = 1, queue = 0 }\n"})
	gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtHeaders})
	first := make(chan response)
	go func() { first <- r.post(chatPath, chatBody("hi", false)) }()
	if err := gate.WaitFor(within(t), 1); err != nil {
		t.Fatal(err)
	}
	if got := r.do("GET", "/v1/models", "", ""); got.status != 200 || !strings.Contains(got.body, "demo-model") {
		t.Errorf("%d %s", got.status, got.body)
	}
	gate.Release()
	if got := <-first; got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestConfiguredRoutes replace the default ones.
func TestConfiguredRoutes(t *testing.T) {
	r, e := passRig(t, "[server]\npassthrough_routes = [\"/v1/*\"]\n")
	for path, want := range map[string]int{"/v1/audio/transcriptions": 200, "/v1/models": 200, "/tokenize": 404, "/v1": 404, chatPath: 405} {
		if got := r.do("GET", path, "", ""); got.status != want {
			t.Errorf("%s: %d", path, got.status)
		}
	}
	if seen := e.requests(); len(seen) != 2 {
		t.Errorf("reached the gateway: %v", seen)
	}
}
