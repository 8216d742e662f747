package assembly_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// TestDrainLetsRequestsFinish: a stream that is running when the process is
// told to stop is answered whole.
func TestDrainLetsRequestsFinish(t *testing.T) {
	r := newRig(t, setup{})
	gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtChunk, Chunk: 2})
	resp, err := r.open(within(t), chatPath, chatBody("one two three", true))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r.stop()
	for ctx := within(t); ctx.Err() == nil; { // until the listener is closed
		c, err := net.Dial("tcp", strings.TrimPrefix(r.base, "http://"))
		if err != nil {
			break
		}
		c.Close()
	}
	gate.Release()
	text, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
		t.Errorf("%v %q", err, text)
	}
	if o := <-r.ended; o.cut != 0 || o.err != nil {
		t.Errorf("%+v", o)
	}
	r.ended <- outcome{}
}

// TestDrainCutsWhatDoesNotEnd: after shutdown_timeout streams end with an error
// event, and Run says how many.
func TestDrainCutsWhatDoesNotEnd(t *testing.T) {
	r := newRig(t, setup{toml: "[server]\nshutdown_timeout = \"100ms\"\n"})
	gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtChunk, Chunk: 2})
	defer gate.Release()
	resp, err := r.open(within(t), chatPath, chatBody("one two three", true))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r.stop()
	text, err := io.ReadAll(resp.Body)
	if err == nil || !strings.Contains(string(text), `"code":"shutting_down"`) {
		t.Errorf("%v %q", err, text)
	}
	if o := <-r.ended; o.cut != 1 || o.err != nil {
		t.Errorf("%+v", o)
	}
	r.ended <- outcome{}
}

func TestReadiness(t *testing.T) {
	r := newRig(t, setup{})
	get := func(method, path string) (int, string) {
		req, _ := http.NewRequestWithContext(within(t), method, r.base+path, nil)
		resp, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if status, _ := get("GET", path); status != 200 {
			t.Errorf("GET %s: %d", path, status)
		}
		if status, text := get("HEAD", path); status != 200 || text != "" {
			t.Errorf("HEAD %s: %d %q", path, status, text)
		}
	}
	r.Server.Drain()
	if status, text := get("GET", "/readyz"); status != 503 || text != `{"ready":false,"reason":"shutting down"}` {
		t.Errorf("%d %s", status, text)
	}
	if status, _ := get("GET", "/healthz"); status != 200 {
		t.Errorf("healthz %d", status)
	}
}
