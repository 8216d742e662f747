package kwargs

import (
	"encoding/base64"
	"strings"
	"testing"
)

// TestClaimsAllocateNothing gives lengths that nothing stands behind, and
// nesting without end.
func TestClaimsAllocateNothing(t *testing.T) {
	inField := func(option string) string {
		return dict("x", dict("data", number(1), "field", "\x92"+text("flat")+"\x81"+text("slices")+option))
	}
	deep := strings.Repeat("\x91", 1<<20)
	tests := []struct{ name, data, want string }{
		{"entries", "\xdf\xff\xff\xff\xff", "an item has at most 1024 keys, not 4294967295"},
		{"entries that are there", "\xdf\x00\x00\x04\x01", "an item has at most 1024 keys, not 1025"},
		{"keys", dict("x", "\xdf\xff\xff\xff\xff"), "an entry has at most 2 keys"},
		{"name", "\x81\xdb\xff\xff\xff\xff", "an entry's name has at most 256 bytes, not 4294967295"},
		{"list", item("\xdd\xff\xff\xff\xff\x01"), "data is a tensor, a number, or a list, not a string"},
		{"list of nothing", dict("x", "\x82"+text("data")+"\xdd\xff\xff\xff\xff"), "it ends in the middle"},
		{"dimensions", item("\x93" + text("uint8") + "\xdd\xff\xff\xff\xff"), "a shape has at most 64 dimensions, not 4294967295"},
		{"bytes", item("\x93" + text("uint8") + "\x91\xce\xff\xff\xff\xff\xc9\xff\xff\xff\xff\x03"), "it ends in the middle"},
		{"bytes of unknown dtype", item("\x93" + text("u") + "\x90\xc9\xff\xff\xff\xff\x03"), "it ends in the middle"},
		{"options", dict("x", dict("data", number(1), "field", "\x92"+text("flat")+"\xdf\xff\xff\xff\xff")), "a field's options has at most 64 keys"},
		{"slices", inField("\xdd\xff\xff\xff\xff"), "it ends in the middle"},
		{"map of slices", inField("\xdf\xff\xff\xff\xff"), "it ends in the middle"},
		{"string of slices", inField("\xdb\xff\xff\xff\xff"), "it ends in the middle"},
		{"binary of slices", inField("\xc6\xff\xff\xff\xff"), "it ends in the middle"},
		{"deep data", dict("x", "\x82"+text("data")+deep), "lists are nested more than 32 deep"},
		{"deep options", inField(deep), "options are nested more than 32 deep"},
		{"many numbers", dict("x", elem("\xdd\x00\x10\x00\x00"+strings.Repeat("\x01", 1<<20)), "y", number(1)), `entry "y"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			data := []byte(tt.data)
			text := base64.StdEncoding.AppendEncode(nil, data)
			var err, errText error
			if n := allocated(func() { _, err = Decode(data) }); n > 32<<10 {
				t.Errorf("%d bytes allocated", n)
			}
			if n := allocated(func() { _, errText = ReadBase64(text) }); n > 64<<10 {
				t.Errorf("%d bytes allocated for text", n)
			}
			if err == nil || errText == nil || !strings.Contains(err.Error(), tt.want) || err.Error() != errText.Error() {
				t.Errorf("%v\n%v\nwant %s", err, errText, tt.want)
			}
		})
	}
}

func TestTensorsAreCounted(t *testing.T) {
	one := tensor("x", nil, extension(3, 0))
	many := func(n int) string {
		return item("\xdd" + string([]byte{0, byte(n >> 16), byte(n >> 8), byte(n)}) + strings.Repeat(one, n))
	}
	if it, err := Decode([]byte(many(maxTensors))); err != nil || len(it.Entries[0].Tensors) != maxTensors {
		t.Errorf("%v", err)
	}
	if _, err := Decode([]byte(many(maxTensors + 1))); err == nil || !strings.Contains(err.Error(), "at most 65536 tensors") {
		t.Errorf("%v", err)
	}
}

// TestTensorBytesAreNotCopied holds the memory of a large item to the bytes
// that its base64 is decoded to, and to none if nobody wants those.
func TestTensorBytesAreNotCopied(t *testing.T) {
	const size = 20 << 20
	data := []byte(dict("pixel_values", elem(tensor("bfloat16", []int64{size / 2}, extension(3, size))), "n", elem(number(1))))
	text := base64.StdEncoding.AppendEncode(nil, data)
	check := func(name string, limit uint64, f func() (*Item, error)) {
		var it *Item
		var err error
		n := allocated(func() { it, err = f() })
		if err != nil || len(it.Entries) != 2 || it.Entries[0].Bytes() != size || it.Size != len(data) {
			t.Errorf("%s: %v %+v", name, err, it)
		}
		if n > limit {
			t.Errorf("%s: %d bytes allocated, limit %d", name, n, limit)
		}
	}
	check("Decode", 16<<10, func() (*Item, error) { return Decode(data) })
	check("ReadBase64", 32<<10, func() (*Item, error) { return ReadBase64(text) })
	check("DecodeBase64", size+(32<<10), func() (*Item, error) {
		it, _, err := DecodeBase64(text)
		return it, err
	})
}
