package gateway

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// segments is how many segments with data have come by a connection: one for each
// write of up to 64 KB to the loopback.
func segments(t *testing.T, c net.Conn) (n uint32) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if failed = err; err == nil {
			n = info.Data_segs_in
		}
	}); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	return n
}

type connKey struct{}

// TestLegsGoOutAtOnce: each leg takes one write, head and body, whether its body
// fits into net/http's buffer or goes out in pieces.
func TestLegsGoOutAtOnce(t *testing.T) {
	var came []uint32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		came = append(came, segments(t, r.Context().Value(connKey{}).(net.Conn)))
	}))
	s.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
	s.Start()
	defer s.Close()
	o, err := NewOrigin(OriginSettings{Address: s.URL, MaxIdle: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	r := see(t, o)
	sizes := []int{100, 20 << 10, 40 << 10, 100}
	for _, size := range sizes {
		sent := leg("")
		sent.Body = func(string) wire.Payload { return wire.NewPayload(bytes.Repeat([]byte("x"), size)) }
		if _, _, f := r.call(sent); f != nil {
			t.Error(f)
		}
	}
	for i, n := range came {
		if n != uint32(i+1) {
			t.Errorf("after leg %d, of %d bytes, %d segments have come", i, sizes[i], n)
		}
	}
}
