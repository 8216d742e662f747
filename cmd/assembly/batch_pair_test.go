package assembly_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// newBatchPairRig is a rig in which each prompt of a batch goes to a pair.
func newBatchPairRig(t *testing.T, toml string) *rig {
	s := pairSetup(renderStep + pairStep(byReserve))
	s.pipeline, s.toml = batching, toml
	return newRig(t, s)
}

// TestBatchesOfPairs: each prompt has an exchange of its own, and their answers are one,
// in order.
func TestBatchesOfPairs(t *testing.T) {
	for _, stream := range []bool{false, true} {
		for _, n := range []int{1, 2} {
			t.Run(fmt.Sprintf("streamed %t, n %d", stream, n), func(t *testing.T) {
				r := newBatchPairRig(t, "")
				// The last prompt is answered first.
				gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, RequestID: "b-p0", At: cluster.AtHeaders})
				answer := make(chan response)
				go func() {
					answer <- r.post(completionsPath, batchBody(batchPrompts, fmt.Sprintf(`,"stream":%t,"n":%d`, stream, n)), "X-Request-Id", "b")
				}()
				if err := r.cluster.Wait(within(t), func(st cluster.State) bool {
					return gate.Waiting() == 1 && st.Legs[cluster.Decode] == len(batchPrompts) && st.InFlight[cluster.Decode] == 1
				}); err != nil {
					t.Fatal(err)
				}
				gate.Release()
				texts, _, _ := merged(t, <-answer, stream)
				if len(texts) != len(batchPrompts)*n {
					t.Errorf("choices %v", texts)
				}
				for i, text := range texts {
					if want := cluster.Reply(batchPrompts[i/n]); text != want {
						t.Errorf("choice %d is %q, want %q", i, text, want)
					}
				}
				r.pairBatchSettled()
				var all []string
				for i := range batchPrompts {
					rooms := r.newRooms(fmt.Sprint("b-p", i))
					if len(rooms[cluster.Prefill]) != 1 || !slices.Equal(rooms[cluster.Prefill], rooms[cluster.Decode]) {
						t.Errorf("rooms of prompt %d: %v", i, rooms)
					}
					all = append(all, rooms[cluster.Decode]...)
				}
				if slices.Sort(all); len(slices.Compact(all)) != len(batchPrompts) {
					t.Errorf("two prompts were in one room: %v", all)
				}
			})
		}
	}
}

// pairBatchSettled is settled, and checks that no byte is charged any more.
func (r *rig) pairBatchSettled() {
	r.t.Helper()
	r.settled()
	if used := r.Memory.Used(); used != 0 {
		r.t.Errorf("%d bytes are still charged", used)
	}
}

// TestLegOfAPairInABatchFails: the batch does, and both legs of every other prompt are
// ended, wherever they are.
func TestLegOfAPairInABatchFails(t *testing.T) {
	for _, leg := range []string{cluster.Reserve, cluster.Prefill, cluster.Decode} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, streamed %t", leg, stream), func(t *testing.T) {
				r := newBatchPairRig(t, "")
				id := "b-p1"
				if leg == cluster.Reserve {
					id += "-reserve"
				}
				r.cluster.AddFault(cluster.Fault{Leg: leg, RequestID: id, Status: 422})
				gates := []*cluster.Held{
					r.cluster.Hold(cluster.Gate{Leg: leg, RequestID: id}),
					r.cluster.Hold(cluster.Gate{Leg: cluster.Prefill, RequestID: "b-p0"}), // its decode waits
					r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, RequestID: "b-p2", At: cluster.AtHeaders}),
				}
				answer := make(chan response)
				go func() {
					answer <- r.post(completionsPath, batchBody(batchPrompts, fmt.Sprintf(`,"stream":%t`, stream)), "X-Request-Id", "b")
				}()
				for _, gate := range gates {
					if err := gate.WaitFor(within(t), 1); err != nil {
						t.Fatal(err)
					}
				}
				gates[0].Release()
				got := <-answer
				if o := readError(t, got.body); got.status != 422 || o.Error.Code != "upstream_rejected" || !strings.Contains(o.Error.Message, "(request_id: b)") {
					t.Errorf("%d %s", got.status, got.body)
				}
				r.pairBatchSettled()
				for _, id := range []string{"b-p0", "b-p2"} {
					for _, l := range r.cluster.Legs(id) {
						if l.Name == cluster.Decode && !l.Aborted {
							t.Errorf("decode of %s was not ended", id)
						}
					}
				}
				for profile, state := range r.Status("").Breakers {
					if state != "closed" {
						t.Errorf("the breaker of %s is %s", profile, state)
					}
				}
				// Nothing of it stands in the way of the next.
				texts, _, _ := merged(t, r.post(completionsPath, batchBody(batchPrompts[:2], ""), "X-Request-Id", "next"), false)
				if len(texts) != 2 {
					t.Errorf("%v", texts)
				}
				r.settled()
			})
		}
	}
}

// TestBatchOfPairsLargerThanThePools: prompts wait for both places at once, and not in a
// circle.
func TestBatchOfPairsLargerThanThePools(t *testing.T) {
	r := newBatchPairRig(t, "[actors.pools]\nprefill = { size = 1, queue = 8 }\ndecode = { size = 2, queue = 8 }\n")
	prompts := []string{"a", "b b", "c c c", "d", "e", "f", "g", "h"}
	for _, stream := range []bool{false, true} {
		texts, _, _ := merged(t, r.post(completionsPath, batchBody(prompts, fmt.Sprintf(`,"stream":%t`, stream))), stream)
		for i, p := range prompts {
			if texts[i] != cluster.Reply(p) {
				t.Errorf("prompt %d: %q", i, texts[i])
			}
		}
	}
	r.pairBatchSettled()
}

// TestPairInABatchStartsAgain as long as nothing of its own answer has gone out, whatever
// has of another's.
func TestPairInABatchStartsAgain(t *testing.T) {
	for _, leg := range []string{cluster.Prefill, cluster.Decode} {
		t.Run(leg, func(t *testing.T) {
			r := newBatchPairRig(t, quick)
			r.cluster.AddFault(cluster.Fault{Leg: leg, RequestID: "b-p1", Status: 500, Times: 1})
			failing := r.cluster.Hold(cluster.Gate{Leg: leg, RequestID: "b-p1"})
			begun := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, RequestID: "b-p0", At: cluster.AtChunk, Chunk: 2})
			resp, err := r.open(within(t), completionsPath, batchBody(batchPrompts[:2], `,"stream":true`), "X-Request-Id", "b")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			first := firstByteAt(t, resp, failing, begun) // of prompt 0
			failing.Release()
			if err := r.cluster.Wait(within(t), func(st cluster.State) bool { return st.Legs[cluster.Reserve] == 3 || st.Idle() }); err != nil {
				t.Fatal(err)
			}
			begun.Release()
			rest, err := io.ReadAll(resp.Body)
			texts, _, _ := merged(t, response{status: resp.StatusCode, header: resp.Header, body: first + string(rest), err: err}, true)
			for i, p := range batchPrompts[:2] {
				if texts[i] != cluster.Reply(p) {
					t.Errorf("prompt %d: %q, want %q", i, texts[i], cluster.Reply(p))
				}
			}
			r.pairBatchSettled()
			r.newRooms("b-p1")
			if n := r.metric(t, metricPrefix+"reruns_total"); n != 1 {
				t.Errorf("%v reruns", n)
			}
		})
	}
}

// TestPairInABatchThatHasBegunIsNotStartedAgain: some of its own answer is out when its
// prefill fails.
func TestPairInABatchThatHasBegunIsNotStartedAgain(t *testing.T) {
	r := newBatchPairRig(t, quick)
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Prefill, RequestID: "b-p1", BreakAfter: new(0), Times: 1})
	prefill := r.cluster.Hold(cluster.Gate{Leg: cluster.Prefill, RequestID: "b-p1", At: cluster.AtHeaders})
	decode := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, RequestID: "b-p1", At: cluster.AtChunk, Chunk: 2, Times: 1})
	other := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, RequestID: "b-p0", At: cluster.AtHeaders})
	resp, err := r.open(within(t), completionsPath, batchBody(batchPrompts[:2], `,"stream":true`), "X-Request-Id", "b")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := firstByteAt(t, resp, prefill, decode, other)
	prefill.Release()
	if err := r.cluster.Wait(within(t), func(st cluster.State) bool { return st.Legs[cluster.Reserve] == 3 || st.Idle() }); err != nil {
		t.Fatal(err)
	}
	other.Release()
	rest, err := io.ReadAll(resp.Body)
	text := first + string(rest)
	if err == nil || strings.Contains(text, "[DONE]") || strings.Count(text, `"code":"upstream_failed"`) != 1 {
		t.Errorf("%v: %s", err, text)
	}
	r.pairBatchSettled()
	if n := r.cluster.Count(cluster.Decode); n != 2 {
		t.Errorf("%d decodes", n)
	}
}

// firstByteAt reads the first byte of a stream, and waits until a leg is at each gate.
func firstByteAt(t *testing.T, resp *http.Response, gates ...*cluster.Held) string {
	t.Helper()
	first := make([]byte, 1)
	if _, err := io.ReadFull(resp.Body, first); err != nil {
		t.Fatal(err)
	}
	for _, gate := range gates {
		if err := gate.WaitFor(within(t), 1); err != nil {
			t.Fatal(err)
		}
	}
	return string(first)
}
