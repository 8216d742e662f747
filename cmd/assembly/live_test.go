package assembly_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-coordinator/coordinator/cmd/assembly"
	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// liveConfig is a configuration whose gateway and render service are at an
// address. top are keys of [pipeline].
func liveConfig(t *testing.T, address, top, steps string) *conf.Config {
	t.Helper()
	text := "[gateway]\naddress = \"" + address + "\"\nheaders = { Authorization = \"Bearer x\" }\nbreaker = { consecutive_failures = 1 }\n" +
		"retry = { max_attempts = 1 }\n[pipeline]\n" + top + strings.NewReplacer("CLUSTER", address, ", RENDER", "").Replace(steps)
	cfg, err := conf.Parse("live.toml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// tried returns the lines that a try of all routes prints, with single spaces.
func tried(t *testing.T, ctx context.Context, cfg *conf.Config, o assembly.Options) (lines []string, err error) {
	t.Helper()
	c, err := assembly.New(cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	before := cfg.Changes()
	var out bytes.Buffer
	err = c.TryRoutes(ctx, &out)
	if after := cfg.Changes(); !slices.Equal(before, after) {
		t.Errorf("changes were %v, are %v", before, after)
	}
	for line := range strings.Lines(strings.TrimPrefix(out.String(), "\nroutes\n")) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines, err
}

// workersWithout is a simulated cluster whose workers lack routes, as those of
// vLLM do that were not told to scale out. It is on loopback.
func workersWithout(t *testing.T, paths ...string) (*cluster.Cluster, string) {
	t.Helper()
	workers := cluster.New(cluster.Options{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(paths, r.URL.Path) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			w.Write([]byte(`{"detail":"Not Found"}`))
			return
		}
		workers.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		s.Close()
		workers.Close()
	})
	return workers, s.URL
}

const (
	noSuchRoute   = "answered 404, the worker has no such route: start the workers with --enable-scale-out"
	onlyGenerate  = " (only clients of the generate API need it)"
	renderedInput = responsesPath + "/render"
	allSteps      = renderStep + encodeStep + prefillStep + decodeStep
	renderedChat  = chatPath + "/render"
	renderedPlain = completionsPath + "/render"
)

func TestTryRoutes(t *testing.T) {
	withoutResponses := []string{
		"render " + renderedChat + " ok: answered 400",
		"render " + renderedPlain + " ok: answered 400",
		"decode " + chatPath + " ok: answered 400",
		"decode " + completionsPath + " ok: answered 400",
		"decode " + generatePath + " ok: answered 400",
	}
	tests := []struct {
		name, top, steps string
		missing          []string
		want             []string
		err              string
	}{
		{"all are there", "", allSteps, nil, []string{
			"render " + renderedChat + " ok: answered 400",
			"render " + renderedPlain + " ok: answered 400",
			"render " + renderedInput + " ok: answered 400",
			"encode " + chatPath + " ok: answered 400",
			"encode " + responsesPath + " ok: answered 400",
			"prefill " + chatPath + " ok: answered 400",
			"prefill " + completionsPath + " ok: answered 400",
			"prefill " + generatePath + " ok: answered 400",
			"prefill " + responsesPath + " ok: answered 400",
			"decode " + chatPath + " ok: answered 400",
			"decode " + completionsPath + " ok: answered 400",
			"decode " + generatePath + " ok: answered 400",
			"decode " + responsesPath + " ok: answered 400",
		}, ""},
		{"no generate, which only its clients need", "", decodeStep, []string{generatePath}, []string{
			"decode " + chatPath + " ok: answered 400",
			"decode " + completionsPath + " ok: answered 400",
			"decode " + generatePath + " warning: " + noSuchRoute + onlyGenerate,
		}, ""},
		{"both legs at once", "kv_connector = \"kv-sglang\"\n", pairStep(byReserve), []string{generatePath}, []string{
			"prefill " + chatPath + " ok: answered 400",
			"prefill " + completionsPath + " ok: answered 400",
			"decode " + chatPath + " ok: answered 400",
			"decode " + completionsPath + " ok: answered 400",
		}, ""},
		{"no generate, which is asked for", "use_openai_format = false\n", allSteps, []string{generatePath}, []string{
			"render " + renderedChat + " ok: answered 400",
			"render " + renderedPlain + " ok: answered 400",
			"render " + renderedInput + " ok: answered 400",
			"encode " + chatPath + " ok: answered 400",
			"encode " + generatePath + " FAILED: " + noSuchRoute,
			"encode " + responsesPath + " ok: answered 400",
			"prefill " + chatPath + " ok: answered 400",
			"prefill " + completionsPath + " ok: answered 400",
			"prefill " + generatePath + " FAILED: " + noSuchRoute,
			"prefill " + responsesPath + " ok: answered 400",
			"decode " + chatPath + " ok: answered 400",
			"decode " + completionsPath + " ok: answered 400",
			"decode " + generatePath + " warning: " + noSuchRoute + onlyGenerate,
			"decode " + responsesPath + " ok: answered 400",
		}, "2 of 14 routes cannot be used"},
		{"one step asks for it", "", renderStep + prefillStep + "params = { use_openai_format = false }\n" + decodeStep, []string{generatePath, renderedPlain}, []string{
			"render " + renderedChat + " ok: answered 400",
			"render " + renderedPlain + " FAILED: " + noSuchRoute,
			"render " + renderedInput + " ok: answered 400",
			"prefill " + chatPath + " ok: answered 400",
			"prefill " + completionsPath + " ok: answered 400",
			"prefill " + generatePath + " FAILED: " + noSuchRoute,
			"prefill " + responsesPath + " ok: answered 400",
			"decode " + chatPath + " ok: answered 400",
			"decode " + completionsPath + " ok: answered 400",
			"decode " + generatePath + " warning: " + noSuchRoute + onlyGenerate,
			"decode " + responsesPath + " ok: answered 400",
		}, "2 of 11 routes cannot be used"},
		{"no chat", "", decodeStep, []string{chatPath}, []string{
			"decode " + chatPath + " FAILED: answered 404, the worker has no such route",
			"decode " + completionsPath + " ok: answered 400",
			"decode " + generatePath + " ok: answered 400",
		}, "1 of 3 routes cannot be used"},
		{"no Responses API, which only its clients need", "", renderStep + decodeStep, []string{renderedInput, responsesPath}, []string{
			"render " + renderedChat + " ok: answered 400",
			"render " + renderedPlain + " ok: answered 400",
			"render " + renderedInput + " warning: answered 404, the worker has no such route (requests on /v1/responses are passed through)",
			"decode " + chatPath + " ok: answered 400",
			"decode " + completionsPath + " ok: answered 400",
			"decode " + generatePath + " ok: answered 400",
			"decode " + responsesPath + " warning: answered 404, the worker has no such route (only clients of the Responses API need it)",
		}, ""},
		{"the Responses API is switched off", "", strings.Replace(renderStep, ", RENDER", ", responses = \"off\"", 1) + decodeStep, nil, withoutResponses, ""},
		{"the Responses API is not passed through", "", renderStep + decodeStep + "[server]\npassthrough_routes = [\"/v1/models\"]\n", nil, withoutResponses, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			workers, address := workersWithout(t, tt.missing...)
			got, err := tried(t, within(t), liveConfig(t, address, tt.top, tt.steps), assembly.Options{})
			if !slices.Equal(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
			if (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			for _, l := range workers.Legs("") {
				want := ""
				if l.Name != cluster.Render {
					want = "Bearer x"
				}
				if l.Method != "POST" || string(l.Body) != "{}" || l.Header.Get("Content-Type") != "application/json" ||
					l.Header.Get("Authorization") != want || (l.Name != cluster.Render) != (l.Header.Get("EPP-Profile") == l.Name) {
					t.Errorf("%s: %s %s %v %q", l.Name, l.Method, l.Path, l.Header, l.Body)
				}
			}
		})
	}
}

// TestWhatAnswersToATryMean: nothing is called fine that legs could not use.
func TestWhatAnswersToATryMean(t *testing.T) {
	tests := []struct {
		status     int
		body, want string
		passed     bool // requests of the Responses API are, that cannot be rendered
	}{
		{200, "{}", "ok: answered 200", false},
		{422, `{"detail":[]}`, "ok: answered 422", false},
		{401, "", "ok: answered 401, so clients must bring a credential that you have not configured", false},
		{429, "", "ok: answered 429", false},
		{307, "", "FAILED: answered 307, and legs follow no redirect", false},
		{404, "", "FAILED: answered 404, but not as a worker without the route does: see the routes of the gateway", true},
		{404, `{"error":{"message":"detail"}}`, "FAILED: answered 404, but not as a worker without the route does: see the routes of the gateway", false},
		{404, strings.Repeat("<html>", 10_000), "FAILED: answered 404, but not as a worker without the route does: see the routes of the gateway", true},
		{405, "", "FAILED: answered 405", true},
		{500, "", "FAILED: answered 500", false},
		{503, "", "FAILED: answered 503", false},
		{508, "", "FAILED: answered 508, the gateway sends it back to the coordinator: its route for the profile header is missing", false},
	}
	for _, tt := range tests {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tt.status)
			w.Write([]byte(tt.body))
		}))
		got, err := tried(t, within(t), liveConfig(t, s.URL, "", decodeStep), assembly.Options{})
		rendered, _ := tried(t, within(t), liveConfig(t, s.URL, "", renderStep+decodeStep), assembly.Options{})
		s.Close()
		input := tt.want
		if tt.passed {
			input = strings.Replace(input, "FAILED", "warning", 1) + " (requests on /v1/responses are passed through)"
		}
		if len(rendered) != 7 || rendered[2] != "render "+renderedInput+" "+input {
			t.Errorf("%d: want %s\n%s", tt.status, input, strings.Join(rendered, "\n"))
		}
		// One failure opens the breaker of this configuration, but for tries.
		if len(got) != 3 || got[1] != "decode "+completionsPath+" "+tt.want || (err == nil) != strings.HasPrefix(tt.want, "ok") {
			t.Errorf("%d: %v\n%s", tt.status, err, strings.Join(got, "\n"))
		}
	}
}

func TestTryOfAGatewayThatIsNotThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	got, err := tried(t, within(t), liveConfig(t, "http://"+l.Addr().String(), "", decodeStep), assembly.Options{})
	if err == nil || err.Error() != "2 of 3 routes cannot be used" || len(got) != 3 || !strings.Contains(got[0], "connection refused") {
		t.Errorf("%v\n%s", err, strings.Join(got, "\n"))
	}
}

// hanging is an assembly whose gateway takes connections and never answers.
func hanging(t *testing.T) (*conf.Config, assembly.Options) {
	workers := cluster.New(cluster.Options{})
	pipes := cluster.NewPipeListener()
	if err := workers.StartOn(pipes); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(workers.Close)
	workers.AddFault(cluster.Fault{Leg: cluster.Decode, Hang: true})
	return liveConfig(t, "http://gateway.test", "", decodeStep), assembly.Options{Dial: pipes.DialContext}
}

// TestTryIsBounded: decode's own time-out is 10 minutes.
func TestTryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, o := hanging(t)
		began := time.Now()
		got, err := tried(t, t.Context(), cfg, o)
		if took := time.Since(began); err == nil || took != 30*time.Second || len(got) != 3 ||
			got[0] != "decode "+chatPath+" FAILED: no answer within 10s" {
			t.Errorf("%v after %v\n%s", err, took, strings.Join(got, "\n"))
		}
	})
}

func TestTryEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, o := hanging(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got, err := tried(t, ctx, cfg, o); !errors.Is(err, context.DeadlineExceeded) || len(got) != 0 {
			t.Errorf("%v\n%s", err, strings.Join(got, "\n"))
		}
	})
}
