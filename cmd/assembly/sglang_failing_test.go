package assembly_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/server/servertest"
)

// newPairRig is a rig with the whole pipeline in front of a pair.
func newPairRig(t *testing.T, toml string) *rig {
	s := pairSetup(renderStep + pairStep(byReserve))
	s.toml = toml
	return newRig(t, s)
}

// newRooms checks that no room was used twice, and returns them by leg. A leg that
// the other's failure has ended may never have come.
func (r *rig) newRooms(id string) (rooms map[string][]string) {
	r.t.Helper()
	rooms = r.rooms(id)
	for leg, in := range rooms {
		if all := slices.Sorted(slices.Values(in)); len(slices.Compact(all)) != len(in) {
			r.t.Errorf("%s was twice in a room: %v", leg, in)
		}
	}
	return rooms
}

// TestWhatTheClientSeesWhenAPrefillOfAPairFails: what it sees of any leg that is
// parsed, though decode was waiting, and was ended for it.
func TestWhatTheClientSeesWhenAPrefillOfAPairFails(t *testing.T) {
	for _, leg := range []string{cluster.Reserve, cluster.Prefill} {
		for _, tt := range servertest.LegFailures {
			if leg == cluster.Reserve && tt.Fault.Garbage {
				continue // its body is nobody's concern: it has no header
			}
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s, streamed=%t", leg, tt.Name, stream), func(t *testing.T) {
					r := newPairRig(t, "[gateway.profiles.prefill]\ntimeout = \"300ms\"\n")
					tt.Fault.Leg = leg
					r.cluster.AddFault(tt.Fault)
					got := r.post(chatPath, chatBody(secret, stream), "X-Request-Id", "the-id")
					o := readError(t, got.body)
					if got.status != tt.Status || o.Error.Type != tt.Type || o.Error.Code != tt.Code || strings.Contains(got.body, secret) {
						t.Errorf("got %d %s", got.status, got.body)
					}
					for name := range servertest.Busy {
						if got.header.Get(name) != tt.Header[name] {
							t.Errorf("%s: %q, want %q", name, got.header.Get(name), tt.Header[name])
						}
					}
					r.settled()
					r.newRooms("the-id")
					if n := r.cluster.Count(cluster.Decode); leg == cluster.Reserve && n != 0 {
						t.Errorf("%d decodes were sent without a worker to find", n)
					}
					if strings.Contains(r.logs.String(), secret) {
						t.Errorf("logged: %s", r.logs)
					}
				})
			}
		}
	}
}

// TestDecodeOfAPairThatWaitsIsEnded when prefill fails, and the client is told of
// prefill.
func TestDecodeOfAPairThatWaitsIsEnded(t *testing.T) {
	for _, stream := range []bool{false, true} {
		r := newPairRig(t, unforgiving)
		gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Prefill})
		r.cluster.AddFault(cluster.Fault{Leg: cluster.Prefill, Status: 422})
		answered := make(chan response, 1)
		go func() { answered <- r.post(chatPath, chatBody("one two", stream), "X-Request-Id", "id") }()
		if err := r.cluster.Wait(within(t), func(st cluster.State) bool {
			return st.InFlight[cluster.Decode] == 1 && st.WaitingAtGates == 1
		}); err != nil {
			t.Fatal(err)
		}
		gate.Release()
		if got := <-answered; got.status != 422 || readError(t, got.body).Error.Code != "upstream_rejected" {
			t.Errorf("got %d %s", got.status, got.body)
		}
		r.settled()
		if st := r.cluster.State(); st.Aborted[cluster.Decode] != 1 {
			t.Errorf("decode was not ended: %+v", st)
		}
		if r.breaker("decode") != "closed" {
			t.Error("prefill's failure counted as one of decode")
		}
	}
}

// pairFailures are failures of one leg that another attempt makes good for.
var pairFailures = []struct {
	name   string
	fault  cluster.Fault
	stream bool // only what can happen in a stream
	reason string
}{
	{name: "500", fault: cluster.Fault{Status: 500}, reason: "500"},
	{name: "502", fault: cluster.Fault{Status: 502}, reason: "502"},
	{name: "503", fault: cluster.Fault{Status: 503}, reason: "503"},
	{name: "503 with a short Retry-After", fault: cluster.Fault{Status: 503, Headers: map[string]string{"Retry-After": "0"}}, reason: "503"},
	{name: "504", fault: cluster.Fault{Status: 504}, reason: "504"},
	{name: "no answer", fault: cluster.Fault{Drop: true}},
	{name: "too slow", fault: cluster.Fault{Hang: true}, reason: "timeout"},
	{name: "an error event first", fault: cluster.Fault{ErrorEventAfter: new(0)}, stream: true, reason: "first_event"},
}

// TestPairThatFailsBeforeItAnswers is made good for once, by another exchange: with
// another room, and a worker reserved anew.
func TestPairThatFailsBeforeItAnswers(t *testing.T) {
	for _, leg := range []string{cluster.Prefill, cluster.Decode} {
		for _, tt := range pairFailures {
			for _, stream := range []bool{false, true} {
				if tt.stream && (!stream || leg == cluster.Prefill) { // decode has begun when prefill begins a stream
					continue
				}
				t.Run(fmt.Sprintf("%s/%s, streamed=%t", leg, tt.name, stream), func(t *testing.T) {
					toml := quick
					if tt.fault.Hang {
						toml += "[gateway.profiles.prefill]\ntimeout = \"4s\"\n[gateway.profiles.decode]\ntimeout = \"4s\"\n"
					}
					r := newPairRig(t, toml)
					tt.fault.Leg, tt.fault.Times = leg, 1
					r.cluster.AddFault(tt.fault)
					got, want := r.post(chatPath, chatBody("hi there", stream), "X-Request-Id", "id"), cluster.Reply("hi there")
					if stream {
						want = "data: [DONE]"
					}
					if got.status != http.StatusOK || got.err != nil || !strings.Contains(got.body, want) || strings.Count(got.body, `"role":"assistant"`) != 1 {
						t.Errorf("got %d %v %s", got.status, got.err, got.body)
					}
					r.settled()
					rooms := r.newRooms("id")
					if p, d := rooms[cluster.Prefill], rooms[cluster.Decode]; len(d) == 0 || !slices.Contains(p, d[len(d)-1]) { // one that was ended may come last
						t.Errorf("the legs that answered were not in one room: %v", rooms)
					}
					labels := []string{}
					if tt.reason != "" && tt.reason != "timeout" { // of two that wait for each other either may be too slow first
						labels = append(labels, "reason="+tt.reason)
					}
					if n := r.metric(t, "llm_d_coordinator_reruns_total", labels...); n != 1 {
						t.Errorf("%v reruns", n)
					}
					if ids := r.legIDs(""); !slices.Contains(ids, "reserve:id-reserve") || !slices.ContainsFunc(ids, func(l string) bool { return strings.HasPrefix(l, "prefill:id-r") }) {
						t.Errorf("legs %v", ids)
					}
					if n := r.cluster.Count(cluster.Reserve); n != 2 {
						t.Errorf("%d workers were reserved", n)
					}
				})
			}
		}
	}
}

// TestPairIsNotSentAgain where that would not help, or must not be.
func TestPairIsNotSentAgain(t *testing.T) {
	const off = "[gateway.retry]\nmax_attempts = 1\n"
	for _, tt := range []struct {
		name   string
		fault  cluster.Fault
		toml   string
		status int
		want   string
	}{
		{"decode 400", cluster.Fault{Leg: cluster.Decode, Status: 400, Body: "bad"}, quick, 400, "bad"},
		{"decode 429", cluster.Fault{Leg: cluster.Decode, Status: 429, Body: "busy"}, quick, 429, "busy"},
		{"decode 503, come back late", cluster.Fault{Leg: cluster.Decode, Status: 503, Body: "late", Headers: map[string]string{"Retry-After": "60"}}, quick, 503, "late"},
		{"decode 500, retries off", cluster.Fault{Leg: cluster.Decode, Status: 500, Body: "own"}, off, 500, "own"},
		{"prefill 400", cluster.Fault{Leg: cluster.Prefill, Status: 400}, quick, 400, "upstream_rejected"},
		{"prefill 503, come back late", cluster.Fault{Leg: cluster.Prefill, Status: 503, Headers: map[string]string{"Retry-After": "60"}}, quick, 502, "upstream_failed"},
		{"prefill 500, retries off", cluster.Fault{Leg: cluster.Prefill, Status: 500}, off, 502, "upstream_failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newPairRig(t, tt.toml)
			r.cluster.AddFault(tt.fault)
			if got := r.post(chatPath, chatBody("hi", true)); got.status != tt.status || !strings.Contains(got.body, tt.want) {
				t.Errorf("got %d %s", got.status, got.body)
			}
			r.settled()
			if n := r.cluster.Count(cluster.Reserve); n != 1 {
				t.Errorf("%d exchanges", n)
			}
			if n := r.metric(t, "llm_d_coordinator_prefill_ignored_total"); n != 0 {
				t.Errorf("%v prefills are counted that nobody needed", n)
			}
		})
	}
}

// TestPairThatFailsTwice: the second time is the last.
func TestPairThatFailsTwice(t *testing.T) {
	for leg, status := range map[string]int{cluster.Prefill: 502, cluster.Decode: 500} {
		r := newPairRig(t, quick)
		r.cluster.AddFault(cluster.Fault{Leg: leg, Status: 500})
		if got := r.post(chatPath, chatBody("hi", true), "X-Request-Id", "id"); got.status != status {
			t.Errorf("%s: %d %s", leg, got.status, got.body)
		}
		r.settled()
		r.newRooms("id")
		if n := r.cluster.Count(cluster.Reserve); n != 2 {
			t.Errorf("%s: %d exchanges", leg, n)
		}
	}
}

// TestStreamOfAPairThatBreaks ends with an error event and an abort, whichever leg it
// was: once a byte has gone out nothing is sent again.
func TestStreamOfAPairThatBreaks(t *testing.T) {
	for _, leg := range []string{cluster.Prefill, cluster.Decode} {
		t.Run(leg, func(t *testing.T) {
			r := newPairRig(t, quick)
			prefill := r.cluster.Hold(cluster.Gate{Leg: cluster.Prefill, At: cluster.AtHeaders})
			decode := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtChunk, Chunk: 3})
			r.cluster.AddFault(cluster.Fault{Leg: leg, BreakAfter: new(map[string]int{cluster.Prefill: 0, cluster.Decode: 3}[leg])})
			resp, err := r.open(within(t), chatPath, chatBody("one two three", true))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			first := make([]byte, 1)
			if _, err := io.ReadFull(resp.Body, first); err != nil {
				t.Fatal(err)
			}
			for _, g := range []*cluster.Held{prefill, decode} {
				if err := g.WaitFor(within(t), 1); err != nil {
					t.Fatal(err)
				}
			}
			if leg == cluster.Prefill {
				prefill.Release()
			} else {
				decode.Release()
			}
			rest, err := io.ReadAll(resp.Body)
			text := string(first) + string(rest)
			if err == nil || strings.Contains(text, "[DONE]") {
				t.Errorf("%v: %s", err, text)
			}
			events := strings.Split(strings.TrimSuffix(text, "\n\n"), "\n\n")
			if o := readError(t, strings.TrimPrefix(events[len(events)-1], "data: ")); o.Error.Code != "upstream_failed" {
				t.Errorf("the last event is %s", events[len(events)-1])
			}
			r.settled()
			if n := r.cluster.Count(cluster.Decode); n != 1 {
				t.Errorf("%d decodes", n)
			}
		})
	}
}

// TestPrefillThatComesLate: decode's answer is whole, and the request does not fail
// for a prefill that does not end.
func TestPrefillThatComesLate(t *testing.T) {
	for _, stream := range []bool{false, true} {
		r := newPairRig(t, unforgiving)
		r.cluster.Hold(cluster.Gate{Leg: cluster.Prefill, At: cluster.AtHeaders})
		if got := r.post(chatPath, chatBody("one two", stream)); got.status != http.StatusOK || got.err != nil {
			t.Errorf("%d %v %s", got.status, got.err, got.body)
		}
		r.settled()
		if n := r.metric(t, "llm_d_coordinator_prefill_ignored_total", "result=cut"); n != 1 {
			t.Errorf("%v prefills are counted", n)
		}
		if r.breaker("prefill") != "closed" {
			t.Error("a prefill that we have ended counts as failed")
		}
		if !strings.Contains(r.logs.String(), "decode has answered, prefill has not: cut") {
			t.Error("the log does not say so")
		}
	}
}

// poolBusy returns how many places of a pool are taken.
func (r *rig) poolBusy(name string) int {
	for _, p := range r.Engine.Status().Pools {
		if p.Name == name {
			return p.Busy
		}
	}
	return 0
}

// TestHangUpAtEveryPlaceOfAPair: no leg is left, nobody is blamed, and the next
// request is served.
func TestHangUpAtEveryPlaceOfAPair(t *testing.T) {
	for _, at := range []hangUp{
		{name: "reserve", gate: cluster.Gate{Leg: cluster.Reserve}, stand: 1},
		{name: "prefill, sent", gate: cluster.Gate{Leg: cluster.Prefill}, stand: 1},
		{name: "prefill, done", gate: cluster.Gate{Leg: cluster.Prefill, At: cluster.AtHeaders}, stand: 1},
		{name: "decode, sent", gate: cluster.Gate{Leg: cluster.Decode}, stand: 1},
		{name: "decode before its first event", gate: cluster.Gate{Leg: cluster.Decode, At: cluster.AtChunk}, stand: 1},
		{name: "mid-stream", gate: cluster.Gate{Leg: cluster.Decode, At: cluster.AtChunk, Chunk: 2}, stand: 1, begun: true},
	} {
		for _, c := range clients[:2] {
			t.Run(at.name+"/"+c.name, func(t *testing.T) {
				r := newPairRig(t, unforgiving)
				if at.name == "prefill, done" { // or decode's answer may be whole before the client leaves
					r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtHeaders})
				}
				r.leaveAtPlace(at, c)
				r.settled()
				r.atRest()
				for profile, state := range r.Status("").Breakers {
					if state != "closed" {
						t.Errorf("the hang-up counted as a failure of %s", profile)
					}
				}
				r.cluster.Reset()
				if got := r.post(chatPath, chatBody("one two", false)); got.status != http.StatusOK {
					t.Errorf("the next request: %d %s", got.status, got.body)
				}
				r.settled()
			})
		}
	}
}

// TestPairsDoNotWaitInACircle: one place of each kind, and many requests, which come
// to it with none, or with decode's, from a probe or because they are run again.
func TestPairsDoNotWaitInACircle(t *testing.T) {
	const tight = "[actors.pools]\nprefill = { size = 1, queue = 100 }\ndecode = { size = SIZE, queue = 100 }\n"
	for _, size := range []string{"1", "2"} {
		for name, steps := range map[string]string{"alone": pairStep(byReserve), "behind a probe": conditionalStep + pairStep(byHeader)} {
			t.Run(name+", decodes "+size, func(t *testing.T) {
				s := pairSetup(steps)
				s.toml = quick + strings.Replace(tight, "SIZE", size, 1)
				r := newRig(t, s)
				var wg sync.WaitGroup
				for i := range 50 {
					id := fmt.Sprint("id", i)
					if leg := []string{cluster.Decode, cluster.Prefill, "", "", ""}[i%5]; leg != "" {
						r.cluster.AddFault(cluster.Fault{Leg: leg, RequestID: id, Status: 500, Times: 1})
					}
					wg.Go(func() {
						if got := r.post(chatPath, chatBody("one two "+id, i%2 == 0), "X-Request-Id", id); got.status != http.StatusOK || got.err != nil {
							t.Errorf("%d: %d %v %s", i, got.status, got.err, got.body)
						}
					})
				}
				wg.Wait()
				r.settled()
			})
		}
	}
}

// TestPrefillsPlaceGoesBackWhenItHasAnswered: answers that are being written do not
// keep the prefill workers' places.
func TestPrefillsPlaceGoesBackWhenItHasAnswered(t *testing.T) {
	r := newPairRig(t, "[actors.pools]\nprefill = { size = 1, queue = 10 }\n")
	gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtChunk, Chunk: 2})
	ctx, leave := context.WithCancel(within(t))
	defer leave()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if got := r.postCtx(ctx, chatPath, chatBody("one two", true)); got.status != http.StatusOK {
				t.Errorf("%d %s", got.status, got.body)
			}
		})
	}
	if err := gate.WaitFor(within(t), 3); err != nil {
		t.Fatal(err)
	}
	r.eventually("free", func() bool { return r.poolBusy("prefill") == 0 })
	gate.Release()
	wg.Wait()
	r.settled()
}
