package cluster

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// TestStandIns: a large image is the same whether it is read by its stand-in or in
// full, and nothing else is replaced.
func TestStandIns(t *testing.T) {
	large := DataURI("large.jpg", longURI)
	data := ImageBytes("large.jpg", longURI)
	for _, test := range []struct {
		name, body string
		replaced   int
	}{
		{"large", chatOf("", imagePart(large, "")), 1},
		{"two and text", chatOf("", textPart, imagePart(large, ""), `"\"data:,\\"`, imagePart(large, "")), 2},
		{"bare", chatOf("", `{"image_url":"`+large+`"}`), 1},
		{"escaped slash", chatOf("", imagePart(strings.Replace(large, "/9j", `\/9j`, 1), "")), 0},
		{"small", chatOf("", imagePart(catURI, "")), 0},
		{"text", chat("data:"+strings.Repeat("x", longURI), ""), 0},
		{"line break", `"` + large[:100] + "\n" + large[100:] + `"`, 0},
		{"not base64", `"` + large + `%"`, 0},
		{"unfinished", `{"a":"` + large, 0},
		{"empty", ``, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			short := withStandIns([]byte(test.body))
			if n := bytes.Count(short, []byte(standInMark)); n != test.replaced || n == 0 && string(short) != test.body {
				t.Fatalf("%d replaced, %d bytes", n, len(short))
			}
			if json.Valid(short) != json.Valid([]byte(test.body)) {
				t.Error("validity changed")
			}
			if test.replaced == 0 {
				return
			}
			o, _, err := parseObject(short)
			if err != nil {
				t.Fatal(err)
			}
			p, err := chatPrompt(newVocabulary(), o)
			if err != nil {
				t.Fatal(err)
			}
			for _, im := range p.images {
				if im.hash != ImageHash(data) || im.length != placeholderTokens(len(data)) {
					t.Errorf("image %+v", im)
				}
			}
		})
	}
}

// TestLargeImagesMustStayWhatTheyWere: a stand-in hides no change.
func TestLargeImagesMustStayWhatTheyWere(t *testing.T) {
	r := start(t, Options{})
	large := DataURI("large.jpg", 100_000)
	r.render("x", chatOf("", imagePart(large, "")))
	changed := large[:len(large)-10] + "AAAAAAAA" + large[len(large)-2:]
	r.send(call{leg: Prefill, id: "x", body: chatOf(`,"max_tokens":1,"ignore_eos":true`, imagePart(large, ""))})
	r.noViolations()
	r.send(call{leg: Prefill, id: "x", body: chatOf(`,"max_tokens":1,"ignore_eos":true`, imagePart(changed, ""))})
	r.wantViolation("not the one that render was given")
}
