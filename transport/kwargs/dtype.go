package kwargs

import "math/bits"

// widths are the bytes of one element, by torch's names.
var widths = map[string]uint64{
	"bool": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4, "uint64": 8, "int64": 8,
	"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
	"complex32": 4, "complex64": 8, "complex128": 16,
	"float8_e4m3fn": 1, "float8_e4m3fnuz": 1, "float8_e5m2": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
}

// needs returns how many bytes elements of a width take in a shape, whose
// dimensions are not negative. It reports false if they are too many to count.
func needs(width uint64, shape []int64) (uint64, bool) {
	n, fits := width, true
	for _, dim := range shape {
		if dim == 0 {
			return 0, true
		}
		hi, lo := bits.Mul64(n, uint64(dim))
		n, fits = lo, fits && hi == 0
	}
	return n, fits
}
