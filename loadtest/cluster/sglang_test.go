package cluster

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// inRoom is a chat body of a leg in a room; more is further members.
func inRoom(room, more string) string {
	return chat("one two three", `,"bootstrap_host":"10.0.0.1","bootstrap_port":8998,"bootstrap_room":`+room+more)
}

func TestPairAnswersOnlyTogether(t *testing.T) {
	for first, second := range map[string]string{Prefill: Decode, Decode: Prefill} {
		for _, stream := range []bool{false, true} {
			r := start(t, Options{KV: KVSGLang})
			body := inRoom("9223372036854775807", fmt.Sprintf(`,"stream":%t`, stream))
			one := r.sendLater(context.Background(), call{leg: first, body: body})
			r.wait(func(st State) bool { return st.AloneInRooms == 1 })
			two := r.send(call{leg: second, body: body})
			answers := map[string]answer{first: <-one, second: two}
			if got := answers[Decode]; got.status != http.StatusOK || said(t, got.body) != Reply("one two three") {
				t.Errorf("decode: %d %s", got.status, got.body)
			}
			if got := answers[Prefill]; got.status != http.StatusOK || len(strings.Fields(said(t, got.body))) != 1 || strings.HasSuffix(got.body, "data: [DONE]\n\n") != stream {
				t.Errorf("prefill: %d %s", got.status, got.body)
			}
			if st := r.State(); st.Rooms != 1 || st.FetchedKV != 1 {
				t.Errorf("%+v", st)
			}
			r.noViolations()
		}
	}
}

// TestLegOfAPairAloneWaits until its client leaves: nobody else ends it.
func TestLegOfAPairAloneWaits(t *testing.T) {
	for _, leg := range []string{Prefill, Decode} {
		r := start(t, Options{KV: KVSGLang})
		ctx, leave := context.WithCancel(context.Background())
		got := r.sendLater(ctx, call{leg: leg, body: inRoom("1", "")})
		r.wait(func(st State) bool { return st.AloneInRooms == 1 })
		leave()
		if a := <-got; a.err == nil {
			t.Errorf("%s answered %d alone", leg, a.status)
		}
		r.wait(State.Idle)
		if st := r.State(); st.Aborted[leg] != 1 {
			t.Errorf("%+v", st)
		}
		r.noViolations()
	}
}

// TestPairIsStrict about where its workers meet.
func TestPairIsStrict(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		status     int
		violation  string
	}{
		{"no room", chat("one", ""), 400, ""},
		{"a room too high", inRoom("9223372036854775808", ""), 400, "no integer from 0 to 2^63-1"},
		{"a room below 0", inRoom("-1", ""), 400, "no integer"},
		{"a room as text", inRoom(`"1"`, ""), 400, "no integer"},
		{"a room as a float", inRoom("1e3", ""), 400, "no integer"},
		{"another host", strings.Replace(inRoom("1", ""), "10.0.0.1", "10.0.0.2", 1), 500, "not those of the prefill worker"},
		{"another port", strings.Replace(inRoom("1", ""), "8998", "8999", 1), 500, "not those of the prefill worker"},
		{"transfer params of others", inRoom("-1", `,"kv_transfer_params":{}`), 400, "has the field kv_transfer_params"},
	} {
		for _, leg := range []string{Prefill, Decode} {
			r := start(t, Options{KV: KVSGLang})
			got := r.send(call{leg: leg, body: tt.body})
			if got.status != tt.status || !strings.HasPrefix(got.body, `{"object":"error","message":`) {
				t.Errorf("%s: %s answered %d %s", tt.name, leg, got.status, got.body)
			}
			if v := strings.Join(r.State().Violations, "\n"); !strings.Contains(v, tt.violation) || tt.violation == "" && v != "" {
				t.Errorf("%s: violations %q", tt.name, v)
			}
		}
	}
}

// TestRoomIsForOnePair, with one body.
func TestRoomIsForOnePair(t *testing.T) {
	meet := func(r *rig, prefill, decode string) (answer, answer) {
		one := r.sendLater(context.Background(), call{leg: Prefill, body: prefill})
		r.wait(func(st State) bool { return st.AloneInRooms == 1 })
		two := r.send(call{leg: Decode, body: decode})
		return <-one, two
	}
	r := start(t, Options{KV: KVSGLang})
	meet(r, inRoom("7", ""), inRoom("7", ""))
	r.wait(State.Idle)
	if got := r.send(call{leg: Prefill, body: inRoom("7", "")}); got.status != http.StatusInternalServerError || r.State().ViolationCount != 1 {
		t.Errorf("the room is used again: %d, %+v", got.status, r.State())
	}
	for name, decode := range map[string]string{
		"a field more":  inRoom("8", `,"max_tokens":5`),
		"another value": strings.Replace(inRoom("8", ""), "three", "four", 1),
	} {
		r := start(t, Options{KV: KVSGLang})
		ctx, leave := context.WithCancel(context.Background())
		one := r.sendLater(ctx, call{leg: Prefill, body: inRoom("8", "")})
		r.wait(func(st State) bool { return st.AloneInRooms == 1 })
		if got := r.send(call{leg: Decode, body: decode}); got.status != http.StatusInternalServerError || r.State().ViolationCount != 1 {
			t.Errorf("%s: %d, %+v", name, got.status, r.State())
		}
		leave()
		<-one
	}
	r = start(t, Options{KV: KVSGLang})
	if p, d := meet(r, inRoom("9", `,"ec_transfer_params":{}`), inRoom("9", "")); p.status != http.StatusOK || d.status != http.StatusOK {
		t.Errorf("prefill alone has ec_transfer_params: %d %d, %q", p.status, d.status, r.State().Violations)
	}
}

func TestGatewayReservesAWorker(t *testing.T) {
	r := start(t, Options{KV: KVSGLang, WorkerHeader: "x-worker"})
	reserve := call{leg: Prefill, id: "id-reserve", body: chat("one", ""), header: map[string]string{"Prefer": "reserve-endpoint"}}
	if got := r.send(reserve); got.status != http.StatusOK || got.header.Get("X-Worker") != "10.0.0.1:8000" || got.body != "" {
		t.Errorf("%d %v %q", got.status, got.header, got.body)
	}
	r.noViolations()
	for pin, want := range map[string]string{"": "not pinned", "10.0.0.2:8000": "is pinned to"} {
		before := r.State().ViolationCount
		got := r.send(call{leg: Prefill, id: "id", body: chat("one", ""), header: map[string]string{"X-Prefill-Pin-Host-Port": pin}})
		if v := r.State().Violations; got.status != http.StatusBadRequest || len(v) != before+1 || !strings.Contains(v[before], want) {
			t.Errorf("pinned to %q: %d, %q", pin, got.status, v)
		}
	}
	if got := r.send(call{leg: Prefill, path: generatePath, body: `{"token_ids":[1]}`}); got.status != http.StatusNotFound || got.body != `{"detail":"Not Found"}` {
		t.Errorf("%d %s", got.status, got.body)
	}
}
