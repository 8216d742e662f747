package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// playing is the variable that makes this test's program play a server: "floor"
// or "coordinator", or "broken", one that ends at once.
const playing = "RUN_TEST_PLAYS"

func TestMain(m *testing.M) {
	switch os.Getenv(playing) {
	case "":
		goleak.VerifyTestMain(m)
	case "broken":
		fmt.Fprintln(os.Stderr, "one\ntwo: no such thing")
		os.Exit(1)
	default:
		play()
	}
}

// play serves as a floor or a coordinator does, until SIGTERM.
func play() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	addr := "127.0.0.1:0"
	if len(os.Args) == 4 && os.Args[1] == "serve" { // serve -config FILE
		text, _ := os.ReadFile(os.Args[3])
		_, after, _ := strings.Cut(string(text), `listen_addr = "`)
		addr, _, _ = strings.Cut(after, `"`)
	}
	s := http.Server{Addr: addr, Handler: http.HandlerFunc(answer)}
	if addr == "127.0.0.1:0" {
		t := httptest.NewServer(s.Handler)
		defer t.Close()
		fmt.Println(t.URL)
		<-ctx.Done()
		return
	}
	context.AfterFunc(ctx, func() { s.Close() })
	_ = s.ListenAndServe()
}

// answer answers what a floor, a coordinator and its operators' listener do. A
// stream of more than 100 events goes on until its client leaves.
func answer(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/metrics" {
		io.WriteString(w, "# HELP x\nllm_d_coordinator_inflight_bytes_refused_total 0\nllm_d_coordinator_inflight_bytes 2.097152e+06\n")
		return
	}
	body, _ := io.ReadAll(r.Body)
	if !strings.Contains(string(body), `"stream":true`) {
		io.WriteString(w, "{}")
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	io.WriteString(w, "data: {}\n\n")
	w.(http.Flusher).Flush()
	if strings.Contains(string(body), `"max_tokens":1000000`) {
		<-r.Context().Done()
		return
	}
	io.WriteString(w, "data: [DONE]\n\n")
}

// local are servers within this process.
type local struct {
	running, started atomic.Int64
	relays           []string // the flags of each
}

func (l *local) start() (*server, error) {
	s := httptest.NewServer(http.HandlerFunc(answer))
	l.running.Add(1)
	l.started.Add(1)
	return &server{url: s.URL, admin: s.URL, pid: os.Getpid(), stop: func() { l.running.Add(-1); s.Close() }}, nil
}
