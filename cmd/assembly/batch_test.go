package assembly_test

import (
	"testing"
)

const batching = "max_batch_size = 8\n"

func TestSmoke(t *testing.T) {
	r := newRig(t, setup{pipeline: batching})
	got := r.post(completionsPath, `{"model":"demo-model","prompt":["one two","three","four five six"]}`, "X-Request-Id", "b")
	t.Log(got)
	got = r.post(completionsPath, `{"model":"demo-model","stream":true,"stream_options":{"include_usage":true},"prompt":["one two","three","four five six"]}`, "X-Request-Id", "b")
	t.Log(got.body)
	t.Log(r.logs.String())
	r.settled()
}
