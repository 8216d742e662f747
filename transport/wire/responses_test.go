package wire

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// inputMediaOf finds the images in the input of a Responses body.
func inputMediaOf(t testing.TB, input string) (*Body, *Media, error) {
	t.Helper()
	body := mustParse(t, `{ "model":"m", "input" : `+input+` ,"x":1.0}`)
	prompt, err := Responses.Prompt(body)
	return body, prompt.Media, err
}

func TestImagesInInput(t *testing.T) {
	for _, tt := range []struct {
		input string
		want  []string
	}{
		{`"http://not.an.image/"`, nil},
		{`[]`, nil},
		{`null`, nil},
		{`[{"role":"user","content":"x"},{"type":"function_call_output","output":"x"},{"type":"reasoning","summary":[]}]`, nil},
		{`[{"role":"user","content":[{"type":"input_image","image_url":"http://a/"},{"type":"input_text","text":"x"},{"image_url":{"url":"data:x"},"type":"input_image"}]}]`, []string{`"http://a/"`, `"data:x"`}},
		{`[{"output":[{"type":"input_image","image_url":"HTTPS:\/\/a"}],"type":"function_call_output"},{"content":[{"image_url":"http://b/","file_id":null}]}]`, []string{`"HTTPS:\/\/a"`, `"http://b/"`}},
		{`[{"role":"user","content":[{"type":"input_image","image_url":null},{"type":"input_image"}]}]`, nil},
		{`[{"type":"computer_call_output","output":{"type":"computer_screenshot","image_url":null}}]`, nil},
	} {
		_, m, err := inputMediaOf(t, tt.input)
		if err != nil || m.Len() != len(tt.want) {
			t.Errorf("%s: %d images, %v", tt.input, m.Len(), err)
			continue
		}
		for i, want := range tt.want {
			if got := string(m.URL(i)); got != want {
				t.Errorf("%s: image %d is %s", tt.input, i, got)
			}
		}
	}
}

func TestInputThatIsRefused(t *testing.T) {
	for _, item := range []string{
		`{"content":[{"type":"input_file","file_url":"http://secret/"}]}`, `{"content":[{"type":"INPUT_file"}]}`, `{"content":[{"file\u005furl":"http://secret/"}]}`,
		`{"content":[{"type":"input_image","file_id":"secret"}]}`, `{"content":[{"type":"input_audio","input_audio":{"data":"secret"}}]}`, `{"content":[{"type":"x","video_url":"http://secret/"}]}`,
		`{"content":[{"image_url":"http://secret/","file_data":"x"}]}`, `{"content":[{"image_url":"ftp://secret/"}]}`, `{"content":[{"image_url":7}]}`,
		`{"content":[{"image_url":"http://secret/","image_url":null}]}`, `{"content":[{"image_url":"http://secret/"}],"content":"x"}`, `{"content":[{"image_url":"http://secret/"}],"output":[]}`,
		`{"output":{"type":"computer_screenshot","image_url":"http://secret/"}}`, `{"output":{"type":"computer_screenshot","file_id":"secret"}}`,
		`{"content":[{"type":"prompt_embeds","prompt_embeds":"secret"}]}`, `{"content":[{"type":"input_text","text":"x","prompt_embeds":"secret"}]}`, `{"content":[{"type":"image_embeds"}]}`,
		`{"type":"input_image","image_url":"http://secret/"}`, `{"type":"input_file","file_url":"http://secret/"}`, `{"type":"audio","x":1}`,
	} {
		t.Run(item, func(t *testing.T) {
			_, m, err := inputMediaOf(t, `[{"role":"user","content":"x"},`+item+`]`)
			wantFault(t, err, "invalid_media")
			if m != nil || strings.Contains(FaultOf(err).Message, "secret") {
				t.Errorf("%v, %q", m, FaultOf(err).Message)
			}
		})
	}
}

// TestResponsesServeNoMoreThanChat: what chat refuses is refused here too, but for
// the type that images have here.
func TestResponsesServeNoMoreThanChat(t *testing.T) {
	for _, other := range otherMedia {
		if other != "input_image" && !slices.Contains(inputMedia, other) {
			t.Errorf("%s", other)
		}
	}
}

func TestRequestsThatNeedState(t *testing.T) {
	for body, want := range map[string]string{
		`{}`: "", `{"input":"x","store":false,"background":false}`: "", `{"store":null,"background":null,"previous_response_id":null,"conversation":null,"prompt":null}`: "",
		`{"previous_response_id":"r"}`: "previous_response_id", `{"previous\u005fresponse_id":""}`: "previous_response_id", `{"conversation":{"id":"c"}}`: "conversation",
		`{"prompt":{"id":"p"}}`: "prompt", `{"background":true}`: "background", `{"store":true}`: "store", `{"store":1}`: "store",
		`{"input":[{"role":"user","content":"x"},{"type":"item\u005freference","id":"x"}]}`: "item_reference", `{"input":[{"type":"message"}],"metadata":{"store":true}}`: "",
	} {
		if got := NeedsState(mustParse(t, body)); got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}

func TestTruncationNeedsALocalKV(t *testing.T) {
	for body, want := range map[string]string{
		`{}`: "", `{"truncation":"disabled"}`: "", `{"truncation":"dis\u0061bled"}`: "", `{"truncation":"auto"}`: "truncation", `{"truncation":null}`: "truncation",
		`{"truncation":7}`: "truncation", `{"truncation":"auto","n":2}`: "n",
	} {
		if got := Responses.LocalKV(mustParse(t, body)); got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
	if got := Chat.LocalKV(mustParse(t, `{"truncation":"auto"}`)); got != "" {
		t.Errorf("chat: %q", got)
	}
}

func TestResponseThatFailed(t *testing.T) {
	for answer, failed := range map[string]bool{
		`{"object":"response","status":"failed"}`: true, `{"status":"failed","error":null,"object":"response"}`: true,
		`{"object":"response","status":"completed"}`: false, `{"object":"response","status":"incomplete"}`: false, `{"status":"failed"}`: false,
		`{"object":"chat.completion","status":"failed"}`: false, `{"object":"response","output":[{"status":"failed"}]}`: false,
	} {
		if err := CheckAnswer([]byte(answer)); (err != nil) != failed {
			t.Errorf("%s: %v", answer, err)
		}
	}
}

// oracleInput says what becomes of an input: its images, or false if it must be
// refused.
func oracleInput(text []byte) (images []oracleImage, ok bool) {
	refused := func(m rawMember) bool {
		kind, _ := plain([]byte(m.value))
		return m.value != "null" && (slices.ContainsFunc(inputMedia, m.named) ||
			m.named("type") && slices.ContainsFunc(inputMedia, func(o string) bool { return strings.EqualFold(o, kind) }))
	}
	stray := func(m rawMember) bool { return m.named("image_url") && m.value != "null" }
	for _, item := range elementsAt(text, place{0, len(text)}) {
		lists, before := 0, len(images)
		names, values := membersAt(text, item)
		for i, m := range names {
			if !m.named("content") && !m.named("output") {
				if refused(m) || stray(m) {
					return nil, false
				}
				continue
			}
			lists++
			inner, _ := membersAt(text, values[i]) // of an object in the place of a list
			if slices.ContainsFunc(inner, refused) || slices.ContainsFunc(inner, stray) {
				return nil, false
			}
			for _, part := range elementsAt(text, values[i]) {
				members, at := membersAt(text, part)
				var urls []place
				for k, m := range members {
					if m.named("image_url") {
						urls = append(urls, at[k])
					} else if refused(m) {
						return nil, false
					}
				}
				if len(urls) == 0 || len(urls) == 1 && string(urls[0].of(text)) == "null" {
					continue
				}
				image := oracleImage{part: part, url: urls[0]}
				if image.url.of(text)[0] == '{' && !image.oracleMember(text, "url") {
					return nil, false
				}
				s, isString := plain(image.url.of(text))
				s = strings.ToLower(s)
				if len(urls) > 1 || !isString || !strings.HasPrefix(s, "http://") && !strings.HasPrefix(s, "https://") && !strings.HasPrefix(s, "data:") {
					return nil, false
				}
				images = append(images, image)
			}
		}
		if lists > 1 && len(images) > before {
			return nil, false
		}
	}
	return images, true
}

// FuzzInput: the images that are found in an input, what is refused, and what legs
// are made of it are as encoding/json finds them.
func FuzzInput(f *testing.F) {
	for _, input := range []string{
		`[{"role":"user","content":[{"type":"input_image","image_url":"http://a/","detail":"low"},{"type":"input_text","text":"x"}]},{"content":"x"}]`,
		` [ { "output" : [ { "image_url" : "data:image/png;base64,QUFB" , "file_id":null } , {"\u0069mage_url":{"u\u0072l":"\u0068ttps:\/\/a"}} ] } ] `,
		`[{"content":[{"type":"input_file","file_url":"x"}]}]`, `[{"output":{"type":"computer_screenshot","image_url":"http://a/"}}]`, `"x"`,
		`[{"content":[{"image_url":"http://a/"}],"output":1}]`, `[{"image_url":null,"type":"item_reference"}]`, `[[],{"content":{}},null,{"content":[[],"x",{}]}]`,
	} {
		f.Add([]byte(input), uint64(5))
	}
	f.Fuzz(func(t *testing.T, input []byte, which uint64) {
		if Valid(input) != nil {
			return
		}
		input = trim(input)
		body, media, err := inputMediaOf(t, string(input))
		want, ok := oracleInput(input)
		if ok != (err == nil) || err == nil && media.Len() != len(want) {
			t.Fatalf("%q: %d images, %v; want %d, %v", input, media.Len(), err, len(want), ok)
		}
		if err != nil {
			if FaultOf(err).ErrorCode() != "invalid_media" {
				t.Fatalf("fault %v", err)
			}
			return
		}
		uris := make([][]byte, len(want))
		for i, im := range want {
			if got := media.URL(i); string(got) != string(im.url.of(input)) {
				t.Fatalf("image %d is %q, want %q", i, got, im.url.of(input))
			}
			if which>>(i%64)&1 != 0 {
				uris[i] = fmt.Appendf(nil, `"data:%d"`, i)
			}
		}
		if media != nil {
			media = media.Inline(uris)
		}
		src := Source{Body: body, Media: media}
		for _, leg := range []Payload{Responses.RenderLeg(src), Responses.DecodeLeg(src, Transfers{}), Responses.ReleaseLeg(src, Transfers{})} {
			if got := mustParse(t, string(leg.Append(nil))).Get("input"); string(got) != string(oracleEdit(input, want, uris, "")) {
				t.Fatalf("the input is %q, want %q", got, oracleEdit(input, want, uris, ""))
			}
		}
	})
}
