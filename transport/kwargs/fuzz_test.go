package kwargs

import (
	"encoding/base64"
	"reflect"
	"runtime/metrics"
	"strings"
	"testing"
)

// FuzzDecode holds that an item is all there, entry beside entry; that each
// entry is an item by itself; that text and bytes are told the same; and that
// memory is bounded by the input.
func FuzzDecode(f *testing.F) {
	whole, _ := base64.StdEncoding.DecodeString(vector)
	f.Add(whole)
	one := tensor("int64", []int64{2}, extension(3, 16))
	for _, data := range []string{
		list(list(one, list()), number(300), list(list(one))), nilValue, yes, "\xca\x3f\x80\x00\x00", "\xdd\xff\xff\xff\xff",
		tensor("float32", []int64{0}, extension(3, 0)), tensor("uint8", []int64{300}, extension(3, 300)), extension(1, 3),
		list(text("uint8"), "\xdd\xff\xff\xff\xff"), strings.Repeat("\x91", 40),
	} {
		f.Add([]byte(item(data)))
	}
	f.Add([]byte("\xdf\xff\xff\xff\xff"))
	f.Add([]byte(list(dict("modality", text("image")))))
	f.Add([]byte(dict("x", dict("field", list(text("shared"), dict("batch_size", number(2), "a", dict("b", "\xc4\x01z"))), "data", nilValue))))
	f.Fuzz(func(t *testing.T, data []byte) {
		var it *Item
		var err error
		// The worst that the list can be made of is a tensor of six bytes.
		limit := 64<<10 + 64*uint64(len(data))
		before := heap()
		it, err = Decode(data)
		if heap()-before > limit { // or another goroutine's
			if n := allocated(func() { Decode(data) }); n > limit {
				t.Fatalf("%d bytes allocated for %d", n, len(data))
			}
		}
		streamed, errText := ReadBase64(base64.StdEncoding.AppendEncode(nil, data))
		if (err == nil) != (errText == nil) || err != nil && err.Error() != errText.Error() || !reflect.DeepEqual(it, streamed) {
			t.Fatalf("bytes: %v %+v\ntext: %v %+v", err, it, errText, streamed)
		}
		if err != nil {
			return
		}
		checkRanges(t, data, it)
	})
}

// heap returns about how much has been allocated so far. Unlike
// [runtime.ReadMemStats] it does not stop the world, and lags behind.
func heap() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

func checkRanges(t *testing.T, data []byte, it *Item) {
	t.Helper()
	at := len(data)
	if len(it.Entries) > 0 {
		at = it.Entries[0].Raw[0]
	}
	if at > 5 && len(it.Entries) > 0 || it.Size != len(data) {
		t.Fatalf("begins at %d, ends at %d of %d", at, it.Size, len(data))
	}
	for _, e := range it.Entries {
		if e.Raw[0] != at {
			t.Fatalf("entry %q begins at %d, the one before ended at %d", e.Name, e.Raw[0], at)
		}
		at = e.Raw[1]
		alone, err := Decode(append([]byte{0x81}, data[e.Raw[0]:e.Raw[1]]...))
		if err != nil || len(alone.Entries) != 1 {
			t.Fatalf("entry %q by itself: %v", e.Name, err)
		}
		e.Raw = alone.Entries[0].Raw
		if !reflect.DeepEqual(alone.Entries[0], e) {
			t.Fatalf("entry %q: %+v, by itself %+v", e.Name, e, alone.Entries[0])
		}
	}
	if at != len(data) {
		t.Fatalf("the last entry ends at %d of %d", at, len(data))
	}
}

// FuzzBase64 holds that text is taken whole and piece by piece alike.
func FuzzBase64(f *testing.F) {
	f.Add([]byte(vector))
	f.Add([]byte(vector[:100] + "\r\n" + vector[100:] + "\n"))
	f.Add([]byte(strings.Repeat("A", 1022) + "==AAAA"))
	f.Add([]byte(strings.TrimRight(vector, "=")))
	f.Fuzz(func(t *testing.T, text []byte) {
		streamed, errStream := ReadBase64(text)
		it, data, errWhole := DecodeBase64(text)
		if (errStream == nil) != (errWhole == nil) || !reflect.DeepEqual(streamed, it) {
			t.Fatalf("streamed: %v %+v\nwhole: %v %+v", errStream, streamed, errWhole, it)
		}
		if errWhole == nil {
			checkRanges(t, data, it)
		}
	})
}
