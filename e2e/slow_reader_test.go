package e2e_test

import (
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// flood is a decode worker that streams without end, until it is told to come to
// one. It knows whether it is being held up.
type flood struct {
	written atomic.Int64
	// writing is when the write that is under way began, as Unix nanoseconds; 0 if
	// there is none.
	writing atomic.Int64
	enough  chan struct{}
	stop    func()
	over    chan struct{} // closed when the worker has written its last, or failed to
}

func newFlood() *flood {
	f := &flood{enough: make(chan struct{}), over: make(chan struct{})}
	f.stop = sync.OnceFunc(func() { close(f.enough) })
	return f
}

// ServeHTTP may be called once.
func (f *flood) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	defer close(f.over)
	w.Header().Set("Content-Type", "text/event-stream")
	event := `data: {"object":"text_completion","choices":[{"index":0,"text":"` + strings.Repeat("x", 16<<10) + `","finish_reason":null}]}` + "\n\n"
	for f.write(w, event) {
		select {
		case <-f.enough:
			f.write(w, "data: [DONE]\n\n")
			return
		default:
		}
	}
}

func (f *flood) write(w http.ResponseWriter, event string) (ok bool) {
	f.writing.Store(time.Now().UnixNano())
	defer f.writing.Store(0)
	n, err := io.WriteString(w, event)
	if err == nil {
		err = http.NewResponseController(w).Flush()
	}
	f.written.Add(int64(n))
	return err == nil
}

// heldUp waits until one write has taken a while, and returns how many bytes went
// before it. It is false if the worker could write as much as it liked: then
// somebody on the way keeps it in memory.
func (f *flood) heldUp(t *testing.T, fl *fleet) (written int64, ok bool) {
	t.Helper()
	const while, tooMuch = 500 * time.Millisecond, 1 << 30
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		began, written := f.writing.Load(), f.written.Load()
		if began != 0 && time.Since(time.Unix(0, began)) > while {
			return written, true
		}
		if written > tooMuch {
			return written, false
		}
		select {
		case <-again.C:
		case <-f.over:
			t.Fatal("the worker's stream was broken off")
		case <-fl.ctx.Done():
			t.Fatal("the worker was not held up in time")
		}
	}
}

// TestASlowReaderHoldsUpTheWorker: what a client does not take stays with the
// worker, but for what the buffers of eight sockets have room for, and nothing of
// it is lost.
func TestASlowReaderHoldsUpTheWorker(t *testing.T) {
	behindEach(t, func(t *testing.T, g gateway) {
		worker := newFlood()
		defer worker.stop()
		f := startFleet(t, g, plan{steps: decodeStep, decode: worker})
		var dialled atomic.Int64
		slow := newClient(func(ctx context.Context, network, address string) (net.Conn, error) {
			dialled.Add(1)
			return smallWindow(ctx, network, address)
		})
		defer slow.CloseIdleConnections()
		resp, err := send(f.ctx, slow, http.MethodPost, f.url+completionsPath, `{"model":"demo-model","stream":true,"prompt":"on and on"}`)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if n := dialled.Load(); n != 1 {
			t.Fatalf("%d connections with a small window, want that of the one request", n)
		}
		held, ok := worker.heldUp(t, f)
		if !ok {
			t.Fatalf("the worker has written %d MB to a client that reads nothing", held>>20)
		}
		t.Logf("the worker was held up after %d KB", held>>10)
		slowly := make([]byte, 1000) // less than an event
		read := int64(0)
		for range 1000 {
			n, err := resp.Body.Read(slowly)
			if read += int64(n); err != nil {
				t.Fatal(err)
			}
		}
		worker.stop()
		tail := &lastBytes{}
		n, err := io.Copy(tail, resp.Body)
		<-worker.over
		if read += n; err != nil || read != worker.written.Load() || !strings.HasSuffix(string(tail.kept), "\n\ndata: [DONE]\n\n") {
			t.Errorf("%d bytes of %d, the last %q: %v", read, worker.written.Load(), tail.kept, err)
		}
	})
}

// smallWindow dials as other clients do, and has the system take little ahead. It
// says so before there is a connection: who has seen a large window waits for a
// large part of it to be free again.
func smallWindow(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := *clientDialer
	dialer.Control = func(_, _ string, c syscall.RawConn) (err error) {
		failed := c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 64<<10)
		})
		return cmp.Or(failed, err)
	}
	return dialer.DialContext(ctx, network, address)
}

// lastBytes keeps the end of what is written to it.
type lastBytes struct{ kept []byte }

func (l *lastBytes) Write(p []byte) (int, error) {
	l.kept = append(l.kept, p...)
	l.kept = l.kept[max(0, len(l.kept)-16):]
	return len(p), nil
}
