package assembly_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// TestAnswersThatReportAFailure: a worker whose engine failed may answer 200 and
// say so in finish_reason. That is a failed leg, and counts against its profile.
func TestAnswersThatReportAFailure(t *testing.T) {
	for _, leg := range []string{cluster.Encode, cluster.Prefill} {
		t.Run(leg, func(t *testing.T) {
			r := newRig(t, setup{steps: wholeSteps, toml: "[gateway.breaker]\nconsecutive_failures = 1\n"})
			r.cluster.AddFault(cluster.Fault{Leg: leg, FinishError: true, Times: 1})
			body := imagesBody(dataURI(picture(1, 1000)))
			got := r.post(chatPath, body)
			if o := readError(t, got.body); got.status != http.StatusBadGateway || o.Error.Code != "upstream_failed" {
				t.Errorf("%d %s", got.status, got.body)
			}
			if legs := r.legs(""); legs[len(legs)-1] != leg {
				t.Errorf("legs %v", legs)
			}
			if n := r.metric(t, "llm_d_coordinator_breaker_state", "profile="+leg); n != 2 {
				t.Errorf("the breaker's state is %v", n)
			}
		})
	}
}

// imagesBody is a chat request of images.
func imagesBody(urls ...string) string {
	var parts []string
	for _, url := range urls {
		parts = append(parts, fmt.Sprintf(`{"type":"image_url","image_url":{"url":%q}}`, url))
	}
	return `{"model":"demo-model","messages":[{"role":"user","content":[` + strings.Join(parts, ",") + `]}]}`
}

// TestWorkersThatAdvertiseLocalhost are warned about once, counted each time, and
// otherwise left alone.
func TestWorkersThatAdvertiseLocalhost(t *testing.T) {
	r := newRig(t, setup{steps: wholeSteps, toml: "[gateway.retry]\nmax_attempts = 1\n"})
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Prefill, BadHandoff: json.RawMessage(
		`{"remote_engine_id":"e","remote_host":"LocalHost","remote_port":5600,"remote_request_id":"r"}`)})
	for i := range 3 {
		body := imagesBody(dataURI(picture(byte(i), 1000)))
		r.cluster.AddFault(cluster.Fault{Leg: cluster.Encode, Times: 1, BadDescriptors: json.RawMessage(
			fmt.Sprintf(`{%q:{"peer_host":"127.0.0.1","peer_port":1}}`, cluster.ImageHash(picture(byte(i), 1000))))})
		r.post(chatPath, body)
	}
	for _, profile := range []string{"encode", "prefill"} {
		if n := r.metric(t, "llm_d_coordinator_worker_loopback_host_total", "profile="+profile); n != 3 {
			t.Errorf("%s: %v counted", profile, n)
		}
	}
	logs := r.logs.String()
	for _, want := range []string{"field=remote_host host=localhost", "field=peer_host host=127.0.0.1"} {
		if n := strings.Count(logs, want); n != 1 {
			t.Errorf("%q is logged %d times", want, n)
		}
	}
	if legs := r.legs(""); legs[len(legs)-1] != cluster.Decode {
		t.Errorf("legs %v", legs)
	}
}
