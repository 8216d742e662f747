package conf

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// errTable refuses such a value where one text should be all of it.
var errTable = errors.New("holds tables, to be set in the file only")

// isTable tells whether a setting is a table whose keys are free (a map by name), and isTables whether it is a list
// of tables. Their elements are structs or scalars.
func isTable(t reflect.Type) bool {
	return t.Kind() == reflect.Map && t.Key().Kind() == reflect.String && t != headersType
}

func isTables(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct && t != stepsType
}

// freeTable assigns a table whose keys are free.
func (a *assigner) freeTable(into reflect.Value, value any, at *node, key string) {
	tree, ok := value.(map[string]any)
	if !ok {
		a.fault(a.place(at), key, "want a table, got %s", describe(value))
		return
	}
	a.origins[key] = a.place(at)
	made := reflect.MakeMapWithSize(into.Type(), len(tree))
	for name, value := range tree {
		element := reflect.New(into.Type().Elem()).Elem()
		a.value(element, value, at.child(name), join(key, name))
		made.SetMapIndex(reflect.ValueOf(name), element)
	}
	if len(tree) > 0 { // none is nil, as by default
		into.Set(made)
	}
}

// tables assigns a list of tables.
func (a *assigner) tables(into reflect.Value, value any, at *node, key string) {
	elements, ok := tablesOf(value)
	if !ok {
		a.fault(a.place(at), key, "want a list of tables, got %s", describe(value))
		return
	}
	a.origins[key] = a.place(at)
	made := reflect.MakeSlice(into.Type(), len(elements), len(elements))
	for i, element := range elements {
		a.table(made.Index(i), element, at.item(i), fmt.Sprintf("%s[%d]", key, i+1))
	}
	if len(elements) > 0 {
		into.Set(made)
	}
}

// formatTable writes a free table as the file would have it, its keys sorted.
func formatTable(v reflect.Value) string {
	var parts []string
	names := make([]string, 0, v.Len())
	for _, name := range v.MapKeys() {
		names = append(names, name.String())
	}
	slices.Sort(names)
	for _, name := range names {
		parts = append(parts, tableKey(name)+" = "+formatElement(v.MapIndex(reflect.ValueOf(name))))
	}
	return braced(parts)
}

// formatTables writes a list of tables as the file would have it.
func formatTables(v reflect.Value) string {
	parts := make([]string, v.Len())
	for i := range parts {
		parts[i] = formatElement(v.Index(i))
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// formatElement writes an element. Of a struct only what is set is shown.
func formatElement(v reflect.Value) string {
	if v.Kind() != reflect.Struct {
		return format(v)
	}
	var parts []string
	for _, f := range fieldsOf(v.Type()) {
		if field := v.Field(f.index); !field.IsZero() {
			parts = append(parts, f.name+" = "+format(field))
		}
	}
	return braced(parts)
}

func braced(parts []string) string {
	if len(parts) == 0 {
		return "{}"
	}
	return "{ " + strings.Join(parts, ", ") + " }"
}

// tableKey quotes a key that cannot stand by itself.
func tableKey(name string) string {
	if name == "" || strings.ContainsFunc(name, func(c rune) bool { return c > 0x7f || !isBare(byte(c)) }) {
		return strconv.Quote(name)
	}
	return name
}
