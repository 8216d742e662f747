package files

import (
	"fmt"
	"os"
	"strings"
)

// Secret returns where a credential comes from: env:NAME, file:PATH, or itself.
// Variables are read now, files as [Value] does, without the line breaks at their
// end. parse makes a value of the text, and is asked now for the first time; its
// errors must not quote it, nor do those of Secret. A nil lookup is os.LookupEnv.
func Secret[T any](spec string, lookup func(name string) (string, bool), o Options, parse func(text string) (T, error)) (func() T, error) {
	text := spec
	if name, ok := strings.CutPrefix(spec, "env:"); ok {
		if lookup == nil {
			lookup = os.LookupEnv
		}
		if text, ok = lookup(name); !ok {
			return nil, fmt.Errorf("there is no environment variable %q", name)
		}
	} else if path, ok := strings.CutPrefix(spec, "file:"); ok {
		v, err := NewValue(o, func(contents [][]byte) (T, error) {
			return parse(strings.TrimRight(string(contents[0]), "\r\n"))
		}, path)
		if err != nil {
			return nil, err
		}
		return v.Get, nil
	}
	value, err := parse(text)
	return func() T { return value }, err
}
