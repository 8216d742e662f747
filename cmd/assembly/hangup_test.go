package assembly_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// TestClientThatLeavesTakesEverythingWithIt cuts a request off at each place,
// made exact by gates: no leg follows, and nothing is left anywhere.
func TestClientThatLeavesTakesEverythingWithIt(t *testing.T) {
	tests := []struct {
		name string
		gate cluster.Gate
		legs []string // that the cluster saw
	}{
		{"render", cluster.Gate{Leg: cluster.Render, At: cluster.AtArrival}, []string{"render"}},
		{"prefill", cluster.Gate{Leg: cluster.Prefill, At: cluster.AtArrival}, []string{"render", "prefill"}},
		{"decode before it read the KV", cluster.Gate{Leg: cluster.Decode, At: cluster.AtArrival}, []string{"render", "prefill", "decode"}},
		{"decode before its headers", cluster.Gate{Leg: cluster.Decode, At: cluster.AtHeaders}, []string{"render", "prefill", "decode"}},
		{"mid-stream", cluster.Gate{Leg: cluster.Decode, At: cluster.AtChunk, Chunk: 2}, []string{"render", "prefill", "decode"}},
	}
	images := `{"model":"demo-model","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"` + dataURI(picture(0, 100)) +
		`"}},{"type":"image_url","image_url":{"url":"` + dataURI(picture(1, 100)) + `"}}]}]}`
	for _, tt := range []struct {
		name string
		gate cluster.Gate
		n    int // legs that stand at the gate
		legs []string
	}{
		{"download", cluster.Gate{Leg: cluster.Origin, At: cluster.AtHeaders}, 1, []string{"origin"}},
		{"probe", cluster.Gate{Leg: cluster.Probe, At: cluster.AtArrival}, 1, []string{"render", "probe"}},
		{"encode", cluster.Gate{Leg: cluster.Encode, At: cluster.AtArrival}, 2, []string{"render", "probe", "encode", "encode"}},
		{"prefill with images", cluster.Gate{Leg: cluster.Prefill, At: cluster.AtArrival}, 1, []string{"render", "probe", "encode", "encode", "prefill"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, setup{ec: cluster.ECNixl, steps: probingSteps})
			body := images
			if tt.name == "download" {
				body = strings.Replace(images, dataURI(picture(0, 100)), r.cluster.ImageURL("image.png", cluster.ImageOptions{}), 1)
			}
			r.leaveAt(tt.gate, tt.n, body)
			if legs := r.legs(""); !slices.Equal(legs, tt.legs) {
				t.Errorf("legs %v, want %v", legs, tt.legs)
			}
			if st := r.cluster.State(); st.HeldKV != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
	for _, stream := range []bool{true, false} {
		for _, tt := range tests {
			if !stream && tt.name == "mid-stream" {
				continue
			}
			t.Run(tt.name, func(t *testing.T) {
				r := newRig(t, setup{})
				r.leaveAt(tt.gate, 1, chatBody("one two three", stream))
				if legs := r.legs(""); !slices.Equal(legs, tt.legs) {
					t.Errorf("legs %v, want %v", legs, tt.legs)
				}
				last := r.cluster.Legs("")[len(tt.legs)-1]
				if !last.Aborted {
					t.Errorf("the last leg was not aborted: %+v", last)
				}
				if st := r.cluster.State(); st.HeldKV != 0 || st.ExpiredLeases != 0 {
					t.Errorf("KV is held: %+v", st)
				}
			})
		}
	}
}

// leaveAt sends a chat request whose client leaves when n of its legs stand at a
// gate, and waits until nothing of it is left.
func (r *rig) leaveAt(at cluster.Gate, n int, body string) {
	r.t.Helper()
	gate := r.cluster.Hold(at)
	ctx, leave := context.WithCancel(within(r.t))
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		r.postCtx(ctx, chatPath, body, "X-Request-Id", "the-id")
	}()
	if err := gate.WaitFor(within(r.t), n); err != nil {
		r.t.Fatal(err)
	}
	leave()
	<-gone
	r.settled()
}

// TestKVThatNobodyWillReadIsReleased: the client leaves when prefill has
// answered and decode has not been sent. With kv-nixl a decode worker fetches
// the hand-off and throws it away.
func TestKVThatNobodyWillReadIsReleased(t *testing.T) {
	r := newRig(t, setup{})
	r.stopBeforeDecode()
	if legs := r.legs(""); !slices.Equal(legs, []string{"render", "prefill", "decode"}) {
		t.Fatalf("legs %v", legs)
	}
	release := r.cluster.Legs("")[2]
	if release.RequestID != "the-id-release" {
		t.Errorf("the decode leg is %q, not a release", release.RequestID)
	}
	st := r.cluster.State()
	if st.HeldKV != 0 || st.ExpiredLeases != 0 || st.FetchedKV != 1 {
		t.Errorf("the KV was not fetched: %+v", st)
	}
}

// stopBeforeDecode has the client of request the-id leave when prefill has answered
// and decode has not been sent, and stops the coordinator.
func (r *rig) stopBeforeDecode() {
	r.t.Helper()
	r.leaveAtDial(chatPath, chatBody("one two", true))
	<-r.finished // the request is over, and no decode was sent
	r.sent.Add(-1)
	r.dials.release()
	r.stop() // ends when the release has, which nobody else waits for
	if o := <-r.ended; o.err != nil || o.cut != 0 {
		r.t.Errorf("%+v", o)
	}
	r.ended <- outcome{}
	r.settled()
}

// TestTwoHundredStreamsHalfOfThemCutOff is the load that the first issue asks
// for: afterwards nothing is left of either half.
func TestTwoHundredStreamsHalfOfThemCutOff(t *testing.T) {
	r := newRig(t, setup{})
	const n = 200
	// All streams are held after three chunks, so that all are there at once.
	gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtChunk, Chunk: 3})
	var wg sync.WaitGroup
	cut := make(chan struct{})
	whole := make(chan string, n)
	for i := range n {
		wg.Go(func() {
			ctx, leave := context.WithCancel(within(t))
			defer leave()
			resp, err := r.open(ctx, chatPath, chatBody("one two three four", true))
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("%v %v", resp, err)
				return
			}
			defer resp.Body.Close()
			br := bufio.NewReader(resp.Body)
			br.ReadString('\n')
			<-cut
			if i%2 == 0 {
				return // leaves midway
			}
			rest, err := io.ReadAll(br)
			if err != nil {
				t.Errorf("a stream that was not cut: %v", err)
			}
			whole <- string(rest)
		})
	}
	if err := gate.WaitFor(within(t), n); err != nil {
		t.Fatal(err)
	}
	close(cut)
	if err := r.cluster.Wait(within(t), func(s cluster.State) bool { return s.Aborted[cluster.Decode] == n/2 }); err != nil {
		t.Fatalf("%v: %+v", err, r.cluster.State())
	}
	gate.Release()
	wg.Wait()
	if len(whole) != n/2 {
		t.Errorf("%d streams were whole, want %d", len(whole), n/2)
	}
	r.settled()
	if st := r.cluster.State(); st.HeldKV != 0 || st.ReusedHandoffs != 0 || st.FetchedKV != n {
		t.Errorf("%+v", st)
	}
}
