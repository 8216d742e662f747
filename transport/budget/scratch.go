package budget

import (
	"math/bits"
	"sync"
)

// Scratch buffers are for answers that are read, looked at, and not kept. One of
// a megabyte costs more to allocate, to clear and to collect than to fill, so
// large ones are used again.
//
// They come in sizes: four to each power of two, from 64 KB to 256 MB.
const (
	smallest  = 16 // the logarithm of the smallest size
	largest   = 28
	scratches = (largest-smallest)*4 + 1
)

var scratch [scratches]sync.Pool // of *[]byte

// sizeOf returns a size's bytes.
func sizeOf(class int) int64 {
	return (int64(4+class%4) << (smallest + class/4)) / 4
}

// classOf returns the smallest size that holds n bytes, or -1 if there is none.
func classOf(n int64) int {
	if n > sizeOf(scratches-1) {
		return -1
	}
	if n <= 1<<smallest {
		return 0
	}
	log := bits.Len64(uint64(n-1)) - 1 // n is in (2^log, 2^(log+1)]
	quarter := int64(1) << (log - 2)
	return (log-smallest)*4 + int((n-1<<log+quarter-1)/quarter)
}

// takeScratch returns an empty slice for n bytes and more; one that nobody else
// has if it can.
func takeScratch(n int64) []byte {
	class := classOf(n)
	if class < 0 {
		return make([]byte, 0, n)
	}
	if b := usedScratch(class); b != nil {
		return b
	}
	return make([]byte, 0, sizeOf(class))
}

// usedScratch returns a buffer of a size that has been used before, or nil.
func usedScratch(class int) []byte {
	if b, ok := scratch[class].Get().(*[]byte); ok {
		return (*b)[:0]
	}
	return nil
}

// Recycle gives a buffer of [NewScratch] to others. Nobody may use it any more,
// nor any part of it.
func Recycle(b []byte) {
	if class := classOf(int64(cap(b))); class >= 0 && sizeOf(class) == int64(cap(b)) {
		scratch[class].Put(&b)
	}
}
