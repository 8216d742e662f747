package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// moved is image i's placeholder as an encode shows it.
func (p *renderedPrompt) moved(i int) string {
	at := string(p.Features.Placeholders["image"][i])
	_, rest, _ := strings.Cut(at, ",")
	return `{"offset":1,` + rest
}

// encodeIDs are image i's tokens as an encode shows them.
func (p *renderedPrompt) encodeIDs(t *testing.T, i int) string {
	ids, _ := p.span(t, i)
	return jsonText(append([]int{p.TokenIDs[0]}, ids...))
}

// encodeChat is a good encode of image i in the chat format, made from its part.
func (p *renderedPrompt) encodeChat(t *testing.T, i int, part string) string {
	return fmt.Sprintf(`{"model":"demo-model","messages":[{"role":"user","content":[%s]}],"tokens":{"token_ids":%s,"features":{"mm_hashes":{"image":["%s"]},"mm_placeholders":{"image":[%s]}}},"max_tokens":1,"stream":false}`,
		part, p.encodeIDs(t, i), p.hashes()[i], p.moved(i))
}

// encodeTokens is the same in the generate format.
func (p *renderedPrompt) encodeTokens(t *testing.T, i int) string {
	return fmt.Sprintf(`{"model":"demo-model","token_ids":%s,"features":{"mm_hashes":{"image":["%s"]},"mm_placeholders":{"image":[%s]},"kwargs_data":{"image":["%s"]}},"sampling_params":{"max_tokens":1},"stream":false}`,
		p.encodeIDs(t, i), p.hashes()[i], p.moved(i), *p.Features.Kwargs["image"][i])
}

// descriptors are the ec_transfer_params of an answer.
func descriptors(t *testing.T, got answer) string {
	t.Helper()
	var body struct {
		Params json.RawMessage `json:"ec_transfer_params"`
	}
	if err := json.Unmarshal([]byte(got.body), &body); err != nil || got.status != http.StatusOK {
		t.Fatalf("encode: %v, %+v", err, got)
	}
	return string(body.Params)
}

func TestEncode(t *testing.T) {
	r := start(t, Options{})
	cat, dog := imagePart(catURI, ""), imagePart(dogURI, "")
	p := r.render("x", chatOf("", cat, textPart, dog))
	chat := r.send(call{leg: Encode, id: "x", body: p.encodeChat(t, 0, cat)})
	tokens := r.send(call{leg: Encode, id: "x", path: generatePath, body: p.encodeTokens(t, 1)})
	for i, got := range []answer{chat, tokens} {
		params := descriptors(t, got)
		for _, want := range []string{`{"` + p.hashes()[i] + `":{"size_bytes":`, `"peer_port":5601`, `"peer_host":"10.0.0.2"`, `{"z":9007199254740993,"a":1.0}`} {
			if !strings.Contains(params, want) {
				t.Errorf("%s has no %s", params, want)
			}
		}
		if leg := r.Legs("x")[i+1]; string(leg.Descriptors) != params || leg.Name != Encode {
			t.Errorf("recorded %+v", leg)
		}
	}
	if said(t, chat.body) != "You" || !strings.Contains(tokens.body, `"finish_reason":"length","token_ids":[`) {
		t.Errorf("chat %s, tokens %s", chat.body, tokens.body)
	}
	if s := r.State(); s.EncodeCalls != 2 || s.Legs[Encode] != 2 {
		t.Errorf("%+v", s)
	}
	r.noViolations()
}

// TestEncodeIsStrict spoils a good encode in each way.
func TestEncodeIsStrict(t *testing.T) {
	cat, dog := imagePart(catURI, ""), imagePart(dogURI, "")
	rendered := chatOf("", cat, dog)
	both := []string{chatPath, generatePath}
	for _, test := range []struct {
		name     string
		paths    []string
		old, new string
	}{
		{"other hash", both, catHash, dogHash},
		{"unknown hash", both, catHash, "nothing"},
		{"two hashes", both, `"mm_hashes":{"image":[`, `"mm_hashes":{"image":["x",`},
		{"other modality", both, `"image":[`, `"audio":[`},
		{"offset", both, `"offset":1`, `"offset":2`},
		{"length", both, `"length":`, `"length":1`},
		{"unknown member lost", both, `,"x_unknown":{"b":1,"a":2}`, ``},
		{"unknown member sorted", both, `{"b":1,"a":2}`, `{"a":2,"b":1}`},
		{"first id", both, `"token_ids":[1,`, `"token_ids":[2,`},
		{"id lost", both, `"token_ids":[1,`, `"token_ids":[`},
		{"other id", both, `],"features"`, `7],"features"`},
		{"max_tokens", both, `"max_tokens":1`, `"max_tokens":2`},
		{"streamed", both, `"stream":false`, `"stream":true`},
		{"no stream", both, `,"stream":false`, ``},
		{"field added", both, `"stream":false`, `"stream":false,"temperature":1`},
		{"no features", both, `"features"`, `"futures"`},
		{"text added", []string{chatPath}, `"content":[`, `"content":["x",`},
		{"system message", []string{chatPath}, `"role":"user"`, `"role":"system"`},
		{"two messages", []string{chatPath}, `"messages":[`, `"messages":[{"role":"user","content":"x"},`},
		{"no image", []string{chatPath}, cat, textPart},
		{"other image", []string{chatPath}, cat, dog},
		{"part respelt", []string{chatPath}, cat, strings.Replace(cat, ":", ": ", 1)},
		{"tensors", []string{chatPath}, `},"max_tokens"`, `,"kwargs_data":null},"max_tokens"`},
		{"null tensors", []string{generatePath}, `"kwargs_data":{"image":["`, `"kwargs_data":{"image":[null],"x":["`},
		{"other tensors", []string{generatePath}, `"kwargs_data":{"image":["gqxw`, `"kwargs_data":{"image":["gqxx`},
		{"undecodable tensors", []string{generatePath}, `"kwargs_data":{"image":["`, `"kwargs_data":{"image":["%`},
		{"sampling", []string{generatePath}, `"max_tokens":1`, `"max_tokens":1,"n":1`},
	} {
		for _, path := range test.paths {
			t.Run(test.name+path, func(t *testing.T) {
				r := start(t, Options{})
				p := r.render("x", rendered)
				body := p.encodeChat(t, 0, cat)
				if path == generatePath {
					body = p.encodeTokens(t, 0)
				}
				spoilt := strings.Replace(body, test.old, test.new, 1)
				if spoilt == body {
					t.Fatalf("%q is not in %s", test.old, body)
				}
				got := r.send(call{leg: Encode, id: "x", path: path, body: spoilt})
				if s := r.State(); got.status != 400 || s.ViolationCount == 0 || s.EncodeCalls != 0 {
					t.Errorf("got %+v, violations %q", got, s.Violations)
				}
			})
		}
	}
	r := start(t, Options{})
	if got := r.send(call{leg: Encode, path: completionsPath, body: `{"prompt":"x"}`}); got.status != 400 || r.State().ViolationCount != 1 {
		t.Errorf("completions: %+v", got)
	}
}

// TestEncodeWithProcessorArguments: they decide the hash, so the encode has them.
func TestEncodeWithProcessorArguments(t *testing.T) {
	r := start(t, Options{})
	cat := imagePart(catURI, "")
	const kwargs = `,"mm_processor_kwargs":{"b":1,"a":2},"media_io_kwargs":{"image":{"x":1}}`
	p := r.render("x", chatOf(kwargs, cat))
	body := p.encodeChat(t, 0, cat)
	if got := r.send(call{leg: Encode, id: "x", body: body}); got.status != 400 {
		t.Errorf("without: %+v", got)
	}
	if got := r.send(call{leg: Encode, id: "x", body: strings.TrimSuffix(body, "}") + kwargs + "}"}); got.status != 200 {
		t.Errorf("with: %+v", got)
	}
}

func TestEncodeTwice(t *testing.T) {
	cat := imagePart(catURI, "")
	for _, test := range []struct {
		name      string
		fault     Fault
		first     string // id
		again     string
		violation string
	}{
		{"same id", Fault{Leg: "unknown"}, "x", "x", "more than once, before by x"},
		{"retry after an answer", Fault{Leg: "unknown"}, "x", "x-r1", "more than once, before by x"},
		{"first attempt after the retry's answer", Fault{Leg: "unknown"}, "x-r1", "x", "more than once, before by x-r1"},
		{"retry after a failure", Fault{Leg: Encode, Status: 503, Times: 1}, "x", "x-r1", ""},
		{"retry after half an answer", Fault{Leg: Encode, BreakAfter: new(0), Times: 1}, "x", "x-r1", ""},
		{"other request", Fault{Leg: "unknown"}, "x", "y", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := start(t, Options{})
			r.AddFault(test.fault)
			for _, id := range []string{"x", "y"} {
				r.render(id, chatOf("", cat, cat))
			}
			p := r.render("x", chatOf("", cat, cat))
			for i, id := range []string{test.first, test.again} {
				r.send(call{leg: Encode, id: id, body: p.encodeChat(t, i, cat)})
				r.wait(State.Idle)
			}
			r.wantViolation(test.violation)
		})
	}
	// Two at once, as of a coordinator that does not know that they are the same.
	r := start(t, Options{})
	p := r.render("x", chatOf("", cat, cat))
	gate := r.Hold(Gate{Leg: Encode, At: AtHeaders})
	first := r.sendLater(t.Context(), call{leg: Encode, id: "x", body: p.encodeChat(t, 0, cat)})
	again := r.sendLater(t.Context(), call{leg: Encode, id: "x", body: p.encodeChat(t, 1, cat)})
	if err := gate.WaitFor(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	gate.Release()
	<-first
	<-again
	r.wantViolation("more than once, before by x")
}

// TestDescriptorsMustComeBack has what prefill may present, and what not.
func TestDescriptorsMustComeBack(t *testing.T) {
	cat, dog := imagePart(catURI, ""), imagePart(dogURI, "")
	rendered := chatOf("", cat, dog, cat)
	identity := func(s string) string { return s }
	replace := func(old, new string) func(string) string {
		return func(s string) string { return strings.Replace(s, old, new, 1) }
	}
	for _, test := range []struct {
		name      string
		alter     func(merged string) string // "" leaves the field out
		status    int
		violation string
		local     int
	}{
		{"whole", identity, 200, "", 0},
		{"none", func(string) string { return "" }, 200, "", 2},
		{"null", func(string) string { return "null" }, 200, "", 2},
		{"empty", func(string) string { return "{}" }, 200, "empty", 2},
		{"number rounded", replace("9007199254740993", "9007199254740992"), 400, "not what encode gave", 0},
		{"number respelt", replace("1.0", "1"), 400, "not what encode gave", 0},
		{"keys sorted", replace(`{"z":9007199254740993,"a":1.0}`, `{"a":1.0,"z":9007199254740993}`), 400, "not what encode gave", 0},
		{"space", replace(`"peer_port":`, `"peer_port": `), 400, "not what encode gave", 0},
		{"hash unknown", replace(catHash, "other"), 400, "no image of the prompt", 0},
		{"descriptor null", func(string) string { return `{"` + catHash + `":null}` }, 400, "not what encode gave", 0},
		{"list", func(string) string { return "[]" }, 400, "", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := start(t, Options{})
			p := r.render("x", rendered)
			a := descriptors(t, r.send(call{leg: Encode, id: "x", body: p.encodeChat(t, 0, cat)}))
			b := descriptors(t, r.send(call{leg: Encode, id: "x-r1", body: p.encodeChat(t, 1, dog)}))
			params := test.alter(strings.TrimSuffix(a, "}") + "," + b[1:])
			if params != "" {
				params = `,"ec_transfer_params":` + params
			}
			got := r.send(call{leg: Prefill, id: "x", body: chatOf(`,"max_tokens":1,"ignore_eos":true`+params, cat, dog, cat)})
			if s := r.State(); got.status != test.status || s.LocalEncodes != test.local {
				t.Errorf("got %+v, state %+v", got, s)
			}
			r.wantViolation(test.violation)
		})
	}
}

func TestDescriptorsOfAnotherRequest(t *testing.T) {
	r := start(t, Options{})
	cat := imagePart(catURI, "")
	p := r.render("x", chatOf("", cat))
	r.render("y", chatOf("", cat))
	params := descriptors(t, r.send(call{leg: Encode, id: "x", body: p.encodeChat(t, 0, cat)}))
	got := r.send(call{leg: Prefill, id: "y", body: chatOf(`,"max_tokens":1,"ignore_eos":true,"ec_transfer_params":`+params, cat)})
	if got.status != 400 {
		t.Errorf("got %+v", got)
	}
	r.wantViolation("not what encode gave")
}

func TestBadDescriptors(t *testing.T) {
	r := start(t, Options{})
	cat := imagePart(catURI, "")
	p := r.render("x", chatOf("", cat))
	bad := `{"` + catHash + `":{"metadata":{}},"other":null}`
	r.AddFault(Fault{Leg: Encode, BadDescriptors: json.RawMessage(bad)})
	if got := descriptors(t, r.send(call{leg: Encode, id: "x", body: p.encodeChat(t, 0, cat)})); got != bad {
		t.Errorf("got %s", got)
	}
	got := r.send(call{leg: Prefill, id: "x", body: chatOf(`,"max_tokens":1,"ignore_eos":true,"ec_transfer_params":{"`+catHash+`":{"metadata":{}}}`, cat)})
	if got.status != 200 {
		t.Errorf("got %+v", got)
	}
	r.noViolations()
}

func TestEmbeddingsInSharedStorage(t *testing.T) {
	r := start(t, Options{EC: ECSharedStorage})
	cat, dog := imagePart(catURI, ""), imagePart(dogURI, "")
	p := r.render("x", chatOf("", cat, dog))
	if params := descriptors(t, r.send(call{leg: Encode, id: "x", path: generatePath, body: p.encodeTokens(t, 0)})); params != "null" {
		t.Errorf("gave out %s", params)
	}
	prefill := func(more string) answer {
		return r.send(call{leg: Prefill, id: "x", body: chatOf(`,"max_tokens":1,"ignore_eos":true`+more, cat, dog)})
	}
	if got := prefill(""); got.status != 200 || r.State().LocalEncodes != 1 {
		t.Errorf("got %+v, %+v", got, r.State())
	}
	r.noViolations()
	if got := prefill(`,"ec_transfer_params":{}`); got.status != 400 {
		t.Errorf("got %+v", got)
	}
	r.wantViolation(ECSharedStorage)
}

// TestWholeWay is encode, prefill and decode of a chat with images, with encode
// and prefill in either format.
func TestWholeWay(t *testing.T) {
	cat, dog := imagePart(catURI, ""), imagePart(dogURI, `,"uuid":"rex"`)
	for _, tokensIn := range []bool{false, true} {
		t.Run(fmt.Sprint(tokensIn), func(t *testing.T) {
			r := start(t, Options{CacheDecodes: true})
			p := r.render("x", chatOf("", cat, textPart, dog, cat))
			var ec string
			for i, part := range []string{cat, dog} {
				c := call{leg: Encode, id: "x", body: p.encodeChat(t, i, part)}
				if tokensIn {
					c.path, c.body = generatePath, p.encodeTokens(t, i)
				}
				given := descriptors(t, r.send(c))
				ec += "," + given[1:len(given)-1]
			}
			ec = "{" + ec[1:] + "}"
			params := `"kv_transfer_params":` + nixlAsk + `,"ec_transfer_params":` + ec
			c := call{leg: Prefill, id: "x", body: chatOf(`,"max_tokens":1,"ignore_eos":true,`+params, cat, textPart, dog, cat)}
			if tokensIn {
				c.path, c.body = generatePath, p.generate(`"request_id":"x",`+params, `"max_tokens":1,"ignore_eos":true,"extra_args":{`+params+`}`)
			}
			got := r.send(c)
			var answer struct {
				Params json.RawMessage `json:"kv_transfer_params"`
			}
			if err := json.Unmarshal([]byte(got.body), &answer); err != nil || got.status != 200 {
				t.Fatalf("prefill: %+v", got)
			}
			uuid := imagePart(catURI, `,"uuid":"`+catHash+`"`)
			got = r.send(call{leg: Decode, id: "x", body: chatOf(`,"kv_transfer_params":`+present(string(answer.Params)), uuid, textPart, dog, uuid)})
			if said(t, got.body) != ReplyWithImages("what is this", catHash, "rex", catHash) {
				t.Errorf("decode: %+v", got)
			}
			if s := r.State(); s.FetchedKV != 1 || s.EncodeCalls != 2 || s.LocalEncodes != 0 || s.WorkerFetches != 0 {
				t.Errorf("%+v", s)
			}
			probe := call{leg: Decode, id: "y", body: chatOf("", cat, textPart, dog, cat), header: map[string]string{"Prefer": "if-available"}}
			if got := r.send(probe); got.status != 200 || r.State().ProbeHits != 1 {
				t.Errorf("probe: %+v", got)
			}
			r.noViolations()
		})
	}
}

// generate is the prompt as a body of the generate route, with more members
// before token_ids and these sampling parameters.
func (p *renderedPrompt) generate(more, sampling string) string {
	if more != "" {
		more += ","
	}
	var items []string
	for _, item := range p.Features.Kwargs["image"] {
		items = append(items, *item)
	}
	var places []string
	for _, at := range p.Features.Placeholders["image"] {
		places = append(places, string(at))
	}
	return fmt.Sprintf(`{"model":"demo-model",%s"token_ids":%s,"features":{"mm_hashes":{"image":%s},"mm_placeholders":{"image":[%s]},"kwargs_data":{"image":%s}},"sampling_params":{%s}}`,
		more, jsonText(p.TokenIDs), jsonText(p.hashes()), strings.Join(places, ","), jsonText(items), sampling)
}
