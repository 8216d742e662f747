package server

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-coordinator/coordinator/phases"
)

// TestApply: who comes after it is served by the new settings, who came before by
// the old ones to the end.
func TestApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		came, asked := make(chan struct{}), make(chan *phases.Request, 9)
		r := start(t, keeps(asked), func(s *Settings) { s.TenantHeader, s.RequestTimeout = "x-old", time.Minute })
		post := func(path string, body io.Reader) *http.Response {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://coordinator.test"+path, body)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Old", "old")
			req.Header.Set("X-New", "new")
			resp, err := r.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			return resp
		}
		const large = `{"model":"m","messages":[{"role":"user","content":"twenty bytes and more"}]}`
		pieces, rest := io.Pipe()
		done := make(chan int)
		go func() { done <- post(chatPath, pieces).StatusCode }()
		go func() {
			rest.Write([]byte(large[:20]))
			close(came)
		}()
		<-came
		synctest.Wait() // its handler reads the body

		passed := engine(func(ctx context.Context, req *phases.Request) error {
			go func() { req.Out.Finish(say(ctx, req.Out, head(204))) }()
			return nil
		})
		s := r.Settings()
		s.TenantHeader, s.RequestTimeout, s.MaxBody, s.Passthrough, s.PassthroughEngine = "x-new", time.Second, 20, []string{"/new"}, passed
		r.Apply(s)
		if got := post(chatPath, strings.NewReader(large)).StatusCode; got != http.StatusRequestEntityTooLarge {
			t.Errorf("a large body after it: %d", got)
		}
		if got := post("/new", strings.NewReader("{}")).StatusCode; got != 204 {
			t.Errorf("a route that is new: %d", got)
		}
		io.WriteString(rest, large[20:])
		rest.Close()
		if got := <-done; got != 200 {
			t.Errorf("a large body that came before it: %d", got)
		}
		if req := <-asked; req.Tenant != "old" || req.Deadline.Sub(req.Received) != time.Minute {
			t.Errorf("it is for %q, until %v", req.Tenant, req.Deadline.Sub(req.Received))
		}
		s.MaxBody = 1000
		r.Apply(s)
		post(chatPath, strings.NewReader(large))
		if req := <-asked; req.Tenant != "new" || req.Deadline.Sub(req.Received) != time.Second {
			t.Errorf("one after it is for %q, until %v", req.Tenant, req.Deadline.Sub(req.Received))
		}
	})
}
