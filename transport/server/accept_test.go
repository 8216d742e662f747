package server

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/budget"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

func TestRequestsThatAreRefused(t *testing.T) {
	tests := []struct {
		name, path, body string
		header           []string
		status           int
		code             string
	}{
		{name: "empty", status: 400, code: "invalid_json"},
		{name: "no JSON", body: secret, status: 400, code: "invalid_json"},
		{name: "half an object", body: `{"prompt":"` + secret, status: 400, code: "invalid_json"},
		{name: "an array", body: `["` + secret + `"]`, status: 400, code: "invalid_json"},
		{name: "something behind it", body: hello + `{}`, status: 400, code: "invalid_json"},
		{name: "a NUL behind it", body: hello + "\x00", status: 400, code: "invalid_json"},
		{name: "nested too deep", body: `{"a":` + strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001) + `}`, status: 400, code: "invalid_json"},
		{name: "gzip", body: hello, header: []string{"Content-Encoding", "gzip"}, status: 415, code: "unsupported_encoding"},
		{name: "identity and gzip", body: hello, header: []string{"Content-Encoding", "identity", "Content-Encoding", "br"}, status: 415, code: "unsupported_encoding"},
		{name: "a list of encodings", body: hello, header: []string{"Content-Encoding", "identity, gzip"}, status: 415, code: "unsupported_encoding"},
		{name: "too large", body: `{"prompt":"` + strings.Repeat("x", 1<<20) + `"}`, status: 413, code: "request_too_large"},
		{name: "our own leg", body: hello, header: []string{"X-Coordinator-Hop", "1"}, status: 508, code: "routing_loop"},
		{name: "our own leg, whatever it says", body: secret, header: []string{"x-coordinator-hop", ""}, status: 508, code: "routing_loop"},
		{name: "media", path: chatPath, body: `{"messages":[{"role":"user","content":[{"type":"text","text":"` + secret + `"},{"image_url":"x"}]}]}`,
			status: 400, code: "invalid_media"},
		{name: "no prompt", body: `{"model":"m"}`, status: 400, code: "invalid_prompt"},
		{name: "an empty prompt", body: `{"prompt":[]}`, status: 400, code: "invalid_prompt"},
		{name: "several prompts", body: `{"prompt":["` + secret + `"]}`, status: 400, code: "invalid_prompt"},
		{name: "several lists", body: `{"prompt":[[1],[2]]}`, status: 400, code: "invalid_prompt"},
		{name: "a negative id", body: `{"prompt":[1,-2]}`, status: 400, code: "invalid_prompt"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // net/http lingers on a connection that it cuts
				r := start(t, never(t))
				got := r.send(http.MethodPost, cmp.Or(tt.path, completionsPath), tt.body, tt.header...)
				wantError(t, got, tt.status, "invalid_request_error", tt.code)
				rec := <-r.records
				if rec.Status != tt.status || rec.Code != tt.code || rec.Cause == nil || rec.ID != got.header.Get("X-Request-Id") || rec.Model != "" {
					t.Errorf("record %+v", rec)
				}
				if strings.Contains(r.log.String(), secret) {
					t.Errorf("the log tells what it must not: %s", r.log)
				}
			})
		})
	}
}

func TestWhatIsAccepted(t *testing.T) {
	accepted := make(chan *phases.Request, 1)
	r := start(t, engine(func(ctx context.Context, req *phases.Request) error {
		accepted <- req
		return ok(ctx, req)
	}))
	before := time.Now()
	body := `{"model":"my \u006dodel","tokens":[1],"prompt":[1, 2],"stream":true}`
	if got := r.send(http.MethodPost, completionsPath+"?a=%20b", body, "X-Request-Id", "the-id", "X-Many", "1", "X-Many", "2",
		"EPP-profile", "encode", "X-Prefiller-Url", "evil", "Content-Encoding", "Identity", "Prefer", "x"); got.status != 200 {
		t.Fatalf("%+v", got)
	}
	req := <-accepted
	if req.ID != "the-id" || req.Protocol != wire.Completions || req.Query != "a=%20b" || req.Model != "my model" || !req.Stream ||
		string(req.Prompt.Given.IDs) != "[1, 2]" || req.Received.Before(before) {
		t.Errorf("%+v", req)
	}
	if got := string(req.Body.Edit().Payload().Append(nil)); got != `{"model":"my \u006dodel","prompt":[1, 2],"stream":true}` {
		t.Errorf("body %s", got)
	}
	want := http.Header{"X-Many": {"1", "2"}, "User-Agent": {"Go-http-client/1.1"}}
	if !reflect.DeepEqual(req.Header, want) {
		t.Errorf("header %v", req.Header)
	}
}

func limit(n int64) func(*Settings) { return func(s *Settings) { s.MaxBody = n } }

func TestLimitOfABody(t *testing.T) {
	for _, size := range []int{len(hello), 511, 512, 513, 514, 100_000} {
		for _, over := range []int64{0, 1} {
			for _, counted := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					r := start(t, ok, limit(int64(size)-over))
					var in io.Reader = strings.NewReader(hello + strings.Repeat(" ", size-len(hello)))
					if counted {
						in = io.MultiReader(in) // its length is not known
					}
					resp, err := r.client.Post("http://coordinator.test"+completionsPath, "", in)
					if err != nil {
						t.Fatal(err)
					}
					got := read(resp)
					if over == 0 {
						if got.status != 200 || got.body != "m" {
							t.Errorf("%d bytes: %+v", size, got)
						}
						return
					}
					wantError(t, got, 413, "invalid_request_error", "request_too_large")
					if !resp.Close {
						t.Error("the connection stays")
					}
				})
			}
		}
	}
}

// TestPromisedLengthReservesLittle: ten clients that promise 10 GB and send
// nothing must not bring the process down.
func TestPromisedLengthReservesLittle(t *testing.T) {
	s := New(Settings{MaxBody: 20 << 30}, never(t), nil, nil)
	for _, promised := range []int64{-1, 0, 1, 1 << 20, 10 << 30} {
		largest := 0
		r := httptest.NewRequest(http.MethodPost, completionsPath, nil)
		r.ContentLength, r.Body = promised, readFunc(func(p []byte) (int, error) {
			largest = max(largest, len(p))
			return 0, io.ErrUnexpectedEOF
		})
		if _, fault := s.desk.Load().readBody(httptest.NewRecorder(), r, nil); fault == nil || fault.Kind != wire.Canceled || largest > 1<<20+1 {
			t.Errorf("%d: %d bytes reserved, %v", promised, largest, fault)
		}
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }
func (f readFunc) Close() error               { return nil }

// TestBodyThatTricklesIn gets its answer when the time is up, and its
// connection is closed: net/http reads what is left of a refused body, and
// without a deadline waited for it for ever.
func TestBodyThatTricklesIn(t *testing.T) {
	const chunked = "POST " + completionsPath + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
	for _, text := range []string{
		request("POST", completionsPath, 100, `{"prompt":`),
		request("POST", completionsPath, 1<<20, ""),
		chunked,
	} {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, never(t))
			c, in := r.dial()
			began := time.Now()
			go func() {
				c.Write([]byte(text))
				wait(20 * time.Second)
				c.Write([]byte(" "))
			}()
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			wantError(t, read(resp), 408, "invalid_request_error", "request_timeout")
			if took := time.Since(began); took != 30*time.Second {
				t.Errorf("answered after %v", took)
			}
			if _, err := in.ReadByte(); err != io.EOF || time.Since(began) > 31*time.Second {
				t.Errorf("closed with %v after %v", err, time.Since(began))
			}
		})
	}
}

// TestRefusedRequestWhoseBodyNeverComes: the same where nobody wants the body.
func TestRefusedRequestWhoseBodyNeverComes(t *testing.T) {
	tests := []struct {
		name, method, path string
		header             []string
		status             int
	}{
		{"no route", "POST", "/nothing", nil, 404},
		{"wrong method", "PUT", chatPath, nil, 405},
		{"health", "GET", "/healthz", nil, 200},
		{"encoded", "POST", chatPath, []string{"Content-Encoding", "gzip"}, 415},
		{"our own leg", "POST", chatPath, []string{"X-Coordinator-Hop", "1"}, 508},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, never(t))
				c, in := r.dial()
				began := time.Now()
				go c.Write([]byte(request(tt.method, tt.path, 100, "", tt.header...)))
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				if got := read(resp); got.status != tt.status {
					t.Errorf("%+v", got)
				}
				if _, err := in.ReadByte(); err != io.EOF || time.Since(began) > 31*time.Second {
					t.Errorf("closed with %v after %v", err, time.Since(began))
				}
			})
		})
	}
}

// TestClientThatWritesOnIsToldWhyItWasRefused: what it writes is taken, for it
// would else find its connection reset before it reads. Who does not get done is
// waited for only so long.
func TestClientThatWritesOnIsToldWhyItWasRefused(t *testing.T) {
	memory := budget.New(100_000)
	for _, tt := range []struct {
		name         string
		promise, say int
		status       int
		kind, code   string
		took         time.Duration
		header       []string
	}{
		{"no room for it", 500_000, 500_000, 429, "overloaded_error", "queue_full", 0, nil},
		{"too large", 1<<20 + 100_000, 1<<20 + 100_000, 413, "invalid_request_error", "request_too_large", 0, nil},
		{"no room, and never whole", 500_000, 300_000, 429, "overloaded_error", "queue_full", lingering, nil},
		{"encoded", 500_000, 500_000, 415, "invalid_request_error", "unsupported_encoding", 0, []string{"Content-Encoding", "gzip"}},
		{"one of our own", 500_000, 500_000, 508, "invalid_request_error", "routing_loop", 0, []string{"X-Coordinator-Hop", "1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, never(t), func(s *Settings) { s.Memory = memory })
				c, in := r.dial()
				written := make(chan error, 1)
				go func() {
					_, err := c.Write([]byte(request("POST", chatPath, tt.promise, strings.Repeat("x", tt.say), tt.header...)))
					written <- err
				}()
				began := time.Now()
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				got := read(resp)
				wantError(t, got, tt.status, tt.kind, tt.code)
				if err := <-written; err != nil {
					t.Errorf("what was written: %v", err)
				}
				if _, err := in.ReadByte(); err != io.EOF || time.Since(began) < tt.took || time.Since(began) > tt.took+time.Second {
					t.Errorf("closed with %v after %v", err, time.Since(began))
				}
				if n := memory.Used(); n != 0 {
					t.Errorf("%d bytes are charged", n)
				}
			})
		})
	}
}

// TestConnectionServesOnAfterARefusal: its deadlines were of that request.
func TestConnectionServesOnAfterARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, ok)
		c, in := r.dial()
		for _, tt := range []struct {
			text   string
			status int
		}{
			{request("POST", completionsPath, 2, "no"), 400},
			{request("GET", "/nothing", 0, ""), 404},
			{request("POST", completionsPath, len(hello), hello, "Expect", "100-continue"), 100},
			{"", 200},
			{request("GET", "/healthz", 0, ""), 200},
		} {
			if tt.text != "" {
				go c.Write([]byte(tt.text))
			}
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatalf("%v, want %d", err, tt.status)
			}
			if got := read(resp); got.status != tt.status || got.err != nil {
				t.Errorf("%+v, want %d", got, tt.status)
			}
			if tt.status != 100 {
				wait(10 * time.Minute)
			}
		}
	})
}

// TestClientThatLeavesDuringUpload starts nothing.
func TestClientThatLeavesDuringUpload(t *testing.T) {
	for _, text := range []string{
		request("POST", completionsPath, len(hello)+1, hello),
		"POST " + completionsPath + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1e\r\n" + hello + "\r\n",
	} {
		r := start(t, never(t))
		c, _ := r.dial()
		c.Write([]byte(text))
		c.Close()
		if rec := <-r.records; rec.Status != 499 || rec.Code != "client_closed_request" || rec.Bytes != 0 {
			t.Errorf("%+v", rec)
		}
	}
}

func TestRepeatedKeysAndStrippedOnesAreGone(t *testing.T) {
	models := make(chan string, 1)
	r := start(t, engine(func(ctx context.Context, req *phases.Request) error {
		models <- req.Model + " " + string(req.Body.Edit().Payload().Append(nil))
		return ok(ctx, req)
	}))
	r.post(`{"model":"a","kv_transfer_params":{"remote_host":"evil"},"prompt":"x","model":"b"}`)
	if got := <-models; got != `b {"prompt":"x","model":"b"}` {
		t.Error(got)
	}
}
