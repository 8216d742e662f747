package servertest

import "strings"

// Refusal is a request that the coordinator answers by itself, with an error of the
// type invalid_request_error.
type Refusal struct {
	Name, Method, Path, Body string
	Header                   []string // name and value
	Status                   int
	Code                     string
}

// What a coordinator must be set to for [Refusals].
const (
	RefusalServer = "max_request_body_size = 1\n" // in [server]
	RefusalRender = "max_total_tokens = 12"       // a param of the render step
)

const hi = `{"model":"demo-model","messages":[{"role":"user","content":"hi"}]}`

// Refusals reach nobody: what can be refused at the door is.
var Refusals = []Refusal{
	{"not JSON", "POST", chatPath, `{"model":`, nil, 400, "invalid_json"},
	{"not an object", "POST", chatPath, `["model"]`, nil, 400, "invalid_json"},
	{"something behind", "POST", chatPath, `{"model":"m"} {}`, nil, 400, "invalid_json"},
	{"empty", "POST", chatPath, ``, nil, 400, "invalid_json"},
	{"too deep", "POST", chatPath, `{"a":` + strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001) + `}`, nil, 400, "invalid_json"},
	{"embeddings", "POST", chatPath, `{"model":"m","messages":[{"role":"user","content":[{"type":"video_embeds","video_embeds":"AAAA"}]}]}`, nil, 400, "invalid_media"},
	{"file", "POST", chatPath, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","image_url":"file:///x.png"}]}]}`, nil, 400, "invalid_media"},
	{"audio", "POST", chatPath, `{"model":"m","messages":[{"role":"tool","content":[{"type":"input_audio","input_audio":{"data":""}}]}]}`, nil, 400, "invalid_media"},
	{"no prompt", "POST", completionsPath, `{"model":"m"}`, nil, 400, "invalid_prompt"},
	{"prompts", "POST", completionsPath, `{"model":"m","prompt":["a","b"]}`, nil, 400, "invalid_prompt"},
	{"prompt of arrays", "POST", completionsPath, `{"model":"m","prompt":[[1],[2]]}`, nil, 400, "invalid_prompt"},
	{"empty prompt array", "POST", completionsPath, `{"model":"m","prompt":[ ]}`, nil, 400, "invalid_prompt"},
	{"negative id", "POST", completionsPath, `{"model":"m","prompt":[1,-1]}`, nil, 400, "invalid_prompt"},
	{"fraction", "POST", completionsPath, `{"model":"m","prompt":[1,2.5]}`, nil, 400, "invalid_prompt"},
	{"too many tokens given", "POST", completionsPath, `{"model":"m","prompt":[1,2,3,4,5,6,7,8,9,10,11,12,13]}`, nil, 400, "limit_exceeded"},
	{"encoded", "POST", chatPath, hi, []string{"Content-Encoding", "gzip"}, 415, "unsupported_encoding"},
	{"too large", "POST", chatPath, strings.Replace(hi, "hi", strings.Repeat("x", 1<<20), 1), nil, 413, "request_too_large"},
	{"our own leg", "POST", chatPath, hi, []string{"X-Coordinator-Hop", "1"}, 508, "routing_loop"},
	{"no such route", "POST", "/v1/load_lora_adapter", `{}`, nil, 404, "not_found"},
	{"trailing slash", "POST", chatPath + "/", `{}`, nil, 404, "not_found"},
	{"wrong method", "GET", chatPath, ``, nil, 405, "method_not_allowed"},
	{"options", "OPTIONS", chatPath, ``, nil, 405, "method_not_allowed"},
}
