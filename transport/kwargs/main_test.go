package kwargs

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// encode returns the msgpack that f writes.
func encode(f func(e *msgpack.Encoder) error) string {
	var b bytes.Buffer
	if err := f(msgpack.NewEncoder(&b)); err != nil {
		panic(err)
	}
	return b.String()
}

func text(s string) string {
	return encode(func(e *msgpack.Encoder) error { return e.EncodeString(s) })
}

func number(n int64) string {
	return encode(func(e *msgpack.Encoder) error { return e.EncodeInt(n) })
}

func list(values ...string) string {
	return encode(func(e *msgpack.Encoder) error { return e.EncodeArrayLen(len(values)) }) + strings.Join(values, "")
}

// dict makes a map of keys, which are not encoded yet, and values, which are.
func dict(pairs ...string) string {
	out := encode(func(e *msgpack.Encoder) error { return e.EncodeMapLen(len(pairs) / 2) })
	for i := 0; i < len(pairs); i += 2 {
		out += text(pairs[i]) + pairs[i+1]
	}
	return out
}

// extension makes n bytes of an extension type, in the shortest form.
func extension(id int8, n int) string {
	return encode(func(e *msgpack.Encoder) error { return e.EncodeExtHeader(id, n) }) + strings.Repeat("\x5a", n)
}

func tensor(dtype string, shape []int64, bytes string) string {
	dims := make([]string, len(shape))
	for i, n := range shape {
		dims[i] = number(n)
	}
	return list(text(dtype), list(dims...), bytes)
}

const (
	nilValue = "\xc0"
	no       = "\xc2"
	yes      = "\xc3"
)

var batched = list(text("batched"), dict("keep_on_cpu", yes))

func elem(data string) string { return dict("data", data, "field", batched) }

// item makes an item of one entry with this data.
func item(data string) string { return dict("x", elem(data)) }

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
