package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// TestNamesOfModelsAreBounded: clients choose them.
func TestNamesOfModelsAreBounded(t *testing.T) {
	var m modelNames
	for i := range 10_000 {
		if got := m.label(fmt.Sprint("garbage-", i), 404); got != "other" {
			t.Fatalf("a name that was refused is %q", got)
		}
	}
	if got := m.label("", 200); got != "unknown" {
		t.Errorf("no name is %q", got)
	}
	for i := range maxModelNames {
		name := fmt.Sprint("model-", i)
		if got := m.label(name, 200); got != name {
			t.Fatalf("%q is %q", name, got)
		}
	}
	if got := m.label("one-more", 200); got != "other" {
		t.Errorf("one more is %q", got)
	}
	if got := m.label("model-3", 500); got != "model-3" {
		t.Errorf("one that is known is %q", got)
	}
}

func TestNamesOfModelsConcurrently(t *testing.T) {
	var m modelNames
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for i := range 2 * maxModelNames {
				m.label(fmt.Sprint(i), 200)
			}
		})
	}
	running.Wait()
	if len(m.known) != maxModelNames {
		t.Errorf("%d names", len(m.known))
	}
}

// TestNamesThatNoLabelCanBe crashed the handler when a worker answered to them.
func TestNamesThatNoLabelCanBe(t *testing.T) {
	r := start(t, ok)
	for _, name := range []string{`\ud800`, strings.Repeat("x", 100_000)} {
		if got := r.post(`{"prompt":"x","model":"` + name + `"}`); got.status != 200 || got.err != nil {
			t.Errorf("%d, %v", got.status, got.err)
		}
		if rec := <-r.records; rec.Model != "other" {
			t.Errorf("model is %.100q", rec.Model)
		}
	}
	if n := r.metric(`request_total{model_name="other"}`); n != 2 {
		t.Errorf("%v counted", n)
	}
	if n := len(r.log.String()); n > 10_000 {
		t.Errorf("%d bytes were logged", n)
	}
}

func TestFigures(t *testing.T) {
	r := start(t, engine(func(ctx context.Context, req *phases.Request) error {
		switch req.Model {
		case "full":
			return wire.Faultf(wire.QueueFull, "full")
		case "missing":
			go func() { req.Out.Finish(say(ctx, req.Out, head(404), "no such model")) }()
		default:
			go func() { req.Out.Finish(say(ctx, req.Out, events, "data: 1\n\n")) }()
		}
		return nil
	}))
	for _, body := range []string{
		`{"prompt":"x","model":"good","stream":true}`, `{"prompt":"x","model":"good"}`, `{"prompt":"x","model":"full"}`,
		`{"prompt":"x","model":"missing"}`, `{"prompt":"x"}`, `no`,
	} {
		r.post(body)
		<-r.records
	}
	for series, want := range map[string]float64{
		`request_total{model_name="good"}`:                                       2,
		`request_total{model_name="other"}`:                                      2,
		`request_total{model_name="unknown"}`:                                    2,
		`request_error_total{error_code="queue_full",model_name="other"}`:        1,
		`request_error_total{error_code="invalid_json",model_name="unknown"}`:    1,
		`request_error_total{error_code="upstream_rejected",model_name="other"}`: 0,
		`request_duration_seconds{model_name="good"}`:                            2,
		`time_to_first_token_seconds`:                                            1,
		`request_running`:                                                        0,
	} {
		if got := r.metric(series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
}

func TestRecordOfARequest(t *testing.T) {
	began := time.Now()
	r := start(t, engine(func(ctx context.Context, req *phases.Request) error {
		go func() {
			err := say(ctx, req.Out, events, "data: 1\n\n")
			req.Journal.BeginStep("prefill", began)
			req.Journal.Waited("prefill", began, began.Add(time.Second/4))
			call := req.Journal.Begin("prefill", req.ID, began.Add(time.Second/4))
			call.End(began.Add(time.Second))
			req.Journal.EndStep(1, "", began.Add(time.Second))
			req.Journal.SetTokensOut(7)
			req.Reruns = 1
			req.Out.Finish(err)
		}()
		return nil
	}))
	r.post(`{"model":"m","stream":true,"prompt":"x"}`, "X-Request-Id", "the-id")
	rec := <-r.records
	if rec.ID != "the-id" || rec.Protocol != "completions" || rec.Model != "m" || !rec.Stream || rec.Status != 200 || rec.Bytes != 9 ||
		rec.Code != "" || rec.Cause != nil || len(rec.Steps) != 1 || rec.Reruns != 1 {
		t.Errorf("%+v", rec)
	}
	text := r.log.String()
	for _, want := range []string{"level=INFO", "request_id=the-id", "model=m", "status=200", "bytes=9", "prefill.queued=250ms", "prefill.ran=750ms", "prefill.attempts=1", "tokens_out=7", "client_gone=false", "internal_id=" + rec.Serial, "bytes_in=", "reruns=1"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in the log: %s", want, text)
		}
	}
}

// TestNothingOfABodyIsLogged at any level, whatever happens to a request.
func TestNothingOfABodyIsLogged(t *testing.T) {
	bodies := []string{
		`{"prompt":"` + secret + `"}`, secret, `{"` + secret + `":`, `{"prompt":["` + secret + `"]}`,
		`{"prompt":"x","user":"` + secret + `","tools":[{"` + secret + `":1}]}`,
	}
	for _, e := range []engine{
		plays(func(ctx context.Context, out *phases.Response) error { return say(ctx, out, events, secret) }),
		plays(func(ctx context.Context, out *phases.Response) error {
			say(ctx, out, events, secret)
			return wire.Faultf(wire.UpstreamFailed, "broke")
		}),
		func(context.Context, *phases.Request) error { return wire.Faultf(wire.QueueFull, "full") },
		func(context.Context, *phases.Request) error { return errors.New("a bug") },
	} {
		r := start(t, e)
		for _, body := range bodies {
			r.post(body)
			<-r.records
		}
		if text := r.log.String(); strings.Contains(text, secret) || !strings.Contains(text, "msg=request") {
			t.Errorf("the log: %s", text)
		}
	}
}
