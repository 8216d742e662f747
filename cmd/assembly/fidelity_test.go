package assembly_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/llm-coordinator/coordinator/transport/wire/wiretest"
)

// recorder is a gateway, a render service and an origin of images that looks at
// nothing: it notes what it is sent, and answers as the generator of the
// request says. The simulated cluster refuses bodies that make no sense.
type recorder struct {
	*httptest.Server
	mu       sync.Mutex
	requests map[string]*recorded
}

// recorded is what is known of one request.
type recorded struct {
	client *wiretest.Client
	shape  wiretest.Shape
	cached bool // the probe is served
	legs   []sentLeg
}

// sentLeg is a leg as it arrived.
type sentLeg struct {
	kind, path, query, body string
	header                  http.Header
}

func newRecorder(t *testing.T) *recorder {
	rec := &recorder{requests: map[string]*recorded{}}
	rec.Server = httptest.NewServer(http.HandlerFunc(rec.serve))
	t.Cleanup(rec.Close)
	return rec
}

// expect tells the recorder of a request to come.
func (rec *recorder) expect(id string, r *recorded) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.requests[id] = r
}

// legs are those that have arrived of a request.
func (rec *recorder) legs(id string) []sentLeg {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if r := rec.requests[id]; r != nil {
		return slices.Clone(r.legs)
	}
	return nil
}

func (rec *recorder) serve(w http.ResponseWriter, r *http.Request) {
	if image := wiretest.File(r.URL.Path); image != nil {
		w.Write(image)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	leg := sentLeg{kind: r.Header.Get("EPP-Profile"), path: r.URL.Path, query: r.URL.RawQuery, body: string(body), header: r.Header.Clone()}
	leg.header.Set("Host", r.Host)
	if strings.HasSuffix(r.URL.Path, "/render") {
		leg.kind += "render"
	}
	if r.Header.Get("Prefer") != "" {
		leg.kind = "probe"
	}
	rec.mu.Lock()
	known := rec.requests[r.Header.Get("X-Request-Id")]
	if known == nil {
		known = &recorded{}
		rec.requests[r.Header.Get("X-Request-Id")] = known
	}
	known.legs = append(known.legs, leg)
	rec.mu.Unlock()
	known.answer(w, leg)
}

// answer answers a leg. Decode's is the body that it was sent.
func (r *recorded) answer(w http.ResponseWriter, leg sentLeg) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case leg.kind == "probe" && !r.cached:
		w.WriteHeader(http.StatusPreconditionFailed)
	case r.client == nil && leg.path == completionsPath+"/render": // a test that cares only for what is sent
		io.WriteString(w, `[{"token_ids":[1,2]}]`)
	case r.client == nil:
		io.WriteString(w, `{"token_ids":[1,2]}`)
	case leg.kind == "render":
		io.WriteString(w, r.client.Rendered)
	case leg.kind == "encode":
		for _, i := range r.client.Encoders() {
			if leg.body == r.client.Encode(r.shape, i) {
				io.WriteString(w, r.client.Encoded[i])
				return
			}
		}
		io.WriteString(w, "{}")
	case leg.kind == "prefill":
		io.WriteString(w, r.client.Prefilled)
	default:
		io.WriteString(w, leg.body)
	}
}

// fidelityPipelines are those that 500 random bodies each go through.
var fidelityPipelines = []struct {
	name   string
	setup  setup
	shape  wiretest.Shape
	probes bool
}{
	{"chat format, probe", setup{kv: "kv-nixl", ec: "ec-nixl", steps: mediaStep + recorderRender + conditionalStep + encodeStep + prefillStep + decodeStep},
		wiretest.Shape{Tokens: true, Inlined: true, Nixl: true, EC: true}, true},
	{"tokens in", setup{kv: "kv-nixl", ec: "ec-nixl", tokensIn: true, steps: mediaStep + recorderRender + encodeStep + prefillStep + decodeStep},
		wiretest.Shape{Tokens: true, Inlined: true, TokensIn: true, Nixl: true, EC: true}, false},
	{"shared storage", setup{kv: "kv-shared-storage", ec: "ec-shared-storage", steps: mediaStep + recorderRender + encodeStep + prefillStep + decodeStep},
		wiretest.Shape{Tokens: true, Inlined: true}, false},
	{"no render", setup{kv: "kv-nixl", ec: "ec-nixl", steps: prefillStep + decodeStep}, wiretest.Shape{Nixl: true}, false},
}

const recorderRender = "[[pipeline.steps]]\ntype = \"render\"\nparams = { address = \"RECORDER\" }\n"

// recorderRig is a coordinator in front of a recorder.
func recorderRig(t *testing.T, s setup) (*rig, *recorder) {
	rec := newRecorder(t)
	s.gateway = rec.URL
	s.steps = strings.ReplaceAll(s.steps, "RECORDER", rec.URL)
	return newRig(t, s), rec
}

// TestLegsOverHTTPAreTheClientsBody, for 2,000 random bodies through whole
// coordinators: each leg's path, query and bytes, and that no other leg goes
// out. What decode is sent comes back to the client.
func TestLegsOverHTTPAreTheClientsBody(t *testing.T) {
	each := uint64(500)
	if testing.Short() {
		each = 50
	}
	const query = "a=b%20c&&d=%2F;"
	for p, pipeline := range fidelityPipelines {
		t.Run(pipeline.name, func(t *testing.T) {
			r, rec := recorderRig(t, pipeline.setup)
			kinds := map[string]int{}
			for i := range each {
				id := fmt.Sprintf("id-%d", i)
				s := pipeline.shape
				s.ID = id
				c := wiretest.New(uint64(100+p), i, rec.URL)
				if c.Protocol == wiretest.Responses && !s.Tokens {
					continue // passed through
				}
				sent := &recorded{client: c, shape: s, cached: i%5 == 0}
				rec.expect(id, sent)
				want := wantedLegs(c, s, pipeline.probes, sent.cached, query)
				got := r.post(want[len(want)-1].path+"?"+query, c.Body, "X-Request-Id", id)
				if got.status != http.StatusOK || got.body != want[len(want)-1].body {
					t.Fatalf("body %d: %d %s\nthe client has sent\n%s\nrendered %s", i, got.status, got.body, c.Body, c.Rendered)
				}
				legs := rec.legs(id)
				compareLegs(t, i, c, legs, want)
				for _, l := range legs {
					kinds[l.kind+" "+l.path]++
				}
			}
			t.Logf("%v", kinds)
			r.settled()
		})
	}
}

var pathOf = map[string]string{wiretest.Chat: chatPath, wiretest.Completions: completionsPath, wiretest.Generate: generatePath, wiretest.Responses: responsesPath}

// wantedLegs are the legs of a request, in order; encodes come in any.
func wantedLegs(c *wiretest.Client, s wiretest.Shape, probes, cached bool, query string) (legs []sentLeg) {
	add := func(kind, path, query, body string) {
		legs = append(legs, sentLeg{kind: kind, path: path, query: query, body: body})
	}
	path := pathOf[c.Protocol]
	byFormat := path
	if p := c.LegPath(s); p != "" {
		byFormat = p
	}
	if s.Tokens && !c.Given {
		add("render", path+"/render", "", c.Render(s))
	}
	if c.Local {
		add("decode", path, query, c.DecodeAlone(s))
		return legs
	}
	if probes {
		add("probe", path, query, c.Probe(s))
		if cached {
			return legs
		}
	}
	if s.Tokens && c.HasParts() {
		for _, i := range c.Encoders() {
			add("encode", byFormat, "", c.Encode(s, i))
		}
	}
	add("prefill", byFormat, "", c.Prefill(s))
	add("decode", path, query, c.Decode(s))
	return legs
}

func compareLegs(t *testing.T, body uint64, c *wiretest.Client, got, want []sentLeg) {
	t.Helper()
	byBody := func(a, b sentLeg) int {
		if a.kind != "encode" || b.kind != "encode" {
			return 0
		}
		return strings.Compare(a.body, b.body)
	}
	slices.SortStableFunc(got, byBody)
	slices.SortStableFunc(want, byBody)
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) {
			t.Fatalf("body %d: %d legs, want %d\nthe client has sent\n%s", body, len(got), len(want), c.Body)
		}
		g, w := got[i], want[i]
		if g.kind != w.kind || g.path != w.path || g.query != w.query || g.body != w.body {
			t.Fatalf("body %d: the client has sent\n%s\n%s %s?%s is\n%s\nwant %s %s?%s\n%s", body, c.Body, g.kind, g.path, g.query, g.body, w.kind, w.path, w.query, w.body)
		}
		if n := g.header.Get("Content-Length"); n != fmt.Sprint(len(g.body)) {
			t.Fatalf("body %d: %s has the Content-Length %q and %d bytes", body, g.kind, n, len(g.body))
		}
	}
}
