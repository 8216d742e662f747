package cluster

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Images of the tests.
var (
	catURI  = DataURI("cat.png", 0)
	dogURI  = DataURI("dog.gif", 1000)
	catHash = ImageHash(ImageBytes("cat.png", 0))
	dogHash = ImageHash(ImageBytes("dog.gif", 1000))
)

// imagePart is a content part with an image; more is further members.
func imagePart(uri, more string) string {
	return `{"type":"image_url","image_url":{"url":"` + uri + `"}` + more + `}`
}

// chatOf is a chat body with these parts.
func chatOf(more string, parts ...string) string {
	return `{"model":"demo-model","messages":[{"role":"user","content":[` + strings.Join(parts, ",") + `]}]` + more + `}`
}

const textPart = `{"type":"text","text":"what is this"}`

// renderedPrompt is render's answer.
type renderedPrompt struct {
	TokenIDs []int `json:"token_ids"`
	Features *struct {
		Hashes       map[string][]string          `json:"mm_hashes"`
		Placeholders map[string][]json.RawMessage `json:"mm_placeholders"`
		Kwargs       map[string][]*string         `json:"kwargs_data"`
	}
}

func (r *rig) render(id, body string) (p renderedPrompt) {
	r.t.Helper()
	got := r.send(call{leg: Render, id: id, body: body})
	if err := json.Unmarshal([]byte(got.body), &p); err != nil || got.status != http.StatusOK {
		r.t.Fatalf("render: %v, %+v", err, got)
	}
	return p
}

func (p *renderedPrompt) hashes() []string { return p.Features.Hashes["image"] }

// span is the place of an image among the token ids.
func (p *renderedPrompt) span(t *testing.T, i int) (ids []int, length int) {
	t.Helper()
	return p.spanOf(t, "image", i)
}

// spanOf is span for a modality.
func (p *renderedPrompt) spanOf(t *testing.T, modality string, i int) (ids []int, length int) {
	t.Helper()
	var at struct{ Offset, Length int }
	if err := json.Unmarshal(p.Features.Placeholders[modality][i], &at); err != nil {
		t.Fatal(err)
	}
	return p.TokenIDs[at.Offset : at.Offset+at.Length], at.Length
}

func TestRenderImages(t *testing.T) {
	r := start(t, Options{})
	for _, test := range []struct {
		name, body string
		hashes     []string
	}{
		{"object", chatOf("", textPart, imagePart(catURI, "")), []string{catHash}},
		{"bare, of another type", chatOf("", `{"type":"text","text":"x","image_url":"`+catURI+`"}`), []string{catHash}},
		{"two", chatOf("", imagePart(catURI, ""), textPart, imagePart(dogURI, "")), []string{catHash, dogHash}},
		{"twice", chatOf("", imagePart(catURI, ""), imagePart(catURI, "")), []string{catHash, catHash}},
		{"system and tool", `{"messages":[{"role":"system","content":[` + imagePart(dogURI, "") + `]},{"role":"user","content":"hi"},{"role":"tool","content":[` + imagePart(catURI, "") + `]}]}`, []string{dogHash, catHash}},
		{"uuid", chatOf("", imagePart(catURI, `,"uuid":"mine"`)), []string{"mine"}},
		{"no uuid", chatOf("", imagePart(catURI, `,"uuid":null`)), []string{catHash}},
		{"empty kwargs", chatOf(`,"mm_processor_kwargs":{},"media_io_kwargs":null`, imagePart(catURI, "")), []string{catHash}},
		{"kwargs", chatOf(`,"mm_processor_kwargs":{"b": 1,"a":2}`, imagePart(catURI, "")), []string{ImageHash([]byte(catHash + `{"a":2,"b":1}`))}},
		{"uuid and kwargs", chatOf(`,"mm_processor_kwargs":{"b":1.0}`, imagePart(catURI, `,"uuid":"mine"`)), []string{ImageHash([]byte(`mine{"b":1.0}`))}},
		{"loading", chatOf(`,"media_io_kwargs":{"image":{}}`, imagePart(catURI, "")), []string{ImageHash([]byte(catHash + `{"image":{}}`))}},
		{"address", chatOf("", imagePart("http://h/x.png", "")), []string{ImageHash([]byte("http://h/x.png"))}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := r.render("x", test.body)
			if !slices.Equal(p.hashes(), test.hashes) {
				t.Errorf("hashes %q, want %q", p.hashes(), test.hashes)
			}
			for i := range test.hashes {
				ids, length := p.span(t, i)
				if want := r.TokenIDs(strings.Join(placeholderWords(imageModality, length), " "))[1:]; !slices.Equal(ids, want) {
					t.Errorf("span %d is %v, want %v", i, ids, want)
				}
				if at := string(p.Features.Placeholders["image"][i]); !strings.Contains(at, `"x_unknown":{"b":1,"a":2}`) {
					t.Errorf("placeholder %s", at)
				}
				if item := p.Features.Kwargs["image"][i]; item == nil || !areTensors(*item) {
					t.Errorf("kwargs_data %v", item)
				}
			}
		})
	}
	if s := r.State(); s.WorkerFetches != 0 || s.ViolationCount != 0 {
		t.Errorf("%+v", s)
	}
}

func TestImagesAreRefused(t *testing.T) {
	r := start(t, Options{})
	for _, part := range []string{
		`{"image_url":{}}`, `{"image_url":{"url":""}}`, `{"image_url":7}`, `{"image_url":null}`,
		imagePart("data:image/png;base64,%%%", ""), imagePart("data:image/png;base64,", ""), imagePart("data:image/png,abcd", ""),
		imagePart("data:image/png", ""), imagePart("file:///etc/passwd", ""), imagePart("ftp://h/x.png", ""), imagePart("x.png", ""),
		imagePart(catURI, `,"uuid":7`), imagePart(catURI, `,"video_url":"x"`),
		`{"type":"audio_url","audio_url":{"url":"data:"}}`, `{"input_audio":{}}`, `{"video_url":"x"}`, `{"image_embeds":"x"}`,
	} {
		for _, leg := range []string{Render, Decode} {
			if got := r.send(call{leg: leg, body: chatOf("", part)}); got.status != 400 || !strings.Contains(got.body, `"param":"`) {
				t.Errorf("%s: %s: %d %s", leg, part, got.status, got.body)
			}
		}
	}
	got := r.send(call{leg: Render, body: chatOf(`,"mm_processor_kwargs":[1]`, imagePart(catURI, ""))})
	if got.status != 400 || !strings.Contains(got.body, "mm_processor_kwargs") {
		t.Errorf("%+v", got)
	}
}

func TestKwargsOfRender(t *testing.T) {
	body := chatOf("", imagePart(catURI, ""), imagePart(dogURI, ""))
	for _, test := range []struct {
		name    string
		options Options
		fault   Fault
		body    string
		want    string // "" is absent
	}{
		{"option", Options{NoKwargs: true}, Fault{}, body, ""},
		{"fault", Options{}, Fault{NoKwargs: true}, body, ""},
		{"unwanted", Options{}, Fault{}, chatOf(`,"return_mm_kwargs":false`, imagePart(catURI, "")), ""},
		{"nulls", Options{}, Fault{NullKwargs: true}, body, `"kwargs_data":{"image":[null,null]}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := start(t, test.options)
			r.AddFault(test.fault)
			got := r.send(call{leg: Render, body: test.body})
			if !strings.Contains(got.body, test.want) || strings.Contains(got.body, "kwargs_data") != (test.want != "") {
				t.Errorf("%s", got.body)
			}
		})
	}
	r := start(t, Options{PlainFeatures: true, TensorBytes: 70_000})
	p := r.render("x", body)
	if at := string(p.Features.Placeholders["image"][0]); at != `{"offset":2,"length":`+fmt.Sprint(placeholderTokens(len(ImageBytes("cat.png", 0))))+`}` {
		t.Errorf("placeholder %s", at)
	}
	if n := base64.StdEncoding.DecodedLen(len(*p.Features.Kwargs["image"][0])); n < 70_000 || n > 70_400 {
		t.Errorf("%d bytes of tensors", n)
	}
}

// TestTensorItem compares with an item that was decoded by others.
func TestTensorItem(t *testing.T) {
	item := tensorItem{namesOf(imageModality), []int{2, 3}, slices.Repeat([]byte{0x80, 0x3f}, 6), [][2]int{{0, 2}}, []int{1, 34, 46}}
	const want = `gqxwaXhlbF92YWx1ZXOCpGRhdGGTqGJmbG9hdDE2kgIDxwwDgD+AP4A/gD+AP4A/pWZpZWxkkqRmbGF0g6trZWVwX29uX2NwdcKmc2xpY2VzkZGTAALAo2RpbQCuaW1hZ2VfZ3JpZF90aHeCpGRhdGGTpWludDY0kQPHGAMBAAAAAAAAACIAAAAAAAAALgAAAAAAAAClZmllbGSSp2JhdGNoZWSBq2tlZXBfb25fY3B1ww==`
	if got := base64.StdEncoding.EncodeToString(item.encode()); got != want {
		t.Errorf("got %s", got)
	}
	if !areTensors(want) || areTensors("") || areTensors("kA==") || areTensors("%") {
		t.Error("areTensors")
	}
}

func TestMsgpackForms(t *testing.T) {
	for _, test := range []struct {
		name  string
		write func(*msgpack)
		want  string
	}{
		{"array16", func(b *msgpack) { b.header(0x90, 300) }, "\xdc\x01\x2c"},
		{"array32", func(b *msgpack) { b.header(0x90, 1<<16) }, "\xdd\x00\x01\x00\x00"},
		{"map16", func(b *msgpack) { b.header(0x80, 16) }, "\xde\x00\x10"},
		{"integers", func(b *msgpack) { b.integer(127); b.integer(128); b.integer(256); b.integer(1 << 16) }, "\x7f\xcc\x80\xcd\x01\x00\xce\x00\x01\x00\x00"},
		{"fixext", func(b *msgpack) { b.tensor("b", []int{2}, []byte("ab")) }, "\x93\xa1b\x91\x02\xd5\x03ab"},
		{"ext8 of nothing", func(b *msgpack) { b.tensor("b", []int{0}, nil) }, "\x93\xa1b\x91\x00\xc7\x00\x03"},
	} {
		var b msgpack
		test.write(&b)
		if string(b) != test.want {
			t.Errorf("%s: %q, want %q", test.name, b, test.want)
		}
	}
	var b msgpack
	b.tensor("b", []int{300}, make([]byte, 300))
	if !strings.HasPrefix(string(b), "\x93\xa1b\x91\xcd\x01\x2c\xc8\x01\x2c\x03\x00") || len(b) != 311 {
		t.Errorf("%d: %q", len(b), b[:14])
	}
}

// TestDecodeSaysWhichImages: answers mention images in their order, so that
// mixed-up ones show.
func TestDecodeSaysWhichImages(t *testing.T) {
	r := start(t, Options{})
	for _, more := range []string{"", `,"stream":true`} {
		got := r.send(call{leg: Decode, body: chatOf(more, imagePart(dogURI, ""), textPart, imagePart(catURI, ""))})
		if said(t, got.body) != ReplyWithImages("what is this", dogHash, catHash) {
			t.Errorf("got %+v", got)
		}
	}
	r.noViolations()
}

// TestImagesMustStayWhatTheyWere alters images between render and the worker legs.
func TestImagesMustStayWhatTheyWere(t *testing.T) {
	cat := imagePart(catURI, "")
	withUUID := imagePart(catURI, `,"uuid":"`+catHash+`"`)
	kwargs := `,"mm_processor_kwargs":{"size":1}`
	pre := `,"max_tokens":1,"ignore_eos":true`
	for _, test := range []struct {
		name, leg, rendered, sent string
		want                      string // violation; "" if there is none
	}{
		{"uuid added", Decode, chatOf("", cat), chatOf("", withUUID), ""},
		{"uuid missing", Decode, chatOf("", cat), chatOf("", cat), "uuid"},
		{"uuid missing in a release", Decode, chatOf("", cat), chatOf(pre, cat), ""},
		{"wrong uuid", Decode, chatOf("", cat), chatOf("", imagePart(catURI, `,"uuid":"`+dogHash+`"`)), "uuid"},
		{"the client's uuid", Decode, chatOf("", imagePart(catURI, `,"uuid":"u"`)), chatOf("", imagePart(catURI, `,"uuid":"u"`)), ""},
		{"uuid with kwargs", Decode, chatOf(kwargs, cat), chatOf(kwargs, withUUID), "uuid"},
		{"no uuid with kwargs", Decode, chatOf(kwargs, cat), chatOf(kwargs, cat), ""},
		{"changed under its uuid", Decode, chatOf("", cat), chatOf("", imagePart(dogURI, `,"uuid":"`+catHash+`"`)), "not the one"},
		{"image lost", Decode, chatOf("", cat, cat), chatOf("", withUUID), "images"},
		{"prefill", Prefill, chatOf("", cat), chatOf(pre, cat), ""},
		{"uuid on prefill", Prefill, chatOf("", cat), chatOf(pre, withUUID), "byte for byte"},
		{"uuid on probe", Probe, chatOf("", cat), chatOf("", withUUID), "byte for byte"},
		{"part respelt", Prefill, chatOf("", cat), chatOf(pre, strings.Replace(cat, ":", ": ", 1)), "byte for byte"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := start(t, Options{})
			r.render("x", test.rendered)
			c := call{leg: test.leg, id: "x-r1", body: test.sent}
			if test.leg == Probe {
				c.leg, c.header = Decode, map[string]string{"Prefer": "if-available"}
			}
			r.send(c)
			r.wantViolation(test.want)
		})
	}
}

// wantViolation fails the test unless exactly one violation with that text was
// noted, or none if it is "".
func (r *rig) wantViolation(text string) {
	r.t.Helper()
	got := r.State().Violations
	if text == "" && len(got) != 0 || text != "" && (len(got) != 1 || !strings.Contains(got[0], text)) {
		r.t.Errorf("violations %q, want %q", got, text)
	}
}

// TestImagesAreInTheKey: other images make another prompt, even with equal tokens.
func TestImagesAreInTheKey(t *testing.T) {
	r := start(t, Options{})
	one, other := DataURI("one.png", 500), DataURI("other.png", 500)
	prefill := func(uri string) string {
		got := r.send(call{leg: Prefill, body: chatOf(`,"max_tokens":1,"ignore_eos":true,"kv_transfer_params":`+nixlAsk, imagePart(uri, ""))})
		_, params, _ := strings.Cut(strings.TrimSuffix(got.body, "}"), `"kv_transfer_params":`)
		return present(params)
	}
	a, b := r.render("a", chatOf("", imagePart(one, ""))), r.render("b", chatOf("", imagePart(other, "")))
	if !reflect.DeepEqual(a.TokenIDs, b.TokenIDs) {
		t.Errorf("tokens differ: %v, %v", a.TokenIDs, b.TokenIDs)
	}
	got := r.send(call{leg: Decode, body: chatOf(`,"kv_transfer_params":`+prefill(one), imagePart(other, ""))})
	wantLoadFailure(t, got, false)
	got = r.send(call{leg: Decode, body: chatOf(`,"kv_transfer_params":`+prefill(one), imagePart(one, ""))})
	if said(t, got.body) != ReplyWithImages("", ImageHash(ImageBytes("one.png", 500))) {
		t.Errorf("got %+v", got)
	}
}

func TestWorkerFetches(t *testing.T) {
	r := start(t, Options{})
	body := chatOf("", imagePart("HTTPS://h/x.png", ""))
	r.send(call{leg: Decode, body: body})
	r.render("x", body)
	r.send(call{leg: Decode, body: body})
	if s := r.State(); s.WorkerFetches != 1 {
		t.Errorf("%+v", s)
	}
}

func TestTokensOfChatLegs(t *testing.T) {
	r := start(t, Options{})
	cat := imagePart(catURI, "")
	p := r.render("x", chatOf("", cat))
	at := string(p.Features.Placeholders["image"][0])
	tokens := func(ids any, hash, at, more string) string {
		return fmt.Sprintf(`,"tokens":{"token_ids":%s,"features":{"mm_hashes":{"image":["%s"]},"mm_placeholders":{"image":[%s]}%s}}`, jsonText(ids), hash, at, more)
	}
	for _, test := range []struct{ name, tokens, want string }{
		{"good", tokens(p.TokenIDs, catHash, at, ""), ""},
		{"other ids", tokens([]int{1, 2}, catHash, at, ""), "token_ids"},
		{"other hash", tokens(p.TokenIDs, dogHash, at, ""), "features"},
		{"other place", tokens(p.TokenIDs, catHash, strings.Replace(at, `"offset":2`, `"offset":1`, 1), ""), "features"},
		{"keys sorted", tokens(p.TokenIDs, catHash, strings.Replace(at, `{"b":1,"a":2}`, `{"a":2,"b":1}`, 1), ""), "placeholder"},
		{"tensors", tokens(p.TokenIDs, catHash, at, `,"kwargs_data":null`), "kwargs_data"},
		{"no features", `,"tokens":{"token_ids":` + jsonText(p.TokenIDs) + `}`, "features"},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := r.State().ViolationCount
			got := r.send(call{leg: Prefill, id: "x", body: chatOf(`,"max_tokens":1,"ignore_eos":true`+test.tokens, cat)})
			v := r.State().Violations[before:]
			if got.status != 200 || test.want == "" && len(v) > 0 || test.want != "" && (len(v) == 0 || !strings.Contains(strings.Join(v, " "), test.want)) {
				t.Errorf("got %d %s, violations %q", got.status, got.body, v)
			}
		})
	}
}
