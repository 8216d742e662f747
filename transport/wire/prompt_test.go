package wire

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestCompletionsPrompt(t *testing.T) {
	for _, tt := range []struct {
		body string
		ids  string // given as such, or "": to be rendered
		n    int
	}{
		{`{"prompt":"hi"}`, "", 0},
		{`{"prompt":""}`, "", 0},
		{`{"prompt":"[1,2]"}`, "", 0},
		{`{"prompt":[1]}`, "[1]", 1},
		{`{"prompt" : [ 0 , 9007199254740993,3 ] }`, "[ 0 , 9007199254740993,3 ]", 3},
		{`{"prompt":"x","\u0070rompt":[7, 8]}`, "[7, 8]", 2},
		{`{"prompt":[7],"prompt":"x"}`, "", 0},
	} {
		got, err := Completions.Prompt(mustParse(t, tt.body))
		if err != nil || string(got.Given.IDs) != tt.ids || got.Given.Count != tt.n || got.Given.Known() != (tt.ids != "") {
			t.Errorf("%s: %q (%d), %v", tt.body, got.Given.IDs, got.Given.Count, err)
		}
	}
}

func TestCompletionsPromptThatIsRefused(t *testing.T) {
	for _, body := range []string{
		`{}`, `{"model":"m"}`, `{"prompt":null}`, `{"prompt":[]}`, "{\"prompt\":[ \n]}", `{"prompt":["a"]}`, `{"prompt":["a","b"]}`,
		`{"prompt":[[1,2]]}`, `{"prompt":[[1],[2]]}`, `{"prompt":[1.0]}`, `{"prompt":[1,2.5]}`, `{"prompt":[1e3]}`, `{"prompt":[-1]}`,
		`{"prompt":[1,null]}`, `{"prompt":[true]}`, `{"prompt":[1,"a"]}`, `{"prompt":[{}]}`, `{"prompt":{}}`, `{"prompt":{"a":[1]}}`,
		`{"prompt":1}`, `{"prompt":true}`, `{"prompt":[1],"prompt":null}`,
	} {
		_, err := Completions.Prompt(mustParse(t, body))
		t.Run(body, func(t *testing.T) { wantFault(t, err, "invalid_prompt") })
	}
}

func TestChatWithoutMediaIsAccepted(t *testing.T) {
	for _, messages := range []string{
		`[]`, `[{"role":"user","content":"hi"}]`, `[{"role":"user","content":"image_url"}]`, `[{"role":"assistant","content":null,"tool_calls":[{"type":"function"}]}]`,
		`[{"role":"user"}]`, `[{"content":[]}]`, `[{"content":[{"type":"text","text":"image_url"}]}]`, `[{"content":["image_url",1,null,[{"image_url":1}]]}]`,
		`[{"content":[{"type":"text","text":"a"},{"type":"refusal","refusal":"b"},{"type":"thinking","thinking":"c"}]}]`,
		// A member that is null is not there.
		`[{"content":[{"type":"text","text":"a","image_url":null,"input_audio" : null}]}]`,
		// not where media are
		`[{"image_url":"http://a/","content":"x"}]`, `[{"content":[{"type":"text","text":"x","meta":{"image_url":"http://a/"}}]}]`,
		`[{"content":{"image_url":"http://a/"}}]`, `[{"content":[{"type":{"image_url":1}}]}]`, `[{"content":[{"type":1},{"type":null},{}]}]`,
		// not ours to judge
		`null`, `"image_url"`, `{"content":[{"image_url":1}]}`, `[1,"a",null,[{"content":[{"image_url":1}]}]]`, `[{"content":5}]`,
	} {
		body := mustParse(t, `{"tools":[{"image_url":1}],"messages" : `+messages+` ,"image_url":"http://a/"}`)
		if got, err := Chat.Prompt(body); err != nil || got.Given.Known() || got.Media != nil || got.Media.Len() != 0 {
			t.Errorf("messages %s: %v, %v", messages, got, err)
		}
	}
	if _, err := Chat.Prompt(mustParse(t, `{"model":"m"}`)); err != nil {
		t.Errorf("without messages: %v", err)
	}
}

// TestMediaOfAllModalities: each member in each of its shapes, among others.
func TestMediaOfAllModalities(t *testing.T) {
	body := mustParse(t, `{"messages":[{"content":[{"type":"video_url","video_url":{"url":"http://v/"}},{"type":"text","text":"x"},{"audio_url":"https://a/"}]},
		{"content":[{"type":"input_audio","uuid":"u","input_audio":{"format":"wa\u0076","x":1,"data":"QUFB"}},{"type":"odd","image_url":"data:i"},{"image_url":null,"type":"text","video_url":{"url":"data:v","fps":2}}]}]}`)
	got, err := Chat.Prompt(body)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for i := range got.Media.Len() {
		found = append(found, fmt.Sprintf("%s %s %s", got.Media.Modality(i), got.Media.URL(i), got.Media.Format(i)))
	}
	if want := []string{`video "http://v/" `, `audio "https://a/" `, `audio "QUFB" "wa\u0076"`, `image "data:i" `, `video "data:v" `}; !slices.Equal(found, want) {
		t.Errorf("%q, want %q", found, want)
	}
	if m := got.Media; m.Count(Image) != 1 || m.Count(Audio) != 2 || m.Count(Video) != 2 {
		t.Errorf("%d, %d, %d", m.Count(Image), m.Count(Audio), m.Count(Video))
	}
}

func TestMediaThatCanBeReadInTwoWaysAreRefused(t *testing.T) {
	for _, part := range []string{
		`{"audio_url":"http://secret/","video_url":"http://secret/"}`, `{"input_audio":{"data":"","format":""},"audio_url":"http://secret/"}`,
		`{"type":"audio_url","input_audio":{"data":"","format":"wav"}}`, `{"type":"image_url","video_url":"http://secret/"}`,
		`{"type":"VIDEO_URL","audio_url":"http://secret/"}`, `{"type":"video_url"}`, `{"type":"audio_url","audio_url":null}`,
		`{"audio_url":null}`, `{"type":"text","text":"x","uuid":"secret","video_url":null}`, `{"audio_url":"http://secret/","audio_url":null}`,
		// a worker looks for an image first
		`{"image_url":null,"audio_url":"http://secret/"}`, `{"type":"video_url","uuid":"u","image_embeds":null,"video_url":"http://secret/"}`,
		`{"audio_url":"file:///secret"}`, `{"video_url":{"url":"ftp://secret/"}}`, `{"video_url":{"url":["http://secret/"]}}`, `{"audio_url":{"url":"http://secret/","url":"http://secret/"}}`,
		`{"input_audio":"data:audio/wav;base64,secret"}`, `{"input_audio":{"data":"secret"}}`, `{"input_audio":{"format":"wav"}}`, `{"input_audio":{"data":"secret","format":null}}`,
		`{"input_audio":{"data":7,"format":"wav"}}`, `{"input_audio":{"data":"","data":"","format":"wav"}}`, `{"input_audio":{"data":"","format":"wav","f\u006frmat":"secret"}}`,
		`{"input_audio":{"url":"http://secret/"}}`, `{"input_audio":[]}`,
	} {
		_, err := Chat.Prompt(mustParse(t, `{"messages":[{"content":[{"image_url":"http://a/"},`+part+`]}]}`))
		t.Run(part, func(t *testing.T) {
			wantFault(t, err, "invalid_media")
			if m := FaultOf(err).Message; strings.Contains(m, "secret") {
				t.Errorf("the message is %q", m)
			}
		})
	}
}

func TestChatMediaAreRefused(t *testing.T) {
	names := []string{"input_image", "input_video", "prompt_embeds",
		"image_embeds", "audio_embeds", "video_embeds", "image_pil", "image", "audio", "video"}
	for _, name := range names {
		for _, part := range []string{
			`{"type":"` + name + `","` + name + `":{"url":"http://secret.example/a.png"}}`,
			`{"type":"text","text":"x","` + name + `":"http://secret.example/a.png"}`,
			`{"` + name + `":{"url":"data:image/png;base64,AAAA"}}`,
			`{"` + name + `":""}`, `{"` + name + `":false}`, `{"` + name + `":[]}`,
			`{"type":"` + name + `"}`,
			`{"type":"` + name + `","` + name + `":null,"uuid":"secret"}`,
			`{"type":"` + strings.ToUpper(name) + `"}`,
			`{"type":"` + name + `","type":"text"}`, `{"type":"text","type":"` + name + `"}`,
			`{"` + name + `":"secret","` + name + `":null}`,
			`{"` + spellings(name)[1] + `":1}`, `{"type":"` + spellings(name)[3] + `"}`,
		} {
			for _, messages := range []string{
				`[{"role":"user","content":[` + part + `]}]`,
				`[{"role":"user","content":"x"}, { "content" : [ {"type":"text","text":"x"} , "y" , ` + part + ` , {"type":"text","text":"z"} ] } ,{"role":"user","content":"x"}]`,
				`[{"content":[` + part + `],"content":"x"}]`,
				`[{"content":"x","c\u006fntent":[` + part + `]}]`,
			} {
				_, err := Chat.Prompt(mustParse(t, `{"model":"m","messages":`+messages+`}`))
				t.Run("", func(t *testing.T) {
					wantFault(t, err, "invalid_media")
					if m := FaultOf(err).Message; !strings.Contains(m, `"`+name+`"`) || strings.Contains(m, "secret") {
						t.Errorf("messages %s: the message is %q", messages, m)
					}
				})
			}
		}
	}
}
