package gateway

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/transport/budget"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// TestCallWantsExactly200 covers what a parsed leg makes of every status.
func TestCallWantsExactly200(t *testing.T) {
	tests := []struct {
		status int
		header http.Header
		kind   wire.Kind
		want   wire.Fault // Status, RetryAfter and DropReason
	}{
		{status: 201, kind: wire.UpstreamFailed},
		{status: 204, kind: wire.UpstreamFailed},
		{status: 206, kind: wire.UpstreamFailed},
		{status: 301, header: http.Header{"Location": {"http://elsewhere.test/"}}, kind: wire.UpstreamFailed},
		{status: 307, header: http.Header{"Location": {"/other"}}, kind: wire.UpstreamFailed},
		{status: 400, kind: wire.UpstreamRejected, want: wire.Fault{Status: 400}},
		{status: 412, kind: wire.UpstreamRejected, want: wire.Fault{Status: 412}},
		{status: 429, header: http.Header{"Retry-After": {"7"}, "X-Llm-D-Request-Dropped-Reason": {"full"}}, kind: wire.UpstreamRejected,
			want: wire.Fault{Status: 429, RetryAfter: "7", DropReason: "full"}},
		{status: 500, kind: wire.UpstreamFailed},
		{status: 503, header: http.Header{"Retry-After": {"Wed, 21 Oct 2026 07:28:00 GMT"}}, kind: wire.UpstreamFailed,
			want: wire.Fault{RetryAfter: "Wed, 21 Oct 2026 07:28:00 GMT"}},
		{status: 599, kind: wire.UpstreamFailed},
		{status: 999, kind: wire.UpstreamFailed},
	}
	for _, tt := range tests {
		t.Run(strconv.Itoa(tt.status), func(t *testing.T) {
			calls := 0
			r := dial(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
				calls++
				for name, values := range tt.header {
					w.Header()[name] = values
				}
				w.WriteHeader(tt.status)
				io.WriteString(w, secret)
			}))
			body, sent, f := r.call(leg("{}"))
			if f == nil || f.Kind != tt.kind || f.Status != tt.want.Status || f.RetryAfter != tt.want.RetryAfter || f.DropReason != tt.want.DropReason {
				t.Fatalf("fault %+v", f)
			}
			if want := "prefill answered " + strconv.Itoa(tt.status); f.Error() != want {
				t.Errorf("%q, want %q", f, want)
			}
			if body != "" || calls != 1 || sent.Attempts != 1 || sent.Reached == (tt.header.Get(wire.HeaderDropReason) != "") {
				t.Errorf("body %q, %d calls, %+v", body, calls, sent)
			}
		})
	}
}

// TestAnswersThatBreak: what is wrong with an answer is told, the answer is
// not. net/http quotes malformed ones in its errors.
func TestAnswersThatBreak(t *testing.T) {
	const sized, chunked = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	tests := []struct {
		name, answer string
		cause        error
	}{
		{"no HTTP", secret + "\r\n\r\n", errUnreadable},
		{"no status", "HTTP/1.1 " + secret + "\r\n\r\n", errUnreadable},
		{"a status that is none", "HTTP/1.1 042 " + secret + "\r\nContent-Length: 0\r\n\r\n", errUnreadable},
		{"switches protocols", "HTTP/1.1 101 " + secret + "\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" + secret, errUnreadable},
		{"a header that is none", "HTTP/1.1 200 OK\r\n" + secret + "\r\n\r\n", errUnreadable},
		{"a length that is none", "HTTP/1.1 200 OK\r\nContent-Length: " + secret + "\r\n\r\n", errUnreadable},
		{"an encoding that is none", "HTTP/1.1 200 OK\r\nTransfer-Encoding: " + secret + "\r\n\r\n", errUnreadable},
		{"headers that do not end", "HTTP/1.1 200 OK\r\nX: " + secret, io.ErrUnexpectedEOF},
		{"headers over a megabyte", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20) + secret + "\r\n\r\n", errUnreadable},
		{"less than promised", sized + secret, io.ErrUnexpectedEOF},
		{"a chunk that breaks off", chunked + "20\r\n" + secret, io.ErrUnexpectedEOF},
		{"a chunk size that is none", chunked + secret + "\r\n", errUnreadable},
		{"no last chunk", chunked + "2\r\n{}\r\n", io.ErrUnexpectedEOF},
		{"nothing at all", "", errNoAnswer},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := dial(t, raw(t, func(_ int, c *conn) {
				c.hear()
				c.say(tt.answer)
			}), tripAfter(1))
			body, sent, f := r.call(leg("{}"))
			if f == nil || f.Kind != wire.UpstreamFailed || body != "" || sent.Attempts != 1 || !sent.Reached {
				t.Fatalf("%q, %+v, %+v", body, sent, f)
			}
			if !errors.Is(f, tt.cause) {
				t.Errorf("cause is %v, want %v", f.Cause, tt.cause)
			}
			if want := "prefill could not be reached or broke off: " + tt.cause.Error(); f.Error() != want {
				t.Errorf("%q, want %q", f, want)
			}
			if state := r.BreakerState(); state != "open" {
				t.Errorf("the breaker is %s", state)
			}
		})
	}
}

// TestOpenRefusesWhatIsNoAnswer: such a status would crash whoever passes it on.
func TestOpenRefusesWhatIsNoAnswer(t *testing.T) {
	for _, status := range []string{"000", "099", "101"} {
		r := dial(t, raw(t, func(_ int, c *conn) {
			c.hear()
			c.say("HTTP/1.1 " + status + " x\r\nContent-Length: 0\r\n\r\n")
		}))
		a, sent, err := r.Open(t.Context(), leg("{}"))
		if f := faultOf(t, err); a != nil || f == nil || f.Kind != wire.UpstreamFailed || !sent.Reached {
			t.Errorf("%s: %v, %+v, %v", status, a, sent, err)
		}
	}
}

func TestMoreThanPromisedIsNotRead(t *testing.T) {
	r := dial(t, raw(t, func(_ int, c *conn) {
		c.hear()
		c.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}" + secret)
	}))
	if body, _, f := r.call(leg("{}")); f != nil || body != "{}" {
		t.Errorf("%q, %v", body, f)
	}
}

func TestErrorBodiesAreReadToALimit(t *testing.T) {
	written := make(chan int)
	r := dial(t, raw(t, func(_ int, c *conn) {
		c.hear()
		c.say("HTTP/1.1 500 Oops\r\nContent-Length: 1000000000\r\n\r\n")
		total := 0
		for {
			n, err := c.Write(make([]byte, 1<<10))
			if total += n; err != nil {
				break
			}
		}
		written <- total
	}))
	if _, _, f := r.call(leg("{}")); f == nil || f.Message != "prefill answered 500" {
		t.Errorf("fault %v", f)
	}
	// The transport's own buffer is on top of what is asked for.
	if total := <-written; total < maxErrorAnswer || total > maxErrorAnswer+(8<<10) {
		t.Errorf("%d bytes were taken", total)
	}
}

// TestConnectionIsUsedAgainAfterAnError: small error bodies are read to their
// end for that.
func TestConnectionIsUsedAgainAfterAnError(t *testing.T) {
	conns := make(chan int, 10)
	r := dial(t, raw(t, func(n int, c *conn) {
		for {
			if _, ok := c.hear(); !ok {
				return
			}
			conns <- n
			c.say("HTTP/1.1 404 No\r\nContent-Length: 8192\r\n\r\n" + strings.Repeat("x", 8192))
		}
	}))
	for range 3 {
		r.call(leg("{}"))
		if n := <-conns; n != 0 {
			t.Errorf("a further connection was made")
		}
	}
}

func TestAnswersHaveALimit(t *testing.T) {
	for _, chunked := range []bool{false, true} {
		for _, size := range []int{0, 1, 4095, 4096, 4097, 9999, 10_000, 10_001, 50_000} {
			r := dial(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if chunked {
					w.(http.Flusher).Flush()
				} else {
					w.Header().Set("Content-Length", strconv.Itoa(size))
				}
				io.WriteString(w, strings.Repeat("x", size))
			}))
			r.MaxAnswer = 10_000
			body, _, f := r.call(leg("{}"))
			switch {
			case size <= 10_000 && (f != nil || len(body) != size):
				t.Errorf("%d bytes (chunked: %t): got %d, %v", size, chunked, len(body), f)
			case size > 10_000 && (!errors.Is(f, errAnswerTooLarge) || f.Kind != wire.UpstreamFailed):
				t.Errorf("%d bytes (chunked: %t): %v", size, chunked, f)
			}
		}
	}
}

// TestEncodedAnswersAreNotUnpacked: a small one could become a large one.
func TestEncodedAnswersAreNotUnpacked(t *testing.T) {
	var bomb bytes.Buffer
	zip := gzip.NewWriter(&bomb)
	zip.Write(make([]byte, 10<<20))
	zip.Close()
	r := dial(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Write(bomb.Bytes())
	}))
	body, _, f := r.call(leg("{}"))
	if body != "" || !errors.Is(f, errEncoded) || f.Kind != wire.UpstreamFailed {
		t.Errorf("%d bytes, %v", len(body), f)
	}
}

// TestPromisedLengthReservesLittle: a lie of 200 MB must cost nothing.
func TestPromisedLengthReservesLittle(t *testing.T) {
	for _, promised := range []int64{-1, 0, 100, 1 << 20, 200 << 20, 1 << 60} {
		var largest int
		body := readFunc(func(p []byte) (int, error) {
			largest = max(largest, len(p))
			return copy(p, "{}"), io.EOF
		})
		text, err := readAll(&http.Response{ContentLength: promised, Body: body}, maxAnswer, &Leg{})
		if string(text) != "{}" && promised != 0 || err != nil || largest > 1<<20+1 {
			t.Errorf("%d: %d bytes reserved, %q, %v", promised, largest, text, err)
		}
	}
}

// TestAnswerIsCutAsItArrives: what is dropped is neither held nor charged, but
// counts towards the largest answer.
func TestAnswerIsCutAsItArrives(t *testing.T) {
	tensor := strings.Repeat("A", 3<<20)
	for _, scratch := range []bool{false, true} {
		for most, want := range map[int]error{4 << 20: nil, 2 << 20: errAnswerTooLarge} {
			text := `{"before":[1,2],"tensor":"` + tensor + `","after":"whole"}`
			memory := budget.New(1 << 20).Open()
			body, err := readAll(&http.Response{ContentLength: int64(len(text)), Body: io.NopCloser(strings.NewReader(text))}, most,
				&Leg{Memory: memory, Scratch: scratch, Cut: 100})
			if err != want || err == nil && string(body) != `{"before":[1,2],"tensor":"`+tensor[:100]+`","after":"whole"}` {
				t.Errorf("%v, %d bytes: %.200s", err, len(body), body)
			}
			memory.Close()
		}
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }
func (f readFunc) Close() error               { return nil }

func TestRefusedDialReachesNobody(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for _, tt := range []struct {
		name string
		err  error
		text string
	}{
		{"network", refused, "prefill could not be reached or broke off: no connection could be made: dial tcp: connection refused"},
		{"other", errors.New(secret), "prefill could not be reached or broke off: no connection could be made"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o, err := NewOrigin(OriginSettings{Address: "http://upstream.test", Dial: func(context.Context, string, string) (net.Conn, error) {
				return nil, tt.err
			}})
			if err != nil {
				t.Fatal(err)
			}
			r := see(t, o, tripAfter(1))
			_, sent, f := r.call(leg("{}"))
			if f == nil || f.Kind != wire.UpstreamFailed || sent.Attempts != 1 || sent.Reached || f.Error() != tt.text {
				t.Errorf("%+v, %v", sent, f)
			}
			if r.BreakerState() != "open" {
				t.Error("it was no failure")
			}
		})
	}
}

func TestFiguresOfLegs(t *testing.T) {
	r := dial(t, raw(t, func(_ int, c *conn) {
		for {
			if _, ok := c.hear(); !ok {
				return
			}
			c.say(good)
		}
	}))
	for range 3 {
		if _, _, f := r.call(leg("{}")); f != nil {
			t.Fatal(f)
		}
	}
	for _, series := range []string{`upstream_request_total{upstream="prefill"}`, `upstream_request_duration_seconds{upstream="prefill"}`} {
		if n := r.metric(series); n != 3 {
			t.Errorf("%s is %v", series, n)
		}
	}
	if r.Address() != "http://upstream.test:8080" {
		t.Errorf("address %q", r.Address())
	}
}

// TestHeadersAreThoseOfTheAnswer that Call returns, and not of an attempt before it.
func TestHeadersAreThoseOfTheAnswer(t *testing.T) {
	n := 0
	r := dial(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
		n++
		w.Header().Set("X-Revision", strconv.Itoa(n))
		if n == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}), func(s *UpstreamSettings) { s.Retries = RetrySettings{MaxAttempts: 2} })
	if _, sent, f := r.call(leg("{}")); f != nil || sent.Attempts != 2 || sent.Header.Get("X-Revision") != "2" {
		t.Errorf("%v %+v", f, sent)
	}
}
