package gateway

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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
	o, err := NewOrigin(OriginSettings{Address: s.URL, MaxIdle: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	r := see(t, o)
	for i := range 6 {
		e := object.Edit()
		if i%2 == 1 {
			e = wire.NewEdit()
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

// sum tells texts apart.
func sum(text []byte) (n uint64) {
	for _, c := range text {
		n = n*31 + uint64(c)
	}
	return n
}
