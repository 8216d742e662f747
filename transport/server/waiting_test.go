package server

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// mayWait is for requests with the header X-Wait.
func mayWait(s *Settings) { s.Waits = func(h http.Header) bool { return h.Get("X-Wait") != "" } }

// TestARequestThatMayWaitHasTermsOfItsOwn: neither its time-out nor the client's is
// the server's to judge. Others are served as ever.
func TestARequestThatMayWaitHasTermsOfItsOwn(t *testing.T) {
	var got *phases.Request
	r := start(t, engine(func(ctx context.Context, req *phases.Request) error {
		got = req
		return ok(ctx, req)
	}), mayWait, func(s *Settings) { s.RequestTimeout = time.Hour })
	for name, test := range map[string]struct {
		header   []string
		status   int
		deadline bool
		named    bool
	}{
		"it waits":           {[]string{"X-Wait", "1", headerTimeout, "no number", "X-Request-Id", "mine-1"}, 200, false, true},
		"it does not":        {[]string{"X-Request-Id", "not mine!"}, 200, true, false},
		"and makes no sense": {[]string{headerTimeout, "no number"}, 400, false, false},
	} {
		got = nil
		a := r.post(hello, test.header...)
		if a.status != test.status {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
		if got != nil && (got.Deadline.IsZero() == test.deadline || got.NamedByClient != test.named) {
			t.Errorf("%s: deadline %v, named %v", name, got.Deadline, got.NamedByClient)
		}
	}
}

// TestAnswersAreReportedWhenTheyAreWritten, errors as well: that they are is a good
// end. Once the client has gone they are not.
func TestAnswersAreReportedWhenTheyAreWritten(t *testing.T) {
	for name, it := range map[string]phases.Item{
		"an answer": {Head: head(202)},
		"an error":  {Fault: wire.Faultf(wire.QueuedCalledOff, "called off")},
	} {
		wrote := make(chan struct{})
		r := start(t, plays(func(ctx context.Context, out *phases.Response) error {
			it.Wrote = func() { close(wrote) }
			if err := out.Send(ctx, it); err != nil {
				return err
			}
			<-wrote
			return nil
		}), mayWait)
		a := r.post(hello, "X-Wait", "1")
		want := 202
		if it.Fault != nil {
			want = 499
			if !strings.Contains(a.body, `"type":"cancelled","param":null,"code":"CANCELLED"`) {
				t.Errorf("%s: %s", name, a.body)
			}
		}
		if rec := <-r.records; a.err != nil || a.status != want || rec.Status != want || rec.Gone {
			t.Errorf("%s: %d %v, recorded %d", name, a.status, a.err, rec.Status)
		}
	}
}

// TestAPanicOfAStartElsewhereIsTheRequestsOwn: the process and others go on.
func TestAPanicOfAStartElsewhereIsTheRequestsOwn(t *testing.T) {
	r := start(t, engine(func(context.Context, *phases.Request) error { panic(secret) }), mayWait)
	a := r.post(hello, "X-Wait", "1")
	if a.status != 500 || !strings.Contains(a.body, `"code":"internal"`) || strings.Contains(r.log.String(), secret) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if again := r.post(hello, "X-Wait", "1"); again.status != 500 {
		t.Errorf("the server is gone: %v", again.err)
	}
}

// TestQueuedRoutes are there only if there is somebody to serve them.
func TestQueuedRoutes(t *testing.T) {
	if a := start(t, never(t)).send(http.MethodGet, "/v1/requests/a-1", ""); a.status != 404 {
		t.Errorf("without: %d", a.status)
	}
	var got phases.Queued
	r := start(t, never(t), mayWait, func(s *Settings) {
		s.QueuedEngine = engine(func(ctx context.Context, req *phases.Request) error {
			got = *req.Queued
			return ok(ctx, req)
		})
	})
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		a := r.send(method, "/v1/requests/a-1", "")
		if a.status != 200 || got != (phases.Queued{Method: method, ID: "a-1"}) || a.header.Get("X-Request-Id") == "" {
			t.Errorf("%s: %d, %+v", method, a.status, got)
		}
	}
	if a := r.send(http.MethodPost, "/v1/requests/a-1", "{}"); a.status != 405 {
		t.Errorf("POST: %d", a.status)
	}
}
