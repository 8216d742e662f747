package assembly_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/llm-coordinator/coordinator/cmd/assembly"
	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/loadtest/broker"
	"github.com/llm-coordinator/coordinator/transport/broker/redistest"
)

const (
	waiterRole  = "ASYNC_WAITER_ROLE"  // of a process: coordinator, or floor
	waiterRedis = "ASYNC_WAITER_REDIS" // its address
)

// TestAsyncWaiters has many clients wait at once, of a coordinator and of a bare
// handler, both in processes of their own: one that waits costs no goroutine more. How
// many they are, ASYNC_WAITERS says; then it costs no more than 6 KB more either.
func TestAsyncWaiters(t *testing.T) {
	n, measured := 500, false
	if text := os.Getenv("ASYNC_WAITERS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("ASYNC_WAITERS: %v", err)
		}
		measured = true
	}
	addr := ""
	if s := redistest.Start(t); s != nil {
		addr = s.Addr
	} else {
		t.Log("!!! LEFT OUT: " + noRedisHere + ": this test runs with a miniredis, without notifications")
		m, err := broker.StartMemory()
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		addr = m.Addr()
	}
	floor, with := costOf(t, "floor", addr, n), costOf(t, "coordinator", addr, n)
	t.Logf("%d wait; each costs a bare handler %v, the coordinator %v", n, floor, with)
	if more := with.goroutines - floor.goroutines; more > 0.05 {
		t.Errorf("%.2f goroutines more", more)
	}
	if more := with.memory - floor.memory; measured && more > 6<<10 {
		t.Errorf("%.0f bytes more", more)
	}
}

// cost is what one client that waits costs.
type cost struct {
	goroutines float64
	// memory are bytes in use, stacks included; resident are those of the process,
	// with what the collector has not given back, but without pages that nobody has
	// touched, such as a bare handler's buffers.
	memory, resident float64
}

func (c cost) String() string {
	return fmt.Sprintf("%.2f goroutines and %.0f bytes (%.0f resident)", c.goroutines, c.memory, c.resident)
}

// costOf has n clients wait of a process.
func costOf(t *testing.T, role, redis string, n int) cost {
	cmd := exec.CommandContext(within(t), os.Args[0], "-test.run=^TestAsyncWaiterProcess$", "-test.v")
	cmd.Env = append(os.Environ(), waiterRole+"="+role, waiterRedis+"="+redis)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	ask := func(question string) []float64 {
		fmt.Fprintln(in, question)
		return answerOf(t, lines)
	}
	port := int(answerOf(t, lines)[0])
	one := openWaiters(t, port, 1) // what is made for the first is not counted
	for ask("waiting")[0] < 1 {
	}
	before := ask("cost")
	conns := openWaiters(t, port, n)
	for ask("waiting")[0] < float64(n+1) {
	}
	after := ask("cost")
	for _, c := range append(one, conns...) {
		c.Close()
	}
	for ask("waiting")[0] > 0 {
	}
	in.Close()
	rest, _ := io.ReadAll(out)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%s: %v %s", role, err, rest)
	}
	for i := range after {
		after[i] = (after[i] - before[i]) / float64(n)
	}
	return cost{after[0], after[1], after[2]}
}

// answerOf reads the numbers of the next answer.
func answerOf(t *testing.T, lines *bufio.Scanner) (numbers []float64) {
	t.Helper()
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), "answer ")
		if !ok {
			continue
		}
		for f := range strings.FieldsSeq(text) {
			x, err := strconv.ParseFloat(f, 64)
			if err != nil {
				t.Fatal(err)
			}
			numbers = append(numbers, x)
		}
		return numbers
	}
	t.Fatal("the process has ended")
	return nil
}

// openWaiters sends n requests that wait.
func openWaiters(t *testing.T, port, n int) []net.Conn {
	conns := make([]net.Conn, n)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
				if err != nil {
					t.Error(err)
					return
				}
				conns[i] = c
				fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: c\r\nContent-Type: application/json\r\n%s: wait\r\n%s: 600\r\nContent-Length: %d\r\n\r\n%s",
					chatPath, modeHeader, timeHeader, len(asyncBody), asyncBody)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return conns
}

// TestAsyncWaiterProcess is no test: it is what TestAsyncWaiters starts.
func TestAsyncWaiterProcess(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var waiting func() float64
	var stop func()
	switch os.Getenv(waiterRole) {
	case "":
		l.Close()
		return
	case "floor":
		waiting, stop = serveFloor(l)
	case "coordinator":
		waiting, stop = serveWaiting(t, l, os.Getenv(waiterRedis))
	}
	answer := func(numbers ...any) { fmt.Println(append([]any{"\nanswer"}, numbers...)...) }
	answer(l.Addr().(*net.TCPAddr).Port)
	for questions := bufio.NewScanner(os.Stdin); questions.Scan(); {
		switch questions.Text() {
		case "waiting":
			answer(waiting())
		case "cost":
			debug.FreeOSMemory()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			answer(runtime.NumGoroutine(), m.HeapAlloc+m.StackInuse, resident(t))
		}
	}
	stop()
}

// resident is the memory that the process takes.
func resident(t *testing.T) int {
	status, err := os.ReadFile("/proc/self/status")
	m := regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB`).FindSubmatch(status)
	if err != nil || m == nil {
		t.Fatalf("no memory in /proc/self/status: %v", err)
	}
	kb, _ := strconv.Atoi(string(m[1]))
	return kb << 10
}

// serveFloor has clients wait until they leave, and does nothing else.
func serveFloor(l net.Listener) (waiting func() float64, stop func()) {
	var n atomic.Int64
	s := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		n.Add(1)
		<-r.Context().Done()
		n.Add(-1)
	})}
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	return func() float64 { return float64(n.Load()) }, func() { s.Close(); wg.Wait() }
}

// serveWaiting is a coordinator with nothing behind it but Redis.
func serveWaiting(t *testing.T, l net.Listener, redis string) (waiting func() float64, stop func()) {
	text := "[gateway]\naddress = \"http://127.0.0.1:1\"\n[pipeline]\n[[pipeline.steps]]\ntype = \"async-broker\"\nparams = { redis_url = \"redis://" + redis + "\" }\n" + decodeStep
	cfg, err := conf.Parse("waiters.toml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := assembly.New(cfg, assembly.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = c.Run(ctx, l, nil) })
	r := &rig{Coordinator: c}
	return func() float64 { return r.metric(t, metricPrefix+"async_waiting") }, func() { cancel(); wg.Wait() }
}
