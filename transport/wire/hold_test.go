package wire

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func event(data string) string { return "data: " + data + "\n\n" }

const roleEvent = `{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`

func choice(delta, finish string) string {
	return event(`{"choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + finish + `}]}`)
}

// typed is an event of the Responses API.
func typed(kind, more string) string {
	return "event: " + kind + "\ndata: {\"type\":\"" + kind + "\",\"sequence_number\":0," + more + "}\n\n"
}

var announced = typed("response.created", `"response":{"id":"r","error":null,"output":[]}`) + typed("response.in_progress", `"response":{}`) +
	typed("response.output_item.added", `"item":{}`) + typed("response.content_part.added", `"part":{}`)

func TestWhatIsHeldBack(t *testing.T) {
	role := event(roleEvent)
	for _, tt := range []struct {
		name  string
		proto *Protocol
		text  string
		want  Held
		ended bool
	}{
		{"nothing", Chat, "", Holding, false},
		{"half an event", Chat, "data: {", Holding, false},
		{"an event without its end", Chat, strings.TrimSuffix(choice(`{"content":"x"}`, "null"), "\n"), Holding, false},
		{"the role", Chat, role, Holding, false},
		{"the role twice", Chat, role + role, Holding, false},
		{"a delta of nothings", Chat, choice(`{"role":"assistant","content":null,"tool_calls":[],"refusal":null,"reasoning":""}`, "null"), Holding, false},
		{"no delta", Chat, event(`{"choices":[{"index":0}]}`), Holding, false},
		{"a comment and an empty event", Chat, ": ping\n\n\n\nevent: x\nid: 1\n\n", Holding, false},
		{"text", Chat, role + choice(`{"content":"x"}`, "null"), Released, false},
		{"text of white space", Chat, choice(`{"content":" "}`, "null"), Released, false},
		{"reasoning", Chat, choice(`{"content":null,"reasoning_content":"x"}`, "null"), Released, false},
		{"a tool call", Chat, choice(`{"tool_calls":[{"index":0}]}`, "null"), Released, false},
		{"an odd member", Chat, choice(`{"x":{}}`, "null"), Released, false},
		{"the end", Chat, choice(`{}`, `"stop"`), Released, false},
		{"the second choice says something", Chat, event(`{"choices":[{"delta":{"role":"assistant"}},{"delta":{"content":"x"}}]}`), Released, false},
		{"the usage", Chat, role + event(`{"choices":[],"usage":{}}`), Released, false},
		{"no choices", Chat, event(`{"object":"x"}`), Released, false},
		{"done", Chat, role + event("[DONE]"), Released, false},
		{"no JSON", Chat, event("hello"), Released, false},
		{"data without a blank", Chat, "data:" + roleEvent + "\n\ndata:[DONE]\n\n", Released, false},
		{"data in two lines", Chat, "data: {\"choices\":[{\"delta\":\ndata: {\"content\":\"x\"}}]}\n\n", Released, false},
		{"CRLF", Chat, strings.ReplaceAll(role+choice(`{"content":"x"}`, "null"), "\n", "\r\n"), Released, false},
		{"CR", Chat, strings.ReplaceAll(role+choice(`{"content":"x"}`, "null"), "\n", "\r") + ":", Released, false},
		{"too much to hold", Chat, strings.Repeat(role, 1000), Released, false},
		{"an event too long to hold", Chat, "data: " + strings.Repeat("x", 70_000), Released, false},

		{"an error of the worker", Chat, event(`{"error":{"message":"m","code":500}}`), Failed, false},
		{"an error behind the role", Chat, role + event(`{"error":{"message":"m","type":"InternalServerError","param":null,"code":503}}`), Failed, false},
		{"an error that names no code", Chat, event(`{"error":{"message":"m"}}`), Failed, false},
		{"an error that is text", Chat, event(`{"error":"m"}`), Failed, false},
		{"a code in quotes", Chat, event(`{"error":{"code":"500"}}`), Failed, false},
		{"an error of the request", Chat, event(`{"error":{"message":"m","code":400}}`), Released, false},
		{"a code that is a word", Chat, event(`{"error":{"message":"m","code":"context_length_exceeded"}}`), Released, false},
		{"no error", Chat, event(`{"error":null,"choices":[{"delta":{"role":"assistant"}}]}`), Holding, false},
		{"finished in error", Chat, role + choice(`{}`, `"error"`), Failed, false},

		{"ends at once", Chat, "", Failed, true},
		{"ends behind the role", Chat, role, Failed, true},
		{"ends done", Chat, event("[DONE]"), Released, true},
		{"ends in an event", Chat, role + `data: {"choices":[{"delta":{"content":"x"}}]}`, Failed, true},

		{"responses: what is announced", Responses, announced, Holding, false},
		{"responses: reasoning is announced", Responses, announced + typed("response.reasoning_summary_part.added", `"part":{}`), Holding, false},
		{"responses: queued", Responses, typed("response.queued", `"response":{"error":null}`), Holding, false},
		{"responses: an empty delta", Responses, announced + typed("response.output_text.delta", `"delta":""`), Holding, false},
		{"responses: a delta", Responses, announced + typed("response.output_text.delta", `"delta":"x"`), Released, false},
		{"responses: arguments of a function", Responses, typed("response.function_call_arguments.delta", `"delta":"{"`), Released, false},
		{"responses: a type of the future", Responses, typed("response.x", `"y":1`), Released, false},
		{"responses: no type", Responses, event(`{"response":{}}`), Released, false},
		{"responses: completed", Responses, announced + typed("response.completed", `"response":{"status":"completed"}`), Released, true},
		{"responses: incomplete", Responses, typed("response.incomplete", `"response":{}`), Released, true},
		{"responses: an error", Responses, announced + typed("error", `"code":"500","message":"m"`), Failed, false},
		{"responses: an error without a code", Responses, typed("error", `"code":null`), Failed, false},
		{"responses: an error of the server", Responses, typed("error", `"code":"server_error"`), Failed, false},
		{"responses: an error of the request", Responses, typed("error", `"code":"invalid_prompt"`), Released, false},
		{"responses: an error with a status of the request", Responses, typed("error", `"code":400`), Released, false},
		{"responses: an error object", Responses, announced + event(`{"error":{"message":"m","code":500}}`), Failed, false},
		{"responses: failed", Responses, announced + typed("response.failed", `"response":{"status":"failed","error":{"code":"server_error"}}`), Failed, false},
		{"responses: failed without a reason", Responses, typed("response.failed", `"response":{}`), Failed, false},
		{"responses: failed for the request", Responses, typed("response.failed", `"response":{"error":{"code":"invalid_image"}}`), Released, false},
		{"responses: ends behind what is announced", Responses, announced, Failed, true},

		{"completions: any event", Completions, event(`{"choices":[{"text":""}]}`), Released, false},
		{"completions: an error", Completions, event(`{"error":{"code":500}}`), Failed, false},
		{"generate: any event", Generate, event(`{"choices":[{"token_ids":[]}]}`), Released, false},
		{"generate: finished in error", Generate, event(`{"choices":[{"token_ids":[],"finish_reason":"error"}]}`), Failed, false},
		{"generate: ends at once", Generate, ": hello\n\n", Failed, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range uint64(20) {
				h, got := tt.proto.Hold(), Holding
				rnd := rand.New(rand.NewPCG(seed, 1))
				for rest := tt.text; rest != ""; {
					n := len(rest)
					if seed > 0 {
						n = min(n, 1+rnd.IntN(1+int(seed)*int(seed)))
					}
					got, rest = h.Write([]byte(rest[:n])), rest[n:]
				}
				if tt.ended {
					got = h.End()
				}
				if got != tt.want || string(h.Bytes()) != tt.text {
					t.Fatalf("%d, want %d; %d bytes of %d", got, tt.want, len(h.Bytes()), len(tt.text))
				}
			}
		})
	}
}

// TestErrorEventsAreFound wherever chunks begin and end, and only where an event
// begins.
func TestErrorEventsAreFound(t *testing.T) {
	const failure = `data: {"error": {"message":"m","code":500}}` + "\n\n"
	text := choice(`{"content":"x"}`, "null")
	for name, tt := range map[string]struct {
		stream string
		want   bool
		typed  bool
	}{
		"typed, at the start":   {typed("error", `"code":null`), true, true},
		"typed, behind text":    {announced + typed("error", `"code":null`), true, true},
		"typed, failed":         {announced + typed("response.failed", `"response":{}`), true, true},
		"typed, an object":      {announced + failure, true, true},
		"typed, none":           {announced + typed("response.completed", `"response":{"error":null}`), false, true},
		"typed, in the text":    {typed("response.output_text.delta", `"delta":"event: error"`), false, true},
		"typed, not looked for": {announced + typed("error", `"code":null`), false, false},
		"at the start":          {failure, true, false},
		"behind text":           {text + failure + event("[DONE]"), true, false},
		"behind CRLF":           {strings.ReplaceAll(text, "\n", "\r\n") + failure, true, false},
		"none":                  {text + text + event("[DONE]"), false, false},
		"in the text":           {choice(`{"content":"data: {\"error\":1}"}`, "null"), false, false},
		"behind white space":    {text + "x " + failure, false, false},
		"nothing":               {"", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			for size := 1; size <= len(tt.stream)+1; size++ {
				e := ErrorEvents{Typed: tt.typed}
				found := false
				for rest := tt.stream; rest != ""; {
					n := min(size, len(rest))
					found = e.Found([]byte(rest[:n])) || found
					rest = rest[n:]
				}
				if found != tt.want {
					t.Errorf("in pieces of %d: %t", size, found)
				}
			}
		})
	}
}

// TestEventsThatRefuseARequest are no failures of the worker, if they come in one
// piece, wherever their beginning is.
func TestEventsThatRefuseARequest(t *testing.T) {
	refusal := `data: {"error": {"message":"m","code":400}}`
	for name, tt := range map[string]struct {
		stream string
		want   bool
		typed  bool
	}{
		"a refusal":                 {refusal + "\n\n" + event("[DONE]"), false, false},
		"a refusal, CRLF":           {refusal + "\r\n\r\ndata: [DONE]\r\n\r\n", false, false},
		"a refusal, then a failure": {refusal + "\n\n" + event(`{"error":{"code":500}}`), true, false},
		"a word":                    {event(`{"error":{"code":"context_length_exceeded"}}`), false, false},
		"no code":                   {event(`{"error":{"message":"m"}}`), true, false},
		"no JSON":                   {event(`{"error":`), true, false},
		"typed":                     {announced + typed("error", `"code":"400"`), false, true},
		"typed, failed":             {typed("response.failed", `"response":{"error":{"code":"invalid_image"}}`), false, true},
		"typed, the server's":       {typed("response.failed", `"response":{"error":{"code":"server_error"}}`), true, true},
	} {
		for at := range len(errorLine) { // the first piece ends before the event says more
			e := ErrorEvents{Typed: tt.typed}
			if got := e.Found([]byte(tt.stream[:at])) || e.Found([]byte(tt.stream[at:])); got != tt.want {
				t.Errorf("%s, in two pieces from %d: %t", name, at, got)
			}
		}
	}
}

// FuzzHold: what is known of an answer does not depend on its pieces, and never
// takes back what it said.
func FuzzHold(f *testing.F) {
	for _, text := range []string{event(roleEvent) + choice(`{"content":"x"}`, "null"), event(`{"error":{"code":500}}`), "data: a\r\rdata:b\n\r\n", ":\n\n"} {
		f.Add(text, 1)
		f.Add(text, 7)
	}
	f.Fuzz(func(t *testing.T, text string, size int) {
		size = max(1, size%64)
		for _, p := range Protocols() {
			whole := p.Hold()
			want := whole.Write([]byte(text))
			h, got := p.Hold(), Holding
			for rest := text; rest != ""; {
				n := min(size, len(rest))
				before := got
				got = h.Write([]byte(rest[:n]))
				if before != Holding && got != before {
					t.Fatalf("%s: %d has become %d", p.Name, before, got)
				}
				rest = rest[n:]
			}
			if got != want && len(text) <= maxHeld {
				t.Fatalf("%s: %d in one piece, %d in pieces of %d", p.Name, want, got, size)
			}
		}
	})
}
