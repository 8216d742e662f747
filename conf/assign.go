package conf

import (
	"fmt"
	"reflect"
	"slices"
	"time"
)

// An assigner lays the values of a TOML tree, then those of the environment, over a struct that holds defaults.
// Fields take part by their `toml:"name"` tag; names are matched as they are written.
type assigner struct {
	file      string
	label     string // precedes the key in errors: the step, for params
	env       environment
	envPrefix string
	origins   map[string]origin // of each key that was set
	faults    *faults
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	stringsType  = reflect.TypeFor[[]string]()
	stepsType    = reflect.TypeFor[[]Step]()
)

func (a *assigner) place(at *node) origin {
	return filePlace(a.file, at.line)
}

func (a *assigner) fault(at origin, key, format string, args ...any) {
	a.faults.add(at, a.label+key, format, args...)
}

// table assigns the keys of a table to the fields of a struct.
func (a *assigner) table(into reflect.Value, tree map[string]any, at *node, key string) {
	known := fieldsOf(into.Type())
	for name, value := range tree {
		i := slices.IndexFunc(known, func(f field) bool { return f.name == name })
		if i < 0 {
			a.fault(a.place(at.child(name)), join(key, name), "unknown key%s", suggest(name, known))
			continue
		}
		a.value(into.Field(known[i].index), value, at.child(name), join(key, name))
	}
}

// value assigns whatever stands behind a key.
func (a *assigner) value(into reflect.Value, value any, at *node, key string) {
	switch {
	case into.Type() == stepsType:
		a.steps(into, value, at, key)
	case into.Type() == stringsType:
		a.list(into, value, at, key)
	case into.Type() == headersType:
		a.headers(into, value, at, key)
	case isTable(into.Type()):
		a.freeTable(into, value, at, key)
	case isTables(into.Type()):
		a.tables(into, value, at, key)
	case into.Kind() == reflect.Struct:
		if tree, ok := value.(map[string]any); ok {
			a.table(into, tree, at, key)
		} else {
			a.fault(a.place(at), key, "want a table, got %s", describe(value))
		}
	default:
		if err := set(into, value); err != nil {
			a.fault(a.place(at), key, "%v", err)
			return
		}
		a.origins[key] = a.place(at)
	}
}

// list assigns a list of strings. Each element that is none is at fault by itself.
func (a *assigner) list(into reflect.Value, value any, at *node, key string) {
	elements, ok := value.([]any)
	if !ok {
		a.fault(a.place(at), key, "want a list of strings, got %s", describe(value))
		return
	}
	texts := make([]string, len(elements))
	for i, element := range elements {
		if texts[i], ok = element.(string); !ok {
			a.fault(a.place(at.item(i)), fmt.Sprintf("%s[%d]", key, i+1), "want a string, got %s", describe(element))
		}
	}
	into.Set(reflect.ValueOf(texts))
	a.origins[key] = a.place(at)
}

// set assigns a scalar; the error says what was wanted and what was there. A pointer is a value that may be
// missing: it is made to point at the new value.
func set(into reflect.Value, value any) error {
	if into.Type() == durationType {
		return setDuration(into, value)
	}
	mismatch := func(want string) error { return fmt.Errorf("want %s, got %s", want, describe(value)) }
	switch into.Kind() {
	case reflect.Pointer:
		target := reflect.New(into.Type().Elem())
		if err := set(target.Elem(), value); err != nil {
			return err
		}
		into.Set(target)
	case reflect.Bool:
		b, ok := value.(bool)
		if !ok {
			return mismatch("true or false")
		}
		into.SetBool(b)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, ok := value.(int64)
		if !ok {
			return mismatch("an integer")
		}
		if into.OverflowInt(n) {
			return fmt.Errorf("%d is out of range", n)
		}
		into.SetInt(n)
	case reflect.Float64:
		switch n := value.(type) {
		case float64:
			into.SetFloat(n)
		case int64:
			into.SetFloat(float64(n))
		default:
			return mismatch("a number")
		}
	case reflect.String:
		s, ok := value.(string)
		if !ok {
			return mismatch("a string")
		}
		into.SetString(s)
	default:
		return fmt.Errorf("a setting cannot be of Go type %s", into.Type())
	}
	return nil
}

func setDuration(into reflect.Value, value any) error {
	const want = `want a duration such as "30s", got %s`
	text, ok := value.(string)
	if !ok {
		return fmt.Errorf(want, describe(value))
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf(want, describe(value))
	}
	if d < 0 {
		return fmt.Errorf("must not be negative, got %s", d)
	}
	into.SetInt(int64(d))
	return nil
}

// describe names a TOML value in an error: its type, and the value if it is short enough to be of use.
func describe(value any) string {
	switch v := value.(type) {
	case bool:
		return fmt.Sprintf("boolean %t", v)
	case int64:
		return fmt.Sprintf("integer %d", v)
	case float64:
		return fmt.Sprintf("float %v", v)
	case string:
		const longest = 60
		if runes := []rune(v); len(runes) > longest {
			return fmt.Sprintf("string %q…", string(runes[:longest]))
		}
		return fmt.Sprintf("string %q", v)
	case time.Time:
		return "a date or time"
	case map[string]any:
		return "a table"
	default:
		return "an array"
	}
}
