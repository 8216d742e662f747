package conf

import (
	"reflect"
	"strings"
)

// Keys returns the dotted keys of a struct with `toml` tags (or of a pointer to one), in the order of its fields.
// Tables do not count as keys, nor do the pipeline's steps.
func Keys(v any) []string {
	t := reflect.TypeOf(v)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var keys []string
	for _, l := range leavesOf(reflect.New(t).Elem(), "") {
		keys = append(keys, l.key)
	}
	return keys
}

// A field is a struct's field that can be set by name.
type field struct {
	name  string
	index int
	// secret: its value is shown to nobody, as that of a Secret. It is for params,
	// whose structs know no type of this package: `toml:"redis_url,secret"`.
	secret bool
}

// fieldsOf lists the fields of a struct that have a tag.
func fieldsOf(t reflect.Type) []field {
	var fields []field
	for i := range t.NumField() {
		name, option, _ := strings.Cut(t.Field(i).Tag.Get("toml"), ",")
		if name != "" && name != "-" {
			fields = append(fields, field{name: name, index: i, secret: option == "secret"})
		}
	}
	return fields
}

// A leaf is a key that holds a value rather than further keys.
type leaf struct {
	key    string
	value  reflect.Value
	secret bool
}

// text is the value as it is shown.
func (l leaf) text() string {
	if l.secret {
		return format(reflect.ValueOf(Secret(l.value.String())))
	}
	return format(l.value)
}

// leavesOf lists the leaves of a struct and of the structs in it; prefix is the struct's own key.
func leavesOf(v reflect.Value, prefix string) []leaf {
	var leaves []leaf
	for _, f := range fieldsOf(v.Type()) {
		key, value := join(prefix, f.name), v.Field(f.index)
		switch {
		case value.Type() == stepsType: // tables, only read from the file
		case value.Kind() == reflect.Struct:
			leaves = append(leaves, leavesOf(value, key)...)
		default:
			leaves = append(leaves, leaf{key: key, value: value, secret: f.secret})
		}
	}
	return leaves
}
