package load

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a server on loopback.
func serve(t *testing.T, h http.HandlerFunc) Target {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return Target{URL: s.URL}
}

// whole answers a request that it has read.
func whole(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	io.WriteString(w, "{}")
}

// stream answers with n events and the last.
func stream(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for range n {
			fmt.Fprintf(w, "data: {\"choices\":[]}\n\n")
			w.(http.Flusher).Flush()
		}
		io.WriteString(w, "data: [DONE]\n\n")
	}
}

// options are those of a closed loop that ends by its count.
func options(target Target, count int64) Options {
	return Options{Target: target, Clients: 4, Count: count, Duration: time.Minute, Grace: time.Minute}
}

func mustRun(t *testing.T, o Options) *Report {
	t.Helper()
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// roundTripper is a server that is a function; it reads and closes bodies as a
// transport must.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	io.Copy(io.Discard, r.Body)
	r.Body.Close()
	return f(r)
}
