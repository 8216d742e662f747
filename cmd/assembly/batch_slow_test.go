package assembly_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-coordinator/coordinator/cmd/assembly"
	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// piped is a coordinator between workers and clients that it is connected with by pipes.
// They have no buffer: what it has read of its workers is what it holds, or its client
// has taken.
type piped struct {
	*assembly.Coordinator
	cluster *cluster.Cluster
	clients *http.Transport
	read    atomic.Int64 // bytes, of workers
	stop    context.CancelFunc
	ended   chan outcome
}

// newPiped starts one with decode alone. Call it in a bubble of synctest.
func newPiped(t *testing.T) *piped {
	t.Helper()
	workers, public := cluster.NewPipeListener(), cluster.NewPipeListener()
	p := &piped{cluster: cluster.New(cluster.Options{}), clients: &http.Transport{DialContext: public.DialContext}, ended: make(chan outcome, 1)}
	if err := p.cluster.StartOn(workers); err != nil {
		t.Fatal(err)
	}
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := workers.DialContext(ctx, network, addr)
		return metered{conn, &p.read}, err
	}
	var err error
	if p.Coordinator, err = assembly.New(liveConfig(t, "http://cluster.test", batching, decodeStep), assembly.Options{Dial: dial}); err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, p.stop = context.WithCancel(t.Context())
	go func() {
		cut, err := p.Run(ctx, public, nil)
		p.ended <- outcome{cut, err}
	}()
	return p
}

// end ends it, when all its requests have.
func (p *piped) end(t *testing.T) {
	t.Helper()
	p.clients.CloseIdleConnections()
	p.stop()
	if o := <-p.ended; o.cut != 0 || o.err != nil || p.Memory.Used() != 0 {
		t.Errorf("%+v, %d bytes are still charged", o, p.Memory.Used())
	}
	p.cluster.Close()
}

// metered is a connection that counts what is read from it.
type metered struct {
	net.Conn
	read *atomic.Int64
}

func (m metered) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	m.read.Add(int64(n))
	return n, err
}

// maxAhead is how much more is read of two workers than a client takes: of each what one
// read takes in, here and in net/http, and a few chunks on their way to the client.
const maxAhead = 32 << 10

// TestClientThatReadsNothingStopsTheWorkers of all prompts.
func TestClientThatReadsNothingStopsTheWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPiped(t)
		defer p.end(t)
		prompts := []string{strings.Repeat("a ", 2_000), strings.Repeat("b ", 2_000)}
		resp, err := (&http.Client{Transport: p.clients}).Post("http://coordinator.test"+completionsPath, "application/json",
			strings.NewReader(batchBody(prompts, `,"stream":true`)))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		synctest.Wait() // nothing goes on any more
		before := p.read.Load()
		if st := p.cluster.State(); before > maxAhead || p.Memory.Used() > maxAhead || st.InFlight[cluster.Decode] != 2 {
			t.Errorf("%d bytes are read, %d charged: %+v", before, p.Memory.Used(), st)
		}
		time.Sleep(10 * time.Second) // of the bubble
		synctest.Wait()
		if n := p.read.Load() - before; n != 0 {
			t.Errorf("%d bytes more are read though nobody takes them", n)
		}
		text, err := io.ReadAll(resp.Body)
		texts, _, _ := merged(t, response{status: resp.StatusCode, header: resp.Header, body: string(text), err: err}, true)
		for i, prompt := range prompts {
			if texts[i] != cluster.Reply(prompt) {
				t.Errorf("prompt %d has %d bytes, want %d", i, len(texts[i]), len(cluster.Reply(prompt)))
			}
		}
		if n := p.read.Load(); n < int64(len(text)) {
			t.Errorf("only %d bytes were read for an answer of %d", n, len(text))
		}
	})
}
