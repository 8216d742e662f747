package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// events reads a stream event by event.
type events struct{ *bufio.Reader }

// next returns the next event, without the line break after it.
func (e events) next() (string, error) {
	text := ""
	for !strings.HasSuffix(text, "\n\n") {
		line, err := e.ReadString('\n')
		if text += line; err != nil {
			return text, err
		}
	}
	return strings.TrimSuffix(text, "\n\n"), nil
}

const streamedWords = 40

// TestStreamsComeEventByEvent: the worker does not go on before the client has
// what it has sent. Were an event kept back anywhere, the two would wait for each
// other for ever. Were it kept back for a while only, there would be time for many
// a short request meanwhile.
func TestStreamsComeEventByEvent(t *testing.T) {
	const most = 40 // short requests for an event; two or three are usual, and some hundred if events wait for a timer
	said := strings.TrimSpace(strings.Repeat("word ", streamedWords))
	behindEach(t, func(t *testing.T, g gateway) {
		f := startFleet(t, g, plan{})
		shorts := f.countShortRequests()
		f.lockstep(completionsPath, fmt.Sprintf(`{"model":"demo-model","stream":true,"prompt":%q}`, said), 1)
		// Of a chat the first event, which has no text, is held back: see wire.Hold.
		f.lockstep(chatPath, fmt.Sprintf(`{"model":"demo-model","stream":true,"messages":[{"role":"user","content":%q}]}`, said), 2)
		if n := shorts(); n > 2*streamedWords*most {
			t.Errorf("there was time for %d short requests during %d events", n, 2*streamedWords)
		} else {
			t.Logf("%d short requests during %d events", n, 2*streamedWords)
		}
		f.settled()
	})
}

// lockstep reads a stream whose worker waits after each event, beginning with
// that of the given number, until the client has it.
func (f *fleet) lockstep(path, body string, first int) {
	f.t.Helper()
	gates := map[int]*cluster.Held{}
	for n := first; n <= streamedWords; n++ {
		gates[n] = f.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtChunk, Chunk: n})
	}
	resp, err := f.open(f.ctx, path, body)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	stream := events{bufio.NewReader(resp.Body)}
	for n := 1; n <= streamedWords; n++ {
		if event, err := stream.next(); err != nil || !strings.HasPrefix(event, "data: {") {
			f.t.Fatalf("%s: event %d: %v %q", path, n, err, event)
		}
		gate := gates[n]
		if gate == nil {
			continue
		}
		if err := gate.WaitFor(f.ctx, 1); err != nil || stream.Buffered() != 0 {
			f.t.Fatalf("%s: the client has event %d and %d bytes more: %v", path, n, stream.Buffered(), err)
		}
		gate.Release()
	}
	rest, err := io.ReadAll(stream)
	if err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
		f.t.Errorf("%s: %v %q", path, err, rest)
	}
}

// countShortRequests makes one after the other through the gateway, until the
// function that it returns is called, which says how many there were.
func (f *fleet) countShortRequests() (end func() int) {
	ctx, cancel := context.WithCancel(f.ctx)
	count := make(chan int)
	go func() {
		n := 0
		for ctx.Err() == nil {
			if status, _, err := get(ctx, f.client, f.url+"/healthz"); err == nil && status == http.StatusOK {
				n++
			}
		}
		count <- n
	}()
	end = sync.OnceValue(func() int {
		cancel()
		return <-count
	})
	f.t.Cleanup(func() { end() })
	return end
}

// TestAClientThatLeavesEndsItsLeg, wherever it is: the gateway says so to the
// coordinator, and then again to the worker.
func TestAClientThatLeavesEndsItsLeg(t *testing.T) {
	gates := []cluster.Gate{
		{Leg: cluster.Prefill, At: cluster.AtArrival},
		{Leg: cluster.Decode, At: cluster.AtArrival},
		{Leg: cluster.Decode, At: cluster.AtChunk, Chunk: 4},
	}
	behindEach(t, func(t *testing.T, g gateway) {
		f := startFleet(t, g, plan{})
		for i, gate := range gates {
			before := f.cluster.State().Aborted[gate.Leg]
			held := f.cluster.Hold(gate)
			ctx, leave := context.WithCancel(f.ctx)
			left := make(chan error, 1)
			go func() {
				left <- read(f.open(ctx, chatPath, shortChatStream, "X-Request-Id", fmt.Sprintf("req-%d", i))).err
			}()
			if err := held.WaitFor(f.ctx, 1); err != nil {
				t.Fatal(err)
			}
			leave()
			if err := <-left; err == nil {
				t.Error("the request has ended well")
			}
			if err := f.cluster.Wait(f.ctx, func(s cluster.State) bool { return s.Aborted[gate.Leg] == before+1 && s.Idle() }); err != nil {
				t.Errorf("%+v: the worker goes on: %v: %+v", gate, err, f.cluster.State())
			}
			held.Remove()
		}
		f.settled()
	})
}
