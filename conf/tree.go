package conf

import (
	"errors"
	"fmt"
	"strings"

	"github.com/BurntSushi/toml"
)

// maxFileSize bounds the file, in bytes: eight times the annotated one. Beyond it some other file was given by
// mistake. The library calls itself for each nested bracket, and a megabyte of them would overflow the stack, which
// nothing can recover from.
const maxFileSize = 64 << 10

// parseTree returns the file as plain maps, lists and scalars, and where each of them stands.
func parseTree(name, text string) (tree map[string]any, at *node, err error) {
	broken := func(line int, message string) error {
		// The library counts an unexpected end back by one line, also from the first.
		where := filePlace(name, max(line, 1))
		var f faults
		f.add(where, "", "%s", strings.ReplaceAll(message, "\n", " "))
		return f.err()
	}
	if len(text) > maxFileSize {
		return nil, nil, broken(1, fmt.Sprintf("larger than %d bytes, so hardly a configuration", maxFileSize))
	}
	// The library panics where it finds a bug in itself. A configuration is no reason to die with a stack trace.
	defer func() {
		if r := recover(); r != nil {
			tree, at, err = nil, nil, broken(1, fmt.Sprintf("the TOML parser gave up: %v", r))
		}
	}()
	if _, err := toml.Decode(text, &tree); err != nil {
		if bad, ok := errors.AsType[toml.ParseError](err); ok {
			return nil, nil, broken(bad.Position.Line, bad.Message)
		}
		return nil, nil, broken(1, err.Error())
	}
	return tree, scanLines(text), nil
}
