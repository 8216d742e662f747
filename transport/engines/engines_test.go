package engines

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a bootstrap server and returns its address.
func serve(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func TestEngine(t *testing.T) {
	for _, tt := range []struct{ name, body, id, why string }{
		{"one rank", `{"0":{"engine_id":"e-1","worker_addr":{"0":{"0":"tcp://h:1"}}}}`, "e-1", ""},
		{"escaped", `{"0":{"engine_id":"\u0065\"1"}}`, `e"1`, ""},
		{"two ranks", `{"0":{"engine_id":"a"},"1":{"engine_id":"b"}}`, "", "2 data-parallel ranks"},
		{"none", `{}`, "", "no engine_id"},
		{"null", `null`, "", "no engine_id"},
		{"no id", `{"0":{}}`, "", "no engine_id"},
		{"a number", `{"0":{"engine_id":7}}`, "", "no engine_id"},
		{"not an object", `{"0":[]}`, "", "no engine_id"},
		{"long", `{"0":{"engine_id":"` + strings.Repeat("x", maxID+1) + `"}}`, "", "no engine_id"},
		{"no JSON", `<html>secret`, "", "no JSON"},
		{"cut", `{"0":{"engine_id":"e`, "", "no JSON"},
		{"large", `{"0":{"engine_id":"e"},"x":"` + strings.Repeat("x", maxAnswer) + `"}`, "", "too large"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet || r.URL.String() != "/query" || r.ContentLength != 0 {
					t.Errorf("%s %s", r.Method, r.URL)
				}
				fmt.Fprint(w, tt.body)
			})
			id, err := New(nil).Engine(t.Context(), at, false)
			if id != tt.id || (err == nil) != (tt.why == "") {
				t.Fatalf("%q %v", id, err)
			}
			wantFault(t, err, wire.UpstreamFailed, tt.why)
		})
	}
}

func wantFault(t *testing.T, err error, kind wire.Kind, why string) {
	t.Helper()
	if why == "" {
		return
	}
	f := (*wire.Fault)(nil)
	if !errors.As(err, &f) || f.Kind != kind || !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v, want %s", err, why)
	}
}

func TestServersThatFail(t *testing.T) {
	asked := false
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request) { asked = true })
	for status, why := range map[int]string{http.StatusFound: "answered 302", http.StatusNotFound: "answered 404", http.StatusInternalServerError: "answered 500"} {
		at := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://"+elsewhere+"/query")
			w.WriteHeader(status)
		})
		_, err := New(nil).Engine(t.Context(), at, false)
		wantFault(t, err, wire.UpstreamFailed, why)
		if err == nil || asked {
			t.Errorf("%d: %v, followed: %t", status, err, asked)
		}
	}
	t.Setenv("HTTP_PROXY", "http://"+elsewhere)
	if _, err := New(nil).Engine(t.Context(), "engine.invalid:1", false); err == nil || asked {
		t.Errorf("%v, a proxy was asked: %t", err, asked)
	}
}

// TestAnswersAreKept for some seconds, and not failures.
func TestAnswersAreKept(t *testing.T) {
	var asked atomic.Int32
	at := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if n := asked.Add(1); n == 1 {
			w.WriteHeader(http.StatusBadGateway)
		} else {
			fmt.Fprintf(w, `{"0":{"engine_id":"e-%d"}}`, n)
		}
	})
	d := New(nil)
	for i, want := range []struct {
		anew bool
		id   string
	}{{false, ""}, {false, "e-2"}, {false, "e-2"}, {true, "e-3"}, {false, "e-3"}} {
		if id, _ := d.Engine(t.Context(), at, want.anew); id != want.id {
			t.Errorf("%d: %q, want %q", i, id, want.id)
		}
	}
	d.known[at] = answer{"old", time.Now()}
	if id, _ := d.Engine(t.Context(), at, false); id != "e-4" {
		t.Errorf("an old answer is used: %q", id)
	}
	for i := range maxKept + 1 {
		d.keep(fmt.Sprint(i), "e")
	}
	if n := len(d.known); n > maxKept {
		t.Errorf("%d answers are kept", n)
	}
}

// TestAServerThatIsSilent costs two seconds, or as long as the request is there.
func TestAServerThatIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		began := time.Now()
		_, err := New(silent).Engine(t.Context(), "h:1", false)
		wantFault(t, err, wire.UpstreamTimeout, "h:1")
		if took := time.Since(began); took != timeout || err == nil {
			t.Errorf("%v after %v", err, took)
		}
		ctx, leave := context.WithCancel(t.Context())
		leave()
		if _, err := New(silent).Engine(ctx, "h:1", false); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		<-time.After(timeout) // fake time: the dial ends by itself
	})
}

func FuzzRead(f *testing.F) {
	for _, seed := range []string{`{"0":{"engine_id":"e"}}`, `{"0":{"engine_id":"e"},"1":{}}`, `[]`, `{"0":"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if id, err := read(body); (id == "") != (err != nil) || len(id) > maxID {
			t.Errorf("%q %v", id, err)
		}
	})
}
