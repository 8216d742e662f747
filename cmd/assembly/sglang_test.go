package assembly_test

import (
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// pairOf is the step that sends both legs together.
func pairOf(params string) string {
	return "[[pipeline.steps]]\ntype = \"prefill-decode\"\nparams = { " + params + " }\n"
}

const reserved = `bootstrap_from = "reserve", bootstrap_header = "x-prefill-worker"`

// pairs is a pipeline in front of SGLang's workers.
func pairs(params string) setup {
	return setup{kv: cluster.KVSGLang, steps: renderStep + pairOf(params)}
}

func TestPairFirst(t *testing.T) {
	r := newRig(t, pairs(reserved))
	for _, stream := range []bool{false, true} {
		resp := r.post(chatPath, chatBody("one two three", stream))
		t.Log(resp.status, resp.body, resp.err)
	}
	t.Log(r.legs(""))
	r.settled()
	t.Logf("%+v", r.cluster.State())
}
