package assembly_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// TestTraceShowsBodiesWithoutTheirContent: what came, what was sent and what was
// answered, but no long string, image, tensor, token array or credential.
func TestTraceShowsBodiesWithoutTheirContent(t *testing.T) {
	const mark = "MARK-7f3a"
	r := newRig(t, setup{trace: true, tokensIn: true, steps: wholeSteps, cluster: cluster.Options{TensorBytes: 1000}})
	prompt := strings.Repeat("long ", 20) + mark
	image := dataURI(picture(9, 500))
	body := fmt.Sprintf(`{"model":"demo-model","messages":[{"role":"user","content":[{"type":"text","text":%q},{"type":"image_url","image_url":{"url":%q}},{"type":"text","text":"\u001b[31m\nlevel=ERROR msg=forged"}]}]}`, prompt, image)
	if got := r.post(chatPath, body, "X-Request-Id", "the-id", "Authorization", "Bearer "+mark); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Prefill, Status: 500, Body: `{"error":{"message":"` + prompt + `"},"code":500}`})
	r.post(chatPath, body, "X-Request-Id", "the-id")
	r.settled()
	log := r.logs.String()
	for _, secret := range []string{mark, "iVBORw0KGgo", "forged\n", "\x1b"} {
		if strings.Contains(log, secret) {
			t.Errorf("%q is logged:\n%s", secret, log)
		}
	}
	for _, what := range []string{`msg="request body" request_id=the-id`, "msg=leg request_id=the-id upstream=render", "msg=answer request_id=the-id upstream=render",
		"msg=leg request_id=the-id upstream=encode", "msg=answer request_id=the-id upstream=prefill", "msg=leg request_id=the-id upstream=decode",
		`msg="error answer" request_id=the-id upstream=prefill`, `\"model\":\"demo-model\"`, "<data URI, "} {
		if !strings.Contains(log, what) {
			t.Errorf("%s is not logged", what)
		}
	}
	for line := range strings.Lines(log) {
		if !strings.HasPrefix(line, "time=") || len(line) > 10_000 {
			t.Errorf("a line of %d bytes: %.200q", len(line), line)
		}
	}
}
