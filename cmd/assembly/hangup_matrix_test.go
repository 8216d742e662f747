package assembly_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// client is a kind of client, with a request that is streamed.
type client struct{ name, path, body string }

var clients = []client{
	{"chat", chatPath, chatBody("one two three", true)},
	{"completions", completionsPath, `{"model":"demo-model","stream":true,"prompt":"one two three"}`},
	{"generate", generatePath, `{"token_ids":[1,2,3],"stream":true,"sampling_params":{"max_tokens":3}}`},
	{"responses", responsesPath, responsesBody("one two three", true)},
}

// unforgiving breakers make every failure that is counted show, for good.
const unforgiving = "[gateway.breaker]\nconsecutive_failures = 1\nopen_timeout = \"24h\"\n"

// hangUp is a place in the life of a request where its client leaves.
type hangUp struct {
	name string
	// gate holds legs until so many stand there; go on then and leave.
	gate  cluster.Gate
	stand int
	// through of those that stand there are let go before the client leaves.
	through int
	// begun: the client has read of the answer.
	begun bool
	// images of a chat request; no other has any.
	images func(*rig) []string
	// leave takes the place of all that.
	leave func(*rig, client)

	legs    []string       // that the cluster saw, without a render for generate
	aborted map[string]int // legs by name
	fetched int            // hand-offs that a decode read
	freed   int            // and those that were given up unread
}

func inlinedImages(*rig) (urls []string) {
	for i := range 4 {
		urls = append(urls, dataURI(picture(byte(i), 100)))
	}
	return urls
}

func imageByURL(r *rig) []string { return []string{r.image("image.png")} }

var hangUps = []hangUp{
	{name: "body upload", leave: (*rig).leaveInUpload},
	{name: "download", gate: cluster.Gate{Leg: cluster.Origin, At: cluster.AtHeaders}, stand: 1, images: imageByURL,
		legs: []string{"origin"}, aborted: map[string]int{"origin": 1}},
	{name: "render", gate: cluster.Gate{Leg: cluster.Render, At: cluster.AtArrival}, stand: 1,
		legs: []string{"render"}, aborted: map[string]int{"render": 1}},
	{name: "probe", gate: cluster.Gate{Leg: cluster.Probe, At: cluster.AtArrival}, stand: 1,
		legs: []string{"render", "probe"}, aborted: map[string]int{"probe": 1}},
	{name: "encode 2 of 4", gate: cluster.Gate{Leg: cluster.Encode, At: cluster.AtHeaders}, stand: 4, through: 2, images: inlinedImages,
		legs: []string{"render", "probe", "encode", "encode", "encode", "encode"}, aborted: map[string]int{"encode": 2}},
	{name: "prefill", gate: cluster.Gate{Leg: cluster.Prefill, At: cluster.AtHeaders}, stand: 1,
		legs: []string{"render", "probe", "prefill"}, aborted: map[string]int{"prefill": 1}, freed: 1},
	// The decode is the release.
	{name: "between prefill and decode", leave: (*rig).leaveBeforeDecode,
		legs: []string{"render", "probe", "prefill", "decode"}, fetched: 1},
	{name: "decode before its first event", gate: cluster.Gate{Leg: cluster.Decode, At: cluster.AtChunk}, stand: 1,
		legs: []string{"render", "probe", "prefill", "decode"}, aborted: map[string]int{"decode": 1}, fetched: 1},
	{name: "mid-stream", gate: cluster.Gate{Leg: cluster.Decode, At: cluster.AtChunk, Chunk: 2}, stand: 1, begun: true,
		legs: []string{"render", "probe", "prefill", "decode"}, aborted: map[string]int{"decode": 1}, fetched: 1},
}

// TestHangUpAtEveryPlace of every kind of client: no leg follows, what was under
// way is broken off, nobody is blamed, and nothing is left anywhere.
func TestHangUpAtEveryPlace(t *testing.T) {
	for _, at := range hangUps {
		for _, c := range clients {
			if at.images != nil && c.path != chatPath || at.gate.Leg == cluster.Render && c.path == generatePath {
				continue // it does not come there
			}
			t.Run(at.name+"/"+c.name, func(t *testing.T) {
				if at.begun && c.path == responsesPath {
					at.gate.Chunk = saidFirst
				}
				r := newRig(t, setup{steps: probingSteps, toml: unforgiving})
				if at.images != nil {
					c.body = imagesBody(at.images(r)...)
				}
				if at.leave != nil {
					at.leave(r, c)
				} else {
					r.leaveAtPlace(at, c)
				}
				r.settled()
				r.atRest()
				r.isLeft(at, c)
				if got := r.post(chatPath, chatBody("one two", false)); got.status != http.StatusOK || !strings.Contains(got.body, cluster.Reply("one two")) {
					t.Errorf("the next request: %d %s", got.status, got.body)
				}
				r.settled()
			})
		}
	}
}

// isLeft checks what a request whose client has left did.
func (r *rig) isLeft(at hangUp, c client) {
	r.t.Helper()
	want := at.legs
	if c.path == generatePath {
		want = slices.DeleteFunc(slices.Clone(want), func(l string) bool { return l == "render" })
	}
	if legs := r.legs(""); !slices.Equal(legs, want) {
		r.t.Errorf("legs %v, want %v", legs, want)
	}
	st := r.cluster.State()
	maps.DeleteFunc(st.Aborted, func(_ string, n int) bool { return n == 0 })
	if !maps.Equal(st.Aborted, at.aborted) {
		r.t.Errorf("aborted %v, want %v", st.Aborted, at.aborted)
	}
	if st.HeldKV+st.ExpiredLeases+st.ReusedHandoffs+st.FailedLoads != 0 || st.FetchedKV != at.fetched || st.FreedKV != at.freed {
		r.t.Errorf("KV: %+v", st)
	}
	for profile, state := range r.Status("").Breakers {
		if state != "closed" {
			r.t.Errorf("the hang-up counted as a failure of %s", profile)
		}
	}
}

// leaveAtPlace sends a request whose client leaves while its legs stand at the
// gate of a place.
func (r *rig) leaveAtPlace(at hangUp, c client) {
	r.t.Helper()
	gate := r.cluster.Hold(at.gate)
	ctx, leave := context.WithCancel(within(r.t))
	begun, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		resp, err := r.open(ctx, c.path, c.body, "X-Request-Id", "the-id")
		if err != nil {
			return
		}
		defer resp.Body.Close()
		if _, err := io.ReadFull(resp.Body, make([]byte, 1)); err == nil {
			close(begun)
		}
		io.Copy(io.Discard, resp.Body)
	}()
	if err := gate.WaitFor(within(r.t), at.stand); err != nil {
		r.t.Fatal(err)
	}
	for range at.through {
		gate.ReleaseOne()
	}
	if err := r.cluster.Wait(within(r.t), func(s cluster.State) bool { return s.InFlight[at.gate.Leg] == at.stand-at.through }); err != nil {
		r.t.Fatal(err)
	}
	if at.begun {
		select {
		case <-begun:
		case <-ctx.Done():
			r.t.Fatal("the answer did not begin")
		}
	}
	leave()
	<-gone
	r.settled()
	gate.Release() // not before, or who still stands there goes on
}

// leaveInUpload sends half of a body.
func (r *rig) leaveInUpload(c client) {
	r.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.base, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.sent.Add(1)
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: coordinator\r\nContent-Length: %d\r\n\r\n%s", c.path, len(c.body), c.body[:len(c.body)/2])
	r.eventually("charged for a body", func() bool { return r.Memory.Used() > 0 })
	conn.Close()
}

// leaveAtDial leaves when prefill has answered and decode has not been sent. No
// connection is used twice, so that decode has to dial, and that is held: until the
// caller releases it.
func (r *rig) leaveAtDial(path, body string) {
	r.t.Helper()
	r.cluster.AddFault(cluster.Fault{Headers: map[string]string{"Connection": "close"}})
	gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Prefill, At: cluster.AtHeaders})
	ctx, leave := context.WithCancel(within(r.t))
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		r.postCtx(ctx, path, body, "X-Request-Id", "the-id")
	}()
	if err := gate.WaitFor(within(r.t), 1); err != nil {
		r.t.Fatal(err)
	}
	r.dials.hold()
	gate.Release()
	select {
	case <-r.dials.reached:
	case <-ctx.Done():
		r.t.Fatal("decode does not dial")
	}
	leave()
	<-gone
}

// leaveBeforeDecode leaves when prefill has answered and decode has not been
// sent, and waits for the release of what prefill holds.
func (r *rig) leaveBeforeDecode(c client) {
	r.t.Helper()
	r.leaveAtDial(c.path, c.body)
	r.eventually("left to the release", func() bool { s := r.Engine.Status(); return s.Inflight == 0 && s.Detached == 1 })
	r.dials.release()
	if err := r.cluster.Wait(within(r.t), func(s cluster.State) bool { return s.FetchedKV == 1 }); err != nil {
		r.t.Fatalf("the KV is not fetched: %v", err)
	}
	r.eventually("released", func() bool { return r.Engine.Status().Detached == 0 })
	if legs := r.legIDs(""); legs[len(legs)-1] != "decode:the-id-release" {
		r.t.Errorf("legs %v, the last is no release", legs)
	}
	r.cluster.ClearFaults()
}

// atRest waits until nothing of any request is left, whether or not its client
// knows: in the engine, the pools, the budget, the cluster. A test that sends
// what may not arrive cannot count ends, as settled does.
func (r *rig) atRest() {
	r.t.Helper()
	r.client.CloseIdleConnections() // a server that stops waits 5 s for those that were never used
	r.eventually("at rest", func() bool {
		s := r.Engine.Status()
		for _, p := range s.Pools {
			if p.Busy+p.Queued > 0 {
				return false
			}
		}
		return s.Inflight+s.Detached == 0 && r.Memory.Used() == 0
	})
	r.clusterAtRest()
}
