package assembly_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/cmd/assembly"
	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/server/servertest"
)

// pairStep is the step that sends both legs together, with these params.
func pairStep(params string) string {
	return "[[pipeline.steps]]\ntype = \"prefill-decode\"\nparams = { " + params + " }\n"
}

// The ways to find the prefill worker.
const (
	byReserve = `bootstrap_from = "reserve", bootstrap_header = "x-prefill-worker"`
	byStatic  = `bootstrap_from = "static:10.0.0.1"`
	byPinned  = `bootstrap_from = "static:10.0.0.1:8000"`
	byHeader  = `bootstrap_from = "header:x-prefill-worker"`
)

// pairSetup is a pipeline in front of SGLang's workers.
func pairSetup(steps string) setup { return setup{kv: cluster.KVSGLang, steps: steps} }

// rooms returns the room of each leg of a request that has one, by leg.
func (r *rig) rooms(id string) map[string][]string {
	r.t.Helper()
	all := map[string][]string{}
	for _, l := range r.cluster.Legs(id) {
		var body struct {
			Room json.RawMessage `json:"bootstrap_room"`
		}
		if err := json.Unmarshal(l.Body, &body); err != nil {
			r.t.Fatal(err)
		}
		if body.Room != nil {
			all[l.Name] = append(all[l.Name], string(body.Room))
		}
	}
	return all
}

// TestPairAnswersWhatAWorkerAnswers: byte for byte what a worker does that serves
// alone, whatever was before the two.
func TestPairAnswersWhatAWorkerAnswers(t *testing.T) {
	plain := newRig(t, setup{kv: cluster.KVSharedStorage, steps: decodeStep})
	for _, p := range []struct {
		name, steps string
		legs        []string
	}{
		{"reserve", pairStep(byReserve), []string{"reserve"}},
		{"rendered", renderStep + pairStep(byReserve), []string{"render", "reserve"}},
		{"static", renderStep + pairStep(byStatic), []string{"render"}},
		{"static and pinned", pairStep(byPinned), nil},
		{"named by a miss", renderStep + conditionalStep + pairStep(byHeader), []string{"render", "probe"}},
	} {
		t.Run(p.name, func(t *testing.T) {
			r := newRig(t, pairSetup(p.steps))
			sent := 0
			for i, q := range servertest.Requests {
				if q.Path == generatePath {
					continue
				}
				sent++
				t.Run(q.Name, func(t *testing.T) {
					id := fmt.Sprintf("req-%d", i)
					got, want := r.post(q.Path, q.Body, "X-Request-Id", id), plain.direct(q.Path, q.Body, id)
					if got.status != http.StatusOK || got.err != nil || got.body != want {
						t.Errorf("got %d %v\n%s\nwant\n%s", got.status, got.err, got.body, want)
					}
					before := p.legs
					if q.Given && len(before) > 0 && before[0] == "render" {
						before = before[1:] // ids need no rendering
					}
					legs := r.legs("") // reserve calls have an id of their own
					legs = legs[len(legs)-len(before)-2:]
					if slices.Sort(legs[len(before):]); !slices.Equal(legs, append(slices.Clone(before), "decode", "prefill")) {
						t.Errorf("legs %v", legs)
					}
				})
			}
			r.settled()
			if st := r.cluster.State(); st.Rooms != sent || st.FetchedKV != sent || st.Recomputed != 0 {
				t.Errorf("of %d requests: %+v", sent, st)
			}
		})
	}
}

// TestPairOnTheWire: both legs are the client's whole body, and say the same.
func TestPairOnTheWire(t *testing.T) {
	r := newRig(t, pairSetup(renderStep+pairStep(byReserve)))
	const body = `{ "model" : "demo-model","temperature":1.0,  "messages":[{"content":"hi \u0041","role":"user"}],"n":2,"seed":9007199254740993,"stop":["z"],` +
		`"stream":true,"stream_options":{"include_usage":true},"max_completion_tokens":7,"min_tokens":2,"bootstrap_host":"evil","bootstrap_room":1}`
	const want = `{"model" : "demo-model","temperature":1.0,  "messages":[{"content":"hi \u0041","role":"user"}],"n":2,"seed":9007199254740993,"stop":["z"],` +
		`"stream":true,"stream_options":{"include_usage":true},"max_completion_tokens":7,"min_tokens":2,"tokens":{"token_ids":IDS}`
	if got := r.post(chatPath+"?a=1", body, "X-Request-Id", "id", "X-Custom", "1"); got.status != http.StatusOK || !strings.HasSuffix(got.body, "data: [DONE]\n\n") {
		t.Fatalf("%d %s", got.status, got.body)
	}
	r.settled()
	ids, rooms := r.idsOf(chatPath, []byte(body)), r.rooms("id")
	if len(rooms["prefill"]) != 1 || !slices.Equal(rooms["prefill"], rooms["decode"]) {
		t.Fatalf("rooms %v", rooms)
	}
	start := strings.ReplaceAll(want, "IDS", ids)
	told := `,"bootstrap_host":"10.0.0.1","bootstrap_port":8998,"bootstrap_room":` + rooms["prefill"][0]
	for _, l := range r.cluster.Legs("") {
		text, query, pin := start, "", ""
		switch l.Name {
		case cluster.Render:
			continue
		case cluster.Prefill:
			text, pin = start+told, "10.0.0.1:8000"
		case cluster.Decode:
			text, query = start+told, "a=1"
		}
		if string(l.Body) != text+"}" {
			t.Errorf("%s is\n%s\nwant\n%s", l.Name, l.Body, text)
		}
		if h := l.Header; l.Path != chatPath || l.Query != query || h.Get("X-Prefill-Pin-Host-Port") != pin || h.Get("X-Custom") != "1" {
			t.Errorf("%s: %s?%s %v", l.Name, l.Path, l.Query, l.Header)
		}
	}
	if ids := r.legIDs(""); !slices.Contains(ids, "reserve:id-reserve") {
		t.Errorf("legs %v", ids)
	}
}

// TestPairWithImages: encode comes before, and prefill alone is told where the
// embeddings are.
func TestPairWithImages(t *testing.T) {
	for name, last := range map[string]string{"reserve": encodeStep + pairStep(byReserve), "named by encode": conditionalStep + encodeStep + pairStep(byHeader)} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, streamed=%t", name, stream), func(t *testing.T) {
				r := newRig(t, pairSetup(mediaStep+renderStep+last))
				r.cluster.AddFault(cluster.Fault{Leg: cluster.Probe, Status: http.StatusInternalServerError}) // which names nobody
				body := imagesBody(r.image("a.png"), dataURI(picture(1, 100)))
				if !stream {
					body = strings.Replace(body, `"stream":true`, `"stream":false`, 1)
				}
				if got := r.post(chatPath, body, "X-Request-Id", "id"); got.status != http.StatusOK || got.err != nil {
					t.Fatalf("%d %s", got.status, got.body)
				}
				r.settled()
				st := r.cluster.State()
				if st.EncodeCalls != 2 || st.LocalEncodes != 0 || st.WorkerFetches != 0 || st.Rooms != 1 {
					t.Errorf("%+v", st)
				}
			})
		}
	}
}

// TestPairRefusesTokenIDs: SGLang's workers have no such route.
func TestPairRefusesTokenIDs(t *testing.T) {
	r := newRig(t, pairSetup(pairStep(byReserve)))
	got := r.post(generatePath, `{"token_ids":[1,2,3],"sampling_params":{"max_tokens":3}}`)
	if o := readError(t, got.body); got.status != http.StatusBadRequest || o.Error.Code != "unsupported_route" || !strings.Contains(o.Error.Message, "chat or completions") {
		t.Errorf("%d %s", got.status, got.body)
	}
	r.settled()
	if legs := r.legs(""); legs != nil {
		t.Errorf("legs %v", legs)
	}
}

// TestProbeThatHitsNeedsNoPair.
func TestProbeThatHitsNeedsNoPair(t *testing.T) {
	r := newRig(t, pairSetup(renderStep+conditionalStep+pairStep(byHeader)))
	r.cluster.MarkCached(true)
	got := r.post(chatPath, chatBody("one two", true))
	if legs := r.legs(""); got.status != http.StatusOK || !slices.Equal(legs, []string{"render", "probe"}) {
		t.Errorf("%d, legs %v", got.status, legs)
	}
	// One that failed names nobody.
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Probe, Status: 500, Times: 1})
	got = r.post(chatPath, chatBody("one two", true))
	if o := readError(t, got.body); got.status != http.StatusBadGateway || o.Error.Code != "upstream_failed" {
		t.Errorf("%d %s", got.status, got.body)
	}
	r.settled()
	if !strings.Contains(r.logs.String(), "X-Prefill-Worker of bootstrap_from") {
		t.Error("the log does not say which header was missing")
	}
}

// TestPairIsShownToOperators: the way that requests took, and the phase.
func TestPairIsShownToOperators(t *testing.T) {
	r := newRig(t, pairSetup(renderStep+pairStep(byReserve)))
	r.post(chatPath, chatBody("one two", false))
	r.settled()
	if n := r.metric(t, "llm_d_coordinator_execution_path_total", "path=prefill-decode"); n != 1 {
		t.Errorf("%v requests took the way prefill-decode", n)
	}
	if last := r.Pipeline().Phases()[1].(fmt.Stringer).String(); last != "kv connector kv-sglang, bootstrap from reserve (X-Prefill-Worker)" {
		t.Errorf("the step is shown as %q", last)
	}
}

func TestBadBootstrapPortIsSaidOnceAndNotUsed(t *testing.T) {
	for value, bad := range map[string]bool{"8998": false, "0": true, "70000": true, "http": true} {
		cfg, err := conf.Parse("f.toml", []byte("[pipeline]\nkv_connector = \"kv-sglang\"\n"+pairStep(byReserve)), nil)
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		c, err := assembly.New(cfg, assembly.Options{Log: slog.New(slog.NewTextHandler(&log, nil)),
			LookupEnv: func(name string) (string, bool) {
				if name != "SGLANG_BOOTSTRAP_PORT" {
					return "", false
				}
				return value, true
			}})
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if n := strings.Count(log.String(), "level=ERROR"); n == 1 != bad || bad && !strings.Contains(log.String(), "SGLANG_BOOTSTRAP_PORT") {
			t.Errorf("%q: %d errors in %s", value, n, &log)
		}
	}
}
