package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// chatMedia finds the images of a chat body with these messages.
func chatMedia(t testing.TB, messages string) (*Body, *Media, error) {
	t.Helper()
	body := mustParse(t, `{ "model":"m", "messages" : `+messages+` ,"x":1.0}`)
	prompt, err := Chat.Prompt(body)
	return body, prompt.Media, err
}

func TestImagesAreFoundInDocumentOrder(t *testing.T) {
	for _, tt := range []struct {
		messages string
		want     []string // URLs as they are spelt
	}{
		{`[{"content":[{"type":"image_url","image_url":{"url":"http://a/"}}]}]`, []string{`"http://a/"`}},
		{`[{"content":[{"image_url":"https://a/"}]}]`, []string{`"https://a/"`}},
		{`[{"content":[{"type":"text","text":"x","image_url":{"detail":"low","url":"http://a/","more":{"url":"http://b/"}}}]}]`, []string{`"http://a/"`}},
		{`[{"content":[{"type":7,"image_url":"data:,"}]}]`, []string{`"data:,"`}},
		{`[{"content":[{"type":"x_image","image_url":"data:"}]}]`, []string{`"data:"`}},
		{`[{"role":"system","content":[{"image_url":"http://1/"},{"image_url":"http://2/"}]},{"content":"http://x/"},` +
			`{"role":"tool","content":["x",{"image_url":{"url":"http://1/"}},null,{"type":"text","text":"y"}]},{"role":"assistant","content":null}]`,
			[]string{`"http://1/"`, `"http://2/"`, `"http://1/"`}},
		{"\n[\t{\r\"content\" :\n [ \t{ \"image_url\"\n:\r{ \"url\" \t: \"http://a/\" \n} } \r, {\"image_url\" :  \"http://b/\"\t}\n]\t}\r]\n", []string{`"http://a/"`, `"http://b/"`}},
		// any spelling
		{`[{"c\u006fntent":[{"\u0069mage_url":{"u\u0072l":"\u0048ttp:\/\/a"}}]}]`, []string{`"\u0048ttp:\/\/a"`}},
		{`[{"content":[{"image_url":"\u0064\u0061\u0074\u0061\u003aimage/png;base64,QUFB"},{"image_url":"\u0068\u0074\u0074\u0070\u0073\u003a\u002f\u002f\u0061"},{"image_url":"\u0068\u0074\u0074\u0070\u003a\u002f\u002f"}]}]`,
			[]string{`"\u0064\u0061\u0074\u0061\u003aimage/png;base64,QUFB"`, `"\u0068\u0074\u0074\u0070\u0073\u003a\u002f\u002f\u0061"`, `"\u0068\u0074\u0074\u0070\u003a\u002f\u002f"`}},
		{`[{"content":[{"image_url":"HtTpS://A"},{"image_url":"DATA:x"}]}]`, []string{`"HtTpS://A"`, `"DATA:x"`}},
		{`[{"content":[{"image_url":"http://\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\"}]}]`, []string{`"http://\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\"`}},
		// other media that are null beside it; what only workers judge
		{`[{"content":[{"image_url":"http://a/","audio_url":null,"video_url" : null,"uuid":"u","input_audio":null}]}]`, []string{`"http://a/"`}},
		{`[{"content":[{"image_url":{"url":"http://a/","url2":1,"URL":2}}],"Content":[{"image_url":1}]}]`, []string{`"http://a/"`}},
		{`[{"content":"x","content":"y"},{"content":[{"image_url":"http://a/"}]}]`, []string{`"http://a/"`}},
	} {
		_, m, err := chatMedia(t, tt.messages)
		if err != nil || m.Len() != len(tt.want) {
			t.Errorf("%s: %d images, %v", tt.messages, m.Len(), err)
			continue
		}
		for i, want := range tt.want {
			if got := string(m.URL(i)); got != want {
				t.Errorf("%s: image %d is %s, want %s", tt.messages, i, got, want)
			}
		}
	}
	_, m, err := chatMedia(t, `[]`)
	if m != nil || m.Len() != 0 || err != nil {
		t.Errorf("without images: %v, %v", m, err)
	}
}

func TestImagesThatAreRefused(t *testing.T) {
	parts := []string{
		// neither a string nor an object with the string url
		`{"image_url":false}`, `{"image_url":[]}`, `{"image_url":["http://secret/"]}`, `{"image_url":7}`, `{"image_url":{}}`, `{"image_url":{"URL":"http://secret/"}}`,
		`{"image_url":{"url":null}}`, `{"image_url":{"url":7}}`, `{"image_url":{"url":{"url":"http://secret/"}}}`, `{"image_url":{"url":["http://secret/"]}}`,
		// null where a worker would look for an image
		`{"image_url":null}`, `{"type":null,"image_url":null}`, `{"type":"image_url","image_url":null}`, `{"type":"image_url","image_url":null,"uuid":"secret"}`,
		`{"type":"text","text":"x","image_url":null,"uuid":"secret"}`, `{"type":"text","text":"x","uuid":"secret","audio_url":null}`, `{"video_url":null}`,
		// the type alone
		`{"type":"image_url"}`, `{"type":"IMAGE_url"}`, `{"type":"image_url","type":"text"}`, `{"type":"text","type":"image_url"}`,
		`{"type":"image\u005Furl","url":"http://secret/"}`,
		// two of them
		`{"image_url":"http://secret/","image_url":"http://secret/"}`, `{"image_url":"http://secret/","image\u005furl":null}`,
		`{"image_url":null,"image_url":"http://secret/"}`, `{"type":"text","image_url":null,"image_url":null}`,
		`{"image_url":{"url":"http://secret/","url":"http://secret/"}}`, `{"image_url":{"url":null,"u\u0072l":"http://secret/"}}`,
		`{"image_url":{"url":"http://secret/","url":null}}`,
		// other media beside it
		`{"image_url":"http://secret/","audio_url":"x"}`, `{"video":1,"image_url":"http://secret/"}`, `{"type":"video_url","image_url":"http://secret/"}`,
	}
	for _, url := range []string{"", "a.png", "/secret.png", "//secret/a.png", "secret.example/a.png", "file:///etc/secret", "FILE:///etc/secret", "ftp://secret/", "javascript:secret", "gs://secret",
		`\u0066ile:///secret`, `f\u0069le:\/\/\/secret`, " http://secret/", "http:/secret/", "http:secret", "http//secret", "httpx://secret/", `http:\\/\\/secret`, `ht\ttp://secret`, "data", "dat", `\u0064ata\u003b`, "d",
		"https:/", "http:/", `\ud800http://`, "httpſ://secret/", `\u0068\u0074\u0074\u0070\u003a\u002f\\u002f`,
		// where a look at the beginning alone would cut an escape in two
		strings.Repeat("a", 28) + `\\`, strings.Repeat("a", 29) + `\\`, strings.Repeat("a", 24) + `\u0041\u0041`, strings.Repeat("a", 47) + `\\\\`, strings.Repeat("a", 41) + `\\\\`, strings.Repeat(`\\`, 40), "a" + strings.Repeat(`\\`, 40)} {
		parts = append(parts, `{"image_url":"`+url+`"}`, `{"type":"image_url","image_url":{"url":"`+url+`","detail":"low"}}`)
	}
	for _, part := range parts {
		for _, messages := range []string{
			`[{"content":[` + part + `]}]`,
			`[{"content":[{"image_url":"http://a/"}]},{"content":"x"},{"content":[{"type":"text","text":"x"}, ` + part + ` ,{"image_url":"http://a/"}]}]`,
		} {
			_, m, err := chatMedia(t, messages)
			t.Run("", func(t *testing.T) {
				wantFault(t, err, "invalid_media")
				if message := FaultOf(err).Message; m != nil || strings.Contains(message, "secret") {
					t.Errorf("messages %s: %v, %q", messages, m, message)
				}
			})
		}
	}
}

// Of a content that stands twice workers read one, and some libraries the
// other.
func TestImagesInARepeatedContentAreRefused(t *testing.T) {
	const image = `[{"image_url":"http://a/"}]`
	for _, message := range []string{
		`{"content":` + image + `,"content":"x"}`, `{"content":"x","role":"user","content":` + image + `}`,
		`{"content":` + image + `,"c\u006fntent":` + image + `}`, `{"content":null,"content":` + image + `}`,
	} {
		_, _, err := chatMedia(t, `[`+message+`]`)
		t.Run(message, func(t *testing.T) { wantFault(t, err, "invalid_media") })
	}
}

// inlined makes the render leg of a chat body with these images inlined.
func inlined(t *testing.T, messages string, uris ...string) string {
	t.Helper()
	body, m, err := chatMedia(t, messages)
	if err != nil {
		t.Fatal(err)
	}
	list := make([][]byte, len(uris))
	for i, uri := range uris {
		if uri != "" {
			list[i] = []byte(uri)
		}
	}
	if m != nil {
		m = m.Inline(list)
	}
	out := string(Chat.RenderLeg(Chat.Source(body, Prompt{}, m, Tokens{})).Append(nil))
	if !json.Valid([]byte(out)) {
		t.Errorf("no JSON: %s", out)
	}
	return out
}

func TestInlineReplacesURLsInPlace(t *testing.T) {
	const messages = "[ {\"role\":\"user\",\"content\" : [ \n{ \"image_url\" : {\"url\"\t:\t\"http://a/\" ,\"d\":1.0 } , \"x\":\"\\u00e9\"} , {\"type\":\"text\",\"text\":\"\\/\"}, {\"image_url\":\"http://b/\"}\t] } , {\"content\":[{\"image_url\":\"data:x\"}]}\n]"
	for _, tt := range [][]string{{"", "", ""}, {`"data:A"`, "", ""}, {"", `"data:BB"`, ""}, {`"data:A"`, `"data:BBBBBBBBBBBBBBBBBBBB"`, ""}, {`"data:"`, `""`, `"data:C"`}} {
		want := messages
		for i, url := range []string{`"http://a/"`, `"http://b/"`, `"data:x"`} {
			if tt[i] != "" {
				want = strings.Replace(want, url, tt[i], 1)
			}
		}
		want = `{"model":"m","messages":` + want + `,"x":1.0}`
		if strings.Join(tt, "") == "" { // nothing is changed, not even between members
			want = `{"model":"m", "messages" : ` + messages + ` ,"x":1.0}`
		}
		if got := inlined(t, messages, tt...); got != want {
			t.Errorf("%q:\n%s\nwant\n%s", tt, got, want)
		}
	}
}

func TestInlineLeavesWhatItIsOf(t *testing.T) {
	body, m, err := chatMedia(t, `[{"content":[{"image_url":"http://a/"},{"image_url":"http://b/"}]}]`)
	if err != nil {
		t.Fatal(err)
	}
	leg := func(m *Media) string { return string(Chat.RenderLeg(Source{Body: body, Media: m}).Append(nil)) }
	before := leg(m)
	first := m.Inline([][]byte{[]byte(`"data:A"`), nil})
	second := first.Inline([][]byte{nil, []byte(`"data:B"`)})
	same := first.Inline([][]byte{nil, nil})
	if leg(m) != before || string(first.URL(0)) != `"http://a/"` {
		t.Error("Inline has changed what it is of")
	}
	const format = `{"model":"m","messages":[{"content":[{"image_url":"%s"},{"image_url":"%s"}]}],"x":1.0}`
	for got, want := range map[string]string{
		leg(first): fmt.Sprintf(format, "data:A", "http://b/"), leg(same): fmt.Sprintf(format, "data:A", "http://b/"),
		leg(second): fmt.Sprintf(format, "data:A", "data:B"),
	} {
		if got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}

// What holds no image leaves untouched, whatever stands in it.
func TestOtherContentIsUntouched(t *testing.T) {
	for _, content := range []string{`"bare string"`, `null`, `7`, `{ "image_url":"file:///x" }`, `[ ]`, `[ "x" , 1.0 ,null, [ {"image_url":"file:///x"} ] ]`,
		`[ {"type":"new_type" , "new":{"b":1.0,"a":2e0,"b":3} } ]`, `[{"type":"text","text":"\ud800 é \/"}]`, `[{}]`, `[{"uuid":"u","text":"x"}]`} {
		if got, want := inlined(t, `[ { "content" : `+content+` } ]`), `{"model":"m", "messages" : [ { "content" : `+content+` } ] ,"x":1.0}`; got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
		// beside an image, too
		got := inlined(t, `[{"content":`+content+` },{"content":[{"image_url":"http://a/"}]}]`, `"data:A"`)
		if want := `{"model":"m","messages":[{"content":` + content + ` },{"content":[{"image_url":"data:A"}]}],"x":1.0}`; got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}

func TestDataURIsAreKnownInAnySpelling(t *testing.T) {
	for url, want := range map[string]bool{
		`"data:"`: true, `"DaTa:image/png"`: true, `"\u0064at\u0061:x"`: true, `"\u0044\u0041\u0054\u0041\u003A"`: true, `"\u0064\u0061\u0074\u0061\u003a\u003b"`: true,
		`"\u0064\u0061\u0074\u0061\u003aimage/png;base64,AAAA"`: true,
		`"data"`: false, `""`: false, `"data;"`: false, `" data:"`: false, `"\\u0064ata:"`: false, `"http://data:"`: false,
		`"` + strings.Repeat("a", 28) + `\\"`: false, `"\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\"`: false, `"dat\u00e1:"`: false,
	} {
		if got := IsDataURI([]byte(url)); got != want {
			t.Errorf("%s: %v", url, got)
		}
	}
}

// A body may have as many parts as it is long, but not of media.
func TestManyParts(t *testing.T) {
	const image = `{"image_url":"http://a/"}`
	if _, _, err := chatMedia(t, `[{"content":[`+strings.Repeat(image+`,`, MaxMedia)+image+`]}]`); FaultOf(err).Kind != LimitExceeded {
		t.Errorf("one medium more than there may be: %v", err)
	}
	for _, part := range []string{image, `{"type":"text","text":"x"}`, `"x"`, `{}`} {
		n := 100_000
		if part == image {
			n = MaxMedia
		}
		messages := `[{"content":[` + strings.Repeat(part+`,`, n-1) + part + `]}]`
		body, m, err := chatMedia(t, messages)
		if err != nil || m.Len() != n && m.Len() != 0 {
			t.Fatalf("%s: %d images, %v", part, m.Len(), err)
		}
		if m.Len() == n {
			uris := make([][]byte, n)
			uris[n-1] = []byte(`"data:Z"`)
			out := Chat.RenderLeg(Source{Body: body, Media: m.Inline(uris)}).Append(nil)
			if want := strings.TrimSuffix(messages, `{"image_url":"http://a/"}]}]`) + `{"image_url":"data:Z"}]}]`; string(out) != `{"model":"m","messages":`+want+`,"x":1.0}` {
				t.Error("the last image is not replaced in its place")
			}
		}
	}
}

// place is where a value stands in a text.
type place struct{ lo, hi int }

func (p place) of(text []byte) []byte { return text[p.lo:p.hi] }

// membersAt and elementsAt are split and elements with places.
func membersAt(text []byte, at place) (names []rawMember, values []place) {
	members, where, _ := split(at.of(text))
	for i, m := range members {
		hi := at.lo + where[i][1]
		names, values = append(names, m), append(values, place{hi - len(m.value), hi})
	}
	return names, values
}

func elementsAt(text []byte, at place) (all []place) {
	in := at.of(text)
	if len(in) == 0 || in[0] != '[' {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(in))
	if _, err := d.Token(); err != nil {
		return nil
	}
	for d.More() {
		var v json.RawMessage
		if d.Decode(&v) != nil {
			return nil
		}
		hi := at.lo + int(d.InputOffset())
		all = append(all, place{hi - len(v), hi})
	}
	return all
}

// named reports whether a member has a name, by UTF-16.
func (m rawMember) named(name string) bool { return m.key() == rawMember{name: `"` + name + `"`}.key() }

// plain returns the text of a JSON string, as encoding/json reads it.
func plain(value []byte) (s string, ok bool) {
	ok = len(value) > 0 && value[0] == '"' && json.Unmarshal(value, &s) == nil
	return s, ok
}

// oracleImage is an image as the oracle finds it.
type oracleImage struct {
	part, url      place // url is the data of an input_audio
	object, format place // of an input_audio
	modality       Modality
	uuid           bool
}

// oracleMedia says what the contract's section 4 does with messages: the
// images, or false if they must be refused.
func oracleMedia(text []byte) (images []oracleImage, ok bool) {
	for _, message := range elementsAt(text, place{0, len(text)}) {
		names, values := membersAt(text, message)
		contents, before := 0, len(images)
		for i, m := range names {
			if !m.named("content") {
				continue
			}
			contents++
			for _, part := range elementsAt(text, values[i]) {
				image, found, good := oraclePart(text, part)
				if !good {
					return nil, false
				}
				if found {
					images = append(images, image)
				}
			}
		}
		if contents > 1 && len(images) > before {
			return nil, false
		}
	}
	return images, true
}

// oracleServed are the members by which workers find media that are served.
var oracleServed = []string{"image_url", "audio_url", "input_audio", "video_url"}

// oracleIndex is which of them a test holds for; -1 for none.
func oracleIndex(is func(name string) bool) int { return slices.IndexFunc(oracleServed, is) }

func oraclePart(text []byte, part place) (image oracleImage, found, ok bool) {
	names, values := membersAt(text, part)
	image.part = part
	counts := [4]int{}
	null, hasType, known := false, false, false
	which, typed := -1, -1
	for i, m := range names {
		v := values[i].of(text)
		isNull := string(v) == "null"
		at := oracleIndex(m.named)
		switch {
		case at >= 0:
			if counts[at]++; counts[at] > 1 || !isNull && which >= 0 {
				return image, false, false
			}
			if null = null || isNull; !isNull {
				which, image.url = at, values[i]
			}
		case m.named("uuid"):
			image.uuid, known = true, !isNull
		case m.named("type"):
			hasType = !isNull
			s, _ := plain(v)
			if slices.ContainsFunc(otherMedia, func(o string) bool { return strings.EqualFold(o, s) }) {
				return image, false, false
			}
			if at := oracleIndex(func(o string) bool { return strings.EqualFold(o, s) }); at >= 0 {
				typed = at
			}
		case slices.ContainsFunc(otherMedia, m.named):
			if null = true; !isNull {
				return image, false, false
			}
		}
	}
	doubtful := null && (known || !hasType)
	switch {
	case which < 0:
		return image, false, typed < 0 && !doubtful
	case typed >= 0 && typed != which, which > 0 && doubtful:
		return image, false, false
	}
	image.modality = []Modality{Image, Audio, Audio, Video}[which]
	if oracleServed[which] == "input_audio" {
		return image, true, image.oracleMember(text, "data") && image.oracleMember(text, "format")
	}
	if image.url.of(text)[0] == '{' && !image.oracleMember(text, "url") {
		return image, false, false
	}
	s, isString := plain(image.url.of(text))
	s = strings.ToLower(s)
	return image, true, isString && (strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://") || strings.HasPrefix(s, "data:"))
}

// oracleMember finds a member of the object that url is: its URL or data, or its
// format. It must be there once, and be a string but for a URL.
func (im *oracleImage) oracleMember(text []byte, name string) bool {
	object := im.url
	if name == "format" {
		object = im.object
	}
	n := 0
	names, values := membersAt(text, object)
	for i, m := range names {
		if !m.named(name) {
			continue
		}
		n++
		if im.object = object; name == "format" {
			im.format = values[i]
		} else {
			im.url = values[i]
		}
	}
	if n != 1 {
		return false
	}
	_, isString := plain(im.url.of(text))
	if name == "format" {
		_, isString = plain(im.format.of(text))
	}
	return isString || name == "url"
}

// oracleEdit returns messages with URLs and uuids put in.
func oracleEdit(text []byte, images []oracleImage, uris [][]byte, hash string) []byte {
	var out []byte
	at := 0
	for i, im := range images {
		out = append(out, text[at:im.url.lo]...)
		at = im.url.lo
		if uris[i] != nil {
			out, at = append(out, uris[i]...), im.url.hi
		}
		out = append(out, text[at:im.part.hi-1]...)
		if at = im.part.hi - 1; hash != "" && !im.uuid {
			out = append(out, `,"uuid":`+hash...)
		}
	}
	return append(out, text[at:]...)
}

func FuzzMedia(f *testing.F) {
	for _, messages := range []string{
		`[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://a/","detail":"low"}},{"type":"text","text":"x"}]},{"content":"x"}]`,
		` [ { "content" : [ { "image_url" : "data:image/png;base64,QUFB" , "uuid":null } , {"uuid":"u","\u0069mage_url":{"u\u0072l":"\u0068ttps:\/\/a"}} ] } ] `,
		`[{"content":[{"type":"audio_url","audio_url":{"url":"data:x"}},{"type":"input_audio","input_audio":{"format":"wav","data" : "QUFB"},"uuid":"u"},{"video_url":"https://a"}]}]`,
		`[{"content":[{"type":"audio_url","input_audio":{"format":"wav","data":""}}]}]`, `[{"content":[{"video_url":"http://a","image_url":null,"uuid":"u"}]}]`,
		`[{"content":[{"type":"audio_url","audio_url":{"url":"x"}}]}]`, `[{"content":[{"image_url":null,"type":"text"}]}]`,
		`[{"content":[{"image_url":"http://a/"}],"content":1}]`, `[{"content":[{"image_url":"aaaaaaaaaaaaaaaaaaaaaaaaaaaa\\"}]}]`,
		`[{"content":[{"image_url":{"url":"http://a/","url":1}}]}]`, `[[],{"content":{}},null,{"content":[[],"x",{}]}]`,
	} {
		f.Add([]byte(messages), uint64(5))
	}
	f.Fuzz(func(t *testing.T, messages []byte, which uint64) {
		if Valid(messages) != nil {
			return
		}
		messages = trim(messages)
		body := mustParse(t, `{"model":"m", "messages" : `+string(messages)+` ,"x":1.0}`)
		prompt, err := Chat.Prompt(body)
		want, ok := oracleMedia(messages)
		if ok != (err == nil) || err == nil && prompt.Media.Len() != len(want) {
			t.Fatalf("%q: %d images, %v; want %d, %v", messages, prompt.Media.Len(), err, len(want), ok)
		}
		if err != nil {
			if FaultOf(err).ErrorCode() != "invalid_media" {
				t.Fatalf("fault %v", err)
			}
			return
		}
		checkImages(t, body, messages, prompt, want, which)
	})
}

// checkImages compares the legs of a body with images with the oracle's edit.
func checkImages(t *testing.T, body *Body, messages []byte, prompt Prompt, want []oracleImage, which uint64) {
	uris := make([][]byte, len(want))
	spans := make([]Span, len(want))
	hashes := &Features{Items: spans, Hashes: []byte(`{}`), Placeholders: []byte(`{}`)}
	for i, im := range want {
		url := prompt.Media.URL(i)
		got, _ := plain(url)
		if w, ok := plain(im.url.of(messages)); !ok || got != w || !bytes.Equal(url, im.url.of(messages)) {
			t.Fatalf("image %d is %q, want %q", i, url, im.url.of(messages))
		}
		if got := prompt.Media.Format(i); prompt.Media.Modality(i) != im.modality || !bytes.Equal(got, im.format.of(messages)) {
			t.Fatalf("medium %d is %v in %q, want %v in %q", i, prompt.Media.Modality(i), got, im.modality, im.format.of(messages))
		}
		if which>>(i%64)&1 != 0 {
			uris[i] = fmt.Appendf(nil, `"data:%d"`, i)
		}
		spans[i] = Span{Modality: im.modality, Hash: []byte(`"h"`), Placeholder: []byte(`{"offset":0,"length":0}`)}
	}
	var media *Media
	if prompt.Media != nil {
		media = prompt.Media.Inline(uris)
	}
	ids := []byte("[1]")
	hashes.locate(ids)
	src := Chat.Source(body, prompt, media, Tokens{IDs: ids, Count: 1, Features: *hashes})
	checkMessages(t, Chat.RenderLeg(src), oracleEdit(messages, want, uris, ""))
	checkMessages(t, Chat.ProbeLeg(src), oracleEdit(messages, want, uris, ""))
	checkMessages(t, Chat.DecodeLeg(src, Transfers{}), oracleEdit(messages, want, uris, `"h"`))
	for i, im := range want {
		part := oracleEdit(im.part.of(messages), []oracleImage{{part: place{0, im.part.hi - im.part.lo}, url: place{im.url.lo - im.part.lo, im.url.hi - im.part.lo}, uuid: im.uuid}}, uris[i:i+1], "")
		checkMessages(t, Chat.EncodeLeg(src, OpenAI, i), []byte(`[{"role":"user","content":[`+string(part)+`]}]`))
	}
}

// checkMessages compares a leg's messages.
func checkMessages(t *testing.T, leg Payload, want []byte) {
	t.Helper()
	members, _, ok := split(leg.Append(nil))
	if !ok {
		t.Fatalf("the leg is no JSON: %q", leg.Append(nil))
	}
	for _, m := range members {
		if m.named("messages") && m.value != string(want) {
			t.Fatalf("messages are %q, want %q", m.value, want)
		}
	}
}
