package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

var broken = wire.Faultf(wire.UpstreamFailed, "decode broke off").Because(errors.New(secret))

func TestChunksArriveOneByOne(t *testing.T) {
	gate := make(chan struct{})
	r := start(t, plays(func(ctx context.Context, out *phases.Response) error {
		if err := say(ctx, out, events); err != nil {
			return err
		}
		for _, text := range []string{"data: 1\n\n", "data: 2\n\n", "data: 3\n\n"} {
			<-gate
			if err := say(ctx, out, nil, text); err != nil {
				return err
			}
		}
		<-gate
		return nil
	}))
	resp := r.open(t.Context()) // the head alone is flushed too
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for _, want := range []string{"data: 1\n", "data: 2\n", "data: 3\n"} {
		gate <- struct{}{}
		got, err := in.ReadString('\n')
		in.ReadString('\n')
		if got != want || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
	}
	gate <- struct{}{}
	if rest, err := io.ReadAll(in); len(rest) != 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	if rec := <-r.records; rec.Status != 200 || rec.Bytes != 27 || rec.Code != "" || rec.FirstByte <= 0 || rec.Total < rec.FirstByte {
		t.Errorf("%+v", rec)
	}
}

// flushes counts them.
type flushes struct {
	*httptest.ResponseRecorder
	n int
}

func (f *flushes) Flush() { f.n++ }

// TestWhatIsThereIsFlushedOnce per wake-up, and nothing twice.
func TestWhatIsThereIsFlushedOnce(t *testing.T) {
	s := New(Settings{MaxBody: 1000}, engine(func(ctx context.Context, r *phases.Request) error {
		err := say(ctx, r.Out, events, "a", "b", "c")
		r.Out.Finish(nil) // before anything is read
		return err
	}), nil, nil)
	w := &flushes{ResponseRecorder: httptest.NewRecorder()}
	s.Handler().ServeHTTP(w, httptest.NewRequest("POST", completionsPath, strings.NewReader(hello)))
	if w.Body.String() != "abc" || w.n != 1 {
		t.Errorf("%q in %d flushes", w.Body, w.n)
	}
}

func TestHeadersOfAnAnswer(t *testing.T) {
	r := start(t, plays(func(ctx context.Context, out *phases.Response) error {
		upstream := http.Header{"X-Request-Id": {"theirs"}, "X-Several": {"1", "2"}, "Connection": {"X-Hop"}, "X-Hop": {"1"},
			"X-Data-Parallel-Rank": {"3"}, "Content-Length": {"4"}}
		return say(ctx, out, &phases.Head{Status: 418, Header: wire.ResponseHeaders(upstream)}, "<a/>")
	}))
	got := r.post(hello, "X-Request-Id", "ours")
	if got.status != 418 || got.body != "<a/>" || got.err != nil {
		t.Errorf("%+v", got)
	}
	got.header.Del("Date")
	want := http.Header{"X-Request-Id": {"ours"}, "X-Several": {"1", "2"}, "Content-Length": {"4"}}
	if len(got.header) != len(want) || got.header.Get("X-Request-Id") != "ours" || len(got.header["X-Several"]) != 2 {
		t.Errorf("headers %v, want %v: no guess of a type among them", got.header, want)
	}
}

// TestAnswersWithoutABody pass, with the length that they do not have.
func TestAnswersWithoutABody(t *testing.T) {
	for _, status := range []int{200, 204, 304, 412} {
		r := start(t, plays(func(ctx context.Context, out *phases.Response) error { return say(ctx, out, head(status)) }))
		if got := r.post(hello); got.status != status || got.body != "" || got.err != nil {
			t.Errorf("%+v", got)
		}
		if rec := <-r.records; rec.Status != status || rec.Bytes != 0 || rec.FirstByte != 0 || rec.Code != "" {
			t.Errorf("%+v", rec)
		}
	}
}

// TestFailureAfterTheHead never looks like a good end.
func TestFailureAfterTheHead(t *testing.T) {
	const event = `data: {"error":`
	tests := []struct {
		name   string
		head   *phases.Head
		chunks []string
		fault  error
		added  string // up to the event's object, or nothing
	}{
		{"between events", events, []string{"data: 1\n\n"}, broken, event},
		{"before the first event", events, nil, broken, event},
		{"inside an event", events, []string{"data: 1\n"}, broken, "\n" + event},
		{"inside a line", events, []string{"data: 1\n\n", "da"}, broken, "\n\n" + event},
		{"between events with CRLF", events, []string{"data: 1\r\n\r", "\n"}, broken, event},
		{"a bug", events, []string{"data: 1\n\n"}, errors.New(secret), event},
		{"a client that left", events, []string{"data: 1\n\n"}, wire.Faultf(wire.Canceled, "left"), ""},
		{"encoded", head(200, "Content-Type", "text/event-stream", "Content-Encoding", "gzip"), []string{"data: 1\n\n"}, broken, ""},
		{"not a stream of events", head(200), []string{`{"choices":`}, broken, ""},
		{"with a length", head(200, "Content-Type", "text/event-stream", "Content-Length", "20"), []string{"data: 1\n\n"}, broken, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := start(t, plays(func(ctx context.Context, out *phases.Response) error {
				if err := say(ctx, out, tt.head, tt.chunks...); err != nil {
					return err
				}
				return tt.fault
			}))
			got := r.post(hello, "X-Request-Id", "the-id")
			if got.status != 200 || !errors.Is(got.err, io.ErrUnexpectedEOF) {
				t.Errorf("%+v", got)
			}
			sent := strings.Join(tt.chunks, "")
			rest, found := strings.CutPrefix(got.body, sent)
			if !found || tt.added == "" && rest != "" {
				t.Fatalf("got %q", got.body)
			}
			rec := <-r.records
			if fault := wire.FaultOf(tt.fault); rec.Status != 200 || rec.Code != fault.ErrorCode() || rec.Bytes != int64(len(got.body)) {
				t.Errorf("%+v, got %d bytes", rec, len(got.body))
			}
			if tt.added == "" {
				return
			}
			if !strings.HasPrefix(rest, tt.added) || strings.Count(rest, "data: ") != 1 || !strings.HasSuffix(rest, "\n\n") {
				t.Fatalf("after %q came %q", sent, rest)
			}
			fault := wire.FaultOf(tt.fault)
			wantErrorObject(t, strings.TrimSpace(rest)[len("data: "):], "the-id", statusOf(fault).kind, fault.ErrorCode())
		})
	}
}

// TestFailureAfterAllOfAnAnswer leaves the connection as it is: the client has what its
// head promised, and may be sending its next request on it.
func TestFailureAfterAllOfAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failing := true
		r := start(t, plays(func(ctx context.Context, out *phases.Response) error {
			if err := say(ctx, out, head(200, "Content-Length", "2"), "hi"); err != nil || !failing {
				return err
			}
			failing = false
			return broken
		}))
		c, in := r.dial()
		for _, code := range []string{wire.FaultOf(broken).ErrorCode(), ""} {
			go c.Write([]byte(request("POST", completionsPath, len(hello), hello)))
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := read(resp); got.status != 200 || got.body != "hi" || got.err != nil {
				t.Errorf("%+v", got)
			}
			if rec := <-r.records; rec.Code != code {
				t.Errorf("%+v, want code %q", rec, code)
			}
		}
	})
}

// TestFailureAfterTheLastEvent adds none, and is a clean end: a prefill that fails
// beside a decode which has said all.
func TestFailureAfterTheLastEvent(t *testing.T) {
	for _, chunks := range [][]string{{"data: 1\n\ndata: [DONE]\n\n"}, {"data: 1\n\n", "data: [DONE]\n\n"}} {
		r := start(t, plays(func(ctx context.Context, out *phases.Response) error {
			if err := say(ctx, out, events, chunks...); err != nil {
				return err
			}
			return broken
		}))
		if got := r.post(hello); got.status != 200 || got.err != nil || got.body != "data: 1\n\ndata: [DONE]\n\n" {
			t.Errorf("%+v", got)
		}
		if rec := <-r.records; rec.Code != wire.FaultOf(broken).ErrorCode() {
			t.Errorf("%+v", rec)
		}
	}
}

// TestEveryKindOfFault holds the contract's table of what a client sees.
func TestEveryKindOfFault(t *testing.T) {
	rejected := func(status int) *wire.Fault {
		f := wire.Faultf(wire.UpstreamRejected, "no")
		f.Status = status
		return f
	}
	tests := []struct {
		err        error
		status     int
		kind, code string
	}{
		{wire.Faultf(wire.BadRequest, "no"), 400, "invalid_request_error", "bad_request"},
		{wire.Invalid("invalid_prompt", "no"), 400, "invalid_request_error", "invalid_prompt"},
		{wire.Faultf(wire.LimitExceeded, "no"), 400, "invalid_request_error", "limit_exceeded"},
		{wire.Faultf(wire.NotFound, "no"), 404, "invalid_request_error", "not_found"},
		{wire.Faultf(wire.MethodNotAllowed, "no"), 405, "invalid_request_error", "method_not_allowed"},
		{wire.Faultf(wire.UnsupportedEncoding, "no"), 415, "invalid_request_error", "unsupported_encoding"},
		{wire.Faultf(wire.TooLarge, "no"), 413, "invalid_request_error", "request_too_large"},
		{wire.Faultf(wire.BodyTimeout, "no"), 408, "invalid_request_error", "request_timeout"},
		{wire.Faultf(wire.RoutingLoop, "no"), 508, "invalid_request_error", "routing_loop"},
		{rejected(400), 400, "invalid_request_error", "upstream_rejected"},
		{rejected(404), 404, "invalid_request_error", "upstream_rejected"},
		{rejected(429), 429, "rate_limit_error", "upstream_rejected"},
		{wire.Faultf(wire.UpstreamFailed, "no"), 502, "upstream_error", "upstream_failed"},
		{wire.Faultf(wire.UpstreamTimeout, "no"), 504, "upstream_error", "upstream_timeout"},
		{wire.Faultf(wire.Unavailable, "no"), 503, "overloaded_error", "upstream_unavailable"},
		{wire.Faultf(wire.QueueFull, "no"), 429, "overloaded_error", "queue_full"},
		{wire.Faultf(wire.ShuttingDown, "no"), 503, "overloaded_error", "shutting_down"},
		{wire.Faultf(wire.Internal, "no"), 500, "internal_error", "internal"},
		{errors.New(secret), 500, "internal_error", "internal"},
		{nil, 500, "internal_error", "internal"}, // an end without an answer
	}
	seen := make(map[wire.Kind]bool)
	for _, tt := range tests {
		fault := wire.Faultf(wire.Internal, "no")
		if tt.err != nil {
			fault = wire.FaultOf(tt.err)
		}
		seen[fault.Kind] = true
		for _, passed := range []bool{false, true} {
			if passed {
				fault.RetryAfter, fault.DropReason = "7", "saturated"
			}
			for how, e := range map[string]engine{
				"refused": func(context.Context, *phases.Request) error { return tt.err },
				"failed":  plays(func(context.Context, *phases.Response) error { return tt.err }),
			} {
				if how == "refused" && tt.err == nil {
					continue
				}
				t.Run(tt.code+"/"+how, func(t *testing.T) {
					r := start(t, e)
					got := r.post(hello)
					wantError(t, got, tt.status, tt.kind, tt.code)
					retry, reason := got.header.Get("Retry-After"), got.header.Get("X-Llm-D-Request-Dropped-Reason")
					if f := (*wire.Fault)(nil); errors.As(tt.err, &f) && (retry != f.RetryAfter || reason != f.DropReason) {
						t.Errorf("Retry-After %q, reason %q", retry, reason)
					}
					if rec := <-r.records; rec.Status != tt.status || rec.Code != tt.code {
						t.Errorf("%+v", rec)
					}
				})
			}
		}
	}
	for kind := wire.Internal; kind < wire.Canceled; kind++ {
		if !seen[kind] {
			t.Errorf("%v is not in the table", kind)
		}
	}
}

// TestCanceledRequestIsNotAnswered: nobody is there.
func TestCanceledRequestIsNotAnswered(t *testing.T) {
	r := start(t, plays(func(context.Context, *phases.Response) error { return wire.Faultf(wire.Canceled, "left") }))
	if got := r.post(hello); got.err == nil {
		t.Errorf("%+v", got)
	}
	if rec := <-r.records; rec.Status != 499 || rec.Code != "client_closed_request" {
		t.Errorf("%+v", rec)
	}
}

// TestPanicOfTheHandler is a bug of ours; its request fails like any other, and is
// on record as ended.
func TestPanicOfTheHandler(t *testing.T) {
	for name, e := range map[string]engine{
		"when it starts": func(context.Context, *phases.Request) error { panic(secret) },
		"in the answer":  plays(func(ctx context.Context, out *phases.Response) error { return say(ctx, out, head(42)) }), // no status that net/http writes
		"while it is told": plays(func(ctx context.Context, out *phases.Response) error {
			say(ctx, out, head(42))
			<-ctx.Done()
			return ctx.Err()
		}),
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, e)
			var ended []string
			r.Began = func(b *Running) func(Record) { return func(rec Record) { ended = append(ended, b.Serial+rec.Code) } }
			got := r.post(hello)
			rec := <-r.records
			if got.status != http.StatusInternalServerError || !strings.Contains(got.body, `"code":"internal"`) {
				t.Errorf("got %d %s", got.status, got.body)
			}
			if rec.Status != 500 || rec.Code != "internal" || len(ended) != 1 || ended[0] != rec.Serial+"internal" {
				t.Errorf("record %d %q, ended %q", rec.Status, rec.Code, ended)
			}
			if logs := r.log.String(); strings.Contains(logs, secret) || !strings.Contains(logs, "the handler of a request panicked") {
				t.Errorf("log: %s", logs)
			}
		})
	}
}
