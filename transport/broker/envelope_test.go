package broker

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// TestEnvelope is, to the byte, the form that all versions of the broker read,
// with the payload as the client wrote it.
func TestEnvelope(t *testing.T) {
	body := "{\"model\": \"m\",\n \"seed\":12345678901234567890, \"top_p\":1.00, \"stop\":\"<\\u00e9>\", \"model\":\"again\"}"
	s := Submission{
		Key: abc, Queue: "request-sortedset", Endpoint: "/v1/chat/completions", Payload: wire.NewPayload([]byte(body)),
		Metadata: map[string]string{"userid": "acme", "traceparent": "00-1-2-01"}, Headers: map[string]string{"x-llm-d-slo-ttft-ms": "200"},
		Created: time.Unix(1790000000, 999), Deadline: time.Unix(1790000060, 999),
	}
	want := `{"internal":{"request_token":"0123456789abcdef0123456789abcdef","request_queue_name":"request-sortedset","result_queue_name":"results:req:acme:abc-1"},` +
		`"request_kind":"redis","data":{"id":"acme:abc-1","created":1790000000,"deadline":1790000060,"payload":` + body +
		`,"metadata":{"traceparent":"00-1-2-01","userid":"acme"},"headers":{"x-llm-d-slo-ttft-ms":"200"},"endpoint":"/v1/chat/completions",` +
		`"request_queue_name":"request-sortedset","result_queue_name":"results:req:acme:abc-1"}}`
	got, err := s.envelope("0123456789abcdef0123456789abcdef")
	if err != nil || string(got) != want {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
}

// TestEnvelopeOfAnything is JSON, whatever is in its names, and leaves out what
// there is not.
func TestEnvelopeOfAnything(t *testing.T) {
	odd := "a\"b\\c\n\x00\xff<é\u2028"
	s := Submission{Key: Key{Tenant: odd, ID: "1"}, Queue: odd, Endpoint: odd, Payload: wire.NewPayload([]byte(`{}`)),
		Headers: map[string]string{odd: odd}}
	got, err := s.envelope("t")
	if err != nil {
		t.Fatal(err)
	}
	var envelope struct {
		Data map[string]any
	}
	if err := json.Unmarshal(got, &envelope); err != nil {
		t.Fatalf("%v in %q", err, got)
	}
	clean := "a\"b\\c\n\x00\ufffd<é\u2028"
	if envelope.Data["endpoint"] != clean || envelope.Data["id"] != clean+":1" || envelope.Data["headers"].(map[string]any)[clean] != clean {
		t.Errorf("read %q", envelope.Data)
	}
	if _, there := envelope.Data["metadata"]; there {
		t.Error("there is metadata")
	}
}
