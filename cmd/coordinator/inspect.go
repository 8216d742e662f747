package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/llm-coordinator/coordinator/transport/kwargs"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

const inspectUsage = `usage: coordinator inspect-kwargs FILE

Prints the tensors of rendered multimodal items. FILE (- is standard input) is
an answer of a render endpoint, or one item of its features.kwargs_data, as
base64 or as msgpack; which of them is told from its content.
`

// inspectKwargs prints what rendered items hold. It holds what it was given and
// no second copy: items in base64 are decoded piece by piece and forgotten.
func inspectKwargs(ctx context.Context, args, _ []string, stdout, stderr io.Writer) error {
	fs := flags("inspect-kwargs", stderr)
	fs.Usage = func() { fmt.Fprint(stderr, inspectUsage) }
	file, err := parseFile(fs, args)
	if err != nil {
		return err
	}
	text, err := readInput(ctx, file)
	if err != nil {
		return err
	}
	if file == "-" {
		file = "standard input"
	}
	items, err := findItems(text)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return printItems(stdout, file, items)
}

// readInput reads a file, or standard input, and gives up when ctx ends: the
// other end of a pipe may never come to its own.
func readInput(ctx context.Context, file string) ([]byte, error) {
	type result struct {
		text []byte
		err  error
	}
	done, stdin := make(chan result, 1), os.Stdin
	go func() {
		var r result
		if file == "-" {
			r.text, r.err = io.ReadAll(stdin)
		} else {
			r.text, r.err = os.ReadFile(file)
		}
		done <- r
	}()
	select {
	case r := <-done:
		return r.text, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("reading %s: %w", file, context.Cause(ctx))
	}
}

// rendered is one item before it is decoded.
type rendered struct {
	name   string
	text   []byte // nil: the item is null
	binary bool   // text is msgpack, not base64
}

func (r rendered) decode() (*kwargs.Item, error) {
	if r.binary {
		return kwargs.Decode(r.text)
	}
	return kwargs.ReadBase64(r.text)
}

// findItems tells by its first byte what text is. Msgpack maps and arrays begin
// with no ASCII, JSON with no base64.
func findItems(text []byte) ([]rendered, error) {
	if len(text) > 0 && text[0] >= 0x80 {
		return []rendered{{name: "item", text: text, binary: true}}, nil
	}
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return nil, errors.New("there is nothing in it")
	}
	if strings.IndexByte(`{["`, text[0]) < 0 {
		return []rendered{{name: "item", text: text}}, nil
	}
	if err := wire.Valid(text); err != nil {
		return nil, fmt.Errorf("begins like JSON, but: %w", err)
	}
	if text[0] == '"' {
		return []rendered{{name: "item", text: unquoted(text)}}, nil
	}
	if text[0] == '{' {
		return answerItems("", text)
	}
	return promptItems(text)
}

// unquoted returns the text of a JSON string; the same bytes, if nothing in
// them is escaped.
func unquoted(value []byte) []byte {
	if bytes.IndexByte(value, '\\') < 0 {
		return value[1 : len(value)-1]
	}
	s, _ := wire.Unquote(value)
	return []byte(s)
}

// promptItems finds the items of a list of answers. Some of them may have none.
func promptItems(list []byte) (items []rendered, err error) {
	var none error
	i := 0
	wire.EachElement(list, func(answer []byte) bool {
		prefix := fmt.Sprintf("prompt %d ", i)
		i++
		var more []rendered
		if more, err = answerItems(prefix, answer); errors.As(err, new(noItems)) {
			none, err = err, nil
		}
		items = append(items, more...)
		return err == nil
	})
	switch {
	case err != nil:
		return nil, err
	case len(items) > 0:
		return items, nil
	case none == nil:
		none = noItems("an empty list, and no answer of a render endpoint")
	}
	return nil, none
}

// noItems says why an answer has no items.
type noItems string

func (n noItems) Error() string { return string(n) }

// answerItems finds the items of one answer, in its own order.
func answerItems(prefix string, answer []byte) (items []rendered, err error) {
	features := wire.Lookup(answer, "features")
	data := wire.Lookup(features, "kwargs_data")
	switch {
	case !wire.IsObject(answer):
		return nil, errors.New("JSON, but no answer of a render endpoint: that is an object, or a list of objects")
	case features == nil:
		return nil, noItems("JSON, but no answer of a render endpoint: it has no features")
	case wire.IsNull(features):
		return nil, noItems("a rendered prompt without media: features is null")
	case data == nil:
		return nil, noItems("features has no kwargs_data")
	case wire.IsNull(data):
		return nil, noItems("features.kwargs_data is null: the render request said return_mm_kwargs = false, or the answer was stripped")
	case !wire.IsObject(data):
		return nil, errors.New("features.kwargs_data is not an object")
	}
	wire.EachMember(data, func(spelt, list []byte) bool {
		modality, _ := wire.Unquote(spelt)
		i := 0
		isList := wire.EachElement(list, func(value []byte) bool {
			r := rendered{name: fmt.Sprintf("%s%s[%d]", prefix, printable(modality), i)}
			i++
			switch {
			case value[0] == '"':
				r.text = unquoted(value)
			case !wire.IsNull(value):
				err = fmt.Errorf("%s is neither a string nor null", r.name)
			}
			items = append(items, r)
			return err == nil
		})
		if !isList && !wire.IsNull(list) {
			err = fmt.Errorf("features.kwargs_data: %s is not a list", printable(modality))
		}
		return err == nil
	})
	if err == nil && len(items) == 0 {
		err = noItems("features.kwargs_data holds no items")
	}
	return items, err
}

// printItems prints all items that can be read, and returns what is wrong with
// the others.
func printItems(to io.Writer, file string, items []rendered) error {
	var faults []error
	var read, size int
	var total, kept int64
	for _, r := range items {
		if r.text == nil {
			fmt.Fprintf(to, "%s: null, so the worker must have it already\n\n", r.name)
			continue
		}
		item, err := r.decode()
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %s: %w", file, r.name, err))
			continue
		}
		if err := printItem(to, r.name, item); err != nil {
			return err
		}
		t, k := item.Bytes()
		read, size, total, kept = read+1, size+item.Size, total+t, kept+k
	}
	if read > 1 {
		fmt.Fprintf(to, "%d items: %d bytes of tensors, of which %d are kept on the CPU; %d bytes of msgpack\n", read, total, kept, size)
	}
	return errors.Join(faults...)
}

// printItem prints one item as a table.
func printItem(to io.Writer, name string, item *kwargs.Item) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s: %d bytes of msgpack\n", name, item.Size)
	fmt.Fprintln(w, "  entry\tfield\tkeep_on_cpu\tdtype\tshape\tbytes")
	unchecked := false
	for i := range item.Entries {
		unchecked = printEntry(w, &item.Entries[i]) || unchecked
	}
	total, kept := item.Bytes()
	fmt.Fprintf(w, "  total\t\t\t\t\t%d\n  kept on the CPU\t\t\t\t\t%d\n", total, kept)
	if unchecked {
		fmt.Fprintln(w, "  * dtype of unknown size: not checked against the shape")
	}
	fmt.Fprintln(w)
	return w.Flush()
}

// printEntry prints a row for each of an entry's tensors, and one for what
// there is beside tensors. It reports whether a size is unchecked.
func printEntry(w io.Writer, e *kwargs.Entry) (unchecked bool) {
	row := func(name, dtype, shape, size string) {
		keep := "no"
		if e.Field.KeepOnCPU {
			keep = "yes"
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%s\n", name, fieldName(e.Field), keep, dtype, shape, size)
	}
	name := printable(e.Name)
	for i, t := range e.Tensors {
		label, size := name, strconv.FormatInt(t.Bytes, 10)
		if e.List {
			label = fmt.Sprintf("%s[%d]", name, i)
		}
		if t.Unchecked {
			unchecked, size = true, size+" *"
		}
		row(label, printable(t.DType), strings.ReplaceAll(fmt.Sprint(t.Shape), " ", ","), size)
	}
	switch {
	case e.Null:
		row(name, "null", "-", "-")
	case e.Numbers > 0 && e.List:
		row(name, "numbers", fmt.Sprintf("%d in lists", e.Numbers), "-")
	case e.Numbers > 0:
		row(name, "number", "-", "-")
	case len(e.Tensors) == 0:
		row(name, "empty list", "-", "-")
	}
	return unchecked
}

// fieldName is a field's kind with what distinguishes it from others of its
// kind.
func fieldName(f kwargs.Field) string {
	switch {
	case f.Kind == "flat" && f.Dim != 0:
		return fmt.Sprintf("flat dim=%d", f.Dim)
	case f.Kind == "shared":
		return fmt.Sprintf("shared by %d", f.BatchSize)
	}
	return f.Kind
}

// printable is a name as it is, or quoted if it would do something to a
// terminal or the table.
func printable(name string) string {
	if quoted := strconv.Quote(name); name == "" || strings.Contains(name, " ") || quoted != `"`+name+`"` {
		return quoted
	}
	return name
}
