//go:build !race

package assembly_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/llm-coordinator/coordinator/cmd/assembly"
	"github.com/llm-coordinator/coordinator/conf"
)

// bareBackend answers every leg with prepared bytes, and reads of it what it
// must: what is allocated in its process is the coordinator's.
type bareBackend struct {
	net.Listener
	answers map[string][]byte // by leg
	legs    map[string]*atomic.Int64
	hold    chan struct{} // a stream waits here behind its first event, if it is not nil
	serving sync.WaitGroup
}

func answer(contentType, body string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", contentType, len(body), body)
}

const chunkEvent = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word \"},\"finish_reason\":null}]}\n\n"

func newBareBackend(t *testing.T, tensor int) *bareBackend {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &bareBackend{Listener: l, answers: map[string][]byte{}, legs: map[string]*atomic.Int64{}}
	ids := "[1" + strings.Repeat(",12345", 511) + "]"
	features := "null"
	if tensor > 0 {
		features = `{"mm_hashes":{"image":["aa"]},"mm_placeholders":{"image":[{"offset":3,"length":100}]},"kwargs_data":{"image":["` + strings.Repeat("A", tensor) + `"]}}`
	}
	const transfer = `{"do_remote_prefill":true,"do_remote_decode":false,"remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600,"remote_block_ids":[[1,2,3]],"tp_size":1}`
	b.answers["render"] = answer("application/json", `{"request_id":"r","token_ids":`+ids+`,"features":`+features+`}`)
	b.answers["encode"] = answer("application/json", `{"choices":[],"ec_transfer_params":{"aa":{"peer_host":"10.0.0.2","peer_port":1}}}`)
	b.answers["prefill"] = answer("application/json", `{"choices":[{"finish_reason":"length"}],"kv_transfer_params":`+transfer+`}`)
	b.answers["decode"] = answer("application/json", `{"choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}]}`)
	var stream strings.Builder
	stream.WriteString("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
	for range 64 {
		fmt.Fprintf(&stream, "%x\r\n%s\r\n", len(chunkEvent), chunkEvent)
	}
	const done = "data: [DONE]\n\n"
	fmt.Fprintf(&stream, "%x\r\n%s\r\n0\r\n\r\n", len(done), done)
	b.answers["stream"] = []byte(stream.String())
	for name := range b.answers {
		b.legs[name] = new(atomic.Int64)
	}
	b.serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b.serving.Go(func() { b.serve(c) })
		}
	})
	return b
}

func (b *bareBackend) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReaderSize(c, 16<<10)
	for {
		leg, length := "render", 0
		for {
			line, err := in.ReadSlice('\n')
			if err != nil {
				return
			}
			if len(line) == 2 {
				break
			}
			if v, ok := bytes.CutPrefix(line, []byte("Epp-Profile: ")); ok {
				leg = string(v[:len(v)-2]) // a short one: it is on the stack
			} else if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
				length, _ = strconv.Atoi(string(v[:len(v)-2]))
			}
		}
		start, _ := in.Peek(min(length, 200))
		if leg == "decode" && bytes.Contains(start, []byte(`"stream":true`)) {
			leg = "stream"
		}
		if _, err := in.Discard(length); err != nil {
			return
		}
		b.legs[leg].Add(1)
		if leg == "stream" && b.hold != nil {
			first := bytes.Index(b.answers[leg], []byte(chunkEvent)) + len(chunkEvent) + 2
			c.Write(b.answers[leg][:first])
			<-b.hold
			return
		}
		if _, err := c.Write(b.answers[leg]); err != nil {
			return
		}
	}
}

// guarded is a coordinator over a bare backend, with a client that allocates
// nothing either.
type guarded struct {
	t       *testing.T
	backend *bareBackend
	address string
	stop    func()
}

func newGuarded(t *testing.T, tensor int, tokensIn bool) *guarded {
	g := &guarded{t: t, backend: newBareBackend(t, tensor)}
	at := "http://" + g.backend.Addr().String()
	text := fmt.Sprintf("log_level = 1\n[gateway]\naddress = %q\n[pipeline]\nkv_connector = \"kv-nixl\"\nec_connector = \"ec-nixl\"\nuse_openai_format = %t\n", at, !tokensIn) +
		mediaStep + strings.NewReplacer("CLUSTER", at, ", RENDER", "").Replace(renderStep) + encodeStep + prefillStep + decodeStep
	cfg, err := conf.Parse("guard.toml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := assembly.New(cfg, assembly.Options{Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.address = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { c.Run(ctx, l, nil); close(ended) }()
	g.stop = sync.OnceFunc(func() { cancel(); <-ended; g.backend.Close(); g.backend.serving.Wait() })
	t.Cleanup(g.stop)
	return g
}

// bareClient is a connection that sends one prepared request again and again.
type bareClient struct {
	net.Conn
	in      *bufio.Reader
	request []byte
}

func (g *guarded) client(body string) *bareClient {
	c, err := net.Dial("tcp", g.address)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { c.Close() })
	return &bareClient{Conn: c, in: bufio.NewReaderSize(c, 16<<10), request: fmt.Appendf(nil,
		"POST %s HTTP/1.1\r\nHost: guard\r\nContent-Type: application/json\r\nContent-Length: %d\r\nAuthorization: Bearer x\r\nUser-Agent: guard\r\n\r\n%s",
		chatPath, len(body), body)}
}

// round sends the request and reads its answer to the end.
func (c *bareClient) round() error {
	if _, err := c.Write(c.request); err != nil {
		return err
	}
	length := -1
	for n := 0; ; n++ {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if n == 0 && !bytes.HasPrefix(line, []byte("HTTP/1.1 200")) {
			return fmt.Errorf("%s", line)
		}
		if len(line) == 2 {
			break
		}
		if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			length, _ = strconv.Atoi(string(v[:len(v)-2]))
		}
	}
	if length >= 0 {
		_, err := c.in.Discard(length)
		return err
	}
	for { // chunks
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(line) == 3 && line[0] == '0' {
			_, err := c.in.Discard(2)
			return err
		}
	}
}

const guardText = `{"model":"m","stream":%t,"max_tokens":16,"temperature":0.7,"messages":[{"role":"user","content":"%s"}]}`

func guardImage(n int) string {
	return `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"what"},{"type":"image_url","image_url":{"url":"` + dataURI(picture(1, n)) + `"}}]}]}`
}

// TestAllocationsOfAWholeRequest: what a request costs from its first byte to its
// last, net/http's share on both sides included. The bounds are a tenth above what
// it is; who comes near them has added something.
func TestAllocationsOfAWholeRequest(t *testing.T) {
	for _, tt := range []struct {
		name        string
		body        string
		tensor      int
		tokensIn    bool
		allocations float64
		perByte     float64 // bytes allocated per byte of the body; 0 is not looked at
		legs        map[string]int64
	}{
		{"text", fmt.Sprintf(guardText, false, strings.Repeat("word ", 200)), 0, false, maxText, 0, map[string]int64{"render": 1, "prefill": 1, "decode": 1}},
		{"stream of 64 events", fmt.Sprintf(guardText, true, strings.Repeat("word ", 200)), 0, false, maxStream, 0, map[string]int64{"render": 1, "prefill": 1, "stream": 1}},
		{"an image of 12 KB", guardImage(12 << 10), 1 << 20, false, maxImage, 0, map[string]int64{"render": 1, "encode": 1, "prefill": 1, "decode": 1}},
		{"an image of 4 MB", guardImage(4 << 20), 1 << 10, false, maxImage + 50, maxPerByte, map[string]int64{"render": 1, "encode": 1, "prefill": 1, "decode": 1}},
		{"tokens in", guardImage(12 << 10), 1 << 20, true, maxImage, 0, map[string]int64{"render": 1, "encode": 1, "prefill": 1, "decode": 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGuarded(t, tt.tensor, tt.tokensIn)
			c := g.client(tt.body)
			const warm, n = 20, 100
			for range warm {
				if err := c.round(); err != nil {
					t.Fatal(err)
				}
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range n {
				if err := c.round(); err != nil {
					t.Fatal(err)
				}
			}
			runtime.ReadMemStats(&after)
			allocations := float64(after.Mallocs-before.Mallocs) / n
			perByte := float64(after.TotalAlloc-before.TotalAlloc) / n / float64(len(tt.body))
			t.Logf("%.0f allocations, %.0f bytes, %.2f for each of the body", allocations, float64(after.TotalAlloc-before.TotalAlloc)/n, perByte)
			if allocations > tt.allocations {
				t.Errorf("%.0f allocations, want at most %.0f", allocations, tt.allocations)
			}
			if tt.perByte > 0 && perByte > tt.perByte {
				t.Errorf("%.2f bytes are allocated for each byte of the body, want at most %.2f", perByte, tt.perByte)
			}
			for leg, count := range g.backend.legs {
				if got := count.Load(); got != tt.legs[leg]*(warm+n) {
					t.Errorf("%d legs %s of %d requests", got, leg, warm+n)
				}
			}
		})
	}
}

// TestAllocationsOfHeldStreams: the goroutines of one that waits for its next
// event, and the memory that is alive for it.
func TestAllocationsOfHeldStreams(t *testing.T) {
	g := newGuarded(t, 0, false)
	g.backend.hold = make(chan struct{})
	body := fmt.Sprintf(guardText, true, strings.Repeat("word ", 200))
	// One after the other: else the connections of their other legs would count,
	// of which there are as many as are at work at a time.
	open := func(n int) {
		for range n {
			c := g.client(body)
			if _, err := c.Write(c.request); err != nil {
				t.Fatal(err)
			}
			for !bytes.Contains(firstOf(c.in), []byte("word")) {
			}
		}
	}
	measure := func() (goroutines int, alive uint64) {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return runtime.NumGoroutine(), m.HeapAlloc
	}
	open(20)
	const n = 200
	goroutines, alive := measure()
	open(n)
	more, then := measure()
	perStream, bytesPerStream := float64(more-goroutines)/n, int64(then-alive)/n
	t.Logf("%.2f goroutines and %d bytes for each stream, one goroutine and some bytes of the backend's and the client's among them", perStream, bytesPerStream)
	if perStream > maxGoroutines {
		t.Errorf("%.2f goroutines for each stream, want at most %.2f", perStream, maxGoroutines)
	}
	if bytesPerStream > maxStreamBytes {
		t.Errorf("%d bytes are alive for each stream, want at most %d", bytesPerStream, maxStreamBytes)
	}
	close(g.backend.hold)
	g.stop()
}

// firstOf returns what has arrived, after waiting for anything.
func firstOf(in *bufio.Reader) []byte {
	if _, err := in.Peek(in.Buffered() + 1); err != nil && err != io.EOF {
		return []byte("word") // it broke: the count will tell
	}
	b, _ := in.Peek(in.Buffered())
	return b
}

const (
	maxText    = 404
	maxStream  = 424
	maxImage   = 596
	maxPerByte = 2.6 // the buffer of a body doubles until what is promised has been seen to come
	// maxGoroutines are five of ours (the handler, its connection's reader, the
	// worker, and two of net/http for the upstream's connection) and the backend's.
	maxGoroutines  = 6.5
	maxStreamBytes = 72_000 // pools of buffers make it differ by a tenth
)
