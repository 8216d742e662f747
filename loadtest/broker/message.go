package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// message is a request as it lies in the queue.
type message struct {
	internal internal
	kind     string
	raw      json.RawMessage // data, as it came
	data     data
}

// internal is what the parties tell each other of a request.
type internal struct {
	Token        string `json:"request_token"`
	RequestQueue string `json:"request_queue_name,omitempty"`
	ResultQueue  string `json:"result_queue_name,omitempty"`
	Retries      int    `json:"retry_count,omitempty"`
}

// data is the request itself.
type data struct {
	ID           string            `json:"id"`
	Created      int64             `json:"created"`
	Deadline     int64             `json:"deadline"`
	Payload      json.RawMessage   `json:"payload"`
	Metadata     map[string]string `json:"metadata"`
	Headers      map[string]string `json:"headers"`
	Endpoint     string            `json:"endpoint"`
	RequestQueue string            `json:"request_queue_name"`
	ResultQueue  string            `json:"result_queue_name"`
}

func parse(member string) (*message, error) {
	var outer struct {
		Internal internal        `json:"internal"`
		Kind     string          `json:"request_kind"`
		Data     json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal([]byte(member), &outer); err != nil {
		return nil, err
	}
	if outer.Kind != "redis" && outer.Kind != "plain" && outer.Kind != "pubsub" || outer.Data == nil {
		return nil, errors.New("no kind of request, or no data")
	}
	m := &message{internal: outer.Internal, kind: outer.Kind, raw: outer.Data}
	if err := json.Unmarshal(outer.Data, &m.data); err != nil {
		return nil, err
	}
	return m, nil
}

// again is the message as it lies in the queue for another attempt: what the client
// sent keeps its bytes.
func (m *message) again(retries int) string {
	i := m.internal
	i.Retries = retries
	text, _ := json.Marshal(i) // strings and a number: it cannot fail
	return `{"internal":` + string(text) + `,"request_kind":"` + m.kind + `","data":` + string(m.raw) + `}`
}

func (m *message) deadline() time.Time { return time.Unix(m.data.Deadline, 0) }

// mailbox is the list that the result goes to.
func (m *message) mailbox() string {
	for _, name := range []string{m.internal.ResultQueue, m.data.ResultQueue} {
		if name != "" {
			return name
		}
	}
	return "result-list"
}

func activeKey(id string) string { return "request-active:" + id }
func cancelKey(id string) string { return "request-cancel:" + id }

var token = regexp.MustCompile(`^[0-9a-f]{32}$`)

// violations are what a request of the coordinator's may not be like.
func (m *message) violations(queue string, score float64) (found []string) {
	note := func(wrong bool, format string, args ...any) {
		if wrong {
			found = append(found, fmt.Sprintf("%s: ", m.data.ID)+fmt.Sprintf(format, args...))
		}
	}
	d, i := m.data, m.internal
	tenant, id, ok := strings.Cut(d.ID, ":")
	note(m.kind != "redis", "it is of the kind %q", m.kind)
	note(!ok || tenant == "" || id == "", "the id is not of a tenant and a request")
	note(!token.MatchString(i.Token), "the token is %q", i.Token)
	note(int64(score) != d.Deadline, "the score is %v, the deadline %d", score, d.Deadline)
	note(d.Created <= 0 || d.Created > d.Deadline, "created at %d, with the deadline %d", d.Created, d.Deadline)
	note(d.RequestQueue != queue || i.RequestQueue != queue, "the queues are %q and %q", i.RequestQueue, d.RequestQueue)
	note(d.ResultQueue != "results:req:"+d.ID || i.ResultQueue != d.ResultQueue, "the mailboxes are %q and %q", i.ResultQueue, d.ResultQueue)
	note(len(d.Payload) == 0 || d.Payload[0] != '{', "the payload is no object")
	note(!strings.HasPrefix(d.Endpoint, "/"), "the endpoint is %q", d.Endpoint)
	for name := range d.Headers {
		note(strings.HasSuffix(strings.ToLower(name), "-mode"), "the header %s would make the answer wait again", name)
	}
	return found
}

// foreign returns the fields that are the broker's own and were written by somebody
// else.
func foreign(member string) (names []string) {
	var outer struct {
		Internal map[string]json.RawMessage `json:"internal"`
	}
	if json.Unmarshal([]byte(member), &outer) != nil {
		return nil
	}
	for name := range outer.Internal {
		if name != "request_token" && name != "request_queue_name" && name != "result_queue_name" {
			names = append(names, name)
		}
	}
	return names
}

// result is what goes into a mailbox.
type result struct {
	ID      string `json:"id"`
	Status  int    `json:"status_code,omitempty"`
	Payload string `json:"payload"`
	Code    string `json:"error_code,omitempty"`
	Message string `json:"error_message,omitempty"`
}

func (r *result) text() string {
	text, _ := json.Marshal(r) // strings and a number: it cannot fail
	return string(text)
}

// Codes of results without an answer.
const (
	deadlineExceeded = "DEADLINE_EXCEEDED"
	cancelled        = "CANCELLED"
	inferenceError   = "INFERENCE_ERROR"
)

// failure is the result of a request that has no answer.
func (m *message) failure(code, text string) *result {
	payload, _ := json.Marshal(map[string]string{"error": text}) // strings: it cannot fail
	return &result{ID: m.data.ID, Payload: string(payload), Code: code, Message: text}
}
