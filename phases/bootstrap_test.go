package phases

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/connectors/kv"
	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// peered is a connector that needs an address.
type peered struct{ kv.Connector }

func (peered) Name() string { return "kv-peered" }
func (peered) Needs() kv.Needs {
	return kv.Needs{Peer: true, Port: kv.Port{Default: 8998, Env: "PEERED_PORT"}}
}

func TestBootstrapFromIsRead(t *testing.T) {
	for _, tt := range []struct{ from, header, problem string }{
		{"reserve", "x-worker", ""},
		{"header:x-worker", "", ""},
		{"static:10.0.0.1", "", ""},
		{"static:10.0.0.1:8000, pod-2.pods,[2001:db8::1]:8000,2001:db8::2,[2001:db8::3]", "", ""},
		{"", "", `bootstrap_from: kv-peered needs the address of the prefill worker: want "reserve", "header:<name>" or "static:<host>[,…]", not ""`},
		{"Reserve", "", "bootstrap_from: kv-peered needs"},
		{"reserve", "", "bootstrap_header: want the name of the header"},
		{"reserve", "x worker", "bootstrap_header: want the name of the header"},
		{"header:", "", `bootstrap_from: "" is no name of a header`},
		{"header:x worker", "", `bootstrap_from: "x worker" is no name of a header`},
		{"header:x-worker", "x-worker", `bootstrap_header: is for bootstrap_from = "reserve": remove it`},
		{"static:10.0.0.1", "x-worker", `bootstrap_header: is for`},
		{"static:", "", `bootstrap_from: "" is no host, or host:port`},
		{"static:a,", "", `bootstrap_from: "" is no host, or host:port`},
		{"static:a b", "", `bootstrap_from: "a b" is no host`},
		{"static:a:0", "", `bootstrap_from: "a:0" has no port of 1 to 65535`},
		{"static:a:65536", "", `bootstrap_from: "a:65536" has no port`},
		{"static:a:http", "", `bootstrap_from: "a:http" has no port`},
		{"static:fe80::1%eth0", "", `bootstrap_from: "fe80::1%eth0" is no host`},
		{"static:http://a", "", `bootstrap_from: "http://a" has no port`},
	} {
		b, err := newBootstrap(Deps{}, params(""), tt.from, tt.header, peered{})
		if tt.problem == "" && (err != nil || b == nil) || tt.problem != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.problem)) {
			t.Errorf("%q, %q: %v, want %s", tt.from, tt.header, err, tt.problem)
		}
	}
}

func TestBootstrapIsRefusedWhereNobodyReadsIt(t *testing.T) {
	c, err := kv.New("kv-nixl")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := newBootstrap(Deps{}, params(""), "", "", c); b != nil || err != nil {
		t.Errorf("%v %v", b, err)
	}
	for _, s := range [][3]string{{"reserve", "", "bootstrap_from"}, {"", "x", "bootstrap_header"}} {
		if _, err := newBootstrap(Deps{}, params(""), s[0], s[1], c); err == nil || err.Error() != s[2]+": kv-nixl needs no address of the prefill worker: remove it" {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestBootstrapPortIsThatOfTheWorkers(t *testing.T) {
	for value, want := range map[string]int{"none": 8998, "1": 1, "65535": 65535, "0": 8998, "65536": 8998, "-1": 8998, "x": 8998, "": 8998, "8998 ": 8998, "1e3": 8998} {
		var log bytes.Buffer
		lookup := func(name string) (string, bool) { return value, name == "PEERED_PORT" && value != "none" }
		b, err := newBootstrap(Deps{LookupEnv: lookup, Log: slog.New(slog.NewTextHandler(&log, nil))}, params(""), "static:h", "", peered{})
		if err != nil || b.hosts[0].peer.Port != want {
			t.Errorf("%q: %+v %v", value, b, err)
		}
		bad := value != "none" && want == 8998
		if n := strings.Count(log.String(), "level=ERROR"); n == 1 != bad || bad && !strings.Contains(log.String(), "PEERED_PORT") {
			t.Errorf("%q: %d errors are logged: %s", value, n, &log)
		}
	}
}

func TestStaticWorkersTakeTurns(t *testing.T) {
	var log bytes.Buffer
	b, err := newBootstrap(Deps{Log: slog.New(slog.NewTextHandler(&log, nil))}, params(""), "static:a:80,b,[::1]:81,::2", "", peered{})
	if err != nil {
		t.Fatal(err)
	}
	want := []endpoint{{kv.Peer{Host: "a", Port: 8998}, "a:80"}, {kv.Peer{Host: "b", Port: 8998}, ""},
		{kv.Peer{Host: "::1", Port: 8998}, "[::1]:81"}, {kv.Peer{Host: "::2", Port: 8998}, ""}}
	for i := range 2 * len(want) {
		if e, err := b.find(context.Background(), "", gateway.Leg{}); err != nil || e != want[i%len(want)] {
			t.Errorf("%d: %+v %v", i, e, err)
		}
	}
	if !strings.Contains(log.String(), "cannot be pinned") {
		t.Errorf("nothing is said of workers without a port: %s", &log)
	}
}

func TestWorkerIsFoundInAnEarlierAnswer(t *testing.T) {
	b, err := newBootstrap(Deps{}, params(""), "header:x-worker", "", peered{})
	if err != nil || b.watches() != "X-Worker" {
		t.Fatalf("%v %q", err, b.watches())
	}
	r := &Request{}
	if _, err := b.find(context.Background(), r.namedWorker(), gateway.Leg{}); err == nil || wire.FaultOf(err).Kind != wire.UpstreamFailed ||
		!strings.Contains(err.Error(), "X-Worker") {
		t.Errorf("%v", err)
	}
	r.nameWorker(b.watches(), http.Header{"X-Worker": {"[2001:db8::1]:8000"}})
	r.nameWorker(b.watches(), http.Header{}) // one that names nobody
	if e, err := b.find(context.Background(), r.namedWorker(), gateway.Leg{}); err != nil || e.peer.Host != "2001:db8::1" || e.pin != "[2001:db8::1]:8000" {
		t.Errorf("%+v %v", e, err)
	}
	r.nameWorker(b.watches(), http.Header{"X-Worker": {`a"b:80`}})
	if _, err := b.find(context.Background(), r.namedWorker(), gateway.Leg{}); err == nil || strings.Contains(err.Error(), `a"b`) {
		t.Errorf("%v", err)
	}
}

// reserving is a gateway that says what it was asked, and answers so.
func reserving(t *testing.T, answer http.HandlerFunc) *gateway.Upstream {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	at, err := gateway.NewOrigin(gateway.OriginSettings{Address: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(at.Close)
	return gateway.NewUpstream(at, gateway.UpstreamSettings{Name: "prefill", ProfileHeader: "EPP-Profile", Profile: "prefill", Timeout: time.Minute,
		Retries: gateway.RetrySettings{MaxAttempts: 2}}, gateway.NewMetrics(nil))
}

func TestReserveAsksTheGateway(t *testing.T) {
	var asked []*http.Request
	up := reserving(t, func(w http.ResponseWriter, r *http.Request) {
		if asked = append(asked, r); len(asked) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("X-Worker", "10.0.0.7:8000")
	})
	b, err := newBootstrap(Deps{Prefill: up}, params(""), "reserve", "x-worker", peered{})
	if err != nil || b.watches() != "" {
		t.Fatalf("%v %q", err, b.watches())
	}
	leg := gateway.Leg{Path: "/v1/completions", ID: "id", Check: wire.CheckAnswer, Resend: gateway.ResendNever, Body: func(string) wire.Payload { return wire.NewEdit().Payload() }}
	e, err := b.find(context.Background(), "", leg)
	if want := (endpoint{kv.Peer{Host: "10.0.0.7", Port: 8998}, "10.0.0.7:8000"}); err != nil || e != want {
		t.Errorf("%+v %v", e, err)
	}
	for i, id := range []string{"id-reserve", "id-reserve-r1"} {
		h := asked[i].Header
		if h.Get("Prefer") != "reserve-endpoint" || h.Get("EPP-Profile") != "prefill" || h.Get("X-Request-Id") != id || asked[i].URL.Path != "/v1/completions" {
			t.Errorf("asked %v %v", asked[i].URL, h)
		}
	}
}

func TestReserveThatNamesNobodyFails(t *testing.T) {
	for _, value := range []string{"", ":80", "a:b", "two words", "x;y"} {
		up := reserving(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Worker", value) })
		b, err := newBootstrap(Deps{Prefill: up}, params(""), "reserve", "x-worker", peered{})
		if err != nil {
			t.Fatal(err)
		}
		leg := gateway.Leg{Path: "/", ID: "id", Body: func(string) wire.Payload { return wire.NewEdit().Payload() }}
		if _, err := b.find(context.Background(), "", leg); err == nil || wire.FaultOf(err).Kind != wire.UpstreamFailed || !strings.Contains(err.Error(), "bootstrap_header") {
			t.Errorf("%q: %v", value, err)
		}
	}
}
