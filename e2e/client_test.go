package e2e_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// The routes of the pipeline.
const (
	chatPath        = "/v1/chat/completions"
	completionsPath = "/v1/completions"
	generatePath    = "/inference/v1/generate"
)

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   string
	err    error // of the request, or of reading the body
}

// post sends a request by the gateway and reads its answer. header holds names
// and values.
func (f *fleet) post(path, body string, header ...string) answer {
	f.t.Helper()
	resp, err := f.open(f.ctx, path, body, header...)
	if err != nil {
		return answer{err: err}
	}
	return read(resp)
}

// open sends a request by the gateway; the answer's body is the caller's to read
// and close.
func (f *fleet) open(ctx context.Context, path, body string, header ...string) (*http.Response, error) {
	return send(ctx, f.client, f.url+path, body, header...)
}

func send(ctx context.Context, client *http.Client, url, body string, header ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header[header[i]] = append(req.Header[header[i]], header[i+1]) // spelt as given
	}
	return client.Do(req)
}

func read(resp *http.Response) answer {
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(text), err}
}

// direct asks a decode worker without gateway and coordinator: what it answers is
// what a client must get, byte for byte. It is a worker of another cluster, for
// this one's would see what is not a leg.
func (f *fleet) direct(path, body, id string) answer {
	f.t.Helper()
	other := cluster.New(f.plan.cluster)
	defer other.Close()
	req := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	for name, value := range map[string]string{"Content-Type": "application/json", "EPP-Profile": cluster.Decode, "X-Request-Id": id} {
		req.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	other.Handler().ServeHTTP(w, req)
	return read(w.Result())
}

func get(ctx context.Context, client *http.Client, url string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}
