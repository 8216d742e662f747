package e2e_test

import (
	"context"
	"io"
	"net"
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

// clientDialer gives clients an address that is none of the coordinators'.
var clientDialer = &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}

func newClient(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Client {
	return &http.Client{
		Transport:     &http.Transport{DialContext: dial, DisableCompression: true, MaxIdleConnsPerHost: 100},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// singleUse makes a client whose connections serve one request each: one on which
// the answer was there before the request had ended is closed, and whoever takes it
// for the next request finds that out.
func singleUse() *http.Client {
	c := newClient(clientDialer.DialContext)
	c.Transport.(*http.Transport).DisableKeepAlives = true
	return c
}

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
	return read(f.open(f.ctx, path, body, header...))
}

// open sends a request by the gateway; the answer's body is the caller's to read
// and close.
func (f *fleet) open(ctx context.Context, path, body string, header ...string) (*http.Response, error) {
	return send(ctx, f.client, http.MethodPost, f.url+path, body, header...)
}

func send(ctx context.Context, client *http.Client, method, url, body string, header ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header[header[i]] = append(req.Header[header[i]], header[i+1]) // spelt as given
	}
	return client.Do(req)
}

// read reads what send has returned.
func read(resp *http.Response, err error) answer {
	if err != nil {
		return answer{err: err}
	}
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
	return read(w.Result(), nil)
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
