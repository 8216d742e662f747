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

// segments is how many segments with data have come by a connection of the
// loopback: one for each write, if it is less than half of a window, which has 64 KB
// at first.
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
	came := map[net.Conn][]uint32{}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		c := r.Context().Value(connKey{}).(net.Conn)
		came[c] = append(came[c], segments(t, c))
	}))
	s.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
	s.Start()
	defer s.Close()
	r := seeOver(t, s.URL)
	sizes := []int{100, flatSize + 1, 20 << 10, 24 << 10, 100}
	for _, size := range sizes {
		sent := leg("")
		sent.Body = func(string) wire.Payload { return wire.NewPayload(bytes.Repeat([]byte("x"), size)) }
		if _, _, f := r.call(sent); f != nil {
			t.Error(f)
		}
	}
	s.Close()
	legs := 0
	for _, segments := range came { // one connection, unless something was very slow
		for i, n := range segments {
			if legs++; n != uint32(i+1) {
				t.Errorf("after %d legs of %d bytes %d segments have come", i+1, sizes, n)
			}
		}
	}
	if legs != len(sizes) {
		t.Errorf("%d legs of %d", legs, len(sizes))
	}
}
