package assembly_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// codes are those that the contract has for requests that are well-formed, with
// their statuses.
var codes = map[string][]int{
	"limit_exceeded": {400}, "media_fetch_failed": {400, 502, 504}, "upstream_rejected": {400, 404, 422, 429}, "upstream_failed": {502},
	"upstream_timeout": {504}, "upstream_unavailable": {503}, "queue_full": {429}, "shutting_down": {503},
}

// garbage is what a worker says that makes no sense.
const garbage = "<html>this is not what you asked for"

// judge says how a request has ended, and what is wrong with that: an answer is
// whole and has the word in it, or is broken off where it must be, or is an error
// of the contract's, or a worker's own.
func judge(got response, id, word string) (kind string, wrong error) {
	if got.header.Get("X-Request-Id") != id {
		return "nobody's", fmt.Errorf("the request id is %q", got.header.Get("X-Request-Id"))
	}
	switch {
	case got.status != http.StatusOK:
		return judgeError(got, id)
	case strings.HasPrefix(got.header.Get("Content-Type"), "text/event-stream"):
		return judgeStream(got, id)
	case got.err != nil:
		return "broken off", nil
	case got.body == garbage:
		return "garbage", nil
	case !json.Valid([]byte(got.body)):
		return "answer", fmt.Errorf("the answer is no JSON")
	case !strings.Contains(got.body, word) && !strings.Contains(got.body, "token_ids"):
		return "answer", fmt.Errorf("the answer has not the word %s", word)
	}
	return "answer", nil
}

func judgeError(got response, id string) (kind string, wrong error) {
	var o struct {
		Error struct {
			Message, Type string
			Code          any
		}
		Object string // "error": one of SGLang's, without a wrapper
		Code   any
	}
	switch err := json.Unmarshal([]byte(got.body), &o); {
	case got.err != nil:
		return fmt.Sprintf("%d broken off", got.status), nil
	case err != nil:
		return "error", fmt.Errorf("not an error object: %w", err)
	case o.Error.Code == float64(got.status), o.Object == "error" && o.Code == float64(got.status):
		return fmt.Sprintf("worker's %d", got.status), nil
	}
	code, _ := o.Error.Code.(string)
	kind = fmt.Sprintf("%d %s", got.status, code)
	later := got.header.Get("Retry-After")
	seconds, err := strconv.Atoi(later)
	switch {
	case !slices.Contains(codes[code], got.status):
		return kind, fmt.Errorf("there is no such error")
	case !strings.HasSuffix(o.Error.Message, "(request_id: "+id+")"):
		return kind, fmt.Errorf("the message does not end with the request id")
	case slices.Contains([]string{"queue_full", "upstream_unavailable", "shutting_down"}, code) && (err != nil || seconds < 1):
		return kind, fmt.Errorf("Retry-After is %q", later)
	}
	return kind, nil
}

// judgeStream judges a stream of events. One that a worker ends too early, but in
// good order, is the worker's own.
func judgeStream(got response, id string) (kind string, wrong error) {
	if got.err == nil && strings.HasSuffix(got.body, "data: [DONE]\n\n") {
		if n := strings.Count(got.body, `"role":"assistant"`); n > 1 {
			return "stream", fmt.Errorf("the stream begins %d times", n)
		}
		if strings.Contains(got.body, `data: {"error"`) {
			return "stream with a worker's error", nil
		}
		return "stream", nil
	}
	if got.err == nil {
		if !strings.HasSuffix(got.body, "\n\n") {
			return "stream ended", fmt.Errorf("it ends within an event")
		}
		return "stream ended", nil
	}
	_, last, ok := strings.Cut(strings.TrimSuffix(got.body, "\n\n"), `data: {"error"`)
	var o errorObject
	if err := json.Unmarshal([]byte(`{"error"`+last), &o); !ok || err != nil || !strings.HasSuffix(got.body, "\n\n") ||
		!strings.HasSuffix(o.Error.Message, "(request_id: "+id+")") {
		return "stream broken off", fmt.Errorf("it does not end with an error event: %v", err)
	}
	return "stream broken off: " + o.Error.Code, nil
}
