package kwargs

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// The worked example of the layout, and what is left of it without its pixels.
const (
	vector   = "gqxwaXhlbF92YWx1ZXOCpGRhdGGTqGJmbG9hdDE2kgIDxwwDgD+AP4A/gD+AP4A/pWZpZWxkkqRmbGF0g6trZWVwX29uX2NwdcKmc2xpY2VzkZGTAALAo2RpbQCuaW1hZ2VfZ3JpZF90aHeCpGRhdGGTpWludDY0kQPHGAMBAAAAAAAAACIAAAAAAAAALgAAAAAAAAClZmllbGSSp2JhdGNoZWSBq2tlZXBfb25fY3B1ww=="
	stripped = "ga5pbWFnZV9ncmlkX3Rod4KkZGF0YZOlaW50NjSRA8cYAwEAAAAAAAAAIgAAAAAAAAAuAAAAAAAAAKVmaWVsZJKnYmF0Y2hlZIGra2VlcF9vbl9jcHXD"
)

// spelt is the vector in the parts that the layout gives.
var spelt = []string{
	"82",
	"ac", hex.EncodeToString([]byte("pixel_values")),
	"82",
	"a4", hex.EncodeToString([]byte("data")), "93",
	"a8", hex.EncodeToString([]byte("bfloat16")),
	"920203",
	"c70c03", strings.Repeat("803f", 6),
	"a5", hex.EncodeToString([]byte("field")), "92", "a4", hex.EncodeToString([]byte("flat")), "83",
	"ab", hex.EncodeToString([]byte("keep_on_cpu")), "c2",
	"a6", hex.EncodeToString([]byte("slices")), "9191930002c0",
	"a3", hex.EncodeToString([]byte("dim")), "00",
	"ae", hex.EncodeToString([]byte("image_grid_thw")),
	"82",
	"a4", hex.EncodeToString([]byte("data")), "93", "a5", hex.EncodeToString([]byte("int64")), "9103",
	"c71803", "0100000000000000", "2200000000000000", "2e00000000000000",
	"a5", hex.EncodeToString([]byte("field")), "92", "a7", hex.EncodeToString([]byte("batched")), "81",
	"ab", hex.EncodeToString([]byte("keep_on_cpu")), "c3",
}

func decodeText(t *testing.T, text string) []byte {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestWorkedExample(t *testing.T) {
	data := decodeText(t, vector)
	if want, err := hex.DecodeString(strings.Join(spelt, "")); err != nil || len(data) != 178 || !bytes.Equal(data, want) {
		t.Fatalf("the vector's base64 and its bytes differ (%v):\n%x\n%x", err, data, want)
	}
	want := &Item{Size: 178, Entries: []Entry{
		{
			Name: "pixel_values", Tensors: []Tensor{{DType: "bfloat16", Shape: []int64{2, 3}, Bytes: 12}},
			Field: Field{Kind: "flat"}, Raw: [2]int{1, 92},
		},
		{
			Name: "image_grid_thw", Tensors: []Tensor{{DType: "int64", Shape: []int64{3}, Bytes: 24}},
			Field: Field{Kind: "batched", KeepOnCPU: true}, Raw: [2]int{92, 178},
		},
	}}
	fromBytes, err := Decode(data)
	if err != nil || !reflect.DeepEqual(fromBytes, want) {
		t.Errorf("Decode: %v %+v", err, fromBytes)
	}
	fromText, again, err := DecodeBase64([]byte(vector))
	if err != nil || !reflect.DeepEqual(fromText, want) || !bytes.Equal(again, data) {
		t.Errorf("DecodeBase64: %v %+v %x", err, fromText, again)
	}
	streamed, err := ReadBase64([]byte(vector))
	if err != nil || !reflect.DeepEqual(streamed, want) {
		t.Errorf("ReadBase64: %v %+v", err, streamed)
	}
	if total, kept := want.Bytes(); total != 36 || kept != 24 {
		t.Errorf("Bytes: %d %d", total, kept)
	}
}

// TestRawRangesAreItemsBehindAFreshHeader is what pixels are stripped by.
func TestRawRangesAreItemsBehindAFreshHeader(t *testing.T) {
	it, data, err := DecodeBase64([]byte(vector))
	if err != nil {
		t.Fatal(err)
	}
	out := []byte{0x81} // a map of one
	for _, e := range it.Entries {
		if e.Field.KeepOnCPU {
			out = append(out, data[e.Raw[0]:e.Raw[1]]...)
		}
	}
	if got := base64.StdEncoding.EncodeToString(out); len(out) != 87 || got != stripped {
		t.Errorf("%d bytes: %s", len(out), got)
	}
	small, err := Decode(out)
	if err != nil || len(small.Entries) != 1 || !reflect.DeepEqual(small.Entries[0].Tensors, it.Entries[1].Tensors) {
		t.Errorf("%v %+v", err, small)
	}
}

func TestCutAtEveryByte(t *testing.T) {
	data := decodeText(t, vector)
	for n := range data {
		if _, err := Decode(data[:n]); !errors.Is(err, ErrTruncated) {
			t.Errorf("%d bytes: %v", n, err)
		}
		text := base64.StdEncoding.AppendEncode(nil, data[:n])
		if _, err := ReadBase64(text); !errors.Is(err, ErrTruncated) {
			t.Errorf("%d bytes as text: %v", n, err)
		}
	}
	for n := range vector {
		if _, err := ReadBase64([]byte(vector[:n])); err == nil {
			t.Errorf("%d bytes of text were taken", n)
		}
		if _, _, err := DecodeBase64([]byte(vector[:n])); err == nil {
			t.Errorf("%d bytes of text were taken whole", n)
		}
	}
}
