package wire

import (
	"encoding/json"
	"strings"
	"testing"
)

// checkReduced checks that features with less in them are features again, with as
// many items of each modality.
func checkReduced(t *testing.T, src Source, format Format, count int) {
	t.Helper()
	f := &src.Tokens.Features
	for kept := range 3 {
		to := make([]Reduction, len(f.Items))
		for i := range to {
			switch {
			case (i+kept)%3 == 0:
			case f.Items[i].Metadata != nil:
				to[i].Metadata = f.Items[i].Metadata
			default:
				to[i].Kwargs = []byte(`"Uw=="`)
			}
		}
		src.Reduced = f.Reduce(to)
		leg := Chat.PrefillLeg(src, format, "r", Transfers{}).Append(nil)
		if features := last(string(leg))[key("features")]; !json.Valid(leg) || !featuresOracle(features, count, false) {
			t.Fatalf("%q is reduced to %q", f.Kwargs, features)
		}
	}
}

// reducible are features of three images with tensors, and another modality.
const reducible = `{"mm_hashes":{"image":["a","b","a"],"x":["c"]},"mm_placeholders":{"image":[{"offset":0,"length":1},{"offset":1,"length":1},{"offset":2,"length":1}],"x":[7]},
	"kwargs_data":{"x" : ["X"],"image":["QQ==", "Qg==","QQ=="]},"mm_metadata":{"image":["TQ==",null,""]}}`

func TestReducedTensors(t *testing.T) {
	got, err := rendered(t, reducible, 3, true)
	if err != nil {
		t.Fatal(err)
	}
	f := &got.Features
	for i, want := range []string{`"TQ=="`, "", ""} {
		if string(f.Items[i].Metadata) != want {
			t.Errorf("image %d has the metadata %s", i, f.Items[i].Metadata)
		}
	}
	m, s, full := Reduction{Metadata: []byte(`"M"`)}, Reduction{Kwargs: []byte(`"S"`)}, Reduction{}
	for _, tt := range []struct {
		to   []Reduction
		want string
	}{
		{[]Reduction{full, full, full}, `,"kwargs_data":{"x":["X"],"image":["QQ==","Qg==","QQ=="]}`},
		{[]Reduction{m, s, full}, `,"kwargs_data":{"x":["X"],"image":[null,"S","QQ=="]},"mm_metadata":{"x":[null],"image":["M",null,null]}`},
		{[]Reduction{s, s, s}, `,"kwargs_data":{"x":["X"],"image":["S","S","S"]}`},
		{[]Reduction{m, m, m}, `,"kwargs_data":{"x":["X"],"image":[null,null,null]},"mm_metadata":{"x":[null],"image":["M","M","M"]}`},
	} {
		if text := join(f.Reduce(tt.to).appendTo(nil)); text != tt.want {
			t.Errorf("%v: %s\nwant %s", tt.to, text, tt.want)
		}
	}
	if got, err = rendered(t, strings.NewReplacer(`,"x":["c"]`, "", `,"x":[7]`, "", `"x" : ["X"],`, "").Replace(reducible), 3, true); err != nil {
		t.Fatal(err)
	}
	if text := join(got.Features.Reduce([]Reduction{m, m, m}).appendTo(nil)); text != `,"mm_metadata":{"image":["M","M","M"]}` {
		t.Errorf("with metadata alone: %s", text)
	}
}

func join(t Text) (text string) {
	for _, piece := range t {
		text += string(piece)
	}
	return text
}

// TestMetadataIsDroppedWithTheTensors: without all of them it is of no use, and
// would keep the answer's memory.
func TestMetadataIsDroppedWithTheTensors(t *testing.T) {
	for _, tt := range []struct {
		features string
		tensors  bool
	}{
		{reducible, false},
		{strings.Replace(reducible, `"Qg=="`, "null", 1), true},
	} {
		got, err := rendered(t, tt.features, 3, tt.tensors)
		if err != nil || got.Features.Items[0].Metadata != nil {
			t.Errorf("%v %s", err, got.Features.Items[0].Metadata)
		}
	}
}

// TestMetadataThatMakesNoSense is refused like such tensors; a client's own is not
// looked at.
func TestMetadataThatMakesNoSense(t *testing.T) {
	for _, metadata := range []string{`7`, `[]`, `"x"`, `{"image":7}`, `{"image":{}}`, `{"image":[]}`, `{"image":["TQ==","TQ=="]}`, `{"image":[7]}`, `{"image":[[]]}`} {
		if got, err := rendered(t, images(1, `,"mm_metadata":`+metadata), 1, false); err == nil || got.Known() {
			t.Errorf("%s is taken", metadata)
		}
		body := mustParse(t, `{"token_ids":[1],"features":`+images(1, `,"mm_metadata":`+metadata)+`}`)
		if _, err := Generate.Prompt(body); err != nil {
			t.Errorf("a client's %s: %v", metadata, err)
		}
	}
	for _, metadata := range []string{`null`, `{}`, `{"image":null}`, `{"image":[null]}`, `{"image":["TQ=="]}`, `{"x":7,"image":[""]}`} {
		if _, err := rendered(t, images(1, `,"mm_metadata":`+metadata), 1, true); err != nil {
			t.Errorf("%s: %v", metadata, err)
		}
	}
}

func TestDescriptorOfAHash(t *testing.T) {
	merged, err := MergeDescriptors([][]byte{[]byte(`{"a\/b":{"h":1}}`), []byte(`{"c":2,"d":null}`)})
	if err != nil {
		t.Fatal(err)
	}
	for hash, want := range map[string]string{`"a/b"`: `{"h":1}`, `"a\/b"`: `{"h":1}`, `"c"`: "2", `"d"`: "", `"e"`: "", "7": ""} {
		if got := Descriptor(merged, []byte(hash)); string(got) != want {
			t.Errorf("%s: %s", hash, got)
		}
	}
	if Descriptor(nil, []byte(`"a"`)) != nil {
		t.Error("there is one in none")
	}
}
