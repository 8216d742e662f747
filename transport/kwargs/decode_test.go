package kwargs

import (
	"encoding/base64"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestData(t *testing.T) {
	t64 := tensor("int64", []int64{2}, extension(3, 16))
	as64 := Tensor{DType: "int64", Shape: []int64{2}, Bytes: 16}
	raw := func(header string, n int) string { return header + strings.Repeat("\x5a", n) }
	bytesOf := func(n int64) Entry {
		return Entry{Tensors: []Tensor{{DType: "uint8", Shape: []int64{n}, Bytes: n}}}
	}
	tests := []struct {
		name string
		data string
		want Entry
	}{
		{"null", nilValue, Entry{Null: true}},
		{"int", number(-7), Entry{Numbers: 1}},
		{"large int", "\xcf\xff\xff\xff\xff\xff\xff\xff\xff", Entry{Numbers: 1}},
		{"float32", "\xca\x3f\x80\x00\x00", Entry{Numbers: 1}},
		{"float64", "\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00", Entry{Numbers: 1}},
		{"bool", yes, Entry{Numbers: 1}},
		{"empty list", list(), Entry{List: true}},
		{"floats", list("\xca\x3f\x80\x00\x00", number(2), number(300)), Entry{List: true, Numbers: 3}},
		{"tensors", list(t64, t64), Entry{List: true, Tensors: []Tensor{as64, as64}}},
		{"nested", list(list(t64, list()), number(1), list(list(t64))), Entry{List: true, Numbers: 1, Tensors: []Tensor{as64, as64}}},
		{"long list header", "\xdc\x00\x01" + t64, Entry{List: true, Tensors: []Tensor{as64}}},
		{"longest list header", "\xdd\x00\x00\x00\x01" + t64, Entry{List: true, Tensors: []Tensor{as64}}},
		{"scalar", tensor("float32", nil, extension(3, 4)), Entry{Tensors: []Tensor{{DType: "float32", Shape: []int64{}, Bytes: 4}}}},
		{"no elements", tensor("float32", []int64{0, 3}, extension(3, 0)), Entry{Tensors: []Tensor{{DType: "float32", Shape: []int64{0, 3}}}}},
		{"no elements of very many", tensor("float32", []int64{1 << 62, 1 << 62, 0}, extension(3, 0)),
			Entry{Tensors: []Tensor{{DType: "float32", Shape: []int64{1 << 62, 1 << 62, 0}}}}},
		{"bool tensor", tensor("bool", []int64{3}, extension(3, 3)), Entry{Tensors: []Tensor{{DType: "bool", Shape: []int64{3}, Bytes: 3}}}},
		{"float8", tensor("float8_e4m3fn", []int64{5}, extension(3, 5)), Entry{Tensors: []Tensor{{DType: "float8_e4m3fn", Shape: []int64{5}, Bytes: 5}}}},
		{"unknown dtype", tensor("<i8", []int64{1000}, extension(3, 3)),
			Entry{Tensors: []Tensor{{DType: "<i8", Shape: []int64{1000}, Bytes: 3, Unchecked: true}}}},

		{"fixext1", tensor("uint8", []int64{1}, raw("\xd4\x03", 1)), bytesOf(1)},
		{"fixext2", tensor("uint8", []int64{2}, raw("\xd5\x03", 2)), bytesOf(2)},
		{"fixext4", tensor("uint8", []int64{4}, raw("\xd6\x03", 4)), bytesOf(4)},
		{"fixext8", tensor("uint8", []int64{8}, raw("\xd7\x03", 8)), bytesOf(8)},
		{"fixext16", tensor("uint8", []int64{16}, raw("\xd8\x03", 16)), bytesOf(16)},
		{"ext8", tensor("uint8", []int64{255}, raw("\xc7\xff\x03", 255)), bytesOf(255)},
		{"ext16", tensor("uint8", []int64{256}, raw("\xc8\x01\x00\x03", 256)), bytesOf(256)},
		{"ext32", tensor("uint8", []int64{1 << 20}, raw("\xc9\x00\x10\x00\x00\x03", 1<<20)), bytesOf(1 << 20)},
		{"ext32 of one byte", tensor("uint8", []int64{1}, raw("\xc9\x00\x00\x00\x01\x03", 1)), bytesOf(1)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			data := item(tt.data)
			want := tt.want
			want.Name, want.Raw, want.Field = "x", [2]int{1, len(data)}, Field{Kind: "batched", KeepOnCPU: true}
			it, err := Decode([]byte(data))
			if err != nil {
				t.Fatal(err)
			}
			if len(it.Entries) != 1 || !reflect.DeepEqual(it.Entries[0], want) || it.Size != len(data) {
				t.Errorf("got  %+v\nwant %+v", it, want)
			}
			streamed, err := ReadBase64(base64.StdEncoding.AppendEncode(nil, []byte(data)))
			if err != nil || !reflect.DeepEqual(streamed, it) {
				t.Errorf("from text: %v %+v", err, streamed)
			}
		})
	}
}

func TestEveryKnownDTypeIsHeldToItsSize(t *testing.T) {
	for dtype, width := range widths {
		size := int(6 * width)
		for _, n := range []int{size - 1, size, size + 1} {
			_, err := Decode([]byte(item(tensor(dtype, []int64{2, 3}, extension(3, n)))))
			if (err == nil) != (n == size) {
				t.Errorf("%s with %d bytes: %v", dtype, n, err)
			}
		}
	}
}

func TestFields(t *testing.T) {
	keep := []string{"keep_on_cpu", yes}
	with := func(pairs ...string) string { return dict(append(pairs, keep...)...) }
	slice := list(number(0), number(391), nilValue)
	tests := []struct {
		name  string
		field string
		want  Field
	}{
		{"batched", list(text("batched"), with()), Field{Kind: "batched", KeepOnCPU: true}},
		{"shared", list(text("shared"), with("batch_size", number(4))), Field{Kind: "shared", KeepOnCPU: true, BatchSize: 4}},
		{"flat", list(text("flat"), with("slices", list(list(slice, slice), list(slice)), "dim", number(1))), Field{Kind: "flat", KeepOnCPU: true, Dim: 1}},
		{"flat from the end", list(text("flat"), with("slices", list(slice), "dim", number(-1))), Field{Kind: "flat", KeepOnCPU: true, Dim: -1}},
		{"no options", list(text("batched"), dict()), Field{Kind: "batched"}},
		{"unknown options", list(text("batched"), with("a", dict("b", list(text("c"), "\xc4\x01z", "\xca\x00\x00\x00\x00")), "d", no)),
			Field{Kind: "batched", KeepOnCPU: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, data := range []string{
				dict("x", dict("data", number(1), "field", tt.field)),
				dict("x", dict("field", tt.field, "data", number(1))),
			} {
				it, err := Decode([]byte(data))
				if err != nil || !reflect.DeepEqual(it.Entries[0].Field, tt.want) {
					t.Errorf("%v %+v", err, it)
				}
			}
		})
	}
}

func TestFaults(t *testing.T) {
	good := item(number(1))
	tens := func(elements ...string) string { return item(list(elements...)) }
	field := func(f string) string { return dict("x", dict("data", number(1), "field", f)) }
	pickled := "a pickled Python object (msgpack extension type 1 or 2): unpickling runs code on the worker, so it is refused"
	tests := []struct {
		name string
		data string
		is   error
		want string
	}{
		{"nothing", "", ErrTruncated, "it ends in the middle of the item (msgpack byte 0)"},
		{"legacy", list(dict("modality", text("image"), "key", text("pixel_values"))), ErrLegacy, "before 0.16.0, whose layout is not supported (msgpack byte 0)"},
		{"empty legacy", list(), ErrLegacy, "before 0.16.0"},
		{"no msgpack", "\xc1", nil, "an item is a map, not no msgpack (msgpack byte 0)"},
		{"a number", number(1), nil, "an item is a map, not an integer (msgpack byte 0)"},
		{"null", nilValue, nil, "an item is a map, not null"},
		{"trailing", good + "\x00", ErrTrailing, "something follows the item (msgpack byte 39)"},
		{"two items", good + good, ErrTrailing, "(msgpack byte 39)"},

		{"pickle as item", extension(1, 9), ErrPickle, pickled},
		{"pickle as entry", dict("x", extension(1, 9)), ErrPickle, `entry "x": ` + pickled},
		{"pickle as data", item(extension(1, 9)), ErrPickle, `entry "x": ` + pickled},
		{"cloudpickle in a list", item(list(number(1), extension(2, 1))), ErrPickle, pickled},
		{"cloudpickle as tensor", tens(text("uint8"), list(number(1)), extension(2, 1)), ErrPickle, pickled},
		{"pickle as field", field(extension(1, 4)), ErrPickle, pickled},
		{"pickle as option", field(list(text("batched"), dict("a", list(extension(1, 4))))), ErrPickle, pickled},
		{"pickle as name", "\x81" + extension(1, 4), ErrPickle, pickled},
		{"unknown extension", item(extension(4, 1)), nil, `entry "x": msgpack extension type 4 is unknown`},
		{"unknown extension as tensor", tens(text("uint8"), list(number(1)), extension(-1, 1)), nil, "msgpack extension type -1 is unknown"},
		{"bytes without tensor", item(extension(3, 1)), nil, "a tensor's bytes without a tensor (msgpack extension type 3)"},
		// The msgpack package takes the next two, overlooking the extension's header.
		{"extension before a map", "\xd4\x03" + good, nil, "a tensor's bytes without a tensor"},
		{"extension before the options", field(list(text("batched"), "\xd4\x05"+dict())), nil, "msgpack extension type 5 is unknown"},

		{"entry is no map", dict("x", number(1)), nil, `entry "x": an entry is a map, not an integer`},
		{"entry without field", dict("x", dict("data", number(1))), nil, `entry "x": it lacks data or field`},
		{"entry without data", dict("x", dict("field", batched)), nil, `entry "x": it lacks data or field`},
		{"entry with more", dict("x", dict("data", number(1), "field", batched, "key", number(1))), nil, `entry "x": an entry has at most 2 keys, not 3`},
		{"entry with other", dict("x", dict("data", number(1), "fields", batched)), nil, `its key "fields" is unknown, or there twice`},
		{"data twice", dict("x", dict("data", number(1), "data", number(1))), nil, `its key "data" is unknown, or there twice`},
		{"entry twice", dict("x", elem(nilValue), "x", elem(nilValue)), nil, `entry "x": it is there twice`},
		{"name no string", "\x81" + number(1) + elem(nilValue), nil, "an entry's name is a string, not an integer"},
		{"name binary", "\x81\xc4\x01x" + elem(nilValue), nil, "an entry's name is a string, not binary data"},
		{"name null", "\x81\xc0" + elem(nilValue), nil, "an entry's name is a string, not null"},
		{"name no UTF-8", dict("\xff", elem(nilValue)), nil, "an entry's name is not UTF-8"},
		{"name too long", dict(strings.Repeat("n", 257), elem(nilValue)), nil, "an entry's name has at most 256 bytes, not 257"},

		{"null in a list", item(list(number(1), nilValue)), nil, "data is a tensor, a number, or a list, not null"},
		{"string as data", item(text("a")), nil, "data is a tensor, a number, or a list, not a string"},
		{"string in a list", item(list(number(1), text("a"))), nil, "not a string"},
		{"map as data", item(dict()), nil, "not a map"},
		{"binary as data", item("\xc4\x00"), nil, "not binary data"},

		{"short tensor", tens(text("uint8"), list()), nil, "a tensor is dtype, shape and bytes, not 2 elements"},
		{"long tensor", tens(text("uint8"), list(), extension(3, 1), number(1)), nil, "not 4 elements"},
		{"shape no list", tens(text("uint8"), number(1), extension(3, 1)), nil, "a shape is an array, not an integer"},
		{"shape null", tens(text("uint8"), nilValue, extension(3, 1)), nil, "a shape is an array, not null"},
		{"dimension null", tens(text("uint8"), list(nilValue), extension(3, 0)), nil, "a dimension is an integer, not null"},
		{"dimension float", tens(text("uint8"), list("\xca\x3f\x80\x00\x00"), extension(3, 1)), nil, "a dimension is an integer, not a float"},
		{"dimension negative", tens(text("uint8"), list(number(-1)), extension(3, 1)), nil, "a dimension is negative, or beyond 63 bits"},
		{"dimension too large", tens(text("uint8"), list("\xcf\x80\x00\x00\x00\x00\x00\x00\x00"), extension(3, 1)), nil, "a dimension is negative, or beyond 63 bits"},
		{"too many dimensions", tens(text("uint8"), list(strings.Split(strings.Repeat("\x01", 65), "")...), extension(3, 1)), nil, "a shape has at most 64 dimensions, not 65"},
		{"bytes elsewhere", tens(text("uint8"), list(number(1)), number(1)), nil, "not in the item but beside it, as between the processes of an engine"},
		{"bytes out of band", tens(text("uint8"), list(number(1)), dict()), nil, "not in the item but beside it"},
		{"bytes binary", tens(text("uint8"), list(number(1)), "\xc4\x01z"), nil, "a tensor's bytes are an extension, not binary data"},
		{"too few bytes", tens(text("int64"), list(number(3)), extension(3, 23)), nil, `entry "x": int64 of shape [3] takes 24 bytes, and has 23`},
		{"bytes of nothing", tens(text("bfloat16"), list(number(0)), extension(3, 1)), nil, "bfloat16 of shape [0] takes 0 bytes, and has 1"},
		{"scalar of nothing", tens(text("bfloat16"), list(), extension(3, 0)), nil, "bfloat16 of shape [] takes 2 bytes, and has 0"},
		// 2^32 × 2^32 is 0 in 64 bits.
		{"size overflows", tens(text("uint8"), list(number(1<<32), number(1<<32)), extension(3, 0)), nil, "uint8 of shape [4294967296 4294967296] is more than can be counted, and has 0 bytes"},
		{"width overflows", tens(text("int64"), list(number(1<<61)), extension(3, 0)), nil, "is more than can be counted"},

		{"field no list", field(dict()), nil, "a field is an array, not a map"},
		{"field of one", field(list(text("batched"))), nil, "a field is a kind and its options, not 1 elements"},
		{"legacy field", field(list(text("flat"), list(), number(0))), nil, "a field is a kind and its options, not 3 elements"},
		{"field of another kind", field(list(text("ragged"), dict())), nil, `a field is batched, flat or shared, not "ragged"`},
		{"options no map", field(list(text("flat"), list())), nil, "a field's options is a map, not an array"},
		{"keep_on_cpu no boolean", field(list(text("flat"), dict("keep_on_cpu", number(1)))), nil, "keep_on_cpu is a boolean, not an integer"},
		{"keep_on_cpu null", field(list(text("flat"), dict("keep_on_cpu", nilValue))), nil, "keep_on_cpu is a boolean, not null"},
		{"dim too large", field(list(text("flat"), dict("dim", number(1<<31)))), nil, "dim is beyond 32 bits"},
		{"batch_size no number", field(list(text("shared"), dict("batch_size", text("1")))), nil, "batch_size is an integer, not a string"},
		{"option no msgpack", field(list(text("flat"), dict("a", "\xc1"))), nil, "an option is plain, not no msgpack"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			it, err := Decode([]byte(tt.data))
			if err == nil {
				t.Fatalf("taken: %+v", it)
			}
			if !errors.As(err, new(*FormatError)) || tt.is != nil && !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
			_, streamed := ReadBase64(base64.StdEncoding.AppendEncode(nil, []byte(tt.data)))
			if streamed == nil || streamed.Error() != err.Error() {
				t.Errorf("from text: %v\nfrom bytes: %v", streamed, err)
			}
		})
	}
}

func TestBase64Faults(t *testing.T) {
	long := base64.StdEncoding.EncodeToString([]byte(item(tensor("uint8", []int64{5000}, extension(3, 5000)))))
	lines := strings.ReplaceAll(long, "W", "W\r\n")
	tests := []struct {
		name string
		text string
		ok   bool
	}{
		{"long", long, true},
		{"in lines", lines, true},
		{"empty", "", false},
		{"unpadded", strings.TrimRight(vector, "="), false},
		{"padding within", vector[:len(vector)-4] + "w===", false},
		{"more behind the padding", vector + "AAAA", false},
		{"another behind the padding", vector + vector, false},
		{"spaces", vector[:8] + " " + vector[8:], false},
		{"URL alphabet", strings.ReplaceAll(vector, "/", "_"), false},
		{"no base64", "!", false},
		{"fault after the item", base64.StdEncoding.EncodeToString([]byte(item(number(1)))) + "!", false},
		{"cut after the item", base64.StdEncoding.EncodeToString([]byte(item(number(1)))) + "A", false},
	}
	if len(item(number(1)))%3 != 0 {
		t.Errorf("an item that needs padding shows less")
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, errStream := ReadBase64([]byte(tt.text))
			_, _, errWhole := DecodeBase64([]byte(tt.text))
			if (errStream == nil) != tt.ok || (errWhole == nil) != tt.ok {
				t.Errorf("streamed: %v\nwhole: %v", errStream, errWhole)
			}
		})
	}
}
