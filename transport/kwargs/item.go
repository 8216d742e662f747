package kwargs

import (
	"errors"
	"fmt"
)

// Limits of what is taken for an item. Real ones have less than ten entries,
// nested twice at most; torch itself ends at 64 dimensions.
const (
	maxEntries = 1024
	maxTensors = 1 << 16 // of one item
	maxDims    = 64
	maxDepth   = 32 // of lists in lists
	maxName    = 256
	maxOptions = 64 // of one field
)

// Item is what is known of a rendered item.
type Item struct {
	Entries []Entry // in the item's own order
	Size    int     // bytes of msgpack
}

// Bytes sums the tensors' bytes, and those of the entries that are kept on the
// CPU.
func (it *Item) Bytes() (total, keptOnCPU int64) {
	for i := range it.Entries {
		n := it.Entries[i].Bytes()
		total += n
		if it.Entries[i].Field.KeepOnCPU {
			keptOnCPU += n
		}
	}
	return total, keptOnCPU
}

// Entry is one of the named inputs of the model that make up an item.
type Entry struct {
	Name string
	// Null: there is no data. Then there are neither tensors nor numbers.
	Null bool
	// List: the data is a list, of tensors, numbers and lists.
	List    bool
	Tensors []Tensor // in order, however nested
	Numbers int      // how many plain numbers and booleans there are, however nested
	Field   Field
	// Raw is where name and value lie in the msgpack, from the first byte to
	// behind the last. Behind a map header of their own, the bytes of some
	// entries are an item again.
	Raw [2]int
}

// Bytes sums the bytes of the entry's tensors. Plain numbers count for nothing.
func (e *Entry) Bytes() (n int64) {
	for i := range e.Tensors {
		n += e.Tensors[i].Bytes
	}
	return n
}

// Tensor is one tensor, without its bytes.
type Tensor struct {
	DType string  // torch's name, without "torch."
	Shape []int64 // empty: a scalar
	Bytes int64   // as they are there
	// Unchecked: the size of the dtype is not known here. Of all others shape
	// and bytes fit each other.
	Unchecked bool
}

// Field says how the worker puts the same entry of several items together.
type Field struct {
	Kind string // "batched", "flat" or "shared"
	// KeepOnCPU marks what the worker reads itself instead of giving it to the
	// encoder: what must be left when the pixels go. False unless it is there.
	KeepOnCPU bool
	Dim       int // of flat: along which dimension
	BatchSize int // of shared: among how many items
}

// Errors that a [FormatError] may hold.
var (
	// ErrLegacy is an item from a version of vLLM before 0.16.0.
	ErrLegacy = errors.New("an array instead of a map: rendered by vLLM before 0.16.0, whose layout is not supported")
	// ErrPickle is an extension of type 1 or 2.
	ErrPickle = errors.New("a pickled Python object (msgpack extension type 1 or 2): unpickling runs code on the worker, so it is refused")
	// ErrTruncated is an item that ends too early.
	ErrTruncated = errors.New("it ends in the middle of the item")
	// ErrTrailing is an item that more bytes follow.
	ErrTrailing = errors.New("something follows the item")
)

// FormatError says where a text stops being an item. It quotes names, and
// nothing of tensors.
type FormatError struct {
	Entry  string // in which entry, if in one
	Offset int    // in the msgpack, bytes before the place
	Err    error
}

func (e *FormatError) Error() string {
	if e.Entry == "" {
		return fmt.Sprintf("%v (msgpack byte %d)", e.Err, e.Offset)
	}
	return fmt.Sprintf("entry %q: %v (msgpack byte %d)", e.Entry, e.Err, e.Offset)
}

func (e *FormatError) Unwrap() error { return e.Err }
