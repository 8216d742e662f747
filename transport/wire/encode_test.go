package wire

import (
	"bytes"
	"strings"
	"testing"
)

func TestDescriptorsAreAnObjectOrNothing(t *testing.T) {
	for _, tt := range []struct {
		answer, want string
	}{
		{` {"id":"x","ec_transfer_params" : { "h" : {"a":1.0} } } `, `{ "h" : {"a":1.0} }`},
		{`{"ec_transfer_params":{}}`, `{}`},
		{`{"ec_transfer_params":1,"ec\u005ftransfer_params":{"h":null}}`, `{"h":null}`},
		{`{"ec_transfer_params":{"h":1},"ec_transfer_params":null}`, ``},
		{`{"ec_transfer_params":null}`, ``}, {`{}`, ``}, {`[]`, ``}, {`null`, ``}, {`"x"`, ``},
		{`{"choices":[{"ec_transfer_params":{}}]}`, ``},
	} {
		if got, ok := Descriptors([]byte(tt.answer)); string(got) != tt.want || (got == nil) != (tt.want == "") || !ok {
			t.Errorf("Descriptors(%s) = %q, %t", tt.answer, got, ok)
		}
	}
	for _, odd := range []string{`{"ec_transfer_params":[]}`, `{"ec_transfer_params":"{}"}`, `{"ec_transfer_params":7}`, `{"ec_transfer_params":false}`,
		`{"ec_transfer_params":{},"ec_transfer_params":[{}]}`} {
		if got, ok := Descriptors([]byte(odd)); got != nil || ok {
			t.Errorf("Descriptors(%s) = %q, %t", odd, got, ok)
		}
	}
}

func TestDescriptorsAreMergedInOrder(t *testing.T) {
	for _, tt := range []struct {
		answers []string
		want    string // "": nil
	}{
		{nil, ``}, {[]string{``}, ``}, {[]string{``, `{}`, ` { } `}, ``}, {[]string{`{"a":null}`, `{"b" : null}`}, ``},
		{[]string{` { "b" : { "z":1.0, "a":9007199254740993 } } `}, `{"b":{ "z":1.0, "a":9007199254740993 }}`},
		{[]string{`{"b":1}`, `{"a":2}`, `{"c":3}`}, `{"b":1,"a":2,"c":3}`},
		{[]string{`{"c":3,"b":1}`, ``, `{"a":[]}`}, `{"c":3,"b":1,"a":[]}`},
		{[]string{`{"a":null,"b":1}`, `{"a":2}`}, `{"b":1,"a":2}`},
		{[]string{`{"a":2}`, `{"b":1,"a":null}`}, `{"a":2,"b":1}`},
		// the same twice
		{[]string{`{"a":{"x":1}}`, `{"b":1}`, `{"a":{"x":1}}`}, `{"a":{"x":1},"b":1}`},
		{[]string{`{"a":1,"a":1}`}, `{"a":1}`},
		// the key's spelling is the first's
		{[]string{`{"\u0061\/":1}`, `{"a/":1}`}, `{"\u0061\/":1}`},
		{[]string{`{"\ud800":1}`, `{"\ud801":2}`}, `{"\ud800":1,"\ud801":2}`},
	} {
		var answers [][]byte
		for _, a := range tt.answers {
			answers = append(answers, []byte(a))
		}
		got, err := MergeDescriptors(answers)
		if text := bytes.Join(got, nil); err != nil || string(text) != tt.want || (got == nil) != (tt.want == "") || got != nil && Valid(text) != nil {
			t.Errorf("%q: %s, %v", tt.answers, text, err)
		}
	}
}

func TestDescriptorsThatDiffer(t *testing.T) {
	for _, answers := range [][]string{
		{`{"secret":1}`, `{"secret":2}`}, {`{"secret":{"a":1}}`, `{"b":1}`, `{"b":1,"secret":{"a":1.0}}`}, {`{"\u0073ecret":1}`, `{"secret":2}`}, {`{"secret":1,"secret":2}`},
	} {
		var list [][]byte
		for _, a := range answers {
			list = append(list, []byte(a))
		}
		if got, err := MergeDescriptors(list); err == nil || got != nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %q, %v", answers, got, err)
		}
	}
}

// A leg is built again for each attempt, and those of several images at once.
func TestLegsOfImagesAreBuiltAgainAndAtOnce(t *testing.T) {
	body, m, err := chatMedia(t, `[{"content":[{"image_url":"http://a/"},{"image_url":"http://b/","uuid":null}]}]`)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := rendered(t, `{"mm_hashes":{"image":["a","b"]},"mm_placeholders":{"image":[{"offset":0,"length":0},{"offset":1,"length":2}]},"kwargs_data":{"image":["QQ==","Qg=="]}}`, 2, true)
	if err != nil {
		t.Fatal(err)
	}
	src := Chat.Source(body, Prompt{Media: m}, m.Inline([][]byte{[]byte(`"data:A"`), nil}), tokens)
	legs := func() (all []string) {
		for i := range 2 {
			for _, f := range []Format{OpenAI, TokensIn} {
				all = append(all, string(Chat.EncodeLeg(src, f, i).Append(nil)), string(Chat.PrefillLeg(src, f, "r", Transfers{KV: Raw("{}"), EC: Raw("{}")}).Append(nil)))
			}
		}
		return append(all, string(Chat.DecodeLeg(src, Transfers{KV: Raw("{}")}).Append(nil)), string(Chat.ReleaseLeg(src, Transfers{KV: Raw("{}")}).Append(nil)), string(Chat.ProbeLeg(src).Append(nil)))
	}
	want := strings.Join(legs(), "\n")
	done := make(chan string, 8)
	for range cap(done) {
		go func() { done <- strings.Join(legs(), "\n") }()
	}
	for range cap(done) {
		if got := <-done; got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
	// a span of no ids is the first id alone; an uuid that is null stays
	for _, part := range []string{`"tokens":{"token_ids":[1],"features":{"mm_hashes":{"image":["a"]},"mm_placeholders":{"image":[{"offset":1,"length":0}]}}}`,
		`{"image_url":"data:A","uuid":"a"},{"image_url":"http://b/","uuid":null}]`} {
		if !strings.Contains(want, part) {
			t.Errorf("%s is not in\n%s", part, want)
		}
	}
}

// Processor arguments make workers hash a uuid again.
func TestUUIDsAndProcessorArguments(t *testing.T) {
	tokens, err := rendered(t, images(1, ""), 1, false)
	if err != nil {
		t.Fatal(err)
	}
	for member, want := range map[string]bool{
		``: true, `,"mm_processor_kwargs":null`: true, `,"mm_processor_kwargs":{ }`: true, `,"media_io_kwargs":{"a":1}`: true,
		`,"mm_processor_kwargs":{"a":null}`: false, `,"mm_processor_kwargs":{"a":1}`: false, `,"mm_processor_kwargs":[]`: false, `,"mm_processor_kwargs":7`: false,
		`,"mm\u005fprocessor_kwargs":{"a":1}`: false, `,"mm_processor_kwargs":{"a":1},"mm_processor_kwargs":{}`: true,
	} {
		body := mustParse(t, `{"messages":[{"content":[{"image_url":"data:A"}]}]`+member+`}`)
		prompt, err := Chat.Prompt(body)
		if err != nil {
			t.Fatal(err)
		}
		src := Chat.Source(body, prompt, nil, tokens)
		for _, leg := range []Payload{Chat.DecodeLeg(src, Transfers{}), Chat.DecodeLeg(src, Transfers{KV: Raw("{}")}), Chat.ReleaseLeg(src, Transfers{KV: Raw("{}")})} {
			if got := bytes.Contains(leg.Append(nil), []byte(`{"image_url":"data:A","uuid":"h"}`)); got != want {
				t.Errorf("%s: %s", member, leg.Append(nil))
			}
		}
		if leg := Chat.ProbeLeg(src).Append(nil); bytes.Contains(leg, []byte("uuid")) {
			t.Errorf("the probe has a uuid: %s", leg)
		}
		// without a render step there are no hashes
		if leg := Chat.DecodeLeg(Chat.Source(body, prompt, nil, Tokens{}), Transfers{}).Append(nil); bytes.Contains(leg, []byte("uuid")) || bytes.Contains(leg, []byte("tokens")) {
			t.Errorf("without render: %s", leg)
		}
	}
}
