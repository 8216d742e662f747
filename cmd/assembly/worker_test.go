package assembly_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// workersFrom are the ways to find the prefill worker of a request.
var workersFrom = []string{
	`bootstrap_from = "static:127.0.0.1"`,
	`bootstrap_from = "static:127.0.0.1:WORKERPORT"`,
	`bootstrap_from = "reserve", bootstrap_header = "x-prefill-worker"`,
	`bootstrap_from = "header:x-prefill-worker"`,
}

// TestPrefillWorkerIsFound in each way, by both steps, for the connectors that have
// to know it.
func TestPrefillWorkerIsFound(t *testing.T) {
	for _, kv := range []string{cluster.KVMooncake, cluster.KVOffloading} {
		for _, from := range workersFrom {
			for _, step := range []string{"prefill", "prefill-decode"} {
				t.Run(kv+"/"+from+"/"+step, func(t *testing.T) {
					last := prefillStep + "params = { " + from + " }\n" + decodeStep
					want, before := []string{"render", "prefill", "decode"}, ""
					if step == "prefill-decode" {
						last = pairStep(from)
						if strings.Contains(from, "header:") {
							before, want = conditionalStep, []string{"render", "probe", "prefill", "decode"}
						}
					}
					r := newRig(t, setup{kv: kv, steps: renderStep + before + last})
					for _, stream := range []bool{false, true} {
						id := fmt.Sprintf("id-%t", stream)
						got := r.post(chatPath, chatBody("one two", stream), "X-Request-Id", id)
						if got.status != http.StatusOK || said(t, got.body, stream) != cluster.Reply("one two") {
							t.Errorf("got %d %s", got.status, got.body)
						}
						legs := r.legsOf(id)
						if step == "prefill-decode" {
							slices.Sort(legs)
							slices.Sort(want)
						}
						if !slices.Equal(legs, want) {
							t.Errorf("legs %v, want %v", legs, want)
						}
						for _, l := range r.cluster.Legs(id) {
							pin := l.Header.Get("X-Prefill-Pin-Host-Port")
							pinned := strings.Contains(from, "reserve") || strings.Contains(from, "PORT") || before != ""
							if l.Name == cluster.Prefill && (pin != "") != pinned {
								t.Errorf("prefill is pinned to %q", pin)
							}
						}
					}
					r.settled()
					if st := r.cluster.State(); st.FetchedKV != 2 || st.Recomputed != 0 {
						t.Errorf("%+v", st)
					}
				})
			}
		}
	}
}

// TestEncodeChoosesTheWorkerThatPrefillGoesTo, in each way, and reserves it once.
func TestEncodeChoosesTheWorkerThatPrefillGoesTo(t *testing.T) {
	for _, from := range workersFrom {
		for _, kv := range []string{cluster.KVNixl, cluster.KVMooncake} {
			t.Run(from+"/"+kv, func(t *testing.T) {
				probe := ""
				if strings.Contains(from, "header:") {
					probe = conditionalStep
				}
				r := newRig(t, setup{kv: kv, ec: cluster.ECMooncake, steps: mediaStep + renderStep + probe +
					encodeStep + "params = { consumer_port = WORKERPORT, " + from + " }\n" + prefillOf(kv) + decodeStep})
				got := r.post(chatPath, `{"model":"demo-model","messages":`+r.fill(shapes[4].messages)+`}`, "X-Request-Id", "id")
				if want := cluster.ReplyWithImages(shapes[4].text, r.hashes(shapes[4].images)...); got.status != 200 || said(t, got.body, false) != want {
					t.Errorf("got %d %s", got.status, got.body)
				}
				r.settled()
				st := r.cluster.State()
				if want := map[bool]int{true: 1}[strings.Contains(from, "reserve")]; st.Legs[cluster.Reserve] != want || st.EncodeCalls != 3 || st.UnreadPushes != 0 {
					t.Errorf("%+v", st)
				}
			})
		}
	}
}

// TestWorkerThatIsNotNamed: there is no hand-off, decode computes the prompt, and
// it is counted.
func TestWorkerThatIsNotNamed(t *testing.T) {
	for _, kv := range []string{cluster.KVMooncake, cluster.KVOffloading} {
		r := newRig(t, setup{kv: kv, cluster: cluster.Options{WorkerHeader: "x-other", Lease: byHand},
			steps: renderStep + prefillStep + "params = { bootstrap_from = \"header:x-prefill-worker\" }\n" + decodeStep})
		if got := r.post(chatPath, chatBody("one two", false)); got.status != 200 || said(t, got.body, false) != cluster.Reply("one two") {
			t.Errorf("%s: got %d %s", kv, got.status, got.body)
		}
		r.settled()
		if n, st := r.metric(t, "llm_d_coordinator_kv_handoff_missing_total"), r.cluster.State(); n != 1 || st.Recomputed != 1 {
			t.Errorf("%s: %v counted, %+v", kv, n, st)
		}
		if !strings.Contains(r.logs.String(), "prefill's answer does not name the worker") {
			t.Errorf("%s: the request's line says nothing of it", kv)
		}
	}
}

// TestEngineThatIsNotKnown fails the attempt; the next may find it. It is asked for
// anew, and so is the worker.
func TestEngineThatIsNotKnown(t *testing.T) {
	for _, tt := range []struct {
		name   string
		fault  cluster.Fault
		status int
		legs   []string
		asked  int
	}{
		{"for good", cluster.Fault{Status: 500}, 502, []string{"render"}, 3},
		{"no JSON", cluster.Fault{Garbage: true}, 502, []string{"render"}, 3},
		{"redirected", cluster.Fault{Redirect: "http://127.0.0.1:1/query"}, 502, []string{"render"}, 3},
		{"once", cluster.Fault{Drop: true, Times: 1}, 200, []string{"render", "decode", "prefill"}, 2},
	} {
		for step, last := range map[string]string{"prefill": prefillStep + "params = { " + byReserve + " }\n" + decodeStep, "prefill-decode": pairStep(byReserve)} {
			t.Run(tt.name+"/"+step, func(t *testing.T) {
				r := newRig(t, setup{kv: cluster.KVMooncake, toml: quick, steps: renderStep + last})
				tt.fault.Leg = cluster.Query
				r.cluster.AddFault(tt.fault)
				got := r.post(chatPath, chatBody("one two", false), "X-Request-Id", "id")
				if got.status != tt.status || strings.Contains(got.body, "127.0.0.1") {
					t.Errorf("got %d %s", got.status, got.body)
				}
				legs := r.legsOf("id")
				if slices.Sort(legs[1:]); !slices.Equal(legs, tt.legs) {
					t.Errorf("legs %v", legs)
				}
				asked := slices.DeleteFunc(r.legIDs(""), func(l string) bool { return !strings.HasPrefix(l, "reserve:") })
				if want := []string{"reserve:id-reserve", "reserve:id-reserve-r1", "reserve:id-reserve-r2"}[:tt.asked]; !slices.Equal(asked, want) {
					t.Errorf("asked %v, want %v", asked, want)
				}
				if n := r.metric(t, "llm_d_coordinator_retries_total", "phase=prefill", "reason=engine"); int(n) != tt.asked-1 {
					t.Errorf("%v retries", n)
				}
				r.settled()
			})
		}
	}
}

// TestRetriesForAnotherWorkerAreNoFurtherLegs: the budget grows by what clients ask for,
// and not by what is asked for again.
func TestRetriesForAnotherWorkerAreNoFurtherLegs(t *testing.T) {
	const generous = "[gateway.retry]\nbase_delay = \"0s\"\nbudget_ratio = 1.0\nmin_retries = 0\n"
	encode := encodeStep + "params = { consumer_port = WORKERPORT, " + byReserve + " }\n"
	for name, tt := range map[string]struct {
		setup
		fault cluster.Fault
		legs  int // first attempts
	}{
		"prefill":         {setup{kv: cluster.KVMooncake, steps: prefillStep + "params = { " + byReserve + " }\n" + decodeStep}, cluster.Fault{Leg: cluster.Prefill, Status: 503}, 4},
		"engine":          {setup{kv: cluster.KVMooncake, steps: prefillStep + "params = { " + byReserve + " }\n" + decodeStep}, cluster.Fault{Leg: cluster.Query, Status: 500}, 4},
		"prefill of pair": {setup{kv: cluster.KVMooncake, steps: pairStep(byReserve)}, cluster.Fault{Leg: cluster.Prefill, Status: 503}, 4},
		"decode of pair":  {setup{kv: cluster.KVMooncake, steps: pairStep(byReserve)}, cluster.Fault{Leg: cluster.Decode, Status: 503}, 4},
		"engine of pair":  {setup{kv: cluster.KVMooncake, steps: pairStep(byReserve)}, cluster.Fault{Leg: cluster.Query, Status: 500}, 4},
		"pushed":          {setup{ec: cluster.ECMooncake, steps: encode + prefillStep + decodeStep}, cluster.Fault{Leg: cluster.Prefill, Status: 503}, 7},
	} {
		t.Run(name, func(t *testing.T) {
			tt.setup.steps, tt.setup.toml, tt.setup.cluster.Lease = renderStep+tt.setup.steps, generous, byHand
			r := newRig(t, tt.setup)
			tt.fault.Times = 1
			r.cluster.AddFault(tt.fault)
			if got := r.post(chatPath, `{"model":"demo-model","messages":`+r.fill(shapes[4].messages)+`}`); got.status != http.StatusOK {
				t.Errorf("got %d %s", got.status, got.body)
			}
			r.settled()
			if n := r.metric(t, "llm_d_coordinator_retry_budget_remaining"); int(n) != tt.legs-1 {
				t.Errorf("%v of %d legs are left", n, tt.legs)
			}
		})
	}
}

// TestEngineOfAWorkerThatWasPushedTo: if it is not known another worker is found, and
// what was encoded for the first is encoded for that, once.
func TestEngineOfAWorkerThatWasPushedTo(t *testing.T) {
	for step, last := range map[string]string{"prefill": prefillOf(cluster.KVMooncake) + decodeStep, "prefill-decode": pairStep(byStatic)} {
		for times, want := range map[int]int{1: http.StatusOK, 2: http.StatusBadGateway} {
			t.Run(fmt.Sprintf("%s/%d", step, times), func(t *testing.T) {
				r := newRig(t, setup{kv: cluster.KVMooncake, ec: cluster.ECMooncake, toml: quick, steps: mediaStep + renderStep + encodeOf(cluster.ECMooncake) + last})
				r.cluster.AddFault(cluster.Fault{Leg: cluster.Query, Status: http.StatusInternalServerError, Times: times})
				if got := r.post(chatPath, `{"model":"demo-model","messages":`+r.fill(shapes[4].messages)+`}`, "X-Request-Id", "id"); got.status != want {
					t.Errorf("got %d %s", got.status, got.body)
				}
				if n := r.metric(t, "llm_d_coordinator_reruns_total", "reason=engine"); n != 1 || r.cluster.Count(cluster.Encode) != 6 || r.cluster.Count(cluster.Query) != 2 {
					t.Errorf("%v reruns, %+v", n, r.cluster.State())
				}
				r.settled()
			})
		}
	}
}

// TestEnginesAreAskedForSeldom: what is known is used again for seconds, but not by a
// request that has failed.
func TestEnginesAreAskedForSeldom(t *testing.T) {
	r := newRig(t, setup{kv: cluster.KVMooncake, toml: quick, steps: renderStep + prefillOf(cluster.KVMooncake) + decodeStep, cluster: cluster.Options{Lease: byHand}})
	for range 5 {
		r.post(chatPath, chatBody("one two", false))
	}
	if n := r.cluster.Count(cluster.Query); n > 2 { // the test may take seconds
		t.Errorf("asked %d times", n)
	}
	before := r.cluster.Count(cluster.Query)
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Decode, Status: 500, Times: 1})
	if got := r.post(chatPath, chatBody("one two", false)); got.status != 200 {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if n := r.cluster.Count(cluster.Query); n == before {
		t.Error("a request that is run again believes what was known")
	}
	r.settled()
}

// TestPairGoesToTheWorkerThatWasPushedTo: encode pushes to a worker, prefill beside
// decode is sent there and told what was pushed, and decode is told of that worker.
func TestPairGoesToTheWorkerThatWasPushedTo(t *testing.T) {
	for _, kv := range []string{cluster.KVMooncake, cluster.KVOffloading} {
		for _, from := range []string{byReserve, byHeader} {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s, streamed=%t", kv, from, stream), func(t *testing.T) {
					probe := ""
					if from == byHeader {
						probe = conditionalStep
					}
					r := newRig(t, setup{kv: kv, ec: cluster.ECMooncake, steps: mediaStep + renderStep + probe +
						encodeStep + "params = { consumer_port = WORKERPORT, " + from + " }\n" + pairStep(`bootstrap_from = "static:192.0.2.1"`)}) // that nobody asks
					got := r.post(chatPath, fmt.Sprintf(`{"model":"demo-model","stream":%t,"messages":%s}`, stream, r.fill(shapes[4].messages)), "X-Request-Id", "id")
					if want := cluster.ReplyWithImages(shapes[4].text, r.hashes(shapes[4].images)...); got.status != http.StatusOK || said(t, got.body, stream) != want {
						t.Errorf("got %d %s", got.status, got.body)
					}
					r.settled()
					if st := r.cluster.State(); st.EncodeCalls != 3 || st.UnreadPushes+st.LocalEncodes+st.Recomputed != 0 || st.FetchedKV != 1 {
						t.Errorf("%+v", st)
					}
					for _, l := range r.cluster.Legs("id") {
						items, pin := strings.Count(string(l.Body), `"image_grid_thw"`), l.Header.Get("X-Prefill-Pin-Host-Port")
						if want := map[string]int{cluster.Prefill: 3}[l.Name]; l.Name != cluster.Encode && items != want || (pin != "") != (l.Name == cluster.Prefill) {
							t.Errorf("%s, pinned to %q, is told of %d pushes: %s", l.Name, pin, items, l.Body)
						}
					}
				})
			}
		}
	}
}

// choosing are the members of a leg's body by which an endpoint picker chooses, and the
// tensors.
type choosing struct {
	IDs      json.RawMessage `json:"token_ids"`
	Features struct {
		Hashes       json.RawMessage `json:"mm_hashes"`
		Placeholders json.RawMessage `json:"mm_placeholders"`
		Kwargs       json.RawMessage `json:"kwargs_data"`
	}
}

// choosing reads the one leg of that name and id.
func (r *rig) choosing(name, id string) (c choosing) {
	r.t.Helper()
	for _, l := range r.cluster.Legs(id) {
		if l.Name == name {
			if err := json.Unmarshal(l.Body, &c); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	return c
}

// TestReserveCallsCarryNoTensors: what an endpoint picker chooses by is all there.
func TestReserveCallsCarryNoTensors(t *testing.T) {
	encode := encodeStep + "params = { consumer_port = WORKERPORT, " + byReserve + " }\n"
	prefill := prefillStep + "params = { " + byReserve + " }\n" + decodeStep
	for name, s := range map[string]setup{
		"prefill":        {kv: cluster.KVMooncake, steps: prefill},
		"prefill-decode": {kv: cluster.KVMooncake, steps: pairStep(byReserve)},
		"encode":         {ec: cluster.ECMooncake, steps: encode + prefillStep + decodeStep},
	} {
		s.steps, s.tokensIn = mediaStep+renderStep+s.steps, true
		r := newRig(t, s)
		chat := `{"model":"demo-model","messages":` + r.fill(shapes[4].messages) + `}`
		prompt := r.rendered(chatPath, []byte(chat))
		for path, body := range map[string]string{
			chatPath:     chat,
			generatePath: fmt.Sprintf(`{"model":"demo-model","token_ids":%s,"features":%s,"sampling_params":{"max_tokens":3}}`, prompt["token_ids"], prompt["features"]),
		} {
			if path == generatePath && name == "encode" || path == chatPath && name == "prefill-decode" {
				continue // which is not encoded; whose legs have no tensors
			}
			t.Run(name+path, func(t *testing.T) {
				id := strings.ReplaceAll(path[1:], "/", "-")
				if got := r.post(path, body, "X-Request-Id", id); got.status != http.StatusOK {
					t.Errorf("got %d %s", got.status, got.body)
				}
				asked, sent := r.choosing(cluster.Reserve, id+"-reserve"), r.choosing(cluster.Prefill, id)
				if sent.Features.Kwargs == nil || asked.Features.Kwargs != nil {
					t.Errorf("the call has %d bytes of tensors, prefill %d", len(asked.Features.Kwargs), len(sent.Features.Kwargs))
				}
				if sent.Features.Kwargs = nil; sent.IDs == nil || sent.Features.Hashes == nil || !reflect.DeepEqual(asked, sent) {
					t.Errorf("the call says %+v, prefill %+v", asked, sent)
				}
			})
		}
		r.settled()
	}
}
