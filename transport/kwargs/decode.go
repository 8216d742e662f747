package kwargs

import (
	"fmt"
	"io"

	"github.com/vmihailenco/msgpack/v5"
)

// extTensor is the extension type of a tensor's bytes, extPickle and
// extCloudpickle are those of Python objects.
const (
	extPickle      = 1
	extCloudpickle = 2
	extTensor      = 3
)

// decoder walks one item. Before each read it looks at what there is: the
// methods of [msgpack.Decoder] take nil for any type and more.
type decoder struct {
	src     *counted
	pack    *msgpack.Decoder
	entry   string // the one that is being read, for errors
	tensors int    // so far
	text    [maxName]byte
}

func decode(src source) (*Item, error) {
	c := &counted{source: src}
	d := &decoder{src: c, pack: msgpack.NewDecoder(c)}
	it, err := d.item()
	if err != nil {
		return nil, err
	}
	switch _, err := c.ReadByte(); {
	case err == nil:
		c.pos--
		return nil, d.fail(ErrTrailing)
	case err != io.EOF:
		return nil, d.broken(err)
	}
	it.Size = c.pos
	return it, nil
}

// fail makes an error of the place that has been reached.
func (d *decoder) fail(err error) error {
	return &FormatError{Entry: d.entry, Offset: d.src.pos, Err: err}
}

func (d *decoder) failf(format string, args ...any) error { return d.fail(fmt.Errorf(format, args...)) }

// broken makes an error of one from reading.
func (d *decoder) broken(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = ErrTruncated
	}
	return d.fail(err)
}

func (d *decoder) item() (*Item, error) {
	if k, err := d.next(); err != nil {
		return nil, err
	} else if k == array {
		return nil, d.fail(ErrLegacy)
	}
	n, err := d.mapLen("an item", maxEntries)
	if err != nil {
		return nil, err
	}
	it := &Item{}
	names := make(map[string]bool)
	for range n {
		e := Entry{Raw: [2]int{d.src.pos}}
		if e.Name, err = d.string("an entry's name"); err != nil {
			return nil, err
		}
		d.entry = e.Name
		if names[e.Name] {
			return nil, d.failf("it is there twice")
		}
		names[e.Name] = true
		if err := d.elem(&e); err != nil {
			return nil, err
		}
		d.entry, e.Raw[1] = "", d.src.pos
		it.Entries = append(it.Entries, e)
	}
	return it, nil
}

// elem reads the value of an entry. Other keys than the two are refused, as
// the worker does: what they hold would be in no sum.
func (d *decoder) elem(e *Entry) error {
	n, err := d.mapLen("an entry", 2)
	if err != nil {
		return err
	}
	var data, field bool
	for range n {
		key, err := d.string("a key")
		if err != nil {
			return err
		}
		switch {
		case key == "data" && !data:
			data, err = true, d.data(e)
		case key == "field" && !field:
			field, err = true, d.field(&e.Field)
		default:
			err = d.failf("its key %q is unknown, or there twice", key)
		}
		if err != nil {
			return err
		}
	}
	if !data || !field {
		return d.failf("it lacks data or field")
	}
	return nil
}

func (d *decoder) data(e *Entry) error {
	k, err := d.next()
	if err != nil {
		return err
	}
	if k == null {
		e.Null = true
		return d.scalar()
	}
	return d.value(e, 0)
}

// value reads a tensor, a number, or a list of values. An array that begins
// with a string is a tensor.
func (d *decoder) value(e *Entry, depth int) error {
	k, err := d.next()
	if err != nil {
		return err
	}
	switch k {
	case integer, float, boolean: // Python's bool is an int, and passes for one
		e.Numbers++
		return d.scalar()
	case array:
	default:
		return d.unexpected("data is a tensor, a number, or a list", k)
	}
	if depth == maxDepth {
		return d.failf("lists are nested more than %d deep", maxDepth)
	}
	n, err := d.arrayLen("data")
	if err != nil {
		return err
	}
	if n > 0 {
		if k, err = d.next(); err != nil {
			return err
		}
		if k == str {
			return d.tensor(e, n)
		}
	}
	e.List = true
	for range n {
		if err := d.value(e, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// tensor reads the n elements of a tensor's array, and passes over its bytes.
func (d *decoder) tensor(e *Entry, n int) (err error) {
	if n != 3 {
		return d.failf("a tensor is dtype, shape and bytes, not %d elements", n)
	}
	if d.tensors++; d.tensors > maxTensors {
		return d.failf("an item has at most %d tensors", maxTensors)
	}
	var t Tensor
	if t.DType, err = d.string("a dtype"); err != nil {
		return err
	}
	if t.Shape, err = d.shape(); err != nil {
		return err
	}
	size, err := d.tensorBytes()
	if err != nil {
		return err
	}
	t.Bytes = int64(size)
	width, known := widths[t.DType]
	t.Unchecked = !known
	if known {
		switch want, countable := needs(width, t.Shape); {
		case !countable:
			return d.failf("%s of shape %v is more than can be counted, and has %d bytes", t.DType, t.Shape, size)
		case want != uint64(size):
			return d.failf("%s of shape %v takes %d bytes, and has %d", t.DType, t.Shape, want, size)
		}
	}
	if err := d.discard(size); err != nil {
		return err
	}
	e.Tensors = append(e.Tensors, t)
	return nil
}

func (d *decoder) shape() ([]int64, error) {
	n, err := d.arrayLen("a shape")
	if err != nil {
		return nil, err
	}
	if n > maxDims {
		return nil, d.failf("a shape has at most %d dimensions, not %d", maxDims, n)
	}
	shape := make([]int64, n)
	for i := range shape {
		if shape[i], err = d.int("a dimension"); err != nil {
			return nil, err
		}
		if shape[i] < 0 {
			return nil, d.failf("a dimension is negative, or beyond 63 bits")
		}
	}
	return shape, nil
}

// tensorBytes reads the header of a tensor's bytes.
func (d *decoder) tensorBytes() (int, error) {
	k, err := d.next()
	if err != nil {
		return 0, err
	}
	if k == integer || k == mapping {
		return 0, d.failf("a tensor's bytes are not in the item but beside it, as between the processes of an engine")
	}
	if k != ext {
		return 0, d.unexpected("a tensor's bytes are an extension", k)
	}
	id, n, err := d.pack.DecodeExtHeader()
	if err != nil {
		return 0, d.broken(err)
	}
	if id != extTensor {
		return 0, d.refused(id)
	}
	return d.length(n, nil)
}

// refused is the error for an extension that has no business where it is.
func (d *decoder) refused(id int8) error {
	switch id {
	case extPickle, extCloudpickle:
		return d.fail(ErrPickle)
	case extTensor:
		return d.failf("a tensor's bytes without a tensor (msgpack extension type %d)", id)
	}
	return d.failf("msgpack extension type %d is unknown", id)
}

func (d *decoder) field(f *Field) error {
	n, err := d.arrayLen("a field")
	if err != nil {
		return err
	}
	if n != 2 {
		return d.failf("a field is a kind and its options, not %d elements", n)
	}
	if f.Kind, err = d.string("a field's kind"); err != nil {
		return err
	}
	switch f.Kind {
	case "batched", "flat", "shared":
	default:
		return d.failf("a field is batched, flat or shared, not %q", f.Kind)
	}
	if n, err = d.mapLen("a field's options", maxOptions); err != nil {
		return err
	}
	for range n {
		option, err := d.string("an option's name")
		if err != nil {
			return err
		}
		if err := d.option(f, option); err != nil {
			return err
		}
	}
	return nil
}

// option reads the value of a field's option. Unknown ones are passed over:
// the worker may be newer, and they leave as they came.
func (d *decoder) option(f *Field, name string) (err error) {
	switch name {
	case "keep_on_cpu":
		f.KeepOnCPU, err = d.bool(name)
	case "dim":
		f.Dim, err = d.smallInt(name)
	case "batch_size":
		f.BatchSize, err = d.smallInt(name)
	default: // slices too: nothing is made of them
		err = d.skip(0)
	}
	return err
}

// skip passes over a value of any kind without building it.
func (d *decoder) skip(depth int) error {
	k, err := d.next()
	if err != nil {
		return err
	}
	n := 0
	switch k {
	case null, boolean, integer, float:
		return d.scalar()
	case str, bin:
		if n, err = d.length(d.pack.DecodeBytesLen()); err != nil {
			return err
		}
		return d.discard(n)
	case array:
		n, err = d.arrayLen("an option")
	case mapping:
		n, err = d.mapLen("an option", -1)
	default:
		return d.unexpected("an option is plain", k)
	}
	if err != nil {
		return err
	}
	if depth == maxDepth {
		return d.failf("options are nested more than %d deep", maxDepth)
	}
	for range n {
		if k == mapping {
			if err := d.skip(depth + 1); err != nil {
				return err
			}
		}
		if err := d.skip(depth + 1); err != nil {
			return err
		}
	}
	return nil
}
