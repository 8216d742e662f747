package gateway

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// TestLargeLegsArriveWhole over TCP, where they go out in pieces, one after the
// other on one connection, with small ones in between.
func TestLargeLegsArriveWhole(t *testing.T) {
	object, err := wire.ParseBody([]byte(`{"a":1,"b":"` + string(bytes.Repeat([]byte("x"), 3<<20)) + `","c":[1,2,3],"d":"` + string(bytes.Repeat([]byte("y"), 100<<10)) + `"}`))
	if err != nil {
		t.Fatal(err)
	}
	conns := map[string]bool{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		conns[r.RemoteAddr] = true
		fmt.Fprintf(w, "%d %x", len(got), sum(got))
	}))
	defer s.Close()
	r := seeOver(t, s.URL)
	for i := range 6 {
		e := object.Edit()
		if i%2 == 1 {
			e = wire.NewEdit()
		}
		if i == 3 { // all but head would fit in net/http's buffer
			e.SetRaw("s", `"`+strings.Repeat("x", flatSize)+`"`)
		}
		e.SetRaw("n", fmt.Sprint(i))
		payload := e.Payload()
		large := leg("")
		large.Body = func(string) wire.Payload { return payload }
		want := fmt.Sprintf("%d %x", payload.Size(), sum(payload.Append(nil)))
		if body, _, f := r.call(large); f != nil || body != want {
			t.Errorf("leg %d: %q, %v, want %s", i, body, f, want)
		}
	}
	if len(conns) != 1 {
		t.Errorf("on %d connections", len(conns))
	}
}

// pieced is a connection and the end that it is read at.
func pieced(t *testing.T) (*piecewise, net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := dialPiecewise(new(net.Dialer).DialContext)(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	end, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); end.Close() })
	return conn.(*piecewise), end
}

// TestHeadGoesOutWithItsBody: what is read first is all of a leg. Of one that is
// not in pieces the head is not held.
func TestHeadGoesOutWithItsBody(t *testing.T) {
	c, end := pieced(t)
	e := wire.NewEdit()
	e.SetRaw("a", `"`+string(bytes.Repeat([]byte("x"), 20<<10))+`"`)
	body := e.Payload()
	first := func() string {
		t.Helper()
		got := make([]byte, 64<<10)
		n, err := end.Read(got)
		if err != nil {
			t.Fatal(err)
		}
		return string(got[:n])
	}
	for range 2 {
		c.take(true)
		for _, line := range []string{"POST / HTTP/1.1\r\n", "\r\n"} { // net/http writes in two if its buffer is full
			if n, err := c.Write([]byte(line)); n != len(line) || err != nil {
				t.Fatal(n, err)
			}
		}
		if n, err := c.ReadFrom(&io.LimitedReader{R: body.Reader(), N: body.Size()}); n != body.Size() || err != nil {
			t.Fatal(n, err)
		}
		if got, want := first(), "POST / HTTP/1.1\r\n\r\n"+string(body.Append(nil)); got != want {
			t.Errorf("%d bytes came at first, want %d", len(got), len(want))
		}
	}
	c.take(true) // a leg that ended before anything of it was written
	c.take(false)
	if _, err := c.Write([]byte("head")); err != nil || first() != "head" {
		t.Errorf("a head is held, or %v", err)
	}
	c.take(true)
	c.Write([]byte("head"))
	if n, err := c.ReadFrom(strings.NewReader("body")); n != 4 || err != nil {
		t.Error(n, err)
	}
	got := make([]byte, 8)
	if _, err := io.ReadFull(end, got); err != nil || string(got) != "headbody" {
		t.Errorf("%q %v", got, err)
	}
	c.Close()
	c.take(true)
	c.Write([]byte("head"))
	for _, r := range []io.Reader{strings.NewReader("body"), &io.LimitedReader{R: body.Reader(), N: body.Size()}} {
		if n, err := c.ReadFrom(r); n != 0 || err == nil {
			t.Errorf("written to a closed connection: %d %v", n, err)
		}
	}
}

// sum tells texts apart.
func sum(text []byte) (n uint64) {
	for _, c := range text {
		n = n*31 + uint64(c)
	}
	return n
}
