package load

import (
	"io"
	"maps"
	"net"
	"net/http"
	"testing"
	"time"
)

// refuse answers a request that it has read.
func refuse(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// eventsThen answers with a stream that ends in its own way.
func eventsThen(text string, end func()) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, text)
		w.(http.Flusher).Flush()
		end()
	}
}

// TestOutcomes: each way in which a request can end is counted as what it is.
func TestOutcomes(t *testing.T) {
	abort := func() { panic(http.ErrAbortHandler) }
	const event = "data: {\"choices\":[]}\n\n"
	for name, tt := range map[string]struct {
		serve           http.HandlerFunc
		status          string
		code, transport string
	}{
		"good":                 {serve: whole, status: "200"},
		"good stream":          {serve: stream(2), status: "200"},
		"code":                 {serve: refuse(429, `{"error":{"message":"m","type":"t","param":null,"code":"queue_full"}}`), status: "429", code: "queue_full"},
		"code of a worker":     {serve: refuse(400, `{"error":{"message":"m","type":"BadRequestError","param":null,"code":400}}`), status: "400", code: "400"},
		"no code":              {serve: refuse(503, `{"error":{"message":"m"}}`), status: "503", code: NoCode},
		"no JSON":              {serve: refuse(502, `<html>`), status: "502", code: NoCode},
		"no body":              {serve: refuse(500, ``), status: "500", code: NoCode},
		"empty":                {serve: refuse(200, ``), status: "200", transport: Empty},
		"broken before":        {serve: func(http.ResponseWriter, *http.Request) { abort() }, transport: Broken},
		"broken stream":        {serve: eventsThen(event, abort), status: "200", transport: Broken},
		"unfinished stream":    {serve: eventsThen(event, func() {}), status: "200", transport: Unfinished},
		"error event":          {serve: eventsThen(event+`data: {"error":{"code":"upstream_failed"}}`+"\n\n", abort), status: "200", code: "upstream_failed"},
		"error event, no code": {serve: eventsThen(`data: {"error":{}}`+"\n\ndata: [DONE]\n\n", func() {}), status: "200", code: NoCode},
	} {
		r := mustRun(t, options(serve(t, tt.serve), 10))
		only := func(key string) map[string]int64 {
			if key == "" {
				return map[string]int64{}
			}
			return map[string]int64{key: 10}
		}
		good := tt.code == "" && tt.transport == ""
		if !maps.Equal(r.Statuses, only(tt.status)) || !maps.Equal(r.Codes, only(tt.code)) || !maps.Equal(r.Transport, only(tt.transport)) {
			t.Errorf("%s: statuses %v, codes %v, transport %v", name, r.Statuses, r.Codes, r.Transport)
		}
		if (r.Counts.OK == 10) != good || (r.Counts.Failed == 10) == good || (r.Total.Count == 10) != good {
			t.Errorf("%s: %+v", name, r.Counts)
		}
	}
}

func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	r := mustRun(t, options(Target{URL: "http://" + l.Addr().String()}, 3))
	if r.Transport[Refused] != 3 || r.Counts.Failed != 3 {
		t.Errorf("%+v %v", r.Counts, r.Transport)
	}
}

func TestTimeout(t *testing.T) {
	o := options(serve(t, func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}), 3)
	o.Timeout = time.Millisecond
	r := mustRun(t, o)
	if r.Transport[TimedOut] != 3 || r.Counts.Failed != 3 || r.Counts.Cut != 0 {
		t.Errorf("%+v %v", r.Counts, r.Transport)
	}
}

// TestEarlyAnswersToLargeBodies: a server that answers and does not read leaves
// a body that the transport may still be sending; the next request has another.
func TestEarlyAnswersToLargeBodies(t *testing.T) {
	o := options(serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(413) }), 40)
	o.Request = Request{PromptBytes: 4 << 20}
	r := mustRun(t, o)
	if c := r.Counts; c.Begun != 40 || c.Failed != 40 {
		t.Errorf("%+v %v %v", c, r.Statuses, r.Transport)
	}
}

// TestEventsInPieces: events are what they are wherever their bytes are cut.
func TestEventsInPieces(t *testing.T) {
	const text = ": comment\n\nevent: x\r\ndata: {\"a\":1}\r\n\r\n\n\ndata:{\"error\":{\"code\":\"c\"}}\n\ndata: [DONE]\n\n"
	for size := 1; size <= len(text); size++ {
		var e events
		n := int64(0)
		for rest := []byte(text); len(rest) > 0; {
			k := min(size, len(rest))
			n += e.write(rest[:k])
			rest = rest[k:]
		}
		if n != 4 || e.count != 4 || !e.done || e.code != "c" {
			t.Fatalf("pieces of %d: %d events, %+v", size, n, e)
		}
		if e.reset(); e.count != 0 || e.done || e.code != "" {
			t.Fatalf("not reset: %+v", e)
		}
	}
}
