package kwargs

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// encoded is an item as text.
func encoded(item string) []byte { return base64.StdEncoding.AppendEncode(nil, []byte(item)) }

// entryOf is an entry with one tensor of uint8.
func entryOf(bytes string, keep bool) string {
	mark := no
	if keep {
		mark = yes
	}
	return dict("data", tensor("uint8", []int64{int64(len(bytes))}, ext3(bytes)), "field", list(text("batched"), dict("keep_on_cpu", mark)))
}

// ext3 is the extension of a tensor's bytes, in its 32-bit form.
func ext3(bytes string) string {
	n := len(bytes)
	return string([]byte{byte(msgpcode.Ext32), byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n), extTensor}) + bytes
}

func TestStripOfTheWorkedExample(t *testing.T) {
	got, err := Strip([]byte(vector))
	if err != nil || string(got) != stripped {
		t.Fatalf("%v %s", err, got)
	}
	if n := len(decodeText(t, string(got))); n != 87 {
		t.Errorf("%d bytes", n)
	}
	if again, err := Strip(got); !errors.Is(err, ErrNothingDropped) {
		t.Errorf("%v %s", err, again)
	}
}

// TestStripKeepsWhatIsMarked byte for byte and in its order, wherever it stands
// and however the bytes fall into base64's groups.
func TestStripKeepsWhatIsMarked(t *testing.T) {
	for size := range 7 {
		for _, keep := range []int{1, 2, 15, 16, 17, 300} {
			var all, kept []string
			for i := range keep {
				name := fmt.Sprintf("kept_%0*d", size+1, i)
				kept = append(kept, text(name)+entryOf(strings.Repeat("k", (i+size)%5), true))
				all = append(all, text(fmt.Sprint("dropped_", i))+entryOf(strings.Repeat("d", 3*size+i%4), false), kept[i])
			}
			whole := mapOf(all...)
			got, err := Strip(encoded(whole))
			if err != nil || string(got) != string(encoded(mapOf(kept...))) {
				t.Fatalf("size %d, %d kept: %v %s", size, keep, err, got)
			}
			if it, err := ReadBase64(got); err != nil || len(it.Entries) != keep {
				t.Errorf("size %d, %d kept: what is left cannot be read: %v", size, keep, err)
			}
		}
	}
}

// mapOf is a map of entries that are encoded already.
func mapOf(entries ...string) string {
	header := []byte{0x80 | byte(len(entries))}
	if n := len(entries); n > 15 {
		header = []byte{0xde, byte(n >> 8), byte(n)}
	}
	return string(header) + strings.Join(entries, "")
}

// TestWhatIsNotStripped stays whole: Strip says why.
func TestWhatIsNotStripped(t *testing.T) {
	pickled := func(id int8) string {
		return mapOf(text("grid")+entryOf("x", true), text("p")+elem(extension(id, 4)))
	}
	good := string(encoded(mapOf(text("grid")+entryOf("x", true), text("p")+entryOf("yy", false))))
	tests := []struct {
		name, text string
		want       error  // nil: any
		says       string // part of the error
	}{
		{"nothing marked", string(encoded(mapOf(text("p") + entryOf("x", false)))), ErrNothingKept, ""},
		{"all marked", string(encoded(mapOf(text("p") + entryOf("x", true)))), ErrNothingDropped, ""},
		{"no entry", "gA==", ErrNothingKept, ""},
		{"nothing", "", ErrTruncated, ""},
		{"pickle", string(encoded(pickled(1))), ErrPickle, ""},
		{"cloudpickle", string(encoded(pickled(2))), ErrPickle, ""},
		{"older layout", string(encoded(list(dict("modality", text("image"))))), ErrLegacy, ""},
		{"cut", string(encoded(mapOf(text("grid") + entryOf("x", true))[:20])), ErrTruncated, ""},
		{"trailing", string(encoded(mapOf(text("grid")+entryOf("x", true), text("p")+entryOf("y", false)) + "x")), ErrTrailing, ""},
		{"escaped", strings.Replace(good, "A", `\u0041`, 1), nil, "not base64"},
		{"escaped slash", `\/` + good[2:], nil, "not base64"},
		{"line break", good[:8] + "\n" + good[8:], nil, "not base64"},
		{"no padding", strings.TrimRight(good, "=") + "A", nil, ""},
		{"padding only", "====", nil, "not base64"},
		{"padding inside", good[:4] + "gA==" + good[8:], nil, "illegal base64"},
		{"other alphabet", "-" + good[1:], nil, "illegal base64"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Strip([]byte(tt.text))
			if err == nil || got != nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v %q", err, got)
			}
		})
	}
}

// TestStripOfALargeItem passes over a tensor of 1 MiB, of 32-bit length, and
// allocates for what is kept.
func TestStripOfALargeItem(t *testing.T) {
	grid := text("grid") + entryOf("grid", true)
	for name, item := range map[string]string{
		"pixels first": mapOf(text("pixel_values")+entryOf(strings.Repeat("p", 1<<20), false), grid),
		"pixels last":  mapOf(grid, text("pixel_values")+entryOf(strings.Repeat("p", 1<<20), false)),
	} {
		b64 := encoded(item)
		var got []byte
		var err error
		n := allocated(func() { got, err = Strip(b64) })
		if err != nil || string(got) != string(encoded(mapOf(grid))) {
			t.Fatalf("%s: %v %d bytes", name, err, len(got))
		}
		if n > 64<<10 {
			t.Errorf("%s: %d bytes allocated", name, n)
		}
	}
}

// FuzzStrip: what comes out is an item of the marked entries of what went in, or
// there is an error; ReadBase64 agrees on whether it is an item.
func FuzzStrip(f *testing.F) {
	f.Add([]byte(vector))
	f.Add([]byte(stripped))
	f.Add(encoded(mapOf(text("a")+entryOf("xyz", true), text("b")+entryOf("", false))))
	f.Fuzz(func(t *testing.T, b64 []byte) {
		before := bytes.Clone(b64)
		got, err := Strip(b64)
		if !bytes.Equal(before, b64) {
			t.Fatal("the text was changed")
		}
		whole, _, wholeErr := DecodeBase64(b64)
		if err != nil {
			if wholeErr == nil && !errors.Is(err, ErrNothingKept) && !errors.Is(err, ErrNothingDropped) && !bytes.ContainsAny(b64, "\r\n") {
				t.Fatalf("refused, though it is an item: %v", err)
			}
			return
		}
		left, data, err := DecodeBase64(got)
		if err != nil || len(got) > len(b64)+4 {
			t.Fatalf("%v, %d bytes of %d", err, len(got), len(b64))
		}
		if wholeErr != nil { // what was passed over is no base64: it was not looked at
			return
		}
		raw := decodeAll(b64)
		i := 0
		for _, e := range whole.Entries {
			if !e.Field.KeepOnCPU {
				continue
			}
			l := left.Entries[i]
			if !bytes.Equal(raw[e.Raw[0]:e.Raw[1]], data[l.Raw[0]:l.Raw[1]]) {
				t.Fatalf("entry %q has changed", e.Name)
			}
			i++
		}
		if i != len(left.Entries) {
			t.Fatalf("%d entries kept, %d are left", i, len(left.Entries))
		}
	})
}

func decodeAll(b64 []byte) []byte {
	data := make([]byte, base64.StdEncoding.DecodedLen(len(b64)))
	n, _ := base64.StdEncoding.Decode(data, b64)
	return data[:n]
}
