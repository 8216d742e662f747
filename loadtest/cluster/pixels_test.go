package cluster

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// metadataOf is the answer of render to a prompt with two images, and what it
// says of their metadata.
func metadataOf(t *testing.T, r *rig, id string) (p renderedPrompt, metadata []*string) {
	t.Helper()
	got := r.send(call{leg: Render, id: id, body: chatOf("", imagePart(catURI, ""), imagePart(dogURI, ""))})
	var answer struct {
		Features struct {
			Metadata map[string][]*string `json:"mm_metadata"`
		}
	}
	if json.Unmarshal([]byte(got.body), &p) != nil || json.Unmarshal([]byte(got.body), &answer) != nil {
		t.Fatalf("got %+v", got)
	}
	return p, answer.Features.Metadata["image"]
}

func TestRenderedMetadata(t *testing.T) {
	for _, test := range []struct {
		name    string
		options Options
		fault   Fault
		want    []bool // whether there is one of each image
	}{
		{"not unless asked for", Options{}, Fault{}, nil},
		{"all", Options{Metadata: true}, Fault{}, []bool{true, true}},
		{"none", Options{Metadata: true}, Fault{NoMetadata: true}, nil},
		{"the first", Options{Metadata: true}, Fault{OneMetadata: true}, []bool{true, false}},
	} {
		r := start(t, test.options)
		r.AddFault(test.fault)
		_, metadata := metadataOf(t, r, "x")
		var there []bool
		for _, item := range metadata {
			there = append(there, item != nil)
		}
		if !slices.Equal(there, test.want) {
			t.Errorf("%s: %v", test.name, there)
		}
	}
	r := start(t, Options{Metadata: true})
	got := r.send(call{leg: Render, id: "x", body: chatOf(`,"return_mm_kwargs":false`, imagePart(catURI, ""))})
	if strings.Contains(got.body, "mm_metadata") {
		t.Errorf("unwanted: %s", got.body)
	}
	item := tensorItem{namesOf(imageModality), []int{2, 3}, slices.Repeat([]byte{0x80, 0x3f}, 6), [][2]int{{0, 2}}, []int{1, 34, 46}}
	const want = `ga5pbWFnZV9ncmlkX3Rod4KkZGF0YZOlaW50NjSRA8cYAwEAAAAAAAAAIgAAAAAAAAAuAAAAAAAAAKVmaWVsZJKnYmF0Y2hlZIGra2VlcF9vbl9jcHXD`
	if got := base64.StdEncoding.EncodeToString(item.metadata()); got != want {
		t.Errorf("the metadata of the worked example: %s", got)
	}
}

// TestPixelsLeftOut: what a prefill without some images' pixels must have, and who
// may not be sent that at all.
func TestPixelsLeftOut(t *testing.T) {
	grid := func(n int) string {
		item := tensorItem{names: namesOf(imageModality), grid: []int{1, 2, n}}
		return base64.StdEncoding.EncodeToString(item.metadata())
	}
	r := start(t, Options{Metadata: true})
	p, small := metadataOf(t, r, "x")
	whole := p.Features.Kwargs["image"]
	var ec []string
	for i := range whole {
		given := descriptors(t, r.send(call{leg: Encode, id: "x", path: generatePath, body: p.encodeTokens(t, i)}))
		ec = append(ec, given[1:len(given)-1])
	}
	pull := `"ec_transfer_params":{` + strings.Join(ec, ",") + `}`
	pullFirst := `"ec_transfer_params":{` + ec[0] + `}`
	list := func(name string, items ...*string) string {
		return fmt.Sprintf(`,%q:{"image":%s}`, name, jsonText(items))
	}
	other := grid(99)
	for _, test := range []struct {
		name, features, params, leg string
		status                      int
		want                        string // in the answer, or in the violation of a 200
	}{
		{"neither", list("mm_metadata", small[0], nil), pull, Prefill, 500, "Expected a cached item"},
		{"metadata", list("mm_metadata", small...), pull, Prefill, 200, ""},
		{"stripped", list("kwargs_data", small...), pull, Prefill, 200, ""},
		{"mixed", list("kwargs_data", nil, whole[1]) + list("mm_metadata", small[0], nil), pullFirst, Prefill, 200, ""},
		{"mixed, both small", list("kwargs_data", nil, small[1]) + list("mm_metadata", small[0], nil), pull, Prefill, 200, ""},
		{"metadata without params", list("mm_metadata", small...), "", Prefill, 400, "metadata-only multimodal items require ec_transfer_params"},
		{"metadata not described", list("mm_metadata", small...), pullFirst, Prefill, 500, "Internal server error"},
		{"stripped, not described", list("kwargs_data", small...), pullFirst, Prefill, 500, "Internal server error"},
		{"stripped without params", list("kwargs_data", small...), "", Prefill, 500, "Internal server error"},
		{"another grid", list("mm_metadata", small[0], &other), pull, Prefill, 400, "image_grid_thw"},
		{"not as many", list("mm_metadata", small[0]), pull, Prefill, 400, "mm_metadata"},
		{"no msgpack", list("mm_metadata", small[0], new(string)), pull, Prefill, 400, "cannot be decoded"},
		{"both", list("kwargs_data", whole...) + list("mm_metadata", small...), pull, Prefill, 200, "both"},
		{"to decode", list("mm_metadata", small...), pull, Decode, 200, "kwargs_data are not those"},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := r.State().ViolationCount
			body := p.generate(strings.Trim(`"request_id":"x",`+test.params, ","), `"max_tokens":1,"ignore_eos":true`+extraArgs(test.params))
			_, tail, _ := strings.Cut(body, `,"kwargs_data":`)
			_, tail, _ = strings.Cut(tail, "}")
			head, _, _ := strings.Cut(body, `,"kwargs_data":`)
			got := r.send(call{leg: test.leg, id: "x", path: generatePath, body: head + test.features + tail})
			if got.status != test.status || got.status != http.StatusOK && !strings.Contains(got.body, test.want) {
				t.Errorf("got %d %s", got.status, got.body)
			}
			s := r.State()
			switch breach := test.status == http.StatusOK && test.want != ""; {
			case test.status == http.StatusOK && !breach && s.ViolationCount != before:
				t.Errorf("violations: %q", s.Violations[before:])
			case breach && !strings.Contains(strings.Join(s.Violations[before:], "\n"), test.want):
				t.Errorf("violations %q, want %q", s.Violations[before:], test.want)
			}
		})
	}
}

// extraArgs puts transfer params where older workers read them.
func extraArgs(params string) string {
	if params == "" {
		return ""
	}
	return `,"extra_args":{` + params + `}`
}

// TestLostEmbeddings: a prefill that cannot fetch encodes itself, if it has pixels.
func TestLostEmbeddings(t *testing.T) {
	r := start(t, Options{Metadata: true})
	p, small := metadataOf(t, r, "x")
	var ec []string
	for i := range small {
		given := descriptors(t, r.send(call{leg: Encode, id: "x", path: generatePath, body: p.encodeTokens(t, i)}))
		ec = append(ec, given[1:len(given)-1])
	}
	r.AddFault(Fault{Leg: Prefill, LoseEmbeddings: true})
	params := `"ec_transfer_params":{` + strings.Join(ec, ",") + `}`
	body := p.generate(`"request_id":"x",`+params, `"max_tokens":1,"ignore_eos":true`+extraArgs(params))
	if got := r.send(call{leg: Prefill, id: "x", path: generatePath, body: body}); got.status != 200 || r.State().LocalEncodes != 2 {
		t.Errorf("with pixels: %+v, %+v", got, r.State())
	}
	for i, item := range small {
		body = strings.Replace(body, *p.Features.Kwargs["image"][i], *item, 1)
	}
	if got := r.send(call{leg: Prefill, id: "x-r1", path: generatePath, body: strings.Replace(body, `"request_id":"x"`, `"request_id":"x-r1"`, 1)}); got.status != 500 {
		t.Errorf("without: %+v", got)
	}
	r.noViolations()
}

// TestUnpack: what is no item is refused, and never read beyond its end.
func TestUnpack(t *testing.T) {
	item := tensorItem{namesOf(imageModality), []int{300}, make([]byte, 600), [][2]int{{0, 300}, {300, 70_000}}, []int{1, 34, 46}}
	data := item.encode()
	unpack := func(b []byte) bool {
		_, ok := unpackItem(base64.StdEncoding.EncodeToString(b))
		return ok
	}
	if !unpack(data) {
		t.Error("a good item is refused")
	}
	for n := range data {
		if unpack(data[:n]) {
			t.Errorf("%d bytes are an item", n)
		}
	}
	for name, b := range map[string]string{"trailing": string(data) + "\xc0", "array": "\x90", "a key that is no string": "\x81\x01\x01", "pickle": "\x81\xa1a\xd4\x01x",
		"unused": "\x81\xa1a\xc1", "endless": "\xdf\xff\xff\xff\xff", "deep": "\x81\xa1a" + strings.Repeat("\x91", 100), "large": "\x81\xa1a\xdb\xff\xff\xff\xff"} {
		if unpack([]byte(b)) {
			t.Errorf("%s: taken", name)
		}
	}
}
