package explain

import (
	"bytes"
	"strings"
	"testing"
)

// TestABatchIsExplainedPromptByPrompt, streamed or not.
func TestABatchIsExplainedPromptByPrompt(t *testing.T) {
	for _, stream := range []string{"", `,"stream":true`} {
		r := explained(t, "max_batch_size = 4\n", Request{Route: "/v1/completions", Body: []byte(`{"model":"m"` + stream + `,"prompt":["one","two"]}`)})
		if !r.Accepted {
			t.Fatalf("%+v", r.Refused)
		}
		var legs []string
		for _, l := range r.Legs {
			legs = append(legs, l.Name+" "+l.Headers["X-Request-Id"])
		}
		want := "render explained-request-p0, conditional-decode explained-request-p0, prefill explained-request-p0, decode explained-request-p0, " +
			"render explained-request-p1, conditional-decode explained-request-p1, prefill explained-request-p1, decode explained-request-p1"
		if got := strings.Join(legs, ", "); got != want {
			t.Errorf("legs:\n%s\nwant:\n%s", got, want)
		}
		var text bytes.Buffer
		if err := r.Text(&text); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"2 prompts in one request: each goes through the steps by itself, its legs by the id explained-request-p0", "pipeline.max_batch_size", "4 (this body: 2 prompts)"} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("%q is not in\n%s", want, text.String())
			}
		}
	}
	r := explained(t, "max_batch_size = 2\n", Request{Route: "/v1/completions", Body: []byte(`{"model":"m","prompt":["one","two","three"]}`)})
	if r.Accepted || r.Refused.Code != "limit_exceeded" || len(r.Legs) > 0 {
		t.Errorf("%+v %+v", r.Refused, r.Legs)
	}
}
