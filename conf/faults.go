package conf

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Error is one fault of a configuration.
type Error struct {
	// Origin is where the fault is: "coordinator.toml:12", "environment COORDINATOR_LOG_LEVEL", "flag -v".
	Origin string
	// Key is the full key at fault, "gateway.timeout"; of a step's params "pipeline.steps[2] (prefill): kv_connector".
	// It is empty for a file that is not TOML.
	Key string
	// Message says what is wrong with it.
	Message string

	line int
}

// Error returns place, key and message in one line.
func (e *Error) Error() string {
	if e.Key == "" {
		return e.Origin + ": " + e.Message
	}
	return e.Origin + ": " + e.Key + ": " + e.Message
}

// Errorf returns an error about the value of a key that says where the value came from: its line, its variable, the
// line of a table that it is in, or nowhere if it is the default.
func (c *Config) Errorf(key, format string, args ...any) error {
	e := &Error{Origin: "default", Key: key, Message: fmt.Sprintf(format, args...)}
	for at := key; at != ""; {
		if o, ok := c.origins[at]; ok {
			e.Origin, e.line = o.text, o.line
			break
		}
		at = at[:max(strings.LastIndexByte(at, '.'), 0)]
	}
	return e
}

// An origin is where a value came from.
type origin struct {
	text string
	line int // 0 if it did not come from the file
}

func filePlace(file string, line int) origin {
	return origin{text: fmt.Sprintf("%s:%d", file, line), line: line}
}

func envPlace(variable string) origin {
	return origin{text: "environment " + variable}
}

// faults collects errors, so that an operator sees all of them and not only the first.
type faults struct {
	list []*Error
}

func (f *faults) add(at origin, key, format string, args ...any) {
	f.list = append(f.list, &Error{Origin: at.text, Key: key, Message: fmt.Sprintf(format, args...), line: at.line})
}

// under tells whether a fault was found at key or below it.
func (f *faults) under(key string) bool {
	return slices.ContainsFunc(f.list, func(e *Error) bool {
		rest, ok := strings.CutPrefix(e.Key, key)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// err joins the errors in the order of their lines; those without a line come last.
func (f *faults) err() error {
	slices.SortFunc(f.list, func(a, b *Error) int {
		// A line of 0 wraps around to the highest number there is.
		return cmp.Or(cmp.Compare(uint(a.line)-1, uint(b.line)-1), cmp.Compare(a.Origin, b.Origin), cmp.Compare(a.Key, b.Key))
	})
	joined := make([]error, len(f.list))
	for i, e := range f.list {
		joined[i] = e
	}
	return errors.Join(joined...)
}
