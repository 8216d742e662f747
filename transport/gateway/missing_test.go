package gateway

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// TestMissingRoutesAreExplainedOnce, to the operator, where a worker must be
// started for them.
func TestMissingRoutesAreExplainedOnce(t *testing.T) {
	for _, tt := range []struct {
		name, path, body string
		status           int
		told             bool
	}{
		{"generate", wire.GeneratePath, `{"detail":"Not Found"}`, 404, true},
		{"render", "/v1/chat/completions/render", " {\"detail\":\"Not Found\"}", 404, true},
		{"an error of the worker's", wire.GeneratePath, `{"error":{"message":"no such model","code":404}}`, 404, false},
		{"another status", wire.GeneratePath, `{"detail":"x"}`, 422, false},
		{"a route that every worker has", "/v1/chat/completions", `{"detail":"Not Found"}`, 404, false},
	} {
		for _, parsed := range []bool{true, false} {
			t.Run(tt.name+map[bool]string{true: ", parsed"}[parsed], func(t *testing.T) {
				var log bytes.Buffer
				r := dial(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(tt.status)
					io.WriteString(w, tt.body)
				}), func(s *UpstreamSettings) { s.Log = slog.New(slog.NewTextHandler(&log, nil)) })
				for range 3 {
					leg := leg("{}")
					leg.Path = tt.path
					if parsed {
						r.call(leg)
						continue
					}
					answer, _, err := r.Open(t.Context(), leg)
					if err != nil {
						t.Fatal(err)
					}
					if text, _ := io.ReadAll(answer); string(text) != tt.body {
						t.Errorf("the client gets %q", text)
					}
					answer.Close()
				}
				want := 0
				if tt.told {
					want = 1
				}
				if n := strings.Count(log.String(), "--enable-scale-out"); n != want {
					t.Errorf("told %d times: %s", n, log.String())
				}
			})
		}
	}
}
