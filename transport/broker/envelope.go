package broker

import (
	"encoding/json"
	"strconv"
)

// envelope writes a submission as the member of its queue. The payload is put
// in as it is: decoding it would cost numbers their digits. It is copied, which is
// for the caller to account for. Fields of internal that are the broker's own are
// not written.
func (s *Submission) envelope(token string) ([]byte, error) {
	metadata, err := json.Marshal(s.Metadata)
	if err != nil {
		return nil, err
	}
	headers, err := json.Marshal(s.Headers)
	if err != nil {
		return nil, err
	}
	queues := `"request_queue_name":` + quote(s.Queue) + `,"result_queue_name":` + quote(s.mailbox())

	out := make([]byte, 0, int(s.Payload.Size())+len(metadata)+len(headers)+2*len(queues)+256)
	out = append(out, `{"internal":{"request_token":"`...)
	out = append(append(out, token...), `",`...)
	out = append(out, queues...)
	out = append(out, `},"request_kind":"redis","data":{"id":`...)
	out = append(out, quote(s.String())...)
	out = strconv.AppendInt(append(out, `,"created":`...), s.Created.Unix(), 10)
	out = strconv.AppendInt(append(out, `,"deadline":`...), s.Deadline.Unix(), 10)
	out = s.Payload.Append(append(out, `,"payload":`...))
	if len(s.Metadata) > 0 {
		out = append(append(out, `,"metadata":`...), metadata...)
	}
	if len(s.Headers) > 0 {
		out = append(append(out, `,"headers":`...), headers...)
	}
	if s.Endpoint != "" {
		out = append(append(out, `,"endpoint":`...), quote(s.Endpoint)...)
	}
	out = append(append(out, ','), queues...)
	return append(out, `}}`...), nil
}

// quote writes a string in JSON.
func quote(s string) string {
	text, _ := json.Marshal(s) // a string can always be written
	return string(text)
}
