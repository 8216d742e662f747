package assembly_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/cmd/assembly"
	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

const (
	revisionHeader = "X-Llm-D-Disagg-Revision"
	decisionHeader = "X-Llm-D-Revision-Decision-Id"
)

// oneEncode has images encoded one after the other, in their order.
const oneEncode = renderStep + encodeStep + "params = { max_parallel = 1 }\n" + prefillStep + decodeStep

// revisions returns the legs of a request with the revision that each carries, as
// name:revision. It checks that all carry one decision id, a UUID.
func (r *rig) revisions(id string) (all []string, decision string) {
	r.t.Helper()
	for _, l := range r.cluster.Legs("") {
		if l.RequestID != id && !strings.HasPrefix(l.RequestID, id+"-r") {
			continue
		}
		all = append(all, l.Name+":"+strings.Join(l.Header.Values(revisionHeader), ","))
		ids := l.Header.Values(decisionHeader)
		if len(ids) != 1 || !uuidV4.MatchString(ids[0]) || decision != "" && ids[0] != decision {
			r.t.Errorf("leg %s has the decision ids %q, others %q", l.Name, ids, decision)
			continue
		}
		decision = ids[0]
	}
	return all, decision
}

var uuidV4 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// TestRevisionsGoFromAnswersToLaterLegs: a step that says something else than
// those before is believed, of an encode's answers what most say, and of what an
// earlier run has said nothing is left.
func TestRevisionsGoFromAnswersToLaterLegs(t *testing.T) {
	says := func(leg, revision string, times int) cluster.Fault {
		return cluster.Fault{Leg: leg, Times: times, Headers: map[string]string{revisionHeader: revision}}
	}
	failed := says(cluster.Prefill, "failed", 1)
	failed.Status = http.StatusServiceUnavailable
	broken := cluster.Fault{Leg: cluster.Decode, Times: 1, Status: http.StatusInternalServerError}
	images := func(n int) (uris []string) {
		for i := range n {
			uris = append(uris, dataURI(picture(byte(i), 100)))
		}
		return uris
	}
	for _, tt := range []struct {
		name   string
		steps  string
		says   map[string]string // by leg
		faults []cluster.Fault
		images int
		want   []string
	}{
		{name: "nobody says anything", want: []string{"render:", "prefill:", "decode:"}},
		{name: "render", says: map[string]string{"render": "a", "decode": "x"}, want: []string{"render:", "prefill:a", "decode:a"}},
		{name: "prefill", says: map[string]string{"prefill": "b"}, want: []string{"render:", "prefill:", "decode:b"}},
		{name: "both", says: map[string]string{"render": "a", "prefill": "b"}, want: []string{"render:", "prefill:a", "decode:b"}},
		{name: "a probe that misses", steps: renderStep + conditionalStep + prefillStep + decodeStep, says: map[string]string{"render": "a", "probe": "x"},
			want: []string{"render:", "probe:a", "prefill:a", "decode:a"}},
		{name: "encodes of one mind", steps: oneEncode, says: map[string]string{"encode": "e"}, images: 2,
			want: []string{"render:", "encode:", "encode:", "prefill:e", "decode:e"}},
		{name: "most encodes", steps: oneEncode, says: map[string]string{"render": "a", "encode": "e"}, faults: []cluster.Fault{says(cluster.Encode, "f", 1)}, images: 3,
			want: []string{"render:", "encode:a", "encode:a", "encode:a", "prefill:e", "decode:e"}},
		{name: "half of the encodes", steps: oneEncode, says: map[string]string{"encode": "e"}, faults: []cluster.Fault{says(cluster.Encode, "f", 1)}, images: 2,
			want: []string{"render:", "encode:", "encode:", "prefill:f", "decode:f"}},
		{name: "one of the encodes", steps: oneEncode, says: map[string]string{"render": "a"}, faults: []cluster.Fault{says(cluster.Encode, "f", 1)}, images: 3,
			want: []string{"render:", "encode:a", "encode:a", "encode:a", "prefill:f", "decode:f"}},
		{name: "a prefill that fails", says: map[string]string{"render": "a", "prefill": "b"}, faults: []cluster.Fault{failed},
			want: []string{"render:", "prefill:a", "prefill:a", "decode:b"}},
		{name: "prefill again", says: map[string]string{"render": "a", "prefill": "b"}, faults: []cluster.Fault{says(cluster.Prefill, "first", 1), broken},
			want: []string{"render:", "prefill:a", "decode:first", "prefill:a", "decode:b"}},
		{name: "prefill again, which says nothing", says: map[string]string{"render": "a"}, faults: []cluster.Fault{says(cluster.Prefill, "first", 1), broken},
			want: []string{"render:", "prefill:a", "decode:first", "prefill:a", "decode:a"}},
		{name: "prefill alone again, which says nothing", faults: []cluster.Fault{says(cluster.Prefill, "first", 1), broken},
			want: []string{"render:", "prefill:", "decode:first", "prefill:", "decode:"}},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, streamed=%t", tt.name, stream), func(t *testing.T) {
				r := newRig(t, setup{steps: tt.steps, toml: quick, cluster: cluster.Options{Revisions: tt.says, Lease: byHand}})
				for _, f := range tt.faults {
					r.cluster.AddFault(f)
				}
				body := chatBody("hi", stream)
				if tt.images > 0 {
					body = strings.Replace(imagesBody(images(tt.images)...), "{", fmt.Sprintf(`{"stream":%t,`, stream), 1)
				}
				got := r.post(chatPath, body, "X-Request-Id", "id", revisionHeader, "the client's", decisionHeader, "the client's")
				if got.status != http.StatusOK || got.header[revisionHeader] != nil || got.header[decisionHeader] != nil {
					t.Errorf("got %d %v", got.status, got.header)
				}
				if legs, _ := r.revisions("id"); !slices.Equal(legs, tt.want) {
					t.Errorf("legs %q, want %q", legs, tt.want)
				}
				r.settled()
			})
		}
	}
}

// TestEachRequestIsADecisionOfItsOwn, and a hit of a probe says nothing of it to
// the client.
func TestEachRequestIsADecisionOfItsOwn(t *testing.T) {
	r := newRig(t, setup{steps: probingSteps, cluster: cluster.Options{CacheDecodes: true, Revisions: map[string]string{"render": "a", "probe": "x"}}})
	seen := map[string]bool{}
	for i, want := range [][]string{{"render:", "probe:a", "prefill:a", "decode:a"}, {"render:", "probe:a"}} {
		id := fmt.Sprint("id", i)
		if got := r.post(chatPath, chatBody("hi", false), "X-Request-Id", id); got.status != http.StatusOK || got.header[revisionHeader] != nil {
			t.Errorf("got %d %v", got.status, got.header)
		}
		legs, decision := r.revisions(id)
		if !slices.Equal(legs, want) || seen[decision] {
			t.Errorf("legs %q of the decision %s, want %q", legs, decision, want)
		}
		seen[decision] = true
	}
	r.settled()
}

// TestHeadersOfAnyNameAreForwarded with all their values; those of no name are not.
func TestHeadersOfAnyNameAreForwarded(t *testing.T) {
	r := newRig(t, setup{pipeline: "forward_response_headers = [\"x-one\", \"X-TWO\"]\n", cluster: cluster.Options{Revisions: map[string]string{"prefill": "b"}}})
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Render, Headers: map[string]string{"X-One": "1", "X-Two": "2", "X-Three": "3"}})
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Prefill, Headers: map[string]string{"X-Two": "22"}})
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Decode, Headers: map[string]string{"X-One": "d", "X-Three": "d"}})
	got := r.post(chatPath, chatBody("hi", false), "X-Request-Id", "id", "X-One", "c", "X-Three", "c")
	if got.header.Get("X-One") != "" || got.header.Get("X-Three") != "d" {
		t.Errorf("the client got %v", got.header)
	}
	var said []string
	for _, l := range r.cluster.Legs("id") {
		said = append(said, fmt.Sprint(l.Name, l.Header["X-One"], l.Header["X-Two"], l.Header["X-Three"], l.Header[revisionHeader]))
	}
	if want := []string{"render[] [] [c] []", "prefill[1] [2] [c] []", "decode[1] [22] [c] []"}; !slices.Equal(said, want) {
		t.Errorf("legs %q, want %q", said, want)
	}
	r.settled()
}

// TestNothingIsForwardedIfNothingIsTo: headers of that name are like any others,
// but the decision id is nobody's to set.
func TestNothingIsForwardedIfNothingIsTo(t *testing.T) {
	r := newRig(t, setup{pipeline: "forward_response_headers = []\n", cluster: cluster.Options{Revisions: map[string]string{"render": "a", "decode": "d"}}})
	got := r.post(chatPath, chatBody("hi", false), "X-Request-Id", "id", revisionHeader, "c", decisionHeader, "c")
	if got.header.Get(revisionHeader) != "d" {
		t.Errorf("the client got %v", got.header)
	}
	for _, l := range r.cluster.Legs("id") {
		if l.Header.Get(revisionHeader) != "c" || l.Header[decisionHeader] != nil {
			t.Errorf("leg %s: %v", l.Name, l.Header)
		}
	}
	r.settled()
}

// TestARequestPassedThroughIsNoDecision: it has one leg.
func TestARequestPassedThroughIsNoDecision(t *testing.T) {
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(revisionHeader, "d")
		fmt.Fprint(w, r.Header[revisionHeader], r.Header[decisionHeader])
	}))
	defer worker.Close()
	r := newRig(t, setup{steps: decodeStep, gateway: worker.URL})
	got := r.post("/v1/embeddings", `{"model":"demo-model","input":"x"}`, revisionHeader, "c", decisionHeader, "c")
	if got.status != http.StatusOK || got.header[revisionHeader] != nil || got.body != "[] []" {
		t.Errorf("the client got %d %v, the worker %s", got.status, got.header, got.body)
	}
	r.settled()
}

// TestAReleaseIsPartOfTheDecision.
func TestAReleaseIsPartOfTheDecision(t *testing.T) {
	r := newRig(t, setup{toml: quick, cluster: cluster.Options{Revisions: map[string]string{"prefill": "b"}}})
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Decode, RequestID: "id", Status: 503, Headers: map[string]string{"X-Llm-D-Request-Dropped-Reason": "full", "Retry-After": "60"}})
	r.post(chatPath, chatBody("hi", false), "X-Request-Id", "id")
	r.eventually("released", func() bool { return r.Engine.Status().Detached == 0 && r.cluster.Count(cluster.Decode) == 2 })
	r.settled()
	if legs, _ := r.revisions("id"); !slices.Equal(legs, []string{"render:", "prefill:", "decode:b", "decode:b"}) {
		t.Errorf("legs %q", legs)
	}
}

func TestHeadersThatCannotBeForwarded(t *testing.T) {
	for names, want := range map[string]string{
		`"x-ok", "x y"`:                  `want names of HTTP headers, got "x y"`,
		`""`:                             `want names of HTTP headers, got ""`,
		`"connection"`:                   "connection is the coordinator's own to set",
		`"Content-Type"`:                 "Content-Type is the coordinator's own to set",
		`"x-request-id"`:                 "x-request-id is the coordinator's own to set",
		`"x-llm-d-revision-decision-id"`: "x-llm-d-revision-decision-id is the coordinator's own to set",
		`"x-phase"`:                      "x-phase is the coordinator's own to set",
		`"x-a", "X-A"`:                   "X-A is there twice",
	} {
		text := "[gateway]\nprofile_header = \"X-Phase\"\n[pipeline]\nforward_response_headers = [" + names + "]\n" + decodeStep
		cfg, err := conf.Parse("bad.toml", []byte(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		c, err := assembly.New(cfg, assembly.Options{})
		if err == nil {
			c.Close()
			t.Fatalf("%s is taken", names)
		}
		if !strings.Contains(err.Error(), "bad.toml:4: pipeline.forward_response_headers: "+want) {
			t.Errorf("%s: %v", names, err)
		}
	}
}
