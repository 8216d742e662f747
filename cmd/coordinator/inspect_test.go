package main

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Two rendered items: pixels and a grid, and the grid alone.
const (
	wholeItem = "gqxwaXhlbF92YWx1ZXOCpGRhdGGTqGJmbG9hdDE2kgIDxwwDgD+AP4A/gD+AP4A/pWZpZWxkkqRmbGF0g6trZWVwX29uX2NwdcKmc2xpY2VzkZGTAALAo2RpbQCuaW1hZ2VfZ3JpZF90aHeCpGRhdGGTpWludDY0kQPHGAMBAAAAAAAAACIAAAAAAAAALgAAAAAAAAClZmllbGSSp2JhdGNoZWSBq2tlZXBfb25fY3B1ww=="
	gridItem  = "ga5pbWFnZV9ncmlkX3Rod4KkZGF0YZOlaW50NjSRA8cYAwEAAAAAAAAAIgAAAAAAAAAuAAAAAAAAAKVmaWVsZJKnYmF0Y2hlZIGra2VlcF9vbl9jcHXD"
)

const wholeTable = `: 178 bytes of msgpack
  entry            field    keep_on_cpu  dtype     shape  bytes
  pixel_values     flat     no           bfloat16  [2,3]  12
  image_grid_thw   batched  yes          int64     [3]    24
  total                                                   36
  kept on the CPU                                         24

`

const gridTable = `: 87 bytes of msgpack
  entry            field    keep_on_cpu  dtype  shape  bytes
  image_grid_thw   batched  yes          int64  [3]    24
  total                                                24
  kept on the CPU                                      24

`

func inspect(t *testing.T, content string) (code int, stdout, stderr string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rendered")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return runCommand("inspect-kwargs", file)
}

func unbase64(t *testing.T, text string) string {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestInspectKwargs(t *testing.T) {
	answer := func(data string) string {
		return `{"request_id":"chatcmpl-1","token_ids":[1,2],"features":{"mm_hashes":{"image":["h"]},"kwargs_data":` + data + `},"model":"m"}`
	}
	escaped := strings.ReplaceAll(wholeItem, "/", `\/`)
	tests := []struct {
		name    string
		content string
		want    string
	}{
		{"msgpack", unbase64(t, wholeItem), "item" + wholeTable},
		{"base64", wholeItem, "item" + wholeTable},
		{"base64 in lines", "\n  " + wholeItem[:76] + "\r\n" + wholeItem[76:152] + "\n" + wholeItem[152:] + "\n", "item" + wholeTable},
		{"JSON string", ` "` + wholeItem + `"` + "\n", "item" + wholeTable},
		{"escaped JSON string", `"` + escaped + `"`, "item" + wholeTable},
		{"answer", answer(`{"image":["` + escaped + `"]}`), "image[0]" + wholeTable},
		{"answer with more", answer(`{"video":["` + gridItem + `"],"audio":null,"image":[null,"` + wholeItem + `"]}`),
			"video[0]" + gridTable + "image[0]: null, so the worker must have it already\n\n" + "image[1]" + wholeTable +
				"2 items: 60 bytes of tensors, of which 48 are kept on the CPU; 265 bytes of msgpack\n"},
		{"answers", `[{"features":null},` + answer(`{"image":["`+gridItem+`"]}`) + `]`, "prompt 1 image[0]" + gridTable},
		{"all null", answer(`{"image":[null]}`), "image[0]: null, so the worker must have it already\n\n"},
		{"strange name", answer(`{"\u001b[2J":["` + gridItem + `"]}`), `"\x1b[2J"[0]` + gridTable},
		{"other data", "\x86" +
			"\xa1a\x82\xa4data\xc0\xa5field\x92\xa7batched\x80" +
			"\xa1b\x82\xa4data\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00\xa5field\x92\xa6shared\x81\xaabatch_size\x04" +
			"\xa1c\x82\xa4data\x93\x01\x02\x91\x03\xa5field\x92\xa7batched\x81\xabkeep_on_cpu\xc3" +
			"\xa1d\x82\xa4data\x92\x93\xa5uint8\x91\x01\xd4\x03z\x93\xa2q4\x91\x03\xd5\x03zz\xa5field\x92\xa4flat\x81\xa3dim\x01" +
			"\xa1e\x82\xa4data\x90\xa5field\x92\xa7batched\x80" +
			"\xa1\t\x82\xa4data\x93\xa7float32\x92\x00\x03\xc7\x00\x03\xa5field\x92\xa7batched\x80", `item: 225 bytes of msgpack
  entry            field        keep_on_cpu  dtype       shape       bytes
  a                batched      no           null        -           -
  b                shared by 4  no           number      -           -
  c                batched      yes          numbers     3 in lists  -
  d[0]             flat dim=1   no           uint8       [1]         1
  d[1]             flat dim=1   no           q4          [3]         2 *
  e                batched      no           empty list  -           -
  "\t"             batched      no           float32     [0,3]       0
  total                                                              3
  kept on the CPU                                                    0
  * dtype of unknown size: not checked against the shape

`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := inspect(t, tt.content)
			if code != 0 || stderr != "" || stdout != tt.want {
				t.Errorf("exit %d %s\n%s\nwant\n%s", code, stderr, stdout, tt.want)
			}
		})
	}
}

func TestInspectKwargsFaults(t *testing.T) {
	answer := func(data string) string { return `{"token_ids":[1],"features":{"kwargs_data":` + data + `}}` }
	tests := []struct {
		name    string
		content string
		stdout  string
		stderr  string
	}{
		{"empty", " \n", "", "rendered: there is nothing in it\n"},
		{"prose", "hello, world", "", "rendered: item: not base64 of the standard alphabet, padded: "},
		{"base64 of no item", "aGVsbG8=", "", "rendered: item: an item is a map, not an integer (msgpack byte 0)\n"},
		{"cut msgpack", unbase64(t, wholeItem)[:120], "", "rendered: item: entry \"image_grid_thw\": it ends in the middle of the item (msgpack byte 120)\n"},
		{"legacy", "\x91\x80", "", "rendered by vLLM before 0.16.0"},
		{"pickle", "\x81\xa1x\x82\xa4data\xd4\x01z", "", `item: entry "x": a pickled Python object (msgpack extension type 1 or 2): unpickling runs code on the worker`},
		{"UTF-8 prose", "ÜberTRAGUNG", "", "an item is a map"},
		{"broken JSON", `{"features":`, "", "rendered: begins like JSON, but: unexpected end of JSON at byte 12\n"},
		{"JSON string of prose", `"hello, world"`, "", "rendered: item: not base64"},
		{"some JSON", `{"a":1}`, "", "it has no features"},
		{"text only", `{"token_ids":[1],"features":null}`, "", "rendered: a rendered prompt without media: features is null\n"},
		{"features of another type", `{"features":1}`, "", "features has no kwargs_data"},
		{"no kwargs", answer("null"), "", "features.kwargs_data is null: the render request said return_mm_kwargs = false"},
		{"kwargs of another type", answer("[]"), "", "features.kwargs_data is not an object"},
		{"empty kwargs", answer(`{"image":[]}`), "", "features.kwargs_data holds no items"},
		{"no list", answer(`{"image":"AA"}`), "", "features.kwargs_data: image is not a list"},
		{"no string", answer(`{"image":[1]}`), "", "image[0] is neither a string nor null"},
		{"empty list", `[]`, "", "an empty list"},
		{"list of numbers", `[1]`, "", "that is an object, or a list of objects"},
		{"list of text", `[{"features":null},{"features":null}]`, "", "a rendered prompt without media"},
		{"list with a fault", `[{"features":null},` + answer(`{"image":[1]}`) + `]`, "", "prompt 1 image[0] is neither"},
		{"one of three", answer(`{"image":["","` + gridItem + `","AA="]}`), "image[1]" + gridTable,
			"rendered: image[0]: it ends in the middle of the item (msgpack byte 0)\n"},
		{"the last of three", answer(`{"image":["","` + gridItem + `","?"]}`), "image[1]" + gridTable, "rendered: image[2]: not base64"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := inspect(t, tt.content)
			if code != 1 || stdout != tt.stdout || !strings.HasPrefix(stderr, "coordinator: ") || !strings.Contains(stderr, tt.stderr) {
				t.Errorf("exit %d\n%s\n%s\nwant\n%s", code, stdout, stderr, tt.stderr)
			}
		})
	}
}

func TestInspectKwargsFlags(t *testing.T) {
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "usage: coordinator inspect-kwargs FILE"},
		{[]string{"a", "b"}, 2, "usage: coordinator inspect-kwargs FILE"},
		{[]string{"-x", "a"}, 2, "flag provided but not defined: -x"},
		{[]string{"-h"}, 0, "usage: coordinator inspect-kwargs FILE"},
		{[]string{"nowhere"}, 1, "open nowhere: no such file"},
	} {
		code, stdout, stderr := runCommand(append([]string{"inspect-kwargs"}, tt.args...)...)
		if code != tt.code || stdout != "" || !strings.Contains(stderr, tt.want) {
			t.Errorf("%q: exit %d\n%s\n%s", tt.args, code, stdout, stderr)
		}
	}
}

// stdin makes what w is written the standard input until the test ends.
func stdin(t *testing.T) (w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	before := os.Stdin
	os.Stdin = r
	t.Cleanup(func() {
		os.Stdin = before
		w.Close()
		r.Close()
	})
	return w
}

func TestInspectKwargsReadsStandardInput(t *testing.T) {
	for _, tt := range []struct {
		content        string
		code           int
		stdout, stderr string
	}{
		{gridItem + "\n", 0, "item" + gridTable, ""},
		{gridItem + "?\n", 1, "", "coordinator: standard input: item: not base64"},
	} {
		w := stdin(t)
		if _, err := w.WriteString(tt.content); err != nil {
			t.Fatal(err)
		}
		w.Close()
		code, stdout, stderr := runCommand("inspect-kwargs", "-")
		if code != tt.code || stdout != tt.stdout || !strings.HasPrefix(stderr, tt.stderr) {
			t.Errorf("exit %d\n%s\n%s", code, stdout, stderr)
		}
	}
}

// TestInspectKwargsEndsWhileItWaitsForInput: SIGINT only ends the context.
func TestInspectKwargsEndsWhileItWaitsForInput(t *testing.T) {
	stdin(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := inspectKwargs(ctx, []string{"-"}, nil, io.Discard, io.Discard)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
